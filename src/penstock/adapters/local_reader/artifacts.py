"""Artifacts of a reading: OCR checkpoints as it proceeds, and at the end the markdown and the pages file.

An OCR page is stored as a checkpoint as soon as it is read, so a crash repeats one page at most. The two results are
collected in local files and uploaded as streams: memory does not grow with the number of pages. When both are stored,
`done.json` says so, and an attempt that finds it has nothing to do.

Nothing is deleted here: a worker that lost its lease may be finishing while the next one reads. The folder is deleted
when the reading has been published, so a checkpoint found a moment ago may be gone: the page is read again.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from penstock.documents.blob_files import append_chunk, create_file, file_chunks
from penstock.documents.ocr.provider import MARKDOWN, MARKDOWN_TYPE, PAGES, PAGES_TYPE, Reading
from penstock.documents.pages import Page, page_marker, write_page
from penstock.kernel.blobs import JSON_TYPE, Blobs
from penstock.kernel.stages.artifacts import Artifacts

FOLDER = "pages/"
DONE = "done.json"
NAMED = re.compile(r"(\d{6,})\.json")


class ReadingArtifacts:
    """The checkpoints and results of one reading."""

    def __init__(self, blobs: Blobs, folder: str, scratch: Path) -> None:
        self._results = Artifacts(blobs, folder)
        self._checkpoints = Artifacts(blobs, folder + FOLDER)
        self._scratch = scratch
        self._kept: set[int] = set()

    async def find_reading(self) -> Reading | None:
        """The result of an earlier attempt that finished but could not report it."""
        return await self._checkpoints.find(DONE, Reading)

    async def list_pages(self) -> None:
        """List the page checkpoints of earlier attempts."""
        async for names in self._checkpoints.names():
            self._kept |= {int(found[1]) for name in names if (found := NAMED.fullmatch(name))}

    async def find_page(self, number: int) -> Page | None:
        """A page that an earlier attempt stored, unless another worker finished and cleared the folder."""
        return await self._checkpoints.find(_page_name(number), Page) if number in self._kept else None

    async def keep(self, page: Page) -> None:
        """Store a page for the next attempt."""
        await self._checkpoints.put(_page_name(page.number), write_page(page), content_type=JSON_TYPE)
        self._kept.add(page.number)

    @asynccontextmanager
    async def result_files(self) -> AsyncIterator["ResultFiles"]:
        """Temporary files for the pages in order."""
        files = ResultFiles(self._scratch / secrets.token_hex(8))
        try:
            await asyncio.to_thread(files.open)
            yield files
        finally:
            await asyncio.to_thread(files.discard)

    async def finish(self, files: "ResultFiles", reading: Reading) -> None:
        """Store the results, then the marker that they are stored."""
        await self._results.put(MARKDOWN, file_chunks(files.markdown), content_type=MARKDOWN_TYPE)
        await self._results.put(PAGES, file_chunks(files.pages), content_type=PAGES_TYPE)
        await self._checkpoints.commit(DONE, reading)

    @property
    def markdown_key(self) -> str:
        return self._results.key(MARKDOWN)

    @property
    def pages_key(self) -> str:
        return self._results.key(PAGES)


class ResultFiles:
    """The two temporary files of the results. Blocks on the disk: call it in a thread."""

    def __init__(self, path: Path) -> None:
        self.markdown = path.with_suffix(".md")
        self.pages = path.with_suffix(".jsonl")

    def open(self) -> None:
        """Create both files."""
        create_file(self.markdown)
        create_file(self.pages)

    def add(self, pages: Sequence[Page]) -> None:
        """Append pages to both files."""
        marked = (f"{page_marker(page.number)}\n\n{page.markdown}\n\n" for page in pages)
        append_chunk(self.markdown, "".join(marked).encode())
        append_chunk(self.pages, b"".join(map(write_page, pages)))

    def discard(self) -> None:
        """Delete both files."""
        self.markdown.unlink(missing_ok=True)
        self.pages.unlink(missing_ok=True)


def _page_name(number: int) -> str:
    return f"{number:06d}.json"
