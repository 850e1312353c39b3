"""The pieces that readers make of a document, and how they become pages.

A reader yields blocks in reading order; `to_pages` writes them as markdown with a span for each line and cell, and cuts
pages where they get long. A `PageEnd` ends a page where the format itself has one (a slide, a sheet), and may say where
reading can go on, so that a long file need not be read from its beginning for every part.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from penstock.documents.pages import Page, Span

PAGE_CHARACTERS = 12_000  # about four printed pages
PAGE_ROWS = 200
PAGE_WEIGHT = 400_000  # of a table, in characters with all that each cell brings along
MOST_COLUMNS = 16_384  # as many as a spreadsheet has
CELL_WEIGHT = 40  # what a cell costs beside its text

PAGE_MARK = re.compile(r"<!--(\s*page\s)")
NOT_MEANT = re.compile(r"^(\s*)(#{1,6}\s|\||```|~~~|(?:-{3,}|={3,})\s*$)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Heading:
    """A title, with its level from 1."""

    text: str
    level: int


@dataclass(frozen=True, kw_only=True)
class Text:
    """A paragraph, or lines that belong together."""

    text: str


@dataclass(frozen=True, kw_only=True)
class AsIs:
    """Lines that are markdown already, or want to be left alone."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Item:
    """A line of a list. `number` is None where there is a bullet."""

    text: str
    level: int = 0
    number: int | None = None


Row = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of cells, the first of them its head."""

    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class PageEnd:
    """Here ends a page of the document's own. With `resume`, its reader can begin right after it."""

    resume: str = ""


Block = Heading | Text | AsIs | Item | Table | PageEnd


@dataclass(kw_only=True)
class Rows:
    """Rows of a table that are being gathered for one page."""

    head: Row
    rows: list[Row] = field(default_factory=list)
    _widest: int = 0
    _characters: int = 0

    def add(self, row: Row) -> None:
        """One more row."""
        self.rows.append(row)
        self._widest = max(self._widest, len(row))
        self._characters += sum(len(cell) + CELL_WEIGHT for cell in row if cell)

    @property
    def full(self) -> bool:
        """Whether the page should end here. Short rows are filled up to the widest, so width counts for all."""
        weight = self._characters + 3 * max(self._widest, len(self.head)) * len(self.rows)
        return len(self.rows) >= PAGE_ROWS or weight >= PAGE_WEIGHT

    def take(self) -> Table:
        """What was gathered, under its head; then it is empty."""
        table = Table(rows=(self.head, *self.rows))
        self.rows, self._widest, self._characters = [], 0, 0
        return table


def to_pages(blocks: Iterable[Block], *, first: int, longest: int = PAGE_CHARACTERS) -> Iterator[tuple[Page, str]]:
    """Pages, numbered from `first`, each with the place after it where its reader can begin (or nothing)."""
    leaf = _Leaf(number=first, longest=longest)
    for block in _bounded(blocks):
        if isinstance(block, PageEnd):
            yield leaf.page(), block.resume
            leaf = leaf.next()
            continue
        if leaf.is_full_before(block):
            yield leaf.page(), ""
            leaf = leaf.next()
        leaf.write(block)
    if leaf.pieces or leaf.number == 1:
        yield leaf.page(), ""


def _bounded(blocks: Iterable[Block]) -> Iterator[Block]:
    """The same blocks, none of them much longer than a page."""
    for block in blocks:
        if isinstance(block, Table):
            yield from _short_tables(block)
        elif isinstance(block, PageEnd | AsIs) or len(block.text) <= PAGE_CHARACTERS:
            yield block
        else:
            yield from (Text(text=piece) for piece in cut(block.text))


def _short_tables(table: Table) -> Iterator[Block]:
    """A table that is too long for a page in pieces, each under the head of the whole on a page of its own."""
    rows = Rows(head=table.rows[0] if table.rows else ())
    for row in table.rows[1:]:
        if rows.full:
            yield rows.take()
            yield PageEnd()
        rows.add(row)
    yield rows.take()


def cut(text: str) -> Iterator[str]:
    """A long text in pieces, cut between lines, else between words, else anywhere."""
    begin = 0
    while begin < len(text):
        half, end = begin + PAGE_CHARACTERS // 2, begin + PAGE_CHARACTERS
        if end < len(text):
            between = (text.rfind("\n", half, end), text.rfind(" ", half, end))
            end = next((at for at in between if at > 0), end)
        yield text[begin:end]
        begin = end


@dataclass(kw_only=True)
class _Leaf:
    """A page that is being written."""

    number: int
    pieces: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    characters: int = 0
    tables: int = 0
    marker: str = ""  # of the list that the last block was in
    longest: int = PAGE_CHARACTERS

    def is_full_before(self, block: Block) -> bool:
        """Whether this block belongs on the next page; a heading goes there a little sooner, to stay with its text."""
        if isinstance(block, Heading):
            return self.characters >= self.longest * 3 // 4
        if self.characters < self.longest // 2:
            return False
        size = sum(map(_weight, block.rows)) if isinstance(block, Table) else 0
        return self.characters + size >= self.longest

    def write(self, block: Block) -> None:
        """Put a block below the others."""
        match block:
            case Heading(text=text, level=level):
                self._put(f"{'#' * min(max(level, 1), 6)} {guarded(_one_line(text))}", text)
            case Text(text=text):
                self._put(NOT_MEANT.sub(r"\1\\\2", guarded(text)), text)
            case AsIs(text=text):
                self._put(guarded(text), text)
            case Item(text=text, level=level, number=number):
                mark = "-" if number is None else f"{number}."
                line = f"{'   ' * min(level, 8)}{mark} {guarded(_one_line(text))}"
                self._put(line, text, marker=self.marker if level and self.marker else mark[-1])
            case Table(rows=rows):
                self._put_table(rows)

    def _put(self, markdown: str, text: str, *, marker: str = "") -> None:
        if not text.strip():
            return
        self._append(markdown, marker=marker)
        self.spans.extend(Span(text=line.strip()) for line in text.splitlines() if line.strip())

    def _put_table(self, rows: tuple[Row, ...]) -> None:
        width = max(map(len, rows), default=0)
        if not width:
            return
        lines = [_row(row, width) for row in rows]
        lines.insert(1, "| " + " | ".join(["---"] * width) + " |")
        self._append("\n".join(lines), marker="")
        for at, row in enumerate(rows):
            self.spans.extend(
                Span(text=cell.strip(), table=self.tables, row=at, column=column)
                for column, cell in enumerate(row)
                if cell.strip()
            )
        self.tables += 1

    def _append(self, markdown: str, *, marker: str) -> None:
        """Items of one list stand close; all else is kept apart by an empty line."""
        if self.pieces:
            self.pieces.append("\n" if marker and marker == self.marker else "\n\n")
        self.pieces.append(markdown)
        self.characters += len(markdown)
        self.marker = marker

    def next(self) -> "_Leaf":
        """The page after this, still empty."""
        return _Leaf(number=self.number + 1, longest=self.longest)

    def page(self) -> Page:
        """As it is now."""
        return Page(number=self.number, origin="file", markdown="".join(self.pieces), spans=tuple(self.spans))


def _weight(row: Row) -> int:
    return sum(len(cell) + 3 for cell in row)


def _row(row: Row, width: int) -> str:
    cells = [guarded(cell.strip()).replace("|", "\\|") for cell in row]
    shown = ["<br>".join(cell.splitlines()) for cell in cells]
    return "| " + " | ".join(shown + [""] * (width - len(shown))) + " |"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def guarded(text: str) -> str:
    """No text may pass for the mark that stands between pages."""
    return PAGE_MARK.sub(r"\\<!--\1", text) if "<!--" in text else text
