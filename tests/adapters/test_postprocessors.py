"""The post-processors without a model, with the real sandbox and a real store."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from penstock.adapters.disk import DiskBlobs
from penstock.adapters.postprocessors import MAX_SCHEMA_BYTES, FieldsPostProcessor, SkipPostProcessor
from penstock.documents.errors import DocumentTookTooLong
from penstock.documents.extract.errors import FieldsSchemaUnusable, FieldsTooCostly
from penstock.documents.extract.fields.find import find_fields
from penstock.documents.ocr.provider import Reading
from penstock.documents.pages import Page, write_page
from penstock.documents.postprocessor import ExtractionRule, PagePostProcessor
from penstock.kernel.blobs import BlobNotFound
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.sandbox.errors import SandboxedFailure
from penstock.kernel.sandbox.limits import SandboxLimits
from tests.documents.extract.fields.fill import DATE, NUMBER, TEXT, array, boxed, lines, record, tabled
from tests.kernel.sandbox.processes import children_of, until, zygotes

pytestmark = pytest.mark.asyncio(loop_scope="module")

READING = Reading(
    markdown_key="users/1/etl_artifacts/2/3/mineru.md",
    pages_key="users/1/etl_artifacts/2/3/pages.jsonl",
    provider_task_id="local-3",
    page_count=2,
    metadata={"pages": 2, "seconds": 0.5},
)
SCHEMA = record(invoice_no=TEXT, date=DATE, total=NUMBER, items=array(name=TEXT, amount=NUMBER))


class Unwanted(Exception):
    """The task was cancelled."""


@dataclass
class QuietContext:
    """A stage context that records its progress."""

    folder: str = "users/1/etl_artifacts/2/3/"
    provider_task_id: str | None = None
    told: list[tuple[int, int]] = field(default_factory=list)

    async def progress(self, done: int, of: int) -> None:
        self.told.append((done, of))

    async def remember(self, provider_task_id: str) -> None:
        self.provider_task_id = provider_task_id


class CancelledContext(QuietContext):
    """A stage context of a cancelled task."""

    async def progress(self, done: int, of: int) -> None:
        raise Unwanted


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def blobs(tmp_path: Path) -> DiskBlobs:
    return DiskBlobs(tmp_path / "blobs")


@pytest.fixture
def post_processor(blobs: DiskBlobs, sandbox: Sandbox, tmp_path: Path) -> FieldsPostProcessor:
    return FieldsPostProcessor(blobs, sandbox, tmp_path / "scratch")


async def keep(blobs: DiskBlobs, *pages: Page) -> None:
    await blobs.put(READING.pages_key, b"".join(map(write_page, pages)))


def rule(schema: Any) -> ExtractionRule:
    return ExtractionRule(json_schema=schema, strategy="fields")


class TestSkip:
    async def test_returns_the_markdown_key_and_its_metadata(self):
        context = QuietContext()
        extracted = await SkipPostProcessor().extract("a.pdf", READING, ExtractionRule(), context)
        assert extracted.value == {
            "markdown_s3_key": READING.markdown_key,
            "provider_task_id": "local-3",
            "metadata": {"pages": 2, "seconds": 0.5},
            "filename": "a.pdf",
            "page_count": 2,
        }
        assert (extracted.strategy, extracted.citations, extracted.usage) == ("skip", (), {})
        assert context.told == [(1, 1)]

    async def test_stops_for_a_cancelled_task(self):
        with pytest.raises(Unwanted):
            await SkipPostProcessor().extract("a.pdf", READING, ExtractionRule(), CancelledContext())

    async def test_returns_the_markdown_of_the_pages_that_it_is_given(self):
        pages = [Page(number=7, origin="text", markdown="seven"), Page(number=8, origin="ocr", markdown="eight")]
        extracted = await SkipPostProcessor().extract_pages("a.pdf", pages, ExtractionRule(), QuietContext())
        assert extracted.value == {"filename": "a.pdf", "page_count": 2, "markdown": "seven\n\neight"}


class TestFields:
    async def test_are_found_on_the_one_page_that_is_given(self, post_processor: FieldsPostProcessor, tmp_path: Path):
        given: PagePostProcessor = post_processor
        extracted = await given.extract_pages(
            "a.pdf", [lines("Invoice No: A-17", number=7)], rule(SCHEMA), QuietContext()
        )
        assert extracted.value["invoice_no"] == "A-17"
        assert [place.page for place in extracted.citations if place.grounded] == [7]
        assert not list((tmp_path / "scratch").iterdir())

    async def test_are_found_with_their_citations(
        self, post_processor: FieldsPostProcessor, blobs: DiskBlobs, tmp_path: Path
    ):
        pages = [
            boxed([("Invoice No.", 50), ("A-17", 200)], [("日期 Date：2026年1月5日", 50)]),
            tabled(("Name", "Amount"), ("Apple", "3.00"), ("Total", "3.00"), number=2),
        ]
        await keep(blobs, *pages)
        context = QuietContext()
        extracted = await post_processor.extract("a.pdf", READING, rule(SCHEMA), context)
        assert extracted.value == {
            "invoice_no": "A-17",
            "date": "2026-01-05",
            "total": 3,
            "items": [{"name": "Apple", "amount": 3}],
        }
        assert extracted.strategy == "fields"
        assert {citation.pointer: (citation.page, citation.text) for citation in extracted.citations} == {
            "/invoice_no": (1, "A-17"),
            "/date": (1, "2026年1月5日"),
            "/total": (2, "3.00"),
            "/items/0/name": (2, "Apple"),
            "/items/0/amount": (2, "3.00"),
        }
        assert extracted.citations[0].box == pages[0].spans[1].box
        assert (extracted.usage, context.told) == ({}, [(0, 1), (1, 1)])
        assert not list((tmp_path / "scratch").glob("*"))

    async def test_that_occur_twice_are_ambiguous(self, post_processor: FieldsPostProcessor, blobs: DiskBlobs):
        await keep(blobs, lines("Total: 4", "Total: 5"))
        extracted = await post_processor.extract("a.pdf", READING, rule(SCHEMA), QuietContext())
        assert (extracted.value["total"], extracted.usage) == (None, {"ambiguous": ["/total"]})

    async def test_need_a_schema(self, post_processor: FieldsPostProcessor):
        with pytest.raises(FieldsSchemaUnusable, match="the rule has none"):
            await post_processor.extract("a.pdf", READING, ExtractionRule(), QuietContext())

    @pytest.mark.parametrize(
        "schema",
        [
            record(x={"$ref": "https://example.com/x.json"}),
            record(x={"pattern": "("}),
            record(x={"description": "x" * MAX_SCHEMA_BYTES}),
        ],
    )
    async def test_are_refused_for_an_invalid_schema(
        self, post_processor: FieldsPostProcessor, blobs: DiskBlobs, schema: Any
    ):
        await keep(blobs, lines("x: 1"))
        with pytest.raises(FieldsSchemaUnusable) as caught:
            await post_processor.extract("a.pdf", READING, rule(schema), QuietContext())
        assert caught.value.retryable is False

    async def test_are_refused_for_a_schema_nested_too_deeply(self, post_processor: FieldsPostProcessor):
        schema: dict[str, Any] = {}
        for _ in range(5000):
            schema = {"not": schema}
        with pytest.raises(FieldsSchemaUnusable):
            await post_processor.extract("a.pdf", READING, rule(schema), QuietContext())

    async def test_that_take_too_long_are_an_error_and_the_worker_lives(
        self, blobs: DiskBlobs, sandbox: Sandbox, tmp_path: Path
    ):
        slow = record(it={"type": "string", "pattern": "^(a|aa)+$(?<!b)"})
        await keep(blobs, lines(*(f"It: {'a' * 900}!" for _ in range(1000))))
        post_processor = FieldsPostProcessor(
            blobs, sandbox, tmp_path / "scratch", SandboxLimits(cpu_seconds=1, seconds=10.0)
        )
        with pytest.raises(FieldsTooCostly) as caught:
            await post_processor.extract("a.pdf", READING, rule(slow), QuietContext())
        assert caught.value.retryable is False
        await keep(blobs, lines("Total: 4"))
        assert (await post_processor.extract("a.pdf", READING, rule(SCHEMA), QuietContext())).value["total"] == 4

    async def test_that_time_out_may_be_retried(self, blobs: DiskBlobs, sandbox: Sandbox, tmp_path: Path):
        slow = record(it={"type": "string", "pattern": "^(a|aa)+$(?<!b)"})
        await keep(blobs, lines(*(f"It: {'a' * 900}!" for _ in range(1000))))
        post_processor = FieldsPostProcessor(
            blobs, sandbox, tmp_path / "scratch", SandboxLimits(cpu_seconds=60, seconds=0.5)
        )
        with pytest.raises(DocumentTookTooLong) as late:
            await post_processor.extract("a.pdf", READING, rule(slow), QuietContext())
        assert (late.value.retryable, late.value.internal_outage) == (True, False)

    @pytest.mark.storm
    async def test_of_a_thousand_pages_take_the_memory_of_a_few(self, blobs: DiskBlobs, tmp_path: Path):
        prose = "Nothing that anybody asks for stands here. " * 1000
        pages = (
            Page(number=at, origin="text", markdown="", spans=lines("Total: 4", prose).spans) for at in range(1, 1001)
        )
        await keep(blobs, *pages)
        limits = SandboxLimits(
            memory_bytes=24 * 1024 * 1024, cpu_seconds=60, seconds=90.0
        )  # the file has twice as much
        async with Sandbox(preload=[find_fields.__module__]) as sandbox:
            post_processor = FieldsPostProcessor(blobs, sandbox, tmp_path / "scratch", limits)
            assert (await post_processor.extract("a.pdf", READING, rule(SCHEMA), QuietContext())).value["total"] == 4

    async def test_of_too_many_values_are_an_error(self, post_processor: FieldsPostProcessor, blobs: DiskBlobs):
        tags = record(tags={"type": "array", "items": TEXT})
        await keep(blobs, lines(*[f"Tags: {','.join('a' * 1900)}"] * 53))
        with pytest.raises(FieldsTooCostly, match="more than 100000 values"):
            await post_processor.extract("a.pdf", READING, rule(tags), QuietContext())

    async def test_of_a_damaged_file_of_pages_are_an_error(self, post_processor: FieldsPostProcessor, blobs: DiskBlobs):
        await blobs.put(READING.pages_key, b'{"number": "one"}\n')
        with pytest.raises(SandboxedFailure):
            await post_processor.extract("a.pdf", READING, rule(SCHEMA), QuietContext())

    async def test_of_pages_that_are_gone_are_an_error(self, post_processor: FieldsPostProcessor):
        with pytest.raises(BlobNotFound):
            await post_processor.extract("a.pdf", READING, rule(SCHEMA), QuietContext())

    async def test_of_a_cancelled_task_are_not_looked_for(self, post_processor: FieldsPostProcessor, blobs: DiskBlobs):
        with pytest.raises(Unwanted):
            await post_processor.extract("a.pdf", READING, rule(SCHEMA), CancelledContext())

    async def test_leave_nothing_behind_when_the_stage_is_stopped(
        self, post_processor: FieldsPostProcessor, blobs: DiskBlobs, tmp_path: Path
    ):
        slow = record(it={"type": "string", "pattern": "^(a|aa)+$(?<!b)"})
        await keep(blobs, lines(*(f"It: {'a' * 900}!" for _ in range(1000))))
        stage = asyncio.create_task(post_processor.extract("a.pdf", READING, rule(slow), QuietContext()))
        await until(lambda: zygotes() and children_of(zygotes()[0]))
        stage.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stage
        assert not list((tmp_path / "scratch").glob("*"))
        assert not any(map(children_of, zygotes()))  # a cancel may also end the zygote, which starts again on demand
