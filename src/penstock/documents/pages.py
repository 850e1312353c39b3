"""Pages of a document, the text spans on them, and citations: where a value of a result stands on a page.

The pages of a document are stored as JSON Lines, one `Page` per line, so that a thousand pages can be written and read
without holding all of them in memory. A bounding box is (left, top, right, bottom) in the units of its page, measured
from the top left corner; `width` and `height` are in the same units. A format without pages (a mail, a table) is one
page without a size, and its spans have no box.
"""

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

Box = tuple[float, float, float, float]
Origin = Literal["text", "ocr", "file"]  # the text layer of a PDF, OCR, or a format that needs no OCR


class Span(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):  # no reference cycles
    """A piece of text on a page: a line, or a table cell."""

    text: str
    box: Box | None = None
    table: int | None = None  # index of the table on the page, from 0
    row: int | None = None
    column: int | None = None


class Page(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One page: its markdown, and its spans in reading order."""

    number: int  # from 1
    origin: Origin
    markdown: str
    spans: tuple[Span, ...] = ()
    width: float = 0
    height: float = 0
    confidence: float | None = None  # of OCR: 0 to 1


class Citation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The source of one value of a result. `pointer` is a JSON Pointer (RFC 6901) into the result."""

    pointer: str
    grounded: bool
    page: int | None = None
    box: Box | None = None
    text: str | None = None  # the cited text


def rounded(box: Box) -> Box:
    """A box with one decimal. Faster than `round`, which formats and parses a decimal string."""
    left, top, right, bottom = box
    return (
        (left * 10 + 0.5) // 1 / 10,
        (top * 10 + 0.5) // 1 / 10,
        (right * 10 + 0.5) // 1 / 10,
        (bottom * 10 + 0.5) // 1 / 10,
    )


def write_page(page: Page) -> bytes:
    """Encode a page as a line of the pages file."""
    return msgspec.json.encode(page) + b"\n"


def read_pages(lines: Iterable[bytes]) -> Iterator[Page]:
    """Decode the lines of a pages file."""
    decoder = msgspec.json.Decoder(Page)
    return (decoder.decode(line) for line in lines if line.strip())


def page_marker(number: int) -> str:
    """The marker before each page in the markdown."""
    return f"<!-- page {number} -->"
