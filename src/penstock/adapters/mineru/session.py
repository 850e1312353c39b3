"""One reading in progress: the files to submit, the stored job and parts, and progress.

A protocol takes its files from here and returns jobs and results to it.
"""

import asyncio
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Self

from penstock.adapters.mineru.checkpoints import JobCheckpoints, KeptPart
from penstock.adapters.mineru.config import MIB, MineruConfig
from penstock.adapters.mineru.errors import MineruResultBroken, MineruResultRefused
from penstock.adapters.mineru.jobs import DocumentPart, JobStatus, MineruJob, SplitPlan
from penstock.adapters.mineru.plan import PdfSplitter
from penstock.adapters.mineru.unpack import UnpackedPages, UnpackFailure, read_pages_from
from penstock.documents.blob_files import file_chunks, local_file, temporary_file
from penstock.documents.ocr.provider import Source, StageContext
from penstock.documents.pages import Page, write_page
from penstock.documents.sandbox_errors import FAILED, OVER_LIMIT, document_errors
from penstock.kernel.blobs import MAX_LINK_SECONDS, Blobs
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.sandbox.limits import SandboxLimits

UNPACKING = SandboxLimits(memory_bytes=1024 * MIB, cpu_seconds=60, seconds=180.0, result_bytes=64 * MIB)


@dataclass(frozen=True, kw_only=True)
class MineruDeps:
    """The dependencies of a reading."""

    blobs: Blobs
    sandbox: Sandbox
    scratch: Path
    config: MineruConfig


class LocalCopy:
    """The document as a local file, opened on first use, and the part that was cut last."""

    def __init__(self, blobs: Blobs, source: Source, folder: Path) -> None:
        self._opening = partial(local_file, blobs, source.key, folder)
        self._source = source
        self._document = AsyncExitStack()
        self._part = AsyncExitStack()
        self._path: Path | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.drop()

    async def path(self) -> Path:
        """The whole document."""
        if self._source.path is not None:
            return self._source.path
        if self._path is None:
            self._path = await self._document.enter_async_context(self._opening())
        return self._path

    async def cut_part(self, cutting: AbstractAsyncContextManager[Path]) -> Path:
        """Replace the current part by this one."""
        await self._part.aclose()
        return await self._part.enter_async_context(cutting)

    async def drop(self) -> None:
        """Close the local files; they are opened again on demand."""
        self._path = None
        await self._part.aclose()
        await self._document.aclose()


@dataclass(kw_only=True)
class MineruSession:
    """A document being read."""

    source: Source
    context: StageContext
    deps: MineruDeps
    checkpoints: JobCheckpoints
    plan: SplitPlan
    copy: LocalCopy
    kept: dict[int, KeptPart] = field(default_factory=dict)
    job: MineruJob | None = None
    _progress: tuple[int, int] = (0, 1)

    @property
    def filename(self) -> str:
        """The document's file name."""
        return self.source.filename

    @property
    def parts(self) -> tuple[DocumentPart, ...]:
        """The parts that are still unread."""
        return tuple(part for part in self.plan.parts if part.number not in self.kept)

    def name_of(self, part: DocumentPart) -> str:
        """The submitted file name, which reveals only the format."""
        return f"{part.tag}{self.plan.ending}"

    async def link(self, part: DocumentPart) -> str | None:
        """A signed URL of the store, if it offers one by HTTP. It points to a copy whose name reveals only
        the format: the document's own name may be confidential or have another suffix."""
        blobs, key = self.deps.blobs, self.checkpoints.file_key(part, self.plan.ending)
        seconds = min(int(self.deps.config.source_url_seconds), MAX_LINK_SECONDS)
        link = await blobs.link(key, seconds=seconds)
        if link is None or not link.startswith(("http://", "https://")):
            return None
        if self.plan.is_whole:
            await blobs.copy(self.source.key, key)
        else:
            await blobs.put(key, file_chunks(await self.file(part)))
        return link

    async def file(self, part: DocumentPart) -> Path:
        """The part as a local file, valid until the next one is requested."""
        document = await self.copy.path()
        if self.plan.is_whole:
            return document
        cutter = PdfSplitter(sandbox=self.deps.sandbox, config=self.deps.config)
        return await self.copy.cut_part(cutter.cut_part(document, part, self.source, self.deps.scratch))

    async def keep(self, job: MineruJob) -> None:
        """Store the job for the next attempt and show its id to callers."""
        self.job = job
        await self.checkpoints.keep_job(job)
        await self.show(job)

    async def show(self, job: MineruJob) -> None:
        """Record its id in the run; `job.json` says what it belongs to."""
        if self.context.provider_task_id != job.id:
            await self.context.remember(job.id)

    async def drop_job(self) -> None:
        """Forget the job: unread parts are submitted again."""
        if self.job is not None:
            await self.checkpoints.drop_job(self.job)
        self.job = None

    async def switch_to_upload(self) -> None:
        """MinerU cannot fetch from the store: upload this document from now on."""
        self.plan = replace(self.plan, by_upload=True)
        await self.checkpoints.keep_plan(self.plan)

    async def report_progress(self, status: JobStatus) -> None:
        """Report the pages done, as far as MinerU reports them, and their total."""
        done, of = 0, 0
        for part in self.plan.parts:
            kept, seen = self.kept.get(part.number), status.get(part.number)
            pages = part.pages or (kept.pages if kept else seen.of if seen else 0)
            of += pages
            done += pages if kept else min(seen.done, pages) if seen else 0
        self._progress = (max(done, self._progress[0]), max(of, 1))
        await self.heartbeat()

    async def heartbeat(self) -> None:
        """Repeat the last progress report as a heartbeat. Raises if the run was cancelled."""
        done, of = self._progress
        await self.context.progress(min(done, of), of)

    def target(self) -> AbstractAsyncContextManager[Path]:
        """A temporary file."""
        return temporary_file(self.deps.scratch)

    async def take(self, part: DocumentPart, zipped: Path) -> None:
        """Unpack a zip and store its pages as those of a part."""
        async with self.target() as lines:
            kept = KeptPart(pages=0, by_page=True)
            with await asyncio.to_thread(lines.open, "wb") as file:
                start: int | None = 0
                while start is not None:
                    batch = await self._read_pages(part, zipped, start)
                    await asyncio.to_thread(_write, file, batch.pages)
                    await self.heartbeat()
                    kept = KeptPart(pages=kept.pages + len(batch.pages), by_page=batch.by_page)
                    start = batch.following
            await self.checkpoints.keep_part(part, lines, kept)
        self.kept[part.number] = kept

    async def _read_pages(self, part: DocumentPart, zipped: Path, start: int) -> UnpackedPages:
        most = self.deps.config.max_document_pages
        arguments = (part.first, part.pages, start, most)
        with document_errors(self.filename, "MinerU's result"):
            try:
                found = await self.deps.sandbox.run(read_pages_from, *arguments, file=zipped, limits=UNPACKING)
            except (*OVER_LIMIT, *FAILED) as error:
                reason = f"unpacking it was stopped ({error.code})"
                raise MineruResultRefused(filename=self.filename, reason=reason) from error
        if isinstance(found, UnpackFailure):
            error_of = MineruResultBroken if found.kind == "broken" else MineruResultRefused
            raise error_of(filename=self.filename, reason=found.reason)
        if found.following is not None and found.following <= start:
            raise MineruResultRefused(filename=self.filename, reason="its page order is inconsistent")
        return found


def _write(file: BinaryIO, pages: Iterable[Page]) -> None:
    file.write(b"".join(map(write_page, pages)))
