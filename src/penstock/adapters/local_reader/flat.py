"""Pages of a file that is text already: an office file, a web page, a mail, a table, notes. It is read part by part."""

from collections.abc import AsyncIterator

from penstock.adapters.local_reader.book import Batch, Book
from penstock.documents.text.document import read_batches


async def read_flat(book: Book) -> AsyncIterator[Batch]:
    """All pages in their order. How many there are is known at the last part only."""
    bounds, sitting = book.glasses.limits, book.glasses.parsers
    limits = bounds.parsing(book.size_bytes)
    parts = read_batches(sitting, book.kind, book.filename, max_pages=bounds.max_pages, limits=limits)
    async for part in parts:
        if part.pages:
            last = part.pages[-1].number
            yield Batch(pages=part.pages, of=last if part.following is None else last + 1)
