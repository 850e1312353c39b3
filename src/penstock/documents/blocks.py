"""Blocks that format readers yield, and how blocks become pages.

A reader yields blocks in reading order. `to_pages` writes them as markdown, with a span for each line and cell, and
starts a new page when one is full. A `PageBreak` ends a page where the format has one (a slide, a sheet); its `resume`
value is a cursor from which the reader can continue, so that a long file is not read from the start for every batch.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from penstock.documents.pages import Page, Span

PAGE_CHARACTERS = 12_000  # about four printed pages
PAGE_ROWS = 200
PAGE_WEIGHT = 400_000  # of a table on one page: characters, plus CELL_WEIGHT for each cell
MAX_COLUMNS = 16_384  # the limit of spreadsheets
CELL_WEIGHT = 40  # the cost of a cell besides its text: a span and its JSON

PAGE_MARKER = re.compile(r"<!--(\s*page\s)")
BLOCK_SYNTAX = re.compile(r"^(\s*)(#{1,6}\s|\||```|~~~|(?:-{3,}|={3,})\s*$)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Heading:
    """A heading. Levels start at 1."""

    text: str
    level: int


@dataclass(frozen=True, kw_only=True)
class TextBlock:
    """A paragraph, or several lines of text."""

    text: str


@dataclass(frozen=True, kw_only=True)
class RawMarkdown:
    """Text that is written without escaping, such as markdown."""

    text: str


@dataclass(frozen=True, kw_only=True)
class ListItem:
    """A list item. `number` is None for a bullet."""

    text: str
    level: int = 0
    number: int | None = None


Row = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TableBlock:
    """A table. The first row is the header."""

    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class PageBreak:
    """The end of a page. `resume` is the cursor at which the reader can continue, or empty."""

    resume: str = ""


Block = Heading | TextBlock | RawMarkdown | ListItem | TableBlock | PageBreak


@dataclass(kw_only=True)
class TableBuilder:
    """Collects the rows of a table until a page is full."""

    head: Row
    rows: list[Row] = field(default_factory=list)
    _widest: int = 0
    _characters: int = 0

    def add(self, row: Row) -> None:
        """Add a row."""
        self.rows.append(row)
        self._widest = max(self._widest, len(row))
        self._characters += sum(len(cell) + CELL_WEIGHT for cell in row if cell)

    @property
    def full(self) -> bool:
        """Whether the page should end. Every row is padded to the widest one, so the width counts for all rows."""
        weight = self._characters + 3 * max(self._widest, len(self.head)) * len(self.rows)
        return len(self.rows) >= PAGE_ROWS or weight >= PAGE_WEIGHT

    def take(self) -> TableBlock:
        """Return the collected rows below the header, and start over."""
        table = TableBlock(rows=(self.head, *self.rows))
        self.rows, self._widest, self._characters = [], 0, 0
        return table


def to_pages(blocks: Iterable[Block], *, first: int, longest: int = PAGE_CHARACTERS) -> Iterator[tuple[Page, str]]:
    """Yield pages numbered from `first`, each with the cursor after it (empty where reading cannot resume)."""
    writer = _PageWriter(number=first, longest=longest)
    for block in _split_long(blocks):
        if isinstance(block, PageBreak):
            yield writer.page(), block.resume
            writer = writer.next()
            continue
        if writer.is_full_before(block):
            yield writer.page(), ""
            writer = writer.next()
        writer.write(block)
    if writer.pieces or writer.number == 1:
        yield writer.page(), ""


def _split_long(blocks: Iterable[Block]) -> Iterator[Block]:
    """Split blocks that are much longer than a page."""
    for block in blocks:
        if isinstance(block, TableBlock):
            yield from _split_table(block)
        elif isinstance(block, PageBreak | RawMarkdown) or len(block.text) <= PAGE_CHARACTERS:
            yield block
        else:
            yield from (TextBlock(text=piece) for piece in split_text(block.text))


def _split_table(table: TableBlock) -> Iterator[Block]:
    """Split a table that is longer than a page; each part repeats the header on a page of its own."""
    rows = TableBuilder(head=table.rows[0] if table.rows else ())
    for row in table.rows[1:]:
        if rows.full:
            yield rows.take()
            yield PageBreak()
        rows.add(row)
    yield rows.take()


def split_text(text: str) -> Iterator[str]:
    """Split a long text at a line break, else at a space, else anywhere."""
    begin = 0
    while begin < len(text):
        half, end = begin + PAGE_CHARACTERS // 2, begin + PAGE_CHARACTERS
        if end < len(text):
            between = (text.rfind("\n", half, end), text.rfind(" ", half, end))
            end = next((at for at in between if at > 0), end)
        yield text[begin:end]
        begin = end


@dataclass(kw_only=True)
class _PageWriter:
    """Builds one page."""

    number: int
    pieces: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    characters: int = 0
    tables: int = 0
    marker: str = ""  # list marker of the last block
    longest: int = PAGE_CHARACTERS

    def is_full_before(self, block: Block) -> bool:
        """Whether the block starts the next page. A heading moves earlier, so that it stays with its text."""
        if isinstance(block, Heading):
            return self.characters >= self.longest * 3 // 4
        if self.characters < self.longest // 2:
            return False
        size = sum(map(_weight, block.rows)) if isinstance(block, TableBlock) else 0
        return self.characters + size >= self.longest

    def write(self, block: Block) -> None:
        """Append a block to the page."""
        match block:
            case Heading(text=text, level=level):
                self._put(f"{'#' * min(max(level, 1), 6)} {escape_page_markers(_one_line(text))}", text)
            case TextBlock(text=text):
                self._put(BLOCK_SYNTAX.sub(r"\1\\\2", escape_page_markers(text)), text)
            case RawMarkdown(text=text):
                self._put(escape_page_markers(text), text)
            case ListItem(text=text, level=level, number=number):
                mark = "-" if number is None else f"{number}."
                line = f"{'   ' * min(level, 8)}{mark} {escape_page_markers(_one_line(text))}"
                self._put(line, text, marker=self.marker if level and self.marker else mark[-1])
            case TableBlock(rows=rows):
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
        """Items of one list are adjacent lines; other blocks are separated by an empty line."""
        if self.pieces:
            self.pieces.append("\n" if marker and marker == self.marker else "\n\n")
        self.pieces.append(markdown)
        self.characters += len(markdown)
        self.marker = marker

    def next(self) -> "_PageWriter":
        """An empty writer for the next page."""
        return _PageWriter(number=self.number + 1, longest=self.longest)

    def page(self) -> Page:
        """The page as written so far."""
        return Page(number=self.number, origin="file", markdown="".join(self.pieces), spans=tuple(self.spans))


def _weight(row: Row) -> int:
    return sum(len(cell) + 3 for cell in row)


def _row(row: Row, width: int) -> str:
    cells = [escape_page_markers(cell.strip()).replace("|", "\\|") for cell in row]
    shown = ["<br>".join(cell.splitlines()) for cell in cells]
    return "| " + " | ".join(shown + [""] * (width - len(shown))) + " |"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def escape_page_markers(text: str) -> str:
    """Escape text that looks like the marker between pages."""
    return PAGE_MARKER.sub(r"\\<!--\1", text) if "<!--" in text else text
