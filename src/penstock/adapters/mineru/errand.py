"""One reading under way: the document on its way out, what comes back, and who is told of it.

A protocol takes its files from here, and hands jobs and results over to it.
"""

import asyncio
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Self

from penstock.adapters.mineru.errors import MineruResultBroken, MineruResultRefused
from penstock.adapters.mineru.jobs import Job, Look, Part, Plan
from penstock.adapters.mineru.papers import JobPapers, KeptPart
from penstock.adapters.mineru.plan import Cutter
from penstock.adapters.mineru.terms import MIB, MineruTerms
from penstock.adapters.mineru.unpack import Flaw, Stretch, read_stretch
from penstock.documents.blob_files import borrowed, pieces_of, scratch_file
from penstock.documents.ocr.provider import Desk, Source
from penstock.documents.pages import Page, write_page
from penstock.documents.sandbox_errors import BROKEN, TOO_MUCH, told_of
from penstock.kernel.blobs import MOST_LINK_SECONDS, Blobs
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.sandbox.limits import SandboxLimits

UNPACKING = SandboxLimits(memory_bytes=1024 * MIB, cpu_seconds=60, seconds=180.0, result_bytes=64 * MIB)


@dataclass(frozen=True, kw_only=True)
class Means:
    """What documents are read with."""

    blobs: Blobs
    sandbox: Sandbox
    scratch: Path
    terms: MineruTerms


class Copy:
    """The document as a local file, fetched when it is first asked for, and the one part that was cut out last."""

    def __init__(self, blobs: Blobs, key: str, folder: Path) -> None:
        self._borrowing = partial(borrowed, blobs, key, folder)
        self._document = AsyncExitStack()
        self._part = AsyncExitStack()
        self._path: Path | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.drop()

    async def path(self) -> Path:
        """The whole document."""
        if self._path is None:
            self._path = await self._document.enter_async_context(self._borrowing())
        return self._path

    async def cut(self, cutting: AbstractAsyncContextManager[Path]) -> Path:
        """A part in place of the one before."""
        await self._part.aclose()
        return await self._part.enter_async_context(cutting)

    async def drop(self) -> None:
        """Free the disk; whoever asks again gets another copy."""
        self._path = None
        await self._part.aclose()
        await self._document.aclose()


@dataclass(kw_only=True)
class Errand:
    """A document that is being read."""

    source: Source
    desk: Desk
    means: Means
    papers: JobPapers
    plan: Plan
    copy: Copy
    kept: dict[int, KeptPart] = field(default_factory=dict)
    job: Job | None = None
    _told: tuple[int, int] = (0, 1)

    @property
    def filename(self) -> str:
        """What the document is called here."""
        return self.source.filename

    @property
    def parts(self) -> tuple[Part, ...]:
        """Those that are still to be read."""
        return tuple(part for part in self.plan.parts if part.number not in self.kept)

    def name_of(self, part: Part) -> str:
        """What its file is called far away: it tells nothing but the kind."""
        return f"{part.tag}{self.plan.ending}"

    async def link(self, part: Part) -> str | None:
        """An address in the store, when it gives out any that can be reached by HTTP. A copy lies there, whose name
        tells nothing but the kind: the document's own name may be telling, or have another ending."""
        blobs, key = self.means.blobs, self.papers.file_key(part, self.plan.ending)
        seconds = min(int(self.means.terms.source_url_seconds), MOST_LINK_SECONDS)
        link = await blobs.link(key, seconds=seconds)
        if link is None or not link.startswith(("http://", "https://")):
            return None
        if self.plan.is_whole:
            await blobs.copy(self.source.key, key)
        else:
            await blobs.put(key, pieces_of(await self.file(part)))
        return link

    async def file(self, part: Part) -> Path:
        """The part as a local file, good until the next one is asked for."""
        document = await self.copy.path()
        if self.plan.is_whole:
            return document
        cutter = Cutter(sandbox=self.means.sandbox, terms=self.means.terms)
        return await self.copy.cut(cutter.cut(document, part, self.source, self.means.scratch))

    async def keep(self, job: Job) -> None:
        """Where the next attempt finds it, and where callers see it."""
        self.job = job
        await self.papers.keep_job(job)
        await self.show(job)

    async def show(self, job: Job) -> None:
        """Have its id remembered, plain as it is: what it belongs to is said in `job.json`."""
        if self.desk.provider_task_id != job.id:
            await self.desk.remember(job.id)

    async def drop_job(self) -> None:
        """Forget it: whatever is not read yet will be sent anew."""
        if self.job is not None:
            await self.papers.drop_job(self.job)
        self.job = None

    async def switch_to_upload(self) -> None:
        """Addresses of the store are of no use to MinerU: this document is uploaded from now on."""
        self.plan = replace(self.plan, by_upload=True)
        await self.papers.keep_plan(self.plan)

    async def tell(self, look: Look) -> None:
        """How many pages are done, as far as MinerU says, and of how many."""
        done, of = 0, 0
        for part in self.plan.parts:
            kept, seen = self.kept.get(part.number), look.get(part.number)
            pages = part.pages or (kept.pages if kept else seen.of if seen else 0)
            of += pages
            done += pages if kept else min(seen.done, pages) if seen else 0
        self._told = (max(done, self._told[0]), max(of, 1))
        await self.alive()

    async def alive(self) -> None:
        """The same as told before: a sign of life, which raises when the document is not wanted any more."""
        done, of = self._told
        await self.desk.progress(min(done, of), of)

    def sheet(self) -> AbstractAsyncContextManager[Path]:
        """An empty file that is gone afterwards."""
        return scratch_file(self.means.scratch)

    async def take(self, part: Part, zipped: Path) -> None:
        """Keep what a zip says as the pages of a part."""
        async with self.sheet() as lines:
            kept = KeptPart(pages=0, by_page=True)
            with await asyncio.to_thread(lines.open, "wb") as file:
                start: int | None = 0
                while start is not None:
                    stretch = await self._stretch(part, zipped, start)
                    await asyncio.to_thread(_write, file, stretch.pages)
                    await self.alive()
                    kept = KeptPart(pages=kept.pages + len(stretch.pages), by_page=stretch.by_page)
                    start = stretch.following
            await self.papers.keep_part(part, lines, kept)
        self.kept[part.number] = kept

    async def _stretch(self, part: Part, zipped: Path, start: int) -> Stretch:
        most = self.means.terms.most_document_pages
        arguments = (part.first, part.pages, start, most)
        with told_of(self.filename, "MinerU's result"):
            try:
                found = await self.means.sandbox.run(read_stretch, *arguments, file=zipped, limits=UNPACKING)
            except (*TOO_MUCH, *BROKEN) as error:
                reason = f"unpacking it was stopped ({error.code})"
                raise MineruResultRefused(filename=self.filename, reason=reason) from error
        if isinstance(found, Flaw):
            error_of = MineruResultBroken if found.kind == "broken" else MineruResultRefused
            raise error_of(filename=self.filename, reason=found.reason)
        if found.following is not None and found.following <= start:
            raise MineruResultRefused(filename=self.filename, reason="its pages do not go on")
        return found


def _write(file: BinaryIO, pages: Iterable[Page]) -> None:
    file.write(b"".join(map(write_page, pages)))
