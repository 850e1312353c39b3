"""Spreadsheets (xlsx): a page for each sheet, or for every 200 rows of it below a repeated header.

Rows are streamed, so a sheet of a million rows is never in memory; only the shared strings are. Empty rows and columns
are dropped. A formula is shown as its cached value, or as itself if there is none.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from penstock.documents.blocks import MAX_COLUMNS, Block, Heading, PageBreak, Row, TableBlock, TableBuilder
from penstock.documents.office.number_formats import CellFormats, formats_of
from penstock.documents.office.package import Package
from penstock.documents.office.sheet_rows import SheetCell, SheetRow, scan, scan_from
from penstock.documents.office.xml_names import child, children, name_of, relationship_id, value
from penstock.documents.rejections import too_large, unreadable

AT_STRING = 2  # depth of the shared string items
SHEET_LEVEL = 2
MAX_STRING_CHARACTERS = 100_000_000  # of all shared strings
COLUMN = re.compile(r"[A-Z]{1,3}")


@dataclass(frozen=True, kw_only=True)
class Workbook:
    """An open workbook."""

    package: Package
    sheets: tuple[tuple[str, str], ...]  # name and part of each sheet
    strings: tuple[str, ...]
    formats: CellFormats


def read_xlsx(file: BinaryIO, resume: str) -> Iterator[Block]:
    """Yield the sheets in order. `resume` is "sheet index:byte offset of the next row"."""
    workbook = _open_workbook(Package(file))
    first, row = map(int, (resume or "0:0").split(":"))
    for at, (name, part) in enumerate(workbook.sheets[first:], start=first):
        if not row:
            yield Heading(text=name, level=SHEET_LEVEL)
        yield from _sheet(workbook, part, at, row)
        row = 0
        if at + 1 < len(workbook.sheets):
            yield PageBreak(resume=f"{at + 1}:0")


def _open_workbook(package: Package) -> Workbook:
    main = package.main()
    root, related = package.tree(main), package.relationships(main)
    listed = (
        (value(each, "name") or "", related.get(relationship_id(each) or ""))
        for each in children(child(root, "sheets"), "sheet")
    )
    sheets = tuple((name, found[1]) for name, found in listed if found and found[0] == "worksheet")
    if not sheets:
        raise unreadable("it has no sheet")
    styles, strings = package.related(main, "styles"), package.related(main, "sharedStrings")
    from_1904 = value(child(root, "workbookPr"), "date1904") in {"1", "true"}
    return Workbook(
        package=package,
        sheets=sheets,
        strings=_strings(package, strings) if strings else (),
        formats=formats_of(package.tree(styles) if styles else None, from_1904=from_1904),
    )


def _strings(package: Package, part: str) -> tuple[str, ...]:
    found: list[str] = []
    characters = 0
    for item in package.items(part, depth=AT_STRING):
        found.append(_plain_text(item))
        characters += len(found[-1])
        if characters > MAX_STRING_CHARACTERS:
            raise too_large(f"its shared strings have more than {MAX_STRING_CHARACTERS} characters")
    return tuple(found)


def _plain_text(item: ET.Element) -> str:
    """Rich text as plain text, without phonetic runs (`rPh`)."""
    runs = (each if name_of(each) == "t" else child(each, "t") for each in item if name_of(each) in {"t", "r"})
    return "".join(run.text or "" for run in runs if run is not None)


def _sheet(workbook: Workbook, part: str, at: int, resume: int) -> Iterator[Block]:
    """Yield tables of at most a page, with page breaks between. `resume` is the byte offset of a row, or 0."""
    with workbook.package.open_part(part) as sheet:
        rows = ((row.at, _row(row, workbook)) for row in scan(sheet))
        filled = ((offset, row) for offset, row in rows if any(row))
        first, head = next(filled, (0, ()))
        if resume:
            rows = ((row.at, _row(row, workbook)) for row in scan_from(sheet, first, resume))
            filled = ((offset, row) for offset, row in rows if any(row))
        builder = TableBuilder(head=head)
        for offset, row in filled:
            if builder.full:
                yield _without_empty_columns(builder.take())
                yield PageBreak(resume=f"{at}:{offset}")
            builder.add(row)
        yield _without_empty_columns(builder.take())


def _row(row: SheetRow, workbook: Workbook) -> Row:
    cells: list[str] = []
    for cell in row.cells:
        column = _column(cell.reference, len(cells))
        if column >= MAX_COLUMNS:
            raise too_large(f"a row has more than {MAX_COLUMNS} columns")
        if column >= len(cells):
            cells += [""] * (column + 1 - len(cells))
        cells[column] = _cell_text(cell, workbook)
    return tuple(cells)


def _column(reference: str, following: int) -> int:
    """The column index, from 0. A cell without a reference follows the previous one."""
    letters = COLUMN.match(reference)
    if letters is None:
        return following
    count = 0
    for letter in letters[0]:
        count = count * 26 + ord(letter) - ord("A") + 1
    return count - 1


def _cell_text(cell: SheetCell, workbook: Workbook) -> str:
    if not cell.value:
        return f"={cell.formula}" if cell.formula else ""
    if cell.kind == "s":
        offset = int(cell.value)
        return workbook.strings[offset] if 0 <= offset < len(workbook.strings) else ""
    if cell.kind == "b":
        return "TRUE" if cell.value == "1" else "FALSE"
    if cell.kind == "n":
        return workbook.formats.formatted(cell.value, int(cell.style) if cell.style.isdecimal() else None)
    return cell.value


def _without_empty_columns(table: TableBlock) -> TableBlock:
    """Drop columns that are empty on this page."""
    filled = sorted({at for row in table.rows for at, cell in enumerate(row) if cell})
    return TableBlock(rows=tuple(tuple(row[at] if at < len(row) else "" for at in filled) for row in table.rows))
