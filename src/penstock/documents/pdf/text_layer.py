"""Reads the text layer of PDF pages as markdown, with a box for each line and cell.

liteparse extracts text runs, the order of blocks, and tables. `parsed_page.py` turns them into regions, `markdown.py`
writes these. `trust.py` decides for each page whether its text layer can be trusted; if not, the page is returned
without text and goes to OCR. Runs in the sandbox.
"""

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from penstock.documents.blocks import escape_page_markers
from penstock.documents.layout.lines import WORD_GAP, PageRegion, TextLine, bounding_box
from penstock.documents.pages import Box, Page, Span, rounded
from penstock.documents.pdf.markdown import write_pages
from penstock.documents.pdf.parsed_page import NOWHERE, ParsedPage, parse_page
from penstock.documents.pdf.table_rows import split_row
from penstock.documents.pdf.trust import PageVisuals, distrust_reason, inspect_page
from penstock.documents.rejections import Rejection, unreadable

LINE_GAP = 1.0  # runs further apart are not one line
SAME_LINE = 0.5  # share of their height that two runs of a line have in common
NO_VISUALS = PageVisuals()  # only text


class TextLayer(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The text layer of one page, or the reason not to trust it."""

    number: int
    page: Page | None = None
    distrust: str = ""


class TextLayers(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The text layers of a range of pages."""

    layers: tuple[TextLayer, ...]


def load_parser() -> None:
    """Preload the shared library that the parser loads late: once in the zygote, not in each child."""
    import liteparse

    ctypes.CDLL(str(Path(liteparse.__file__).with_name("libpdfium.so")))


def read_text_layers(file: BinaryIO, first: int, last: int, suspects: Sequence[int]) -> TextLayers | Rejection:
    """Read the text layers of pages `first` to `last` inclusive, and nothing else of the file. `suspects` may look
    different from their text."""
    source = by_name(file)
    # The private class below the public one: avoids copying values into Python objects, which halves the cost.
    from liteparse._liteparse import LiteParse

    parser: Any = LiteParse(
        ocr_enabled=False,
        output_format="markdown",
        quiet=True,
        image_mode="off",
        extract_links=False,
        keep_headers_footers=True,  # a header may be the only line with the value that a rule extracts
        extract_blocks=True,
        continue_on_page_error=True,
        target_pages=f"{first}-{last}",
    )
    try:
        pages = {page.page_num: parse_page(page) for page in _parse(parser, source).pages}
    except RuntimeError as error:
        return unreadable(str(error)[:200]).rejection
    visuals = _visuals(source, [number for number in suspects if number in pages])
    written = write_pages(pages, source)
    return TextLayers(
        layers=tuple(
            _layer(number, pages.get(number), visuals.get(number, NO_VISUALS), written.get(number, ""))
            for number in range(first, last + 1)
        )
    )


def by_name(file: BinaryIO) -> Path | bytes:
    """The path of a PDF, from which parsers read the pages they are asked for; its content where it cannot be opened by
    name: the parser accepts names in .pdf only, and a folder above may be closed to the user."""
    path = Path(str(getattr(file, "name", "")))
    if path.suffix == ".pdf":
        with suppress(OSError), path.open("rb"):
            return path
    return file.read()


def _parse(parser: Any, source: Path | bytes) -> Any:
    return parser.parse_bytes(source) if isinstance(source, bytes) else parser.parse(str(source))


def _visuals(source: Path | bytes, numbers: Sequence[int]) -> dict[int, PageVisuals]:
    if not numbers:
        return {}
    import pypdfium2

    with pypdfium2.PdfDocument(source) as document:
        return {number: inspect_page(document, number) for number in numbers}


def _layer(number: int, parsed: ParsedPage | None, visuals: PageVisuals, markdown: str) -> TextLayer:
    if parsed is None:
        return TextLayer(number=number, distrust="unreadable")
    if distrust := distrust_reason(parsed.text, visuals):
        return TextLayer(number=number, distrust=distrust)
    page = Page(
        number=number,
        origin="text",
        markdown=escape_page_markers(markdown),
        spans=tuple(_spans(parsed.regions)),
        width=round(parsed.width, 2),
        height=round(parsed.height, 2),
    )
    return TextLayer(number=number, page=page)


def _spans(regions: Iterable[PageRegion]) -> Iterator[Span]:
    """Spans for table cells and for the lines of everything else, in reading order."""
    tables = 0
    for region in regions:
        if region.cells:
            yield from _cells(tables, region)
            tables += 1
        elif region.lines is region.runs:
            yield from (Span(text=run.text, box=rounded(run.box)) for run in region.runs)
        else:
            yield from _lines(region.runs)


def _cells(table: int, region: PageRegion) -> Iterator[Span]:
    for at, row in enumerate(region.cells):
        if region.pieces and (apart := split_row(row, region.pieces)):
            yield from (Span(text=text, box=rounded(box)) for pieces in apart for text, box in pieces)
            continue
        for column, cell in enumerate(row):
            if cell.text:
                box = rounded(cell.box) if cell.box is not None else None
                yield Span(text=cell.text, box=box, table=table, row=at, column=column)


def _lines(runs: Iterable[TextLine]) -> Iterator[Span]:
    """Join the runs of one line: a bold word splits a line into three runs."""
    text, box = "", NOWHERE
    for run in runs:
        if text and _is_same_line(box, run.box):
            gap = run.left - box[2]
            text += (" " if gap > WORD_GAP * (run.bottom - run.top) else "") + run.text
            box = bounding_box([box, run.box])
            continue
        if text:
            yield Span(text=text, box=rounded(box))
        text, box = run.text, run.box
    if text:
        yield Span(text=text, box=rounded(box))


def _is_same_line(before: Box, after: Box) -> bool:
    height = min(before[3] - before[1], after[3] - after[1])
    shared = min(before[3], after[3]) - max(before[1], after[1])
    return shared > SAME_LINE * height and -SAME_LINE * height <= after[0] - before[2] <= LINE_GAP * height
