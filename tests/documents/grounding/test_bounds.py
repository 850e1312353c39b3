"""Grounding stays within its limits for any input."""

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.documents.grounding import ground_value
from penstock.documents.pages import Page, Span, write_page
from penstock.kernel.sandbox.call import Sandbox
from tests.documents.extract.fields.fill import NUMBER, TEXT, lines, record
from tests.documents.grounding.ground import flagged, ground

SENTENCE = "international obligations of the contracting parties concerning number {}"


def seconds_for(value: Any, *pages: Page, schema: Any = None) -> float:
    began = time.process_time()
    ground(value, *pages, schema=schema)
    return time.process_time() - began


def test_a_result_with_too_many_values_is_unchanged_and_reported():
    found = ground([1] * 20_001, lines("1"))
    assert found.limit_exceeded is not None
    assert found.citations == ()
    assert len(found.value) == 20_001


def test_a_result_that_is_nested_too_deep_is_reported():
    value: Any = "x"
    for _ in range(80):
        value = [value]
    assert ground(value, lines("x")).limit_exceeded is not None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([SENTENCE.format(at) for at in range(4000)], "international obligations " * 4000),
        ([f"aaaaaaaa{'a' * (at % 300)}" for at in range(4000)], "a" * 5000 + " aaaaaaaaaa" * 2000),
        ([f"Rome, part {at}" for at in range(4000)], "Rome, part " * 4000),
        (list(range(4000)), "1 " * 20_000 + "1.1" * 20_000),
        (["1 " * 5000], "1 " * 50_000),
        ([1.5], "1," * 50_000),
        ([1], "-(" * 50_000 + "1" * 50_000),
        (["2026-03-12"], "12 12/12.12-12 " * 10_000),
        (["x"], "(0)" * 50_000),
        ([True], "yes " * 20_000),
    ],
)
def test_repetitive_text_does_not_take_long(value: Any, text: str):
    assert seconds_for({"it": value}, lines(text)) < 10  # some tenths of a second on an idle machine


def test_time_grows_with_the_text_and_the_values_and_not_with_their_product():
    pages = [lines(*(f"Line {line} of page {page}: {page * line}" for line in range(40))) for page in range(60)]
    few, many = ([SENTENCE.format(at) for at in range(count)] for count in (100, 5000))
    assert seconds_for(many, *pages) < 5 * seconds_for(few, *pages) + 3


def test_an_unusable_schema_is_ignored():
    schemas: tuple[Any, ...] = (
        {"$ref": "https://example.org/x"},
        {"type": "nonsense"},
        [],
        {"properties": {"a": {"$ref": "#/no"}}},
    )
    for each in schemas:
        assert not flagged(ground({"a": "x"}, lines("x"), schema=each, null_ungrounded=True))


def test_boxes_and_cells_may_have_any_numbers():
    spans = (
        Span(text="Total: 5", box=(0.0, 0.0, 0.0, 0.0)),
        Span(text="7", box=(9.0, 9.0, -9.0, -9.0), table=5, row=-1, column=-7),
        Span(text="8", table=0),
        Span(text="", box=(1.0, 1.0, 2.0, 2.0)),
    )
    page = Page(number=1, origin="ocr", markdown="", spans=spans)
    value = {"total": 5, "rows": [{"a": 7, "b": 8}, {"a": 8, "b": 7}]}
    assert not flagged(ground(value, page, schema=record(total=NUMBER)))


async def test_it_runs_in_the_sandbox(tmp_path: Path):
    pages = tmp_path / "pages.jsonl"
    pages.write_bytes(write_page(lines("Name: Ann", "Total: 1,200.00")))
    value, schema = {"name": "Bob", "total": 1200}, record(name=TEXT, total=NUMBER)
    written = msgspec.json.encode(value), True, msgspec.json.encode(schema)
    async with Sandbox(preload=("penstock.documents.grounding",)) as sandbox:
        found = await sandbox.run(ground_value, *written, file=pages)
    assert found.value == {"total": 1200}
    assert flagged(found) == {"/name"}
