"""The page reader port: survey a document, then read its pages stretch by stretch.

    async with reader.open(source) as document:
        survey = await document.survey()
        for stretch in survey.stretches:
            async for batch in document.read(stretch): ...

A stretch is the unit of work: consecutive pages that are read together, by any process, from nothing but the document
and the stretch. It reads only its own pages of the file. Text pages form stretches of up to `STRETCH_PAGES`, because
the size of body text and the levels of headings are measured over a stretch; a page for OCR is a stretch of its own.

Whether the text layer of a page can be trusted shows only when it is read. A page that turns out to need OCR is not in
`pages` of its batch but follows it in `ocr`, as a stretch to read next, or to hand to another worker. The reader stores
nothing: checkpoints are the caller's.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from penstock.documents.kinds import Kind
from penstock.documents.ocr.provider import Source
from penstock.documents.pages import Origin, Page

STRETCH_PAGES = 50  # per parser call


class Stretch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Pages `first` to `last` inclusive; to the end if `last` is None. Plain values, fit for a job or a row."""

    origin: Origin
    first: int
    last: int | None
    suspects: tuple[int, ...] = ()  # text pages that may look different from their text


class Survey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The kind of a document, and its stretches in page order."""

    kind: Kind
    page_count: int | None  # None for a file without pages of its own, whose number shows when it is read
    stretches: tuple[Stretch, ...]
    scanned: tuple[int, ...] = ()  # pages without a text layer; those of a text stretch are read by OCR too


class PageBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive pages of a stretch, then pages to read by OCR. A batch without either is a heartbeat."""

    pages: tuple[Page, ...] = ()
    ocr: tuple[Stretch, ...] = ()
    at_least: int = 0  # pages of the document, where the survey could not count them


class SurveyedDocument(Protocol):
    """An open document."""

    async def survey(self) -> Survey:
        """What there is to read. Raises an error about a document that cannot or must not be read."""
        ...

    def read(self, stretch: Stretch) -> AsyncIterator[PageBatch]:
        """The pages of a stretch, in order."""
        ...


class PageReader(Protocol):
    """Implemented by the local reader."""

    def open(self, source: Source) -> AbstractAsyncContextManager[SurveyedDocument]:
        """Open a document for the length of a block. Raises when it is empty or too large."""
        ...


def text_stretches(page_count: int, *, scanned: frozenset[int], suspects: tuple[int, ...]) -> tuple[Stretch, ...]:
    """The stretches of a document with text pages. A block of scanned pages only is split into pages for OCR."""
    stretches: list[Stretch] = []
    for first in range(1, page_count + 1, STRETCH_PAGES):
        last = min(first + STRETCH_PAGES - 1, page_count)
        block = range(first, last + 1)
        if scanned.issuperset(block):
            stretches += map(ocr_stretch, block)
        else:
            inside = tuple(number for number in suspects if number in block)
            stretches.append(Stretch(origin="text", first=first, last=last, suspects=inside))
    return tuple(stretches)


def ocr_stretch(number: int) -> Stretch:
    """A page for OCR."""
    return Stretch(origin="ocr", first=number, last=number)
