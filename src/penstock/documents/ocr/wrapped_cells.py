"""Cells of several lines in tables that OCR has seen: the second line of a cell looks like a row of its own.

A row that fills only some columns of the row above may be its second line, or a row with empty cells. Lines of a cell
stand closer than rows do in most tables, so the distance decides. Where all are equally far apart, a row goes on in
the one above only if it lacks the first column, as no row around it does, and has no figures: all else stays apart.
"""

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from penstock.documents.layout.lines import Piece, around, is_chinese, together
from penstock.documents.ocr.text_sizes import width_of
from penstock.documents.pages import Box

CLOSER = 0.93  # of the distance between rows; boxes of equal rows differ by a twentieth
CLOSER_TOGETHER = 0.96  # one of several such rows, that are closer in the middle
EQUAL = 1.05
MOST_PITCH = 1.7  # between lines of a cell, in heights of a line
AROUND = 3  # rows on each side that tell how far apart rows are here: a table of several parts has several distances
AIR = 0.3  # between two words, in heights of a line

Row = list[Piece | None]

_WORD = re.compile(r"[^\W\d_](?<![A-Z])|[A-Z]{4}")  # what is more than figures with a currency
_AMOUNT = re.compile(r"[€$£¥￥%]|\d[.,]\d")
_BROKEN_OFF = re.compile(r"(?:\S+@|\w+://|www\.)\S*[.@/_=&?#-]")


def without_wraps(cells: Sequence[Row]) -> list[Row]:
    """The rows of a table, each with all lines of its cells."""
    wraps = Wraps(cells).found
    rows: list[Row] = []
    for at, row in enumerate(cells):
        if at in wraps:
            rows[-1] = [_joined(above, cell) for above, cell in zip(rows[-1], row, strict=True)]
        else:
            rows.append(list(row))
    return rows


def _joined(above: Piece | None, cell: Piece | None) -> Piece | None:
    if above is None or cell is None:
        return above or cell
    is_one_word = _BROKEN_OFF.fullmatch(above[0]) and len(cell[0].split()) == 1
    text = above[0] + cell[0] if is_one_word else together((above[0].strip(), cell[0].strip()))
    return text, around([above[1], cell[1]])


@dataclass(frozen=True)
class Wraps:
    """Which rows of a table are further lines of the row above."""

    cells: Sequence[Row]

    @cached_property
    def found(self) -> set[int]:
        """By their numbers."""
        found: set[int] = set()
        for at in sorted(self._doubtful):
            base = next(above for above in range(at - 1, -1, -1) if above not in found)
            if self.is_close(base, at) or self._is_rest(base, at):
                found.add(at)
        return found

    def is_close(self, base: int, at: int) -> bool:
        """Whether a row is a further line of the row `base`, as it stands closer than a row does. Nothing may speak
        against it: an amount under an amount, or room for its first word in the line above."""
        has_first = min(self._filled[base]) in self._filled[at]
        return at in self._close and all(
            not (_is_amount(cell) and _is_amount(above)) and not (has_first and self._had_room(column, above, cell))
            for column, above, cell in self._pairs(at)
        )

    @cached_property
    def _filled(self) -> list[set[int]]:
        return [{column for column, cell in enumerate(row) if cell is not None} for row in self.cells]

    @cached_property
    def _doubtful(self) -> set[int]:
        """Rows that fill some columns of the row above and no others, close enough to be lines of one text."""
        rows = range(1, len(self.cells))
        less = (at for at in rows if self._filled[at] < self._filled[at - 1])
        return {at for at in less if self._pitches[at] <= MOST_PITCH * self._height(at)}

    @cached_property
    def _pitches(self) -> list[float]:
        """How far each row is below the row above. The middle of all cells is meant: single boxes are less exact."""
        middles = [statistics.fmean((box[1] + box[3]) / 2 for box in self._boxes(at)) for at in range(len(self.cells))]
        return [0.0, *(below - above for above, below in pairwise(middles))]

    def _boxes(self, at: int) -> list[Box]:
        return [cell[1] for cell in self.cells[at] if cell is not None]

    def _height(self, at: int) -> float:
        return statistics.fmean(box[3] - box[1] for box in self._boxes(at))

    def _usual(self, at: int) -> float | None:
        """How far apart rows are around here, on the side where they are closer. One row alone tells little."""
        above = [self._pitches[row] for row in range(at - 1, 0, -1) if row not in self._doubtful][:AROUND]
        below = [self._pitches[row] for row in range(at + 1, len(self.cells)) if row not in self._doubtful][:AROUND]
        sides = [side for side in (above, below) if len(side) > 1] or [above + below]
        return min((statistics.median(side) for side in sides if side), default=None)

    @cached_property
    def _close(self) -> set[int]:
        """The doubtful rows that stand closer than rows do."""
        shares = {at: self._pitches[at] / usual for at in self._doubtful if (usual := self._usual(at))}
        most = CLOSER_TOGETHER if shares and statistics.median(shares.values()) <= CLOSER else CLOSER
        return {at for at, share in shares.items() if share <= most}

    def _is_rest(self, base: int, at: int) -> bool:
        """Whether a row that is as far off as any goes on in the row above, by what it has and what it lacks."""
        first, *others = sorted(self._filled[base])
        usual = self._usual(at)
        if base == 0 or usual is None or self._pitches[at] > EQUAL * usual:
            return False
        if first in self._filled[at] or set(others) <= self._filled[at]:
            return False
        has_figures = not all(_WORD.search(cell[0]) for _, _, cell in self._pairs(at))
        return not has_figures and all(first in self._filled[row] for row in self._rows_around(base, at))

    def _rows_around(self, base: int, at: int) -> Iterator[int]:
        above = [row for row in range(base - 1, 0, -1) if row not in self._doubtful][: AROUND - 1]
        below = [row for row in range(at + 1, len(self.cells)) if row not in self._doubtful][:1]
        yield from (*above, *below)

    def _pairs(self, at: int) -> Iterator[tuple[int, Piece, Piece]]:
        """Each cell of a row, with its column and the cell above."""
        for column, (above, cell) in enumerate(zip(self.cells[at - 1], self.cells[at], strict=True)):
            if above is not None and cell is not None:
                yield column, above, cell

    def _had_room(self, column: int, above: Piece, cell: Piece) -> bool:
        """Whether the first word of a cell would have stood in the line above: the column is as wide as its widest
        text at least."""
        right = max(other[1][2] for row in self.cells if (other := row[column]) is not None)
        text, (left, top, end, bottom) = cell
        word = text[:1] if is_chinese(text[0]) else text.split()[0]
        wide = (end - left) * width_of(word) / width_of(text)
        return above[1][2] + wide + 2 * AIR * (bottom - top) < right


def _is_amount(cell: Piece) -> bool:
    return not _WORD.search(cell[0]) and _AMOUNT.search(cell[0]) is not None
