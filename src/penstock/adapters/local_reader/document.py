"""An open document: its survey, and the pages of a stretch.

Text pages of a PDF are read from the text layer, many per call. A page that hangs or breaks the parser is found by
bisection, with less time for each call and a heartbeat after each failure. It is then read by OCR.
"""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock.adapters.local_reader.limits import ReaderLimits
from penstock.documents.kinds import IMAGES, Kind
from penstock.documents.ocr import engine, page_images
from penstock.documents.page_reader import PageBatch, Stretch, Survey, ocr_stretch, text_stretches
from penstock.documents.pages import Page
from penstock.documents.pdf import text_layer
from penstock.documents.pdf.survey import survey_pdf
from penstock.documents.rejections import Rejection
from penstock.documents.sandbox_errors import FAILED, INTERRUPTED, OVER_LIMIT, document_errors, unwrap
from penstock.documents.text.document import read_batches
from penstock.kernel.sandbox.limits import SandboxLimits
from penstock.kernel.sandbox.session import SandboxSession

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ReaderSession:
    """The sandbox sessions of an open document: one child of each sandbox, kept while it is open."""

    parsers: SandboxSession
    engine: SandboxSession  # a child of the zygote that has the OCR engine loaded
    profile: str
    limits: ReaderLimits


@dataclass(frozen=True, kw_only=True)
class OpenDocument:
    """A document of a known kind, as a local file."""

    filename: str
    size_bytes: int
    kind: Kind
    session: ReaderSession

    async def survey(self) -> Survey:
        """Count the pages and plan their stretches, before any of them is read."""
        limits = self.session.limits
        if self.kind is Kind.PDF:
            pdf = await self._parse_whole(survey_pdf, limits.max_pages)
            stretches = text_stretches(pdf.pages, scanned=frozenset(pdf.scanned), suspects=pdf.suspects)
            return Survey(kind=self.kind, page_count=pdf.pages, stretches=stretches, scanned=pdf.scanned)
        if self.kind in IMAGES:
            image = await self._parse_whole(page_images.count_image_pages, limits.max_page_pixels, limits.max_pages)
            numbers = tuple(range(1, image.pages + 1))
            stretches = tuple(map(ocr_stretch, numbers))
            return Survey(kind=self.kind, page_count=image.pages, stretches=stretches, scanned=numbers)
        return Survey(kind=self.kind, page_count=None, stretches=(Stretch(origin="file", first=1, last=None),))

    async def read(self, stretch: Stretch) -> AsyncIterator[PageBatch]:
        """The pages of a stretch, in order."""
        if stretch.origin == "ocr":
            yield PageBatch(pages=(await self._recognize(stretch.first),))
            return
        async for batch in self._read_file() if stretch.last is None else self._read_layers(stretch, stretch.last):
            yield batch

    async def _recognize(self, number: int) -> Page:
        """Read a page by OCR."""
        session = self.session
        recognize = engine.read_pdf_page if self.kind is Kind.PDF else engine.read_image_page
        arguments = (number, session.limits.max_page_pixels, session.profile)
        limits = session.limits.recognizing(self.size_bytes)
        with document_errors(self.filename, self.kind, page=number):
            answer = await session.engine.run(recognize, *arguments, limits=limits)
        return unwrap(answer, self.filename, self.kind).page

    async def _read_file(self) -> AsyncIterator[PageBatch]:
        """All pages of a format that needs no OCR. Their number is known only with the last part."""
        limits = self.session.limits
        parts = read_batches(
            self.session.parsers,
            self.kind,
            self.filename,
            max_pages=limits.max_pages,
            limits=limits.parsing(self.size_bytes),
        )
        async for part in parts:
            if part.pages:
                last = part.pages[-1].number
                yield PageBatch(pages=part.pages, at_least=last if part.following is None else last + 1)

    async def _read_layers(self, stretch: Stretch, last: int) -> AsyncIterator[PageBatch]:
        async for layers in self._layers(stretch.first, last, stretch.suspects):
            for batch in _batches(layers):
                yield batch

    async def _layers(
        self, first: int, last: int, suspects: Sequence[int], limits: SandboxLimits | None = None
    ) -> AsyncIterator[Sequence[text_layer.TextLayer]]:
        """The text layers of a page range, and an empty batch for each failed call, whose range is then halved."""
        inside = [number for number in suspects if first <= number <= last]
        try:
            read = await self._parse(text_layer.read_text_layers, first, last, inside, limits=limits)
        except (*OVER_LIMIT, *INTERRUPTED, *FAILED) as error:
            log.warning("pages %d to %d of %s break the parser: %s", first, last, self.filename, error.code)
            code = error.code
        else:
            yield read.layers
            return
        yield ()
        if first == last:
            yield (text_layer.TextLayer(number=first, distrust=code),)
            return
        middle = (first + last) // 2
        for start, stop in ((first, middle), (middle + 1, last)):
            less = self.session.limits.parsing_again(self.size_bytes, stop - start + 1)
            async for layers in self._layers(start, stop, suspects, less):
                yield layers

    async def _parse(
        self, function: Callable[..., T | Rejection], *arguments: object, limits: SandboxLimits | None = None
    ) -> T:
        """Run a parser on the file. Sandbox errors pass through."""
        limits = limits or self.session.limits.parsing(self.size_bytes)
        answer = await self.session.parsers.run(function, *arguments, limits=limits)
        return unwrap(answer, self.filename, self.kind)

    async def _parse_whole(self, function: Callable[..., T | Rejection], *arguments: object) -> T:
        """Run a parser on the file. A sandbox error becomes an error about the document."""
        with document_errors(self.filename, self.kind):
            return await self._parse(function, *arguments)


def _batches(layers: Sequence[text_layer.TextLayer]) -> list[PageBatch]:
    """The trusted pages of these layers, each run of them with the pages for OCR that follow it."""
    if not layers:
        return [PageBatch()]
    batches: list[PageBatch] = []
    trusted: list[Page] = []
    deferred: list[Stretch] = []
    for layer in layers:
        if layer.page is None:
            deferred.append(ocr_stretch(layer.number))
            continue
        if deferred:
            batches.append(PageBatch(pages=tuple(trusted), ocr=tuple(deferred)))
            trusted, deferred = [], []
        trusted.append(layer.page)
    return [*batches, PageBatch(pages=tuple(trusted), ocr=tuple(deferred))]
