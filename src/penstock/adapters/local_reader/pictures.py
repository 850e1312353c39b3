"""Pages of an image file: each frame is one, and all are for OCR."""

from collections.abc import AsyncIterator

from penstock.adapters.local_reader.book import Batch, Book
from penstock.documents.ocr import engine, page_images


async def read_picture(book: Book) -> AsyncIterator[Batch]:
    """All frames in their order. They are counted, and perhaps refused, before one is decoded."""
    limits = book.glasses.limits
    frames = await book.parse_whole(page_images.count_image_pages, limits.max_page_pixels, limits.max_pages)
    for number in range(1, frames.pages + 1):
        yield Batch(pages=(await book.see(engine.read_image_page, number),), of=frames.pages)
