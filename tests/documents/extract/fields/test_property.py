"""Property: for any pages, found values satisfy their schema and are where they are cited."""

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.documents.pages import Citation, Page, Span
from tests.documents.extract.fields.fill import BOOLEAN, DATE, INTEGER, NUMBER, TEXT, array, find, record

SCHEMA = record(
    number={"type": "string", "title": "Invoice No. / 发票号码"},
    date=DATE,
    total={"type": "number", "minimum": 0},
    paid=BOOLEAN,
    currency={"enum": ["USD", "EUR"]},
    order={"type": "string", "pattern": "^PO-[0-9]+$"},
    mail={"type": "string", "format": "email"},
    seller=record(name=TEXT, date=DATE),
    tags={"type": "array", "items": TEXT},
    items=array(name=TEXT, qty=INTEGER, amount=NUMBER),
)
LABELS = [
    "Invoice No.",
    "发票号码",
    "Date",
    "Total",
    "Paid",
    "Currency",
    "Order",
    "Mail",
    "Seller",
    "Name",
    "Qty",
    "Tags",
]
VALUES = [
    "A-17",
    "2026年1月5日",
    "2026-01-05",
    "1,234.50",
    "(5)",
    "yes",
    "☑",
    "usd",
    "PO-5",
    "a@b.example",
    "Ann",
    "3",
    "x, y",
]
NOISE = [
    "the",
    "of",
    " ",
    "   ",
    "\t",
    "：",
    ":",
    "|",
    "#",
    "- ",
    "**",
    "¥",
    "１２",
    "[x]",
    "合计",
    "\u0000",
    "📄",
    "…………",
]

fragments = st.one_of(st.sampled_from(LABELS), st.sampled_from(VALUES), st.sampled_from(NOISE), st.text(max_size=5))
pairs = st.builds(
    "{}{}{}".format, st.sampled_from(LABELS), st.sampled_from([": ", "：", " ", "   "]), st.sampled_from(VALUES)
)
texts = st.one_of(pairs, fragments, st.lists(fragments, max_size=6).map("".join))
offsets = st.integers(0, 12)


@st.composite
def spans(draw: st.DrawFn) -> Span:
    text = draw(texts)
    if draw(st.booleans()):
        return Span(
            text=text, table=draw(st.integers(0, 1)), row=draw(st.integers(0, 4)), column=draw(st.integers(0, 3))
        )
    if draw(st.booleans()):
        return Span(text=text)
    left, top = 50.0 * draw(offsets), 12.0 * draw(offsets)
    return Span(text=text, box=(left, top, left + draw(st.integers(0, 90)), top + draw(st.integers(0, 12))))


@st.composite
def documents(draw: st.DrawFn) -> list[Page]:
    count = draw(st.integers(1, 3))
    markdown = st.lists(st.one_of(texts, st.builds("| {} | {} |".format, texts, texts)), max_size=8).map("\n".join)
    return [
        Page(
            number=number,
            origin="text",
            markdown=draw(markdown),
            spans=tuple(draw(st.lists(spans(), max_size=15))),
            width=draw(st.sampled_from([0.0, 600.0])),
        )
        for number in range(1, count + 1)
    ]


def leaves(value: Any, schema: dict[str, Any], pointer: str = "") -> Iterator[tuple[str, Any, dict[str, Any]]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, schema["properties"][name], f"{pointer}/{name}")
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from leaves(inner, schema["items"], f"{pointer}/{at}")
    elif value is not None:
        yield pointer, value, schema


def is_on_page(citation: Citation, page: Page) -> bool:
    assert citation.text
    if not page.spans:
        return citation.text in page.markdown
    at_its_box = [span.text for span in page.spans if span.box == citation.box]
    return any(citation.text in text for text in at_its_box) or (
        citation.box is None and citation.text in page.markdown
    )


@settings(max_examples=200, deadline=None)
@given(documents())
def test_found_values_are_valid_and_are_where_they_are_cited(pages: list[Page]):
    found = find(SCHEMA, *pages)
    assert found.schema_error is None
    known = {citation.pointer: citation for citation in found.citations}
    filled = list(leaves(found.value, SCHEMA))
    assert set(known) == {pointer for pointer, _, _ in filled}
    for pointer, value, schema in filled:
        citation = known[pointer]
        assert jsonschema_rs.Draft202012Validator(schema, validate_formats=True).is_valid(value)
        assert citation.page is not None
        assert is_on_page(citation, pages[citation.page - 1])
    assert not {*found.ambiguous} & {*known}
    assert set(found.value) == set(SCHEMA["properties"])
