"""Which files a document goes out as. All of this is known before the first of them is sent.

The cloud takes files up to a size and a number of pages. A PDF that is over one of them is cut into parts of so many
pages; a part that is still too large is halved, down to one page. Other kinds cannot be cut. A server of one's own has
no limits, so nothing is cut for it.
"""

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import BinaryIO, TypeVar

from penstock.adapters.mineru.cut import Weight, cut, weigh
from penstock.adapters.mineru.jobs import PDF, Part, Plan
from penstock.adapters.mineru.terms import MIB, MineruTerms
from penstock.documents.errors import DocumentEmpty, DocumentKindUnknown, DocumentTooLarge, DocumentUnreadable
from penstock.documents.kinds import PDF_BYTES
from penstock.documents.ocr.provider import Source
from penstock.documents.pdf.survey import survey_pdf
from penstock.documents.rejections import Refusal
from penstock.documents.sandbox_errors import accepted, told_of
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.sandbox.limits import SandboxLimits

T = TypeVar("T")

KIND = "pdf"
TAKEN_BY_BOTH = frozenset({PDF, ".png", ".jpeg", ".jpg", ".jp2", ".webp", ".gif", ".bmp", ".docx", ".pptx", ".xlsx"})
TAKEN = {
    "cloud": TAKEN_BY_BOTH | {".doc", ".ppt", ".xls", ".html", ".htm"},
    "selfhosted": TAKEN_BY_BOTH | {".tif", ".tiff"},
}
MOST_FILES = 50  # in a batch of the cloud


@dataclass(frozen=True, kw_only=True)
class Cutter:
    """Looks at documents and cuts them, in the sandbox."""

    sandbox: Sandbox
    terms: MineruTerms

    def check_size(self, source: Source) -> None:
        """Refuse what is empty, or larger than anything here may be."""
        if not source.size_bytes:
            raise DocumentEmpty(filename=source.filename)
        most = self.terms.most_document_bytes
        if source.size_bytes > most:
            reason = f"it has {source.size_bytes} bytes, and {most} may be read (ETL_MAX_FILE_BYTES)"
            raise DocumentTooLarge(filename=source.filename, reason=reason)

    async def plan(self, path: Path, source: Source) -> Plan:
        """The parts of a document that lies here as a file; errors about it where it cannot be sent."""
        if not await asyncio.to_thread(_is_pdf, path, source.filename):
            return self._plan_other(source)
        survey = await self._run(survey_pdf, self.terms.most_document_pages, source=source, path=path)
        parts = await self._parts(path, source, survey.pages)
        return self._planned(source, PDF, parts)

    @asynccontextmanager
    async def cut(self, path: Path, part: Part, source: Source, folder: Path) -> AsyncIterator[Path]:
        """A part as a file, gone at the end of the block."""
        target = folder / f"{path.stem}-{part.number}.part"
        try:
            await self._write(path, part, source, target)
            yield target
        finally:
            await asyncio.to_thread(target.unlink, missing_ok=True)

    def _plan_other(self, source: Source) -> Plan:
        ending = PurePath(source.filename.lower()).suffix
        if ending not in TAKEN[self.terms.spoken] - {PDF}:
            seen = f"{ending or 'no ending'}, which MinerU does not take"
            raise DocumentKindUnknown(filename=source.filename, seen=seen)
        most = self.terms.max_file_bytes
        if self.terms.spoken == "cloud" and source.size_bytes > most:
            reason = f"it has {source.size_bytes} bytes, MinerU takes {most}, and only PDFs can be split"
            raise DocumentTooLarge(filename=source.filename, reason=reason)
        return self._planned(source, ending, (Part(number=1),))

    def _planned(self, source: Source, ending: str, parts: tuple[Part, ...]) -> Plan:
        return Plan(protocol=self.terms.spoken, size_bytes=source.size_bytes, ending=ending, parts=parts)

    async def _parts(self, path: Path, source: Source, pages: int) -> tuple[Part, ...]:
        terms = self.terms
        fits = pages <= terms.max_pages and source.size_bytes <= terms.max_file_bytes
        if fits or terms.spoken == "selfhosted":
            return (Part(number=1, pages=pages),)
        if math.ceil(pages / terms.max_pages) > MOST_FILES:
            raise self._too_many(source, pages)
        parts: list[Part] = []
        todo = [(first, min(first + terms.max_pages - 1, pages)) for first in range(1, pages + 1, terms.max_pages)]
        while todo:
            first, last = todo.pop(0)
            weight = await self._run(weigh, first, last, source=source, path=path)
            if weight.size_bytes <= terms.max_file_bytes:
                parts.append(Part(number=len(parts) + 1, first=first, pages=last - first + 1))
                continue
            todo[:0] = self._halves(source, first, last, weight)
            if len(parts) + len(todo) > MOST_FILES:
                raise self._too_many(source, pages)
        return tuple(parts)

    def _halves(self, source: Source, first: int, last: int, weight: Weight) -> list[tuple[int, int]]:
        if first == last:
            reason = (
                f"its page {first} alone has {weight.size_bytes} bytes, and MinerU takes {self.terms.max_file_bytes}"
            )
            raise DocumentTooLarge(filename=source.filename, reason=reason)
        middle = (first + last) // 2
        return [(first, middle), (middle + 1, last)]

    def _too_many(self, source: Source, pages: int) -> DocumentTooLarge:
        limits = f"{self.terms.max_pages} pages and {self.terms.max_file_bytes} bytes"
        reason = f"its {pages} pages would be more than {MOST_FILES} files of {limits}, the most MinerU takes at once"
        return DocumentTooLarge(filename=source.filename, reason=reason)

    async def _write(self, path: Path, part: Part, source: Source, target: Path) -> None:
        """Piece by piece, so that no more than one is in memory here."""
        seen, written = hashlib.sha256(), 0
        with await asyncio.to_thread(target.open, "wb") as file:
            while True:
                piece = await self._run(cut, part.first, part.last, written, source=source, path=path)
                await asyncio.to_thread(_add, piece.content, file, seen)
                written += len(piece.content)
                if written >= piece.size_bytes or not piece.content:
                    break
        if seen.hexdigest() != piece.sha256:
            raise DocumentUnreadable(filename=source.filename, kind=KIND, reason="it is cut differently each time")

    async def _run(self, function: Callable[..., T | Refusal], *arguments: int, source: Source, path: Path) -> T:
        limits = SandboxLimits(
            memory_bytes=1024 * MIB + 3 * source.size_bytes, cpu_seconds=120, seconds=300.0, result_bytes=64 * MIB
        )
        with told_of(source.filename, KIND):
            answer = await self.sandbox.run(function, *arguments, file=path, limits=limits)
        return accepted(answer, source.filename, KIND)


def _add(content: bytes, file: BinaryIO, seen: "hashlib._Hash") -> None:
    file.write(content)
    seen.update(content)


def _is_pdf(path: Path, filename: str) -> bool:
    """By its content first; a PDF may begin with something else, and then its name must say so too."""
    with path.open("rb") as file:
        head = file.read(PDF_BYTES)
    return head.lstrip().startswith(b"%PDF-") or (b"%PDF-" in head and filename.lower().endswith(PDF))
