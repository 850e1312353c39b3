"""A page as bits of text in rows, and as one run of words that crosses them.

A bit is a line or a cell. Bits at one height, and cells of one row of a table, share a row: what a value stands beside
is looked for there. What the markdown says and the spans do not is a bit without a place.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from penstock.documents.extract.fields import markdown
from penstock.documents.extract.fields.layout import share_row
from penstock.documents.grounding.tokens import Token, key_of, tokens
from penstock.documents.layout.lines import bounding_box
from penstock.documents.pages import Box, Page

MOST_PAGE = 2_000_000  # characters of a page that are read; a file without pages is one page
MOST_ROW, MOST_CELLS = 1000, 50  # characters and bits of a row in which a word is looked for
MOST_COMPARED = 100_000  # of a page whose markdown is compared with its spans


@dataclass(frozen=True, kw_only=True, slots=True)
class Bit:
    """A line or a cell. `row` counts the rows of the page; `column` is that of a cell."""

    text: str
    row: int
    box: Box | None = None
    table: int | None = None
    column: int | None = None


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A page to look things up in."""

    number: int
    bits: Sequence[Bit]
    words: Sequence[Token]
    homes: Sequence[int]  # which bit each word stands in
    letters: str  # the keys of all words, joined
    starts: Sequence[int]  # where each word begins in the letters

    @cached_property
    def ends(self) -> dict[int, int]:
        """Which word ends where in the letters."""
        return dict(zip([*self.starts[1:], len(self.letters)], range(len(self.words)), strict=False))

    @cached_property
    def rows(self) -> dict[int, list[int]]:
        """The bits of each row, from left to right where that is known."""
        found: dict[int, list[int]] = {}
        for at, bit in enumerate(self.bits):
            found.setdefault(bit.row, []).append(at)
        for row in found.values():
            row.sort(key=lambda at: (_left(self.bits[at]), at))
        return found

    @cached_property
    def headers(self) -> dict[tuple[int, int], int]:
        """The first cell of each column of each table."""
        found: dict[tuple[int, int], int] = {}
        for at, bit in enumerate(self.bits):
            if bit.table is not None and bit.column is not None:
                found.setdefault((bit.table, bit.column), at)
        return found

    @cached_property
    def vocabulary(self) -> dict[int, set[str]]:
        """The words of each bit, one and many alike."""
        found: dict[int, set[str]] = {}
        for word, home in zip(self.words, self.homes, strict=True):
            found.setdefault(home, set()).add(word.key.removesuffix("s"))
        return found

    @cached_property
    def width(self) -> float:
        """How far the page's text reaches."""
        return max((bit.box[2] for bit in self.bits if bit.box), default=1.0) or 1.0

    def row_text(self, at: int) -> str:
        """All that stands in the row of a bit."""
        return " ".join(self.bits[other].text[:MOST_ROW] for other in self.rows[self.bits[at].row][:MOST_CELLS])


def sheet_of(page: Page) -> Sheet:
    """A page, made ready."""
    bits = list(_bits(page)) if page.spans else list(_written(page.markdown[:MOST_PAGE], 0))
    if page.spans and len(page.markdown) <= MOST_COMPARED:
        bits += _only_written(page, bits)
    words: list[Token] = []
    homes: list[int] = []
    for at, bit in enumerate(bits):
        found = tokens(bit.text)
        words += found
        homes += [at] * len(found)
    starts = list(accumulate((len(word.key) for word in words), initial=0))[: len(words)]
    letters = "".join([word.key for word in words])
    return Sheet(number=page.number, bits=bits, words=words, homes=homes, letters=letters, starts=starts)


def _only_written(page: Page, bits: Sequence[Bit]) -> list[Bit]:
    """What the markdown says and the spans do not."""
    known = key_of("\n".join([bit.text for bit in bits]))
    first = 1 + max((bit.row for bit in bits), default=0)
    return [bit for bit in _written(page.markdown, first) if key_of(bit.text) not in known]


def _bits(page: Page) -> Iterator[Bit]:
    rows = _rows_of([(span.box, span.table, span.row) for span in page.spans])
    room = MOST_PAGE
    for span, row in zip(page.spans, rows, strict=True):
        yield Bit(text=span.text[:room], row=row, box=span.box, table=span.table, column=span.column)
        room = max(room - len(span.text), 0)


def _rows_of(places: Sequence[tuple[Box | None, int | None, int | None]]) -> list[int]:
    """The row of each place: one for all cells of a table's row, and for all that stands at one height."""
    units: dict[tuple[int, ...], list[int]] = {}
    for at, (_, table, row) in enumerate(places):
        units.setdefault((at,) if table is None else (table, row or 0, -1), []).append(at)
    found = [0] * len(places)
    count, first = -1, None
    boxed = ((around_known(places[at][0] for at in unit), unit) for unit in units.values())
    for box, unit in sorted(boxed, key=_order):
        if box is None or first is None or not share_row(first, box):
            count, first = count + 1, box
        for at in unit:
            found[at] = count
    return found


def _order(unit: tuple[Box | None, list[int]]) -> tuple[bool, float, int]:
    box, places = unit
    return box is None, box[1] if box else 0.0, places[0]


def around_known(boxes: Iterable[Box | None]) -> Box | None:
    """The bounding box of the known ones."""
    known = [box for box in boxes if box is not None]
    return bounding_box(known) if known else None


def _written(text: str, row: int) -> Iterator[Bit]:
    """The lines and cells of markdown."""
    tables = 0
    for block in markdown.blocks(text):
        if isinstance(block, markdown.Row):
            yield Bit(text=block.text, row=row)
            row += 1
            continue
        for cells in block.rows:
            yield from (
                Bit(text=cell, row=row, table=-1 - tables, column=at) for at, cell in enumerate(cells) if cell.strip()
            )
            row += 1
        tables += 1


def _left(bit: Bit) -> float:
    return bit.box[0] if bit.box else float(bit.column or 0)
