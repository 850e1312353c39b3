"""Pages of a PDF: from the text layer in stretches, and by OCR one by one where that layer is not real."""

import logging
from collections.abc import AsyncIterator, Sequence

from penstock.adapters.local_reader.book import Batch, Book
from penstock.documents import pdf, rapid, text
from penstock.documents.endings import BROKEN, TOO_MUCH
from penstock.documents.ground import Page

log = logging.getLogger(__name__)

STRETCH = 100  # pages per look: a fork and a fresh parse cost as much as four pages


async def read_pdf(book: Book) -> AsyncIterator[Batch]:
    """All pages in their order, or an error about the file."""
    survey = await book.parse_whole(pdf.survey, book.glasses.limits.max_pages)
    for first in range(1, survey.pages + 1, STRETCH):
        last = min(first + STRETCH - 1, survey.pages)
        trusted: list[Page] = []
        for layer in await _layers(book, first, last, survey):
            if layer.page is not None:
                trusted.append(layer.page)
                continue
            if trusted:
                yield Batch(pages=trusted, of=survey.pages)
                trusted = []
            seen = await book.see(rapid.read_pdf_page, layer.number)
            yield Batch(pages=(seen,), of=survey.pages)
        if trusted:
            yield Batch(pages=trusted, of=survey.pages)


async def _layers(book: Book, first: int, last: int, survey: pdf.Survey) -> Sequence[text.Layer]:
    """The text layers of a stretch. Where one page breaks the parser, the others are read without it."""
    suspects = [number for number in survey.suspects if first <= number <= last]
    try:
        return (await book.parse(text.read_layers, first, last, suspects)).layers
    except (*TOO_MUCH, *BROKEN) as error:
        log.warning("pages %d to %d of %s break the parser: %s", first, last, book.filename, error.code)
        if first == last:
            return (text.Layer(number=first, distrust=error.code),)
    middle = (first + last) // 2
    return (*await _layers(book, first, middle, survey), *await _layers(book, middle + 1, last, survey))
