"""The text layer of PDF pages as markdown, with a box for each line and cell.

liteparse reads it: headings by font size, lists, tables, columns in reading order. Whether a layer can be trusted is
judged page by page in `text_real.py`; where not, the page comes back without one and is for OCR. Runs in the sandbox.
"""

import ctypes
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from penstock.documents.blocks import PAGE_MARK
from penstock.documents.ground import Box, Page, Span
from penstock.documents.layout import is_chinese
from penstock.documents.refusals import Refusal, unreadable
from penstock.documents.text_real import Looks, look_at, why_not_real
from penstock.documents.text_rows import Piece, pieces_of_row, with_rows_apart

WORD_GAP = 0.15  # of a line's height; runs closer than this are one word
LINE_GAP = 1.0  # runs further apart than this are not one line
GUTTER = 0.8  # the least space between columns, in heights of a line
SEAM = 8  # letters on each side by which the end of a line is found again
LABEL = re.compile(r"[^\W\d_][^:：]{0,39}[:：]")  # at the beginning of a line: "Invoice No: 7", "发票号码：7"
SAME_LINE = 0.5  # how much of their height two runs of a line have in common


PLAIN = Looks()  # nothing but text


class Layer(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One page: what its text layer says, or why that is not to be trusted."""

    number: int
    page: Page | None = None
    distrust: str = ""


class Layers(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A stretch of pages."""

    layers: tuple[Layer, ...]


def load() -> None:
    """Load the library that the parser loads late: once in the zygote instead of once in each of its children."""
    import liteparse

    ctypes.CDLL(str(Path(liteparse.__file__).with_name("libpdfium.so")))


def read_layers(file: BinaryIO, first: int, last: int, suspects: Sequence[int]) -> Layers | Refusal:
    """The text layers of these pages, the last included. `suspects` may look other than their text."""
    content = file.read()
    # The class below the public one: its values need not be copied into Python's one by one, which halves the cost.
    from liteparse._liteparse import LiteParse

    parser: Any = LiteParse(
        ocr_enabled=False,
        output_format="markdown",
        quiet=True,
        image_mode="off",
        extract_links=False,
        keep_headers_footers=True,  # what repeats on every page may be the one line that is looked for
        extract_blocks=True,
        continue_on_page_error=True,
        target_pages=f"{first}-{last}",
    )
    try:
        found = {page.page_num: page for page in parser.parse_bytes(content).pages}
    except RuntimeError as error:
        return unreadable(str(error)[:200]).refusal
    looks = _looks(content, [number for number in suspects if number in found])
    numbers = range(first, last + 1)
    return Layers(layers=tuple(_layer(number, found.get(number), looks.get(number, PLAIN)) for number in numbers))


def _looks(content: bytes, numbers: Sequence[int]) -> dict[int, Looks]:
    if not numbers:
        return {}
    import pypdfium2

    with pypdfium2.PdfDocument(content) as document:
        return {number: look_at(document, number) for number in numbers}


def _layer(number: int, parsed: Any, looks: Looks) -> Layer:
    if parsed is None:
        return Layer(number=number, distrust="unreadable")
    items = parsed.text_items
    if distrust := why_not_real("".join(item.text for item in items), looks):
        return Layer(number=number, distrust=distrust)
    spans = tuple(_spans(parsed.blocks or (), items))
    rows = (row for block in parsed.blocks or () if block.kind == "table" for row in block.rows or ())
    markdown = with_rows_apart(parsed.markdown.strip(), rows, [(item.text, _box(item)) for item in items])
    page = Page(
        number=number,
        origin="text",
        markdown=PAGE_MARK.sub(r"\\<!--\1", _with_right_seams(markdown, spans)),
        spans=spans,
        width=round(parsed.width, 2),
        height=round(parsed.height, 2),
    )
    return Layer(number=number, page=page)


def _with_right_seams(markdown: str, spans: Sequence[Span]) -> str:
    """The parser puts a space wherever a line ends. Chinese that goes on in the next line has none, and lines that each
    begin with a label are no paragraph."""
    for one, other in pairwise(spans):
        if one.table is not None:
            continue
        tail, head = one.text[-SEAM:], other.text[:SEAM]
        if LABEL.match(one.text) and LABEL.match(other.text):
            markdown = _with_seam(markdown, tail, "\n\n", head)
        elif is_chinese(tail[-1:]) and is_chinese(head[:1]):
            markdown = _with_seam(markdown, tail, "", head)
    return markdown


def _with_seam(markdown: str, tail: str, seam: str, head: str) -> str:
    at = markdown.find(f"{tail} {head}")
    if at < 0 or markdown.startswith("|", markdown.rfind("\n", 0, at) + 1):
        return markdown  # a row of a table stays one line
    return markdown[:at] + tail + seam + markdown[at + len(tail) + 1 :]


def _spans(blocks: Iterable[Any], items: Iterable[Any]) -> Iterator[Span]:
    """Cells of tables and lines of everything else, in the order of the blocks; then what belongs to none."""
    left = [(item.text, _box(item)) for item in items if item.text.strip()]
    tables = 0
    for block in blocks:
        inside, left = _parted(left, block.bbox)
        if block.kind == "table" and block.rows:
            yield from _cells(tables, [*([block.header] if block.header else []), *block.rows], inside)
            tables += 1
        else:
            yield from _lines(_by_columns(inside))
    yield from _lines(left)


def _parted(pieces: list[Piece], around: Any) -> tuple[list[Piece], list[Piece]]:
    """Those whose middle lies in the box, and the others."""
    if around is None:
        return [], pieces
    left, top, right, bottom = _box(around)
    inside: list[Piece] = []
    outside: list[Piece] = []
    for piece in pieces:
        x0, y0, x1, y1 = piece[1]
        is_in = left <= (x0 + x1) / 2 <= right and top <= (y0 + y1) / 2 <= bottom
        (inside if is_in else outside).append(piece)
    return inside, outside


def _by_columns(pieces: list[Piece]) -> list[Piece]:
    """A paragraph that goes on in the next column is one block; its lines come from both columns in turn."""
    ends: list[float] = []  # where each column of the block ends, from left to right
    reach = 0.0
    for left, top, right, bottom in sorted(box for _, box in pieces):
        if ends and left < reach + GUTTER * (bottom - top):
            ends[-1] = max(ends[-1], right)
        else:
            ends.append(right)
        reach = ends[-1]
    return sorted(pieces, key=lambda piece: bisect_left(ends, piece[1][2])) if 1 < len(ends) < len(pieces) else pieces


def _cells(table: int, rows: Sequence[Sequence[Any]], inside: Sequence[Piece]) -> Iterator[Span]:
    for at, row in enumerate(rows):
        if apart := pieces_of_row(row, inside):
            yield from (span for pieces in apart for span in _lines(pieces))
            continue
        for column, cell in enumerate(row):
            if cell.text.strip():
                box = _box(cell.bbox) if cell.bbox is not None else None
                yield Span(text=cell.text.strip(), box=box, table=table, row=at, column=column)


def _lines(pieces: Iterable[Piece]) -> Iterator[Span]:
    """Runs of one line are put together again: a bold word in it makes three of one."""
    line: Piece | None = None
    for text, box in pieces:
        if line is not None and _go_on(line[1], box):
            gap = box[0] - line[1][2]
            between = " " if gap > WORD_GAP * (box[3] - box[1]) else ""
            line = (line[0] + between + text, _around(line[1], box))
            continue
        if line is not None:
            yield Span(text=line[0].strip(), box=line[1])
        line = (text, box)
    if line is not None:
        yield Span(text=line[0].strip(), box=line[1])


def _go_on(before: Box, after: Box) -> bool:
    height = min(before[3] - before[1], after[3] - after[1])
    shared = min(before[3], after[3]) - max(before[1], after[1])
    return shared > SAME_LINE * height and -SAME_LINE * height <= after[0] - before[2] <= LINE_GAP * height


def _around(one: Box, other: Box) -> Box:
    return min(one[0], other[0]), min(one[1], other[1]), max(one[2], other[2]), max(one[3], other[3])


def _box(place: Any) -> Box:
    x, y = place.x, place.y
    return round(x, 1), round(y, 1), round(x + place.width, 1), round(y + place.height, 1)
