"""Word documents: paragraphs, headings, lists, tables, text boxes and footnotes, in the order of the body.

The body is read child by child, so a long document is never in memory as a whole. What was deleted with tracking on is
left out, what was inserted is kept. Headers and footers, which repeat on every page, and comments are not read.
"""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import BinaryIO

from penstock.documents.blocks import Block, Heading, Item, Row, Table, Text
from penstock.documents.office.package import Package
from penstock.documents.office.styles import Styles, styles_of
from penstock.documents.office.xml_names import child, children, name_of, number, value
from penstock.documents.rejections import unreadable

AT_BODY = 3  # document, body, and what stands in it
MOST_DEPTH = 100  # boxes in tables in boxes
MOST_SPAN = 100
LEFT_OUT = frozenset({"del", "moveFrom", "Fallback", "pPr", "rPr", "instrText", "delText"})
WRAPPERS = frozenset({"sdt", "sdtContent", "customXml", "smartTag", "ins", "moveTo", "AlternateContent", "Choice"})


def read_docx(file: BinaryIO, _resume: str) -> Iterator[Block]:
    """The blocks of the body, then the footnotes."""
    package = Package(file)
    main = package.main()
    styles = styles_of(package, main)
    for element in package.items(main, depth=AT_BODY):
        yield from _blocks(element, styles, depth=0)
    notes = package.related(main, "footnotes")
    if notes:
        yield from _notes(package, notes)


def _blocks(element: ET.Element, styles: Styles, depth: int) -> Iterator[Block]:
    if depth > MOST_DEPTH:
        raise unreadable(f"it nests deeper than {MOST_DEPTH} levels")
    name = name_of(element)
    if name == "p":
        yield from _paragraph(element, styles, depth)
    elif name == "tbl":
        yield Table(rows=tuple(_rows(element)))
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
            yield Item(text=text, level=place[0], number=place[1])
        else:
            yield Text(text=text)
    for box in boxes:
        for each in box:
            yield from _blocks(each, styles, depth + 1)


def _texts(element: ET.Element, boxes: list[ET.Element]) -> Iterator[str]:
    """The text of a paragraph; text boxes that hang on it are put aside."""
    waiting = [iter(element)]
    while waiting:
        each = next(waiting[-1], None)
        if each is None:
            waiting.pop()
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
            waiting.append(iter(each))


def _rows(table: ET.Element) -> Iterator[Row]:
    """Each row, as wide as its cells say. A cell that spans others leaves them empty."""
    for row in _within(table, "tr"):
        cells: list[str] = []
        cells += [""] * min(number(child(row, "trPr", "gridBefore")) or 0, MOST_SPAN)
        for cell in _within(row, "tc"):
            merged = child(cell, "tcPr", "vMerge")
            goes_on = merged is not None and value(merged) != "restart"
            cells.append("" if goes_on else _cell(cell))
            cells += [""] * (min(number(child(cell, "tcPr", "gridSpan")) or 1, MOST_SPAN) - 1)
        yield tuple(cells)


def _within(element: ET.Element, name: str) -> Iterator[ET.Element]:
    """Rows of a table or cells of a row, also those inside content controls."""
    waiting = [iter(element)]
    while waiting:
        each = next(waiting[-1], None)
        if each is None:
            waiting.pop()
        elif name_of(each) == name:
            yield each
        elif name_of(each) in WRAPPERS:
            waiting.append(iter(each))


def _cell(cell: ET.Element) -> str:
    """All lines of a cell, those of tables inside it too."""
    lines = ("".join(_texts(each, [])).strip() for each in _paragraphs(cell))
    return "\n".join(line for line in lines if line)


def _paragraphs(element: ET.Element) -> Iterator[ET.Element]:
    """All paragraphs inside, also those in tables and boxes."""
    waiting = [iter(element)]
    while waiting:
        each = next(waiting[-1], None)
        if each is None:
            waiting.pop()
            continue
        if name_of(each) == "p":
            yield each
        if name_of(each) not in LEFT_OUT:
            waiting.append(iter(each))


def _notes(package: Package, part: str) -> Iterator[Block]:
    for note in package.items(part, depth=2):
        if value(note, "type") is not None:  # the line above the notes, not a note
            continue
        text = " ".join("".join(_texts(each, [])).strip() for each in children(note, "p"))
        if text.strip():
            yield Text(text=f"[^{value(note, 'id')}]: {text.strip()}")
