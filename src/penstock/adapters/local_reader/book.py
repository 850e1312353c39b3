"""An open document and the sandbox sessions that read it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock.adapters.local_reader.bounds import ReaderLimits
from penstock.adapters.local_reader.papers import Papers
from penstock.documents.kinds import Kind
from penstock.documents.ocr.engine import RecognizedPage
from penstock.documents.pages import Page
from penstock.documents.rejections import Rejection
from penstock.documents.sandbox_errors import document_errors, unwrap
from penstock.kernel.sandbox.limits import SandboxLimits
from penstock.kernel.sandbox.session import SandboxSession

T = TypeVar("T")

See = Callable[..., RecognizedPage | Rejection]  # an OCR function of documents/


@dataclass(frozen=True, kw_only=True)
class Glasses:
    """The sandbox sessions of an open document: one child of each sandbox, kept while it is open."""

    parsers: SandboxSession
    engine: SandboxSession  # a child of the zygote that has the OCR engine loaded
    profile: str
    limits: ReaderLimits


@dataclass(frozen=True, kw_only=True)
class PageBatch:
    """Consecutive pages, and the number of pages of the document as far as it is known.

    A batch without pages is a heartbeat.
    """

    pages: Sequence[Page]
    of: int


@dataclass(frozen=True, kw_only=True)
class OpenDocument:
    """The document."""

    filename: str
    size_bytes: int
    kind: Kind
    papers: Papers
    glasses: Glasses

    async def parse(
        self, function: Callable[..., T | Rejection], *arguments: object, limits: SandboxLimits | None = None
    ) -> T:
        """Run a parser on the file. Sandbox errors pass through."""
        limits = limits or self.glasses.limits.parsing(self.size_bytes)
        answer = await self.glasses.parsers.run(function, *arguments, limits=limits)
        return unwrap(answer, self.filename, self.kind)

    async def parse_whole(self, function: Callable[..., T | Rejection], *arguments: object) -> T:
        """Run a parser on the file. A sandbox error becomes an error about the document."""
        with document_errors(self.filename, self.kind):
            return await self.parse(function, *arguments)

    async def see(self, function: See, number: int) -> Page:
        """Read a page by OCR and store it as a checkpoint, unless it has one from an earlier attempt."""
        if (kept := await self.papers.find_page(number)) is not None:
            return kept
        glasses = self.glasses
        limits = glasses.limits.seeing(self.size_bytes)
        arguments = (number, glasses.limits.max_page_pixels, glasses.profile)
        with document_errors(self.filename, self.kind, page=number):
            answer = await glasses.engine.run(function, *arguments, limits=limits)
        page = unwrap(answer, self.filename, self.kind).page
        await self.papers.keep(page)
        return page
