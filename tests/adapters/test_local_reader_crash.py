"""The provider `local` when something dies: a page alone, the engine, the reader itself; and what is not done twice."""

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
from tests.adapters import stumbling
from tests.adapters.local_reading import NotingDesk, Place, Sandboxes, open_sandboxes, place_in
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
def place(sandboxes: Sandboxes, tmp_path: Path) -> Place:
    return place_in(tmp_path, sandboxes)


def at_work(zygote: psutil.Process) -> list[psutil.Process]:
    """Its children that have begun: of one that has not, nothing can be said about the document."""
    found = []
    for child in children_of(zygote):
        with suppress(psutil.NoSuchProcess):
            if child.cpu_times().user > BEGUN_CPU_SECONDS:
                found.append(child)
    return found


class DeskThatIsTakenAway(NotingDesk):
    """Tells after the second page that the task is not wanted any more."""

    async def progress(self, done: int, of: int) -> None:
        await super().progress(done, of)
        if done == 2:
            raise asyncio.CancelledError


class DeskBesideAnotherWorker(NotingDesk):
    """After the first page somebody else is done, and clears the folder."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._blobs = place.blobs

    async def progress(self, done: int, of: int) -> None:
        await super().progress(done, of)
        if done == 1:
            for blob in (await self._blobs.list(self.folder)).blobs:
                await self._blobs.delete(blob.key)


def fax(lines: list[str]) -> bytes:
    frames = [making.picture_of([line], width=400) for line in lines]
    return making.saved_as(frames[0], "TIFF", save_all=True, append_images=frames[1:])


def long_fax() -> bytes:
    """One short page, and one on which a signal finds the engine at work."""
    frames = [making.picture_of(LINES[:1], width=400), making.picture_of(LONG, width=1400)]
    return making.saved_as(frames[0], "TIFF", save_all=True, append_images=frames[1:])


def engine_zygote() -> psutil.Process:
    """The one with the models: by far the largest."""
    return max(zygotes(), key=lambda each: each.memory_info().rss)


async def caught_at_work(place: Place) -> tuple[asyncio.Task[Reading], psutil.Process]:
    """A reading, and the child of the engine that is at its second page."""
    await place.engine.guards()
    zygote = engine_zygote()
    reading = asyncio.create_task(place.read(long_fax(), "fax.tif"))
    await until(lambda: place.desk.told)
    await until(lambda: at_work(zygote))
    return reading, at_work(zygote)[0]


class TestANewAttempt:
    async def test_reads_a_page_again_that_was_kept_and_cannot_be_understood(self, place: Place):
        await place.blobs.put(f"{place.desk.folder}pages/000001.json", b'{"number": 1, "origin":')
        await place.blobs.put(f"{place.desk.folder}pages/done.json", b"half a rea")
        pages = await place.pages(await place.read(fax(LINES[:1]), "fax.tif"))
        assert [page.markdown for page in pages] == LINES[:1]

    async def test_reads_no_page_again_that_was_kept(self, place: Place):
        place.desk = DeskThatIsTakenAway()
        with pytest.raises(asyncio.CancelledError):
            await place.read(fax(LINES), "fax.tif")
        assert await place.keys() == {"pages/000001.json", "pages/000002.json"}
        assert list(place.scratch.iterdir()) == []
        await place.blobs.put(
            f"{place.desk.folder}pages/000001.json", write_page(Page(number=1, origin="ocr", markdown="Kept"))
        )
        place.desk = NotingDesk()
        pages = await place.pages(await place.read(fax(LINES), "fax.tif"))
        assert [page.markdown for page in pages] == ["Kept", *LINES[1:]]
        kept = {f"pages/00000{number}.json" for number in (1, 2, 3)}
        assert await place.keys() == {"mineru.md", "pages.jsonl", "pages/done.json"} | kept

    async def test_reads_a_page_again_that_vanishes_meanwhile(self, place: Place):
        place.desk = DeskThatIsTakenAway()
        with pytest.raises(asyncio.CancelledError):
            await place.read(fax(LINES), "fax.tif")
        place.desk = DeskBesideAnotherWorker(place)
        pages = await place.pages(await place.read(fax(LINES), "fax.tif"))
        assert [page.markdown for page in pages] == LINES

    async def test_has_nothing_to_do_when_the_last_one_was_done(self, place: Place):
        first = await place.read(making.report())
        await place.blobs.delete("users/7/raw/1/paper")
        place.desk.told.clear()
        again = await place.read(b"%PDF-1.4 and not a document any more")
        assert msgspec.to_builtins(again) == msgspec.to_builtins(first)
        assert place.desk.told == []


class TestAPage:
    async def test_that_crashes_its_engine_is_killed_alone_and_named(self, place: Place):
        reading, used = await caught_at_work(place)
        zygote = engine_zygote()
        used.send_signal(signal.SIGSEGV)
        await until(lambda: (others := at_work(zygote)) and others != [used])
        at_work(zygote)[0].send_signal(signal.SIGSEGV)  # the fresh one that was given the page then
        with pytest.raises(DocumentUnreadable, match=r"fax\.tif.*page 2:.*SIGSEGV") as failed:
            await reading
        assert failed.value.hint
        assert engine_zygote() == zygote
        assert "pages/000001.json" in await place.keys()

    async def test_that_crashes_an_engine_which_has_read_others_is_read_by_a_fresh_one(self, place: Place):
        reading, used = await caught_at_work(place)
        used.send_signal(signal.SIGSEGV)
        assert (await reading).page_count == 2
        assert place.desk.told == [(1, 2), (2, 2)]

    async def test_that_takes_too_long_is_killed_and_named_and_may_be_tried_again(self, place: Place):
        place.limits = ReaderLimits(page_seconds=0.05)
        with pytest.raises(DocumentTookTooLong, match=r"page 1:.*did not end within 0\.05 s") as late:
            await place.read(fax(LINES), "fax.tif")
        assert (late.value.retryable, late.value.internal_outage) == (True, False)

    async def test_whose_engine_is_killed_from_outside_may_be_tried_again(self, place: Place):
        reading, child = await caught_at_work(place)
        child.kill()
        with pytest.raises(DocumentReaderKilled, match=r"page \d+:.*from outside") as killed:
            await reading
        assert (killed.value.retryable, killed.value.internal_outage) == (True, False)

    async def test_that_wants_too_much_memory_is_killed_and_named(self, place: Place):
        place.limits = ReaderLimits(page_memory_bytes=1024 * 1024)
        with pytest.raises(DocumentTooLarge, match=r"page 1:.*memory"):
            await place.read(making.saved_as(making.picture_of(LINES).resize((6000, 6000)), "PNG"), "photo.png")


class TestAParserThatHangs:
    async def test_loses_only_the_pages_it_hangs_on_and_life_is_shown_meanwhile(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(text_layer, "read_text_layers", stumbling.read_layers_or_hang)
        place.limits = ReaderLimits(parser_seconds=2.0)
        async with stumbling.stumbling_sandbox() as place.parsers:
            reading = await place.read(making.pages_of(*(f"This is page {at} of many" for at in range(1, 7))))
        pages = await place.pages(reading)
        assert [page.number for page in pages] == [1, 2, 3, 4, 5, 6]
        assert {page.number for page in pages if page.origin == "ocr"} >= stumbling.BAD_PAGES
        assert pages[0].origin == "text"
        shown = Counter(done for done, _ in place.desk.told)
        assert shown[0] >= 2  # after the calls for pages 1 to 6, and 1 to 3
        assert shown[2] >= 2  # and before page 3 is looked at
        assert shown[3] >= 3
        assert place.desk.told == sorted(place.desk.told)


class TestTheEngine:
    async def test_that_dies_is_no_fault_of_the_document(self, place: Place):
        await place.engine.guards()
        zygote = engine_zygote()
        reading = asyncio.create_task(place.read(fax(LINES * 2), "fax.tif"))
        await until(lambda: place.desk.told)
        zygote.kill()
        with pytest.raises(SandboxLost) as lost:
            await reading
        assert lost.value.internal_outage
        kept = await place.keys()
        assert "pages/000001.json" in kept
        pages = await place.pages(await place.read(fax(LINES * 2), "fax.tif"))
        assert [page.markdown for page in pages] == LINES * 2
