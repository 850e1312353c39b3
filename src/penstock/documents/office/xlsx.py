"""Workbooks: one page for each sheet, or for each 200 rows of it, with the head row repeated.

Rows are read one after another, so a sheet of a million rows is never in memory; only the texts that sheets share are.
Empty rows and columns are left out. A formula shows the value that was kept with it, else itself.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from penstock.documents.blocks import MOST_COLUMNS, Block, Heading, PageEnd, Row, Rows, Table
from penstock.documents.office.number_formats import Formats, formats_of
from penstock.documents.office.package import Package
from penstock.documents.office.sheet_rows import Cell, SheetRow, scan, scan_from
from penstock.documents.office.xml_names import child, children, name_of, relation, value
from penstock.documents.rejections import too_large, unreadable

AT_STRING = 2  # the list, and its items
SHEET_LEVEL = 2
MOST_STRING_CHARACTERS = 100_000_000  # of all the texts that sheets share
COLUMN = re.compile(r"[A-Z]{1,3}")


@dataclass(frozen=True, kw_only=True)
class Book:
    """A workbook, ready to have its sheets read."""

    package: Package
    sheets: tuple[tuple[str, str], ...]  # the name and the part of each
    strings: tuple[str, ...]
    formats: Formats


def read_xlsx(file: BinaryIO, resume: str) -> Iterator[Block]:
    """The sheets in order. `resume` counts the sheets that are done, and names the byte of the next row."""
    book = _book(Package(file))
    first, row = map(int, (resume or "0:0").split(":"))
    for at, (name, part) in enumerate(book.sheets[first:], start=first):
        if not row:
            yield Heading(text=name, level=SHEET_LEVEL)
        yield from _sheet(book, part, at, row)
        row = 0
        if at + 1 < len(book.sheets):
            yield PageEnd(resume=f"{at + 1}:0")


def _book(package: Package) -> Book:
    main = package.main()
    root, related = package.tree(main), package.relations(main)
    listed = (
        (value(each, "name") or "", related.get(relation(each) or ""))
        for each in children(child(root, "sheets"), "sheet")
    )
    sheets = tuple((name, found[1]) for name, found in listed if found and found[0] == "worksheet")
    if not sheets:
        raise unreadable("it has no sheet")
    styles, strings = package.related(main, "styles"), package.related(main, "sharedStrings")
    from_1904 = value(child(root, "workbookPr"), "date1904") in {"1", "true"}
    return Book(
        package=package,
        sheets=sheets,
        strings=_strings(package, strings) if strings else (),
        formats=formats_of(package.tree(styles) if styles else None, from_1904=from_1904),
    )


def _strings(package: Package, part: str) -> tuple[str, ...]:
    found: list[str] = []
    characters = 0
    for item in package.items(part, depth=AT_STRING):
        found.append(_rich(item))
        characters += len(found[-1])
        if characters > MOST_STRING_CHARACTERS:
            raise too_large(f"its texts have more than {MOST_STRING_CHARACTERS} characters")
    return tuple(found)


def _rich(item: ET.Element) -> str:
    """A text in several runs as one; how it is pronounced (`rPh`) is left out."""
    runs = (each if name_of(each) == "t" else child(each, "t") for each in item if name_of(each) in {"t", "r"})
    return "".join(run.text or "" for run in runs if run is not None)


def _sheet(book: Book, part: str, at: int, resume: int) -> Iterator[Block]:
    """Tables of at most a page, with page ends between them. `resume` is the byte of a row; 0 is the beginning."""
    with book.package.opened(part) as sheet:
        rows = ((row.at, _row(row, book)) for row in scan(sheet))
        filled = ((place, row) for place, row in rows if any(row))
        first, head = next(filled, (0, ()))
        if resume:
            rows = ((row.at, _row(row, book)) for row in scan_from(sheet, first, resume))
            filled = ((place, row) for place, row in rows if any(row))
        gathered = Rows(head=head)
        for place, row in filled:
            if gathered.full:
                yield _without_empty_columns(gathered.take())
                yield PageEnd(resume=f"{at}:{place}")
            gathered.add(row)
        yield _without_empty_columns(gathered.take())


def _row(row: SheetRow, book: Book) -> Row:
    cells: list[str] = []
    for cell in row.cells:
        column = _column(cell.reference, len(cells))
        if column >= MOST_COLUMNS:
            raise too_large(f"a row has more than {MOST_COLUMNS} columns")
        if column >= len(cells):
            cells += [""] * (column + 1 - len(cells))
        cells[column] = _shown(cell, book)
    return tuple(cells)


def _column(reference: str, following: int) -> int:
    """From 0; a cell without a reference follows the one before it."""
    letters = COLUMN.match(reference)
    if letters is None:
        return following
    count = 0
    for letter in letters[0]:
        count = count * 26 + ord(letter) - ord("A") + 1
    return count - 1


def _shown(cell: Cell, book: Book) -> str:
    if not cell.value:
        return f"={cell.formula}" if cell.formula else ""
    if cell.kind == "s":
        place = int(cell.value)
        return book.strings[place] if 0 <= place < len(book.strings) else ""
    if cell.kind == "b":
        return "TRUE" if cell.value == "1" else "FALSE"
    if cell.kind == "n":
        return book.formats.shown(cell.value, int(cell.style) if cell.style.isdecimal() else None)
    return cell.value


def _without_empty_columns(table: Table) -> Table:
    """Columns that have nothing on this page would only push the others apart."""
    filled = sorted({at for row in table.rows for at, cell in enumerate(row) if cell})
    return Table(rows=tuple(tuple(row[at] if at < len(row) else "" for at in filled) for row in table.rows))
