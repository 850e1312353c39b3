"""Presentations: a page per slide with its title, its shapes and tables from top to bottom, and its notes."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import BinaryIO

from penstock.documents.blocks import Block, Heading, ListItem, PageBreak, Row, TableBlock, TextBlock
from penstock.documents.office.package import Package
from penstock.documents.office.xml_names import child, children, name_of, number, relationship_id, value
from penstock.documents.rejections import unreadable

TITLES = frozenset({"title", "ctrTitle"})
BODIES = frozenset({"body", "obj", "subTitle", None})  # None: a content placeholder without a type
SMALL_PRINT = frozenset({"dt", "ftr", "sldNum", "hdr", "sldImg"})
MAX_DEPTH = 50
TITLE_LEVEL = 2


def read_pptx(file: BinaryIO, resume: str) -> Iterator[Block]:
    """Yield the slides in order, from index `resume` on."""
    package = Package(file)
    slides = _slides(package, package.main())
    if not slides:
        raise unreadable("it has no slide")
    for at, slide in enumerate(slides[int(resume or 0) :], start=int(resume or 0) + 1):
        yield from _slide(package, slide)
        yield PageBreak(resume=str(at) if at < len(slides) else "")


def _slides(package: Package, main: str) -> list[str]:
    related = package.relationships(main)
    ids = (relationship_id(each) for each in children(child(package.tree(main), "sldIdLst"), "sldId"))
    return [related[each][1] for each in ids if each in related]


def _slide(package: Package, part: str) -> Iterator[Block]:
    shapes = list(_shapes(child(package.tree(part), "cSld", "spTree"), depth=0))
    for shape in sorted(shapes, key=_place):
        yield from _shape(shape)
    notes = package.related(part, "notesSlide")
    if notes:
        yield from _notes(package, notes)


def _shapes(tree: ET.Element | None, depth: int) -> Iterator[ET.Element]:
    """All shapes, including those in groups."""
    if depth > MAX_DEPTH:
        raise unreadable(f"its shapes are grouped deeper than {MAX_DEPTH} levels")
    for each in tree if tree is not None else ():
        if name_of(each) in {"grpSp", "AlternateContent", "Choice"}:
            yield from _shapes(each, depth + 1)
        elif name_of(each) in {"sp", "graphicFrame"}:
            yield each


def _place(shape: ET.Element) -> tuple[bool, int, int]:
    """Sort key: titles first, then top to bottom. A shape without a position takes that of the layout, at the top."""
    frame = child(shape, "xfrm") if name_of(shape) == "graphicFrame" else child(shape, "spPr", "xfrm")
    corner = child(frame, "off")
    return _role(shape) not in TITLES, number(corner, "y") or 0, number(corner, "x") or 0


def _role(shape: ET.Element) -> str | None:
    """The placeholder type of a shape; "box" if it is not a placeholder."""
    held = child(child(shape, "nvSpPr", "nvPr"), "ph")
    return value(held, "type") if held is not None else "box"


def _shape(shape: ET.Element) -> Iterator[Block]:
    if name_of(shape) == "graphicFrame":
        table = child(shape, "graphic", "graphicData", "tbl")
        if table is not None:
            yield TableBlock(rows=tuple(_rows(table)))
        return
    role, body = _role(shape), child(shape, "txBody")
    if role in SMALL_PRINT or body is None:
        return
    if role in TITLES:
        yield Heading(text=" ".join(filter(None, _lines(body))), level=TITLE_LEVEL)
        return
    for paragraph in children(body, "p"):
        text = _text(paragraph)
        if text:
            yield _line(text, child(paragraph, "pPr"), has_bullets=role in BODIES and role != "subTitle")


def _line(text: str, properties: ET.Element | None, *, has_bullets: bool) -> Block:
    level = number(properties, "lvl") or 0
    marked = any(child(properties, each) is not None for each in ("buChar", "buAutoNum", "buBlip"))
    plain = child(properties, "buNone") is not None
    if marked or (has_bullets and not plain):
        return ListItem(text=text, level=level)
    return TextBlock(text=text)


def _lines(body: ET.Element | None) -> list[str]:
    return [_text(each) for each in children(body, "p")]


def _text(paragraph: ET.Element) -> str:
    pieces: list[str] = []
    for each in paragraph.iter():
        name = name_of(each)
        if name == "t":
            pieces.append(each.text or "")
        elif name == "br":
            pieces.append("\n")
    return "".join(pieces).strip()


def _rows(table: ET.Element) -> Iterator[Row]:
    """Yield rows. Cells covered by a merged one are empty."""
    for row in children(table, "tr"):
        yield tuple("" if _is_covered(each) else _cell(each) for each in children(row, "tc"))


def _is_covered(cell: ET.Element) -> bool:
    return any(value(cell, each) in {"1", "true"} for each in ("hMerge", "vMerge"))


def _cell(cell: ET.Element) -> str:
    return "\n".join(filter(None, _lines(child(cell, "txBody"))))


def _notes(package: Package, part: str) -> Iterator[Block]:
    for shape in _shapes(child(package.tree(part), "cSld", "spTree"), depth=0):
        text = "\n".join(filter(None, _lines(child(shape, "txBody"))))
        if text and _role(shape) == "body":
            yield TextBlock(text=f"Notes: {text}")
