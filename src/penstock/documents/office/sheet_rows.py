"""Streams the rows of a sheet from XML parser events, with the byte offset of each.

A sheet can have millions of elements, so no tree is built. The byte offset of a row lets a later call resume there: the
parser gets the beginning of the sheet, up to the first row, and then continues at that offset.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO
from xml.parsers import expat

from penstock.documents.blocks import MAX_COLUMNS
from penstock.documents.rejections import too_large

CHUNK_BYTES = 64 * 1024
MAX_CELL_CHARACTERS = 1_000_000


@dataclass(slots=True)
class SheetCell:
    """A cell as stored: reference, type, style, value and formula."""

    reference: str
    kind: str
    style: str
    value: str = ""
    formula: str = ""


@dataclass(slots=True)
class SheetRow:
    """A row, and the byte offset at which it starts."""

    at: int
    cells: list[SheetCell]


@dataclass(slots=True)
class _RowScanner:
    """The state of the event parser. `skipped` is the number of bytes skipped when resuming."""

    rows: list[SheetRow] = field(default_factory=list)
    skipped: int = 0
    _row: SheetRow | None = None
    _cell: SheetCell | None = None
    _reading: str = ""
    _in_phonetic: bool = False  # inside a phonetic run (rPh)
    _text: list[str] = field(default_factory=list)

    def attach(self) -> expat.XMLParserType:
        """A parser that reports to this object."""
        parser = expat.ParserCreate()
        parser.buffer_text = True

        def start(tag: str, attributes: dict[str, str]) -> None:
            name = tag.rpartition(":")[2]
            if name == "c":
                self._cell = SheetCell(attributes.get("r", ""), attributes.get("t", "n"), attributes.get("s", ""))
            elif name == "row":
                self._row = SheetRow(self.skipped + parser.CurrentByteIndex, [])
            elif name == "rPh":
                self._in_phonetic = True
            elif name in {"v", "f", "t"} and self._cell is not None and not self._in_phonetic:
                self._reading = name

        parser.StartElementHandler, parser.EndElementHandler = start, self._end
        parser.CharacterDataHandler = self._collect
        return parser

    def _collect(self, text: str) -> None:
        if self._reading:
            self._text.append(text)

    def _end(self, tag: str) -> None:
        name = tag.rpartition(":")[2]
        if name == self._reading and self._cell is not None:
            self._store(self._cell, "".join(self._text))
        elif name == "c" and self._cell is not None and self._row is not None:
            self._row.cells.append(self._cell)
            self._cell = None
            if len(self._row.cells) > MAX_COLUMNS:
                raise too_large(f"a row has more than {MAX_COLUMNS} columns")
        elif name == "row" and self._row is not None:
            self.rows.append(self._row)
            self._row = None
        elif name == "rPh":
            self._in_phonetic = False

    def _store(self, cell: SheetCell, text: str) -> None:
        if self._reading == "f":
            cell.formula = text
        else:
            cell.value += text  # rich text comes in several runs
        if len(cell.value) > MAX_CELL_CHARACTERS:
            raise too_large(f"a cell has more than {MAX_CELL_CHARACTERS} characters")
        self._reading = ""
        self._text.clear()


def scan(sheet: IO[bytes]) -> Iterator[SheetRow]:
    """Yield all rows."""
    scanner = _RowScanner()
    yield from _parse(sheet, scanner, scanner.attach())


def scan_from(sheet: IO[bytes], first: int, at: int) -> Iterator[SheetRow]:
    """Yield the rows from byte offset `at` on, in a sheet whose first row starts at `first`."""
    scanner = _RowScanner()
    parser = scanner.attach()
    sheet.seek(0)
    parser.Parse(sheet.read(first), False)
    sheet.seek(at)
    scanner.skipped = at - first
    yield from _parse(sheet, scanner, parser)


def _parse(sheet: IO[bytes], scanner: _RowScanner, parser: expat.XMLParserType) -> Iterator[SheetRow]:
    while chunk := sheet.read(CHUNK_BYTES):
        parser.Parse(chunk, False)
        yield from scanner.rows
        scanner.rows.clear()
    parser.Parse(b"", True)
