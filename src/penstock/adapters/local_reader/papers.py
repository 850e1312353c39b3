"""What a reading keeps: pages of OCR while it goes on, and at the end the markdown and the file of pages.

A page of OCR is an object of its own as soon as it is read, so whoever is killed repeats one page at the most. The two
results are gathered in local files and stored as streams: nothing grows with the number of pages but those files. When
both are stored, `done.json` says so; an attempt that finds it has nothing to do.

Nothing is deleted here: a worker that lost its lease may be at its end while the next one reads. The folder goes when
the reading has been put in its place, so a page that was there a moment ago may be gone.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from penstock.documents.blob_files import append, find_value, make_file, pieces_of
from penstock.documents.ocr.provider import MARKDOWN, MARKDOWN_TYPE, PAGES, PAGES_TYPE, Reading
from penstock.documents.pages import Page, page_mark, write_page
from penstock.kernel.blobs import JSON_TYPE, Blobs

FOLDER = "pages/"
DONE = "done.json"
NAMED = re.compile(r"(\d{6,})\.json$")


class Papers:
    """The objects of one reading."""

    def __init__(self, blobs: Blobs, folder: str, scratch: Path) -> None:
        self._blobs = blobs
        self._folder = folder
        self._scratch = scratch
        self._kept: set[int] = set()

    async def find_reading(self) -> Reading | None:
        """What an earlier attempt made, when it was done and could not say so any more."""
        return await find_value(self._blobs, self._folder + FOLDER + DONE, Reading)

    async def look_for_pages(self) -> None:
        """Which pages are there already."""
        after: str | None = None
        while True:
            listed = await self._blobs.list(self._folder + FOLDER, after=after)
            self._kept |= {int(found[1]) for blob in listed.blobs if (found := NAMED.search(blob.key))}
            if (after := listed.after) is None:
                return

    async def find_page(self, number: int) -> Page | None:
        """A page that an earlier attempt has read, unless somebody else was done and has cleared the folder."""
        return await find_value(self._blobs, self._key(number), Page) if number in self._kept else None

    async def keep(self, page: Page) -> None:
        """Put a page where the next attempt finds it."""
        await self._blobs.put(self._key(page.number), write_page(page), content_type=JSON_TYPE)
        self._kept.add(page.number)

    @asynccontextmanager
    async def bound(self) -> AsyncIterator["Binding"]:
        """A place for the pages in their order, gone at the end of the block."""
        binding = Binding(self._scratch / secrets.token_hex(8))
        try:
            await asyncio.to_thread(binding.open)
            yield binding
        finally:
            await asyncio.to_thread(binding.discard)

    async def finish(self, binding: "Binding", reading: Reading) -> None:
        """Store the results, and last that they are stored."""
        for key, file, content_type in (
            (reading.markdown_key, binding.markdown, MARKDOWN_TYPE),
            (reading.pages_key, binding.pages, PAGES_TYPE),
        ):
            await self._blobs.put(key, pieces_of(file), content_type=content_type)
        done = msgspec.json.encode(reading)
        await self._blobs.put(self._folder + FOLDER + DONE, done, content_type=JSON_TYPE)

    @property
    def markdown_key(self) -> str:
        return self._folder + MARKDOWN

    @property
    def pages_key(self) -> str:
        return self._folder + PAGES

    def _key(self, number: int) -> str:
        return f"{self._folder}{FOLDER}{number:06d}.json"


class Binding:
    """The two files that pages are written to, one after another. It blocks on the disk: call it in a thread."""

    def __init__(self, path: Path) -> None:
        self.markdown = path.with_suffix(".md")
        self.pages = path.with_suffix(".jsonl")

    def open(self) -> None:
        """Make both files."""
        make_file(self.markdown)
        make_file(self.pages)

    def add(self, pages: Sequence[Page]) -> None:
        """Write pages; they are all there when this returns."""
        marked = (f"{page_mark(page.number)}\n\n{page.markdown}\n\n" for page in pages)
        append(self.markdown, "".join(marked).encode())
        append(self.pages, b"".join(map(write_page, pages)))

    def discard(self) -> None:
        """Forget both files."""
        self.markdown.unlink(missing_ok=True)
        self.pages.unlink(missing_ok=True)
