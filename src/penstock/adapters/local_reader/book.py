"""A document that lies open, and what it is read with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock.adapters.local_reader.bounds import ReaderLimits
from penstock.adapters.local_reader.papers import Papers
from penstock.documents.kinds import Kind
from penstock.documents.ocr.engine import Seen
from penstock.documents.pages import Page
from penstock.documents.rejections import Refusal
from penstock.documents.sandbox_errors import accepted, told_of
from penstock.kernel.sandbox.limits import SandboxLimits
from penstock.kernel.sandbox.session import SandboxSession

T = TypeVar("T")

See = Callable[..., Seen | Refusal]  # a function of documents/ocr/engine.py


@dataclass(frozen=True, kw_only=True)
class Glasses:
    """What a document is read with: a child of each sandbox, which stays while the document is open."""

    parsers: SandboxSession
    engine: SandboxSession  # a child of the zygote that has the OCR engine loaded
    profile: str
    limits: ReaderLimits


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Some pages that follow each other, and how many the document has, as far as is known by now.

    One without pages is a sign of life.
    """

    pages: Sequence[Page]
    of: int


@dataclass(frozen=True, kw_only=True)
class Book:
    """The document."""

    filename: str
    size_bytes: int
    kind: Kind
    papers: Papers
    glasses: Glasses

    async def parse(
        self, function: Callable[..., T | Refusal], *arguments: object, limits: SandboxLimits | None = None
    ) -> T:
        """What a parser says of the file. Endings of the sandbox are let through."""
        limits = limits or self.glasses.limits.parsing(self.size_bytes)
        answer = await self.glasses.parsers.run(function, *arguments, limits=limits)
        return accepted(answer, self.filename, self.kind)

    async def parse_whole(self, function: Callable[..., T | Refusal], *arguments: object) -> T:
        """The same, where a bad ending is the end of the document."""
        with told_of(self.filename, self.kind):
            return await self.parse(function, *arguments)

    async def see(self, function: See, number: int) -> Page:
        """A page by OCR: one that was kept, or else one that will be."""
        if (kept := await self.papers.find_page(number)) is not None:
            return kept
        glasses = self.glasses
        limits = glasses.limits.seeing(self.size_bytes)
        arguments = (number, glasses.limits.max_page_pixels, glasses.profile)
        with told_of(self.filename, self.kind, page=number):
            answer = await glasses.engine.run(function, *arguments, limits=limits)
        page = accepted(answer, self.filename, self.kind).page
        await self.papers.keep(page)
        return page
