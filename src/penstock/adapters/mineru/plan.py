"""Plan which files to submit for a document, before the first is sent.

The cloud limits size and number of pages per file. A larger PDF is split into parts of so many pages; a part that is
still too large is halved, down to one page. Other formats cannot be split. A self-hosted server has no limits.
"""

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import BinaryIO, TypeVar

from penstock.adapters.mineru.config import MIB, MineruConfig
from penstock.adapters.mineru.jobs import PDF, DocumentPart, SplitPlan
from penstock.adapters.mineru.split import PartSize, cut_part, measure_part
from penstock.documents.blob_files import temporary_file
from penstock.documents.errors import DocumentKindUnknown, DocumentTooLarge, DocumentUnreadable
from penstock.documents.kinds import PDF_BYTES
from penstock.documents.ocr.provider import Source
from penstock.documents.pdf.survey import survey_pdf
from penstock.documents.rejections import Rejection
from penstock.documents.sandbox_errors import document_errors, unwrap
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.sandbox.limits import SandboxLimits

T = TypeVar("T")

KIND = "pdf"
COMMON_SUFFIXES = frozenset({PDF, ".png", ".jpeg", ".jpg", ".jp2", ".webp", ".gif", ".bmp", ".docx", ".pptx", ".xlsx"})
SUPPORTED_SUFFIXES = {
    "cloud": COMMON_SUFFIXES | {".doc", ".ppt", ".xls", ".html", ".htm"},
    "selfhosted": COMMON_SUFFIXES | {".tif", ".tiff"},
}
MAX_FILES = 50  # in one batch of the cloud


@dataclass(frozen=True, kw_only=True)
class PdfSplitter:
    """Inspects and splits documents in the sandbox."""

    sandbox: Sandbox
    config: MineruConfig

    async def plan(self, path: Path, source: Source) -> SplitPlan:
        """The plan for a document; raises an error about the document if it cannot be submitted."""
        if not await asyncio.to_thread(_is_pdf, path, source.filename):
            return self._plan_other(source)
        survey = await self._run(survey_pdf, self.config.max_document_pages, source=source, path=path)
        parts = await self._parts(path, source, survey.pages)
        return self._make_plan(source, PDF, parts)

    @asynccontextmanager
    async def cut_part(self, path: Path, part: DocumentPart, source: Source, folder: Path) -> AsyncIterator[Path]:
        """A part as a temporary file."""
        async with temporary_file(folder) as target:
            await self._write(path, part, source, target)
            yield target

    def _plan_other(self, source: Source) -> SplitPlan:
        ending = PurePath(source.filename.lower()).suffix
        if ending not in SUPPORTED_SUFFIXES[self.config.resolved_protocol] - {PDF}:
            seen = f"{ending or 'no suffix'}, which MinerU does not support"
            raise DocumentKindUnknown(filename=source.filename, seen=seen)
        most = self.config.max_file_bytes
        if self.config.resolved_protocol == "cloud" and source.size_bytes > most:
            reason = f"it has {source.size_bytes} bytes, MinerU accepts {most}, and only PDFs can be split"
            raise DocumentTooLarge(filename=source.filename, reason=reason)
        return self._make_plan(source, ending, (DocumentPart(number=1),))

    def _make_plan(self, source: Source, ending: str, parts: tuple[DocumentPart, ...]) -> SplitPlan:
        return SplitPlan(
            protocol=self.config.resolved_protocol, size_bytes=source.size_bytes, ending=ending, parts=parts
        )

    async def _parts(self, path: Path, source: Source, pages: int) -> tuple[DocumentPart, ...]:
        config = self.config
        fits = pages <= config.max_pages and source.size_bytes <= config.max_file_bytes
        if fits or config.resolved_protocol == "selfhosted":
            return (DocumentPart(number=1, pages=pages),)
        if math.ceil(pages / config.max_pages) > MAX_FILES:
            raise self._too_many(source, pages)
        parts: list[DocumentPart] = []
        todo = [(first, min(first + config.max_pages - 1, pages)) for first in range(1, pages + 1, config.max_pages)]
        while todo:
            first, last = todo.pop(0)
            size = await self._run(measure_part, first, last, source=source, path=path)
            if size.size_bytes <= config.max_file_bytes:
                parts.append(DocumentPart(number=len(parts) + 1, first=first, pages=last - first + 1))
                continue
            todo[:0] = self._halve(source, first, last, size)
            if len(parts) + len(todo) > MAX_FILES:
                raise self._too_many(source, pages)
        return tuple(parts)

    def _halve(self, source: Source, first: int, last: int, size: PartSize) -> list[tuple[int, int]]:
        if first == last:
            reason = (
                f"its page {first} alone has {size.size_bytes} bytes, and MinerU accepts {self.config.max_file_bytes}"
            )
            raise DocumentTooLarge(filename=source.filename, reason=reason)
        middle = (first + last) // 2
        return [(first, middle), (middle + 1, last)]

    def _too_many(self, source: Source, pages: int) -> DocumentTooLarge:
        limits = f"{self.config.max_pages} pages and {self.config.max_file_bytes} bytes"
        reason = (
            f"its {pages} pages would need more than {MAX_FILES} files of {limits}, the most MinerU accepts at once"
        )
        return DocumentTooLarge(filename=source.filename, reason=reason)

    async def _write(self, path: Path, part: DocumentPart, source: Source, target: Path) -> None:
        """Write a part chunk by chunk, holding one in memory."""
        seen, written = hashlib.sha256(), 0
        with await asyncio.to_thread(target.open, "wb") as file:
            while True:
                piece = await self._run(cut_part, part.first, part.last, written, source=source, path=path)
                await asyncio.to_thread(_add, piece.content, file, seen)
                written += len(piece.content)
                if written >= piece.size_bytes or not piece.content:
                    break
        if seen.hexdigest() != piece.sha256:
            raise DocumentUnreadable(filename=source.filename, kind=KIND, reason="splitting it is not deterministic")

    async def _run(self, function: Callable[..., T | Rejection], *arguments: int, source: Source, path: Path) -> T:
        limits = SandboxLimits(
            memory_bytes=1024 * MIB + 3 * source.size_bytes, cpu_seconds=120, seconds=300.0, result_bytes=64 * MIB
        )
        with document_errors(source.filename, KIND):
            response = await self.sandbox.run(function, *arguments, file=path, limits=limits)
        return unwrap(response, source.filename, KIND)


def _add(content: bytes, file: BinaryIO, seen: "hashlib._Hash") -> None:
    file.write(content)
    seen.update(content)


def _is_pdf(path: Path, filename: str) -> bool:
    """Decided by content; if the header is not at the start, the file name must end in .pdf too."""
    with path.open("rb") as file:
        head = file.read(PDF_BYTES)
    return head.lstrip().startswith(b"%PDF-") or (b"%PDF-" in head and filename.lower().endswith(PDF))
