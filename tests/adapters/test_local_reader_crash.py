"""The provider `local` when something dies: a page alone, the engine, the reader itself; and what is not done twice."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import psutil
import pytest
import pytest_asyncio

from penstock.adapters.local_reader import ReaderLimits
from penstock.documents.errors import DocumentTooLarge, DocumentUnreadable
from penstock.documents.ground import Page, write_page
from penstock.kernel.sandbox.ends import SandboxLost
from tests.adapters.local_reading import NotingDesk, Place, Sandboxes, open_sandboxes, place_in
from tests.documents import making_pdfs as making
from tests.kernel.sandbox.processes import children_of, until, zygotes

pytestmark = pytest.mark.asyncio(loop_scope="module")

LINES = ["Page number one", "Page number two", "Page number three"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandboxes() -> AsyncIterator[Sandboxes]:
    async with open_sandboxes() as both:
        yield both


@pytest.fixture
def place(sandboxes: Sandboxes, tmp_path: Path) -> Place:
    return place_in(tmp_path, sandboxes)


class DeskThatIsTakenAway(NotingDesk):
    """Tells after the second page that the task is not wanted any more."""

    async def progress(self, done: int, of: int) -> None:
        await super().progress(done, of)
        if done == 2:
            raise asyncio.CancelledError


def fax(lines: list[str]) -> bytes:
    frames = [making.picture_of([line], width=400) for line in lines]
    return making.saved_as(frames[0], "TIFF", save_all=True, append_images=frames[1:])


def engine_zygote() -> psutil.Process:
    """The one with the models: by far the largest."""
    return max(zygotes(), key=lambda each: each.memory_info().rss)


class TestANewAttempt:
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
        assert await place.keys() == {"mineru.md", "pages.jsonl", "pages/done.json"}

    async def test_has_nothing_to_do_when_the_last_one_was_done(self, place: Place):
        first = await place.read(making.report())
        await place.blobs.delete("users/7/raw/1/paper")
        place.desk.told.clear()
        again = await place.read(b"%PDF-1.4 and not a document any more")
        assert msgspec.to_builtins(again) == msgspec.to_builtins(first)
        assert place.desk.told == []


class TestAPage:
    async def test_that_crashes_its_engine_is_killed_alone_and_named(self, place: Place):
        await place.engine.guards()
        zygote = engine_zygote()
        reading = asyncio.create_task(place.read(fax(LINES * 2), "fax.tif"))
        await until(lambda: place.desk.told)
        await until(lambda: children_of(zygote))
        children_of(zygote)[0].send_signal(signal.SIGSEGV)
        with pytest.raises(DocumentUnreadable, match=r"fax\.tif.*page \d+:.*SIGSEGV") as failed:
            await reading
        assert failed.value.hint
        assert engine_zygote() == zygote
        assert "pages/000001.json" in await place.keys()

    async def test_that_takes_too_long_is_killed_and_named(self, place: Place):
        place.limits = ReaderLimits(page_seconds=0.05)
        with pytest.raises(DocumentTooLarge, match=r"page 1:.*did not end within 0\.05 s"):
            await place.read(fax(LINES), "fax.tif")

    async def test_that_wants_too_much_memory_is_killed_and_named(self, place: Place):
        place.limits = ReaderLimits(page_memory_bytes=1024 * 1024)
        with pytest.raises(DocumentTooLarge, match=r"page 1:.*memory"):
            await place.read(making.saved_as(making.picture_of(LINES).resize((6000, 6000)), "PNG"), "photo.png")


class TestTheEngine:
    async def test_that_dies_is_no_fault_of_the_document(self, place: Place):
        await place.engine.guards()
        zygote = engine_zygote()
        reading = asyncio.create_task(place.read(fax(LINES * 2), "fax.tif"))
        await until(lambda: place.desk.told)
        zygote.kill()
        with pytest.raises(SandboxLost) as lost:
            await reading
        assert lost.value.ours
        kept = await place.keys()
        assert "pages/000001.json" in kept
        pages = await place.pages(await place.read(fax(LINES * 2), "fax.tif"))
        assert [page.markdown for page in pages] == LINES * 2
