"""Where text stands: pages, the pieces of text on them, and the way from a value back to its place.

What was read from a document is kept as a file of lines, one `Page` in JSON each, so that a thousand pages can be
written and read without holding them all. Boxes are (left, top, right, bottom) in the page's own units, from the top
left corner; `width` and `height` are in the same units. A format without pages (a mail, a table) is one page without
a size, and its spans have no box.
"""

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

Box = tuple[float, float, float, float]
Origin = Literal["text", "ocr", "file"]  # the page's text layer, OCR of its picture, or a format that is text already


class Span(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):  # nothing in it can lead back to it
    """A piece of text as it stands on the page: a line, or a cell of a table."""

    text: str
    box: Box | None = None
    table: int | None = None  # which table of the page it is a cell of, from 0
    row: int | None = None
    column: int | None = None


class Page(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One page, in reading order."""

    number: int  # from 1
    origin: Origin
    markdown: str
    spans: tuple[Span, ...] = ()
    width: float = 0
    height: float = 0
    confidence: float | None = None  # of OCR, from 0 to 1


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where one value of a result came from. The pointer is a JSON Pointer (RFC 6901) into the result."""

    pointer: str
    grounded: bool
    page: int | None = None
    box: Box | None = None
    text: str | None = None  # what stands there


def rounded(box: Box) -> Box:
    """As precise as anybody can see. `round` goes by way of a written number, which takes more than twice as long."""
    left, top, right, bottom = box
    return (
        (left * 10 + 0.5) // 1 / 10,
        (top * 10 + 0.5) // 1 / 10,
        (right * 10 + 0.5) // 1 / 10,
        (bottom * 10 + 0.5) // 1 / 10,
    )


def write_page(page: Page) -> bytes:
    """A page as a line of its file."""
    return msgspec.json.encode(page) + b"\n"


def read_pages(lines: Iterable[bytes]) -> Iterator[Page]:
    """The pages of a file, one after another."""
    decoder = msgspec.json.Decoder(Page)
    return (decoder.decode(line) for line in lines if line.strip())


def page_mark(number: int) -> str:
    """What stands in the markdown before each page."""
    return f"<!-- page {number} -->"
