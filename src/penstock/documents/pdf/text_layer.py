"""The text layer of PDF pages as markdown, with a box for each line and cell.

liteparse reads it: runs of text, the order of blocks, tables. `text_lines.py` makes lines of that, `text_markdown.py`
writes them. Whether a layer can be trusted is judged page by page in `text_real.py`; where not, the page comes back
without one and is for OCR. Runs in the sandbox.
"""

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from penstock.documents.blocks import guarded
from penstock.documents.layout.lines import WORD_GAP, Line, Part, around
from penstock.documents.pages import Box, Page, Span, rounded
from penstock.documents.pdf.markdown import write_pages
from penstock.documents.pdf.parsed_page import NOWHERE, Sheet, sheet_of
from penstock.documents.pdf.table_rows import pieces_of_row
from penstock.documents.pdf.trust import Looks, look_at, why_not_real
from penstock.documents.rejections import Refusal, unreadable

LINE_GAP = 1.0  # runs further apart than this are not one line
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


def load_parser() -> None:
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
        sheets = {page.page_num: sheet_of(page) for page in parser.parse_bytes(content).pages}
    except RuntimeError as error:
        return unreadable(str(error)[:200]).refusal
    looks = _looks(content, [number for number in suspects if number in sheets])
    written = write_pages(sheets, content)
    return Layers(
        layers=tuple(
            _layer(number, sheets.get(number), looks.get(number, PLAIN), written.get(number, ""))
            for number in range(first, last + 1)
        )
    )


def _looks(content: bytes, numbers: Sequence[int]) -> dict[int, Looks]:
    if not numbers:
        return {}
    import pypdfium2

    with pypdfium2.PdfDocument(content) as document:
        return {number: look_at(document, number) for number in numbers}


def _layer(number: int, sheet: Sheet | None, looks: Looks, markdown: str) -> Layer:
    if sheet is None:
        return Layer(number=number, distrust="unreadable")
    if distrust := why_not_real(sheet.text, looks):
        return Layer(number=number, distrust=distrust)
    page = Page(
        number=number,
        origin="text",
        markdown=guarded(markdown),
        spans=tuple(_spans(sheet.parts)),
        width=round(sheet.width, 2),
        height=round(sheet.height, 2),
    )
    return Layer(number=number, page=page)


def _spans(parts: Iterable[Part]) -> Iterator[Span]:
    """Cells of tables and lines of everything else, in reading order."""
    tables = 0
    for part in parts:
        if part.cells:
            yield from _cells(tables, part)
            tables += 1
        elif part.lines is part.runs:
            yield from (Span(text=run.text, box=rounded(run.box)) for run in part.runs)
        else:
            yield from _lines(part.runs)


def _cells(table: int, part: Part) -> Iterator[Span]:
    for at, row in enumerate(part.cells):
        if part.pieces and (apart := pieces_of_row(row, part.pieces)):
            yield from (Span(text=text, box=rounded(box)) for pieces in apart for text, box in pieces)
            continue
        for column, cell in enumerate(row):
            if cell.text:
                box = rounded(cell.box) if cell.box is not None else None
                yield Span(text=cell.text, box=box, table=table, row=at, column=column)


def _lines(runs: Iterable[Line]) -> Iterator[Span]:
    """Runs of one line are put together again: a bold word in it makes three of one."""
    text, box = "", NOWHERE
    for run in runs:
        if text and _go_on(box, run.box):
            gap = run.left - box[2]
            text += (" " if gap > WORD_GAP * (run.bottom - run.top) else "") + run.text
            box = around([box, run.box])
            continue
        if text:
            yield Span(text=text, box=rounded(box))
        text, box = run.text, run.box
    if text:
        yield Span(text=text, box=rounded(box))


def _go_on(before: Box, after: Box) -> bool:
    height = min(before[3] - before[1], after[3] - after[1])
    shared = min(before[3], after[3]) - max(before[1], after[1])
    return shared > SAME_LINE * height and -SAME_LINE * height <= after[0] - before[2] <= LINE_GAP * height
