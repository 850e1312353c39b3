"""Word documents: paragraphs, headings, lists, tables, text boxes and footnotes, in document order.

The body is streamed child by child, so a long document is never in memory as a whole. Tracked deletions are dropped and
tracked insertions kept. Headers, footers and comments are not read.
"""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import BinaryIO

from penstock.documents.blocks import Block, Heading, ListItem, Row, TableBlock, TextBlock
from penstock.documents.office.package import Package
from penstock.documents.office.styles import Styles, styles_of
from penstock.documents.office.xml_names import child, children, name_of, number, value
from penstock.documents.rejections import unreadable

AT_BODY = 3  # depth of the children of the body
MAX_DEPTH = 100  # of nested text boxes and tables
MAX_SPAN = 100
LEFT_OUT = frozenset({"del", "moveFrom", "Fallback", "pPr", "rPr", "instrText", "delText"})
WRAPPERS = frozenset({"sdt", "sdtContent", "customXml", "smartTag", "ins", "moveTo", "AlternateContent", "Choice"})


def read_docx(file: BinaryIO, _resume: str) -> Iterator[Block]:
    """Yield the blocks of the body, then the footnotes."""
    package = Package(file)
    main = package.main()
    styles = styles_of(package, main)
    for element in package.items(main, depth=AT_BODY):
        yield from _blocks(element, styles, depth=0)
    notes = package.related(main, "footnotes")
    if notes:
        yield from _notes(package, notes)


def _blocks(element: ET.Element, styles: Styles, depth: int) -> Iterator[Block]:
    if depth > MAX_DEPTH:
        raise unreadable(f"it is nested deeper than {MAX_DEPTH} levels")
    name = name_of(element)
    if name == "p":
        yield from _paragraph(element, styles, depth)
    elif name == "tbl":
        yield TableBlock(rows=tuple(_rows(element)))
    elif name in WRAPPERS:
        for each in element:
            yield from _blocks(each, styles, depth + 1)


def _paragraph(element: ET.Element, styles: Styles, depth: int) -> Iterator[Block]:
    boxes: list[ET.Element] = []
    text = "".join(_texts(element, boxes)).strip()
    properties = child(element, "pPr")
    if text:
        level = styles.heading_level(properties)
        place = styles.place_in_list(properties) if level is None else None
        if level is not None:
            yield Heading(text=text, level=level)
        elif place is not None:
            yield ListItem(text=text, level=place[0], number=place[1])
        else:
            yield TextBlock(text=text)
    for box in boxes:
        for each in box:
            yield from _blocks(each, styles, depth + 1)


def _texts(element: ET.Element, boxes: list[ET.Element]) -> Iterator[str]:
    """Yield the text of a paragraph. Its text boxes are appended to `boxes`."""
    stack = [iter(element)]
    while stack:
        each = next(stack[-1], None)
        if each is None:
            stack.pop()
            continue
        name = name_of(each)
        if name == "t":
            yield each.text or ""
        elif name in {"br", "cr"}:
            yield "\n"
        elif name == "tab":
            yield "\t"
        elif name == "noBreakHyphen":
            yield "-"
        elif name == "footnoteReference":
            yield f"[^{value(each, 'id')}]"
        elif name == "txbxContent":
            boxes.append(each)
        elif name not in LEFT_OUT:
            stack.append(iter(each))


def _rows(table: ET.Element) -> Iterator[Row]:
    """Yield rows. Cells covered by a span are empty."""
    for row in _within(table, "tr"):
        cells: list[str] = []
        cells += [""] * min(number(child(row, "trPr", "gridBefore")) or 0, MAX_SPAN)
        for cell in _within(row, "tc"):
            merged = child(cell, "tcPr", "vMerge")
            goes_on = merged is not None and value(merged) != "restart"
            cells.append("" if goes_on else _cell(cell))
            cells += [""] * (min(number(child(cell, "tcPr", "gridSpan")) or 1, MAX_SPAN) - 1)
        yield tuple(cells)


def _within(element: ET.Element, name: str) -> Iterator[ET.Element]:
    """Rows of a table or cells of a row, including those inside content controls."""
    stack = [iter(element)]
    while stack:
        each = next(stack[-1], None)
        if each is None:
            stack.pop()
        elif name_of(each) == name:
            yield each
        elif name_of(each) in WRAPPERS:
            stack.append(iter(each))


def _cell(cell: ET.Element) -> str:
    """All lines of a cell, including those of nested tables."""
    lines = ("".join(_texts(each, [])).strip() for each in _paragraphs(cell))
    return "\n".join(line for line in lines if line)


def _paragraphs(element: ET.Element) -> Iterator[ET.Element]:
    """All paragraphs inside an element, including those in tables and text boxes."""
    stack = [iter(element)]
    while stack:
        each = next(stack[-1], None)
        if each is None:
            stack.pop()
            continue
        if name_of(each) == "p":
            yield each
        if name_of(each) not in LEFT_OUT:
            stack.append(iter(each))


def _notes(package: Package, part: str) -> Iterator[Block]:
    for note in package.items(part, depth=2):
        if value(note, "type") is not None:  # a separator line, not a note
            continue
        text = " ".join("".join(_texts(each, [])).strip() for each in children(note, "p"))
        if text.strip():
            yield TextBlock(text=f"[^{value(note, 'id')}]: {text.strip()}")
