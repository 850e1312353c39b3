"""Crashes of the provider `local`: of a page, the engine, or the reader itself; and what is not repeated."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil
import pytest
import pytest_asyncio

from penstock.adapters.local_reader import ReaderLimits
from penstock.documents.errors import DocumentReaderKilled, DocumentTookTooLong, DocumentTooLarge, DocumentUnreadable
from penstock.documents.ocr.provider import Reading
from penstock.documents.pages import Page, write_page
from penstock.documents.pdf import text_layer
from penstock.kernel.sandbox.errors import SandboxLost
from tests.adapters import failing_parsers
from tests.adapters.local_reader_harness import ReaderHarness, RecordingContext, Sandboxes, harness_in, open_sandboxes
from tests.documents import pdf_files as making
from tests.kernel.sandbox.processes import children_of, until, zygotes

pytestmark = pytest.mark.asyncio(loop_scope="module")

BEGUN_CPU_SECONDS = 0.05
LONG = ["Forty lines keep the engine busy for a second or so"] * 40
LINES = ["Page number one", "Page number two", "Page number three"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandboxes() -> AsyncIterator[Sandboxes]:
    async with open_sandboxes() as both:
        yield both


@pytest.fixture
def harness(sandboxes: Sandboxes, tmp_path: Path) -> ReaderHarness:
    return harness_in(tmp_path, sandboxes)


def at_work(zygote: psutil.Process) -> list[psutil.Process]:
    """Its children that have started work."""
    found = []
    for child in children_of(zygote):
        with suppress(psutil.NoSuchProcess):
            if child.cpu_times().user > BEGUN_CPU_SECONDS:
                found.append(child)
    return found


class LostContext(RecordingContext):
    """Cancels the task after the second page."""

    async def progress(self, done: int, of: int) -> None:
        await super().progress(done, of)
        if done == 2:
            raise asyncio.CancelledError


class ContextBesideAnotherWorker(RecordingContext):
    """After the first page another worker finishes and clears the folder."""

    def __init__(self, harness: ReaderHarness) -> None:
        super().__init__()
        self._blobs = harness.blobs

    async def progress(self, done: int, of: int) -> None:
        await super().progress(done, of)
        if done == 1:
            for blob in (await self._blobs.list(self.folder)).blobs:
                await self._blobs.delete(blob.key)


def fax(lines: list[str]) -> bytes:
    frames = [making.picture_of([line], width=400) for line in lines]
    return making.saved_as(frames[0], "TIFF", save_all=True, append_images=frames[1:])


def long_fax() -> bytes:
    """One short page, and one that keeps the engine busy for long enough to be killed."""
    frames = [making.picture_of(LINES[:1], width=400), making.picture_of(LONG, width=1400)]
    return making.saved_as(frames[0], "TIFF", save_all=True, append_images=frames[1:])


def engine_zygote() -> psutil.Process:
    """The process with the models: by far the largest."""
    return max(zygotes(), key=lambda each: each.memory_info().rss)


async def caught_at_work(harness: ReaderHarness) -> tuple[asyncio.Task[Reading], psutil.Process]:
    """A reading, and the engine's child that is at its second page."""
    await harness.engine.guards()
    zygote = engine_zygote()
    reading = asyncio.create_task(harness.read(long_fax(), "fax.tif"))
    await until(lambda: harness.context.told)
    await until(lambda: at_work(zygote))
    return reading, at_work(zygote)[0]


class TestANewAttempt:
    async def test_reads_a_page_again_that_was_kept_and_cannot_be_understood(self, harness: ReaderHarness):
        await harness.blobs.put(f"{harness.context.folder}pages/000001.json", b'{"number": 1, "origin":')
        await harness.blobs.put(f"{harness.context.folder}pages/done.json", b"half a rea")
        pages = await harness.pages(await harness.read(fax(LINES[:1]), "fax.tif"))
        assert [page.markdown for page in pages] == LINES[:1]

    async def test_reads_no_page_again_that_was_kept(self, harness: ReaderHarness):
        harness.context = LostContext()
        with pytest.raises(asyncio.CancelledError):
            await harness.read(fax(LINES), "fax.tif")
        assert await harness.keys() == {"pages/000001.json", "pages/000002.json"}
        assert harness.leftovers() == []
        await harness.blobs.put(
            f"{harness.context.folder}pages/000001.json", write_page(Page(number=1, origin="ocr", markdown="Kept"))
        )
        harness.context = RecordingContext()
        pages = await harness.pages(await harness.read(fax(LINES), "fax.tif"))
        assert [page.markdown for page in pages] == ["Kept", *LINES[1:]]
        kept = {f"pages/00000{number}.json" for number in (1, 2, 3)}
        assert await harness.keys() == {"mineru.md", "pages.jsonl", "pages/done.json"} | kept

    async def test_reads_a_page_again_that_vanishes_meanwhile(self, harness: ReaderHarness):
        harness.context = LostContext()
        with pytest.raises(asyncio.CancelledError):
            await harness.read(fax(LINES), "fax.tif")
        harness.context = ContextBesideAnotherWorker(harness)
        pages = await harness.pages(await harness.read(fax(LINES), "fax.tif"))
        assert [page.markdown for page in pages] == LINES

    async def test_has_nothing_to_do_when_the_last_one_was_done(self, harness: ReaderHarness):
        first = await harness.read(making.report())
        await harness.blobs.delete("users/7/raw/1/paper")
        harness.context.told.clear()
        again = await harness.read(b"%PDF-1.4 and not a document any more")
        assert msgspec.to_builtins(again) == msgspec.to_builtins(first)
        assert harness.context.told == []


class TestAPage:
    async def test_that_crashes_its_engine_is_killed_alone_and_named(self, harness: ReaderHarness):
        reading, used = await caught_at_work(harness)
        zygote = engine_zygote()
        used.send_signal(signal.SIGSEGV)
        await until(lambda: (others := at_work(zygote)) and others != [used])
        at_work(zygote)[0].send_signal(signal.SIGSEGV)  # the fresh one that was given the page then
        with pytest.raises(DocumentUnreadable, match=r"fax\.tif.*page 2:.*SIGSEGV") as failed:
            await reading
        assert failed.value.hint
        assert engine_zygote() == zygote
        assert "pages/000001.json" in await harness.keys()

    async def test_that_crashes_an_engine_which_has_read_others_is_read_by_a_fresh_one(self, harness: ReaderHarness):
        reading, used = await caught_at_work(harness)
        used.send_signal(signal.SIGSEGV)
        assert (await reading).page_count == 2
        assert harness.context.told == [(1, 2), (2, 2)]

    async def test_that_takes_too_long_is_killed_and_named_and_may_be_tried_again(self, harness: ReaderHarness):
        harness.limits = ReaderLimits(page_seconds=0.05)
        with pytest.raises(DocumentTookTooLong, match=r"page 1:.*did not end within 0\.05 s") as late:
            await harness.read(fax(LINES), "fax.tif")
        assert (late.value.retryable, late.value.internal_outage) == (True, False)

    async def test_whose_engine_is_killed_from_outside_may_be_tried_again(self, harness: ReaderHarness):
        reading, child = await caught_at_work(harness)
        child.kill()
        with pytest.raises(DocumentReaderKilled, match=r"page \d+:.*from outside") as killed:
            await reading
        assert (killed.value.retryable, killed.value.internal_outage) == (True, False)

    async def test_that_wants_too_much_memory_is_killed_and_named(self, harness: ReaderHarness):
        harness.limits = ReaderLimits(page_memory_bytes=1024 * 1024)
        with pytest.raises(DocumentTooLarge, match=r"page 1:.*memory"):
            await harness.read(making.saved_as(making.picture_of(LINES).resize((6000, 6000)), "PNG"), "photo.png")


@pytest.mark.storm
class TestAParserThatHangs:
    async def test_loses_only_the_pages_it_hangs_on_and_sends_heartbeats_meanwhile(
        self, harness: ReaderHarness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(text_layer, "read_text_layers", failing_parsers.read_layers_or_hang)
        harness.limits = ReaderLimits(parser_seconds=2.0)
        async with failing_parsers.stumbling_sandbox() as harness.parsers:
            reading = await harness.read(making.pages_of(*(f"This is page {at} of many" for at in range(1, 7))))
        pages = await harness.pages(reading)
        assert [page.number for page in pages] == [1, 2, 3, 4, 5, 6]
        assert {page.number for page in pages if page.origin == "ocr"} >= failing_parsers.BAD_PAGES
        assert pages[0].origin == "text"
        shown = Counter(done for done, _ in harness.context.told)
        assert shown[0] >= 2  # after the calls for pages 1 to 6, and 1 to 3
        assert shown[2] >= 2  # and before page 3 is looked at
        assert shown[3] >= 3
        assert harness.context.told == sorted(harness.context.told)


@pytest.mark.storm
class TestTheEngine:
    async def test_that_dies_is_no_fault_of_the_document(self, harness: ReaderHarness):
        await harness.engine.guards()
        zygote = engine_zygote()
        reading = asyncio.create_task(harness.read(fax(LINES * 2), "fax.tif"))
        await until(lambda: harness.context.told)
        zygote.kill()
        with pytest.raises(SandboxLost) as lost:
            await reading
        assert lost.value.internal_outage
        kept = await harness.keys()
        assert "pages/000001.json" in kept
        pages = await harness.pages(await harness.read(fax(LINES * 2), "fax.tif"))
        assert [page.markdown for page in pages] == LINES * 2
