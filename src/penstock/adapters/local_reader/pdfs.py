"""Pages of a PDF: from the text layer, many per call, and by OCR one by one where the layer is unusable.

A page that hangs or breaks the parser is found by bisection, with less time for each call and a heartbeat after each
failure. It is then read by OCR.
"""

import logging
from collections.abc import AsyncIterator, Sequence

from penstock.adapters.local_reader.book import OpenDocument, PageBatch
from penstock.documents.ocr import engine
from penstock.documents.pages import Page
from penstock.documents.pdf import text_layer
from penstock.documents.pdf.survey import PdfSurvey, survey_pdf
from penstock.documents.sandbox_errors import FAILED, INTERRUPTED, OVER_LIMIT
from penstock.kernel.sandbox.limits import SandboxLimits

log = logging.getLogger(__name__)

STRETCH = 50  # pages per parser call


async def read_pdf(book: OpenDocument) -> AsyncIterator[PageBatch]:
    """All pages in order, or an error about the file."""
    survey = await book.parse_whole(survey_pdf, book.glasses.limits.max_pages)
    for first in range(1, survey.pages + 1, STRETCH):
        last = min(first + STRETCH - 1, survey.pages)
        async for layers in _layers(book, first, last, survey):
            async for pages in _pages(book, layers):
                yield PageBatch(pages=pages, of=survey.pages)


async def _pages(book: OpenDocument, layers: Sequence[text_layer.TextLayer]) -> AsyncIterator[Sequence[Page]]:
    """The pages of these layers in batches; an empty batch for no layers."""
    trusted: list[Page] = []
    for layer in layers:
        if layer.page is not None:
            trusted.append(layer.page)
            continue
        if trusted:
            yield trusted
            trusted = []
        yield (await book.see(engine.read_pdf_page, layer.number),)
    if trusted or not layers:
        yield trusted


async def _layers(
    book: OpenDocument, first: int, last: int, survey: PdfSurvey, limits: SandboxLimits | None = None
) -> AsyncIterator[Sequence[text_layer.TextLayer]]:
    """The text layers of a page range, and an empty batch for each failed call, whose range is then halved."""
    suspects = [number for number in survey.suspects if first <= number <= last]
    try:
        read = await book.parse(text_layer.read_text_layers, first, last, suspects, limits=limits)
    except (*OVER_LIMIT, *INTERRUPTED, *FAILED) as error:
        log.warning("pages %d to %d of %s break the parser: %s", first, last, book.filename, error.code)
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
        less = book.glasses.limits.parsing_again(book.size_bytes, stop - start + 1)
        async for layers in _layers(book, start, stop, survey, less):
            yield layers
