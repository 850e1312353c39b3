"""Merges wrapped table cells: the second line of a cell looks like a row of its own.

A row that fills only some columns of the row above may be its continuation, or a row with empty cells. In most tables
the lines of a cell are closer than rows, so the distance decides. Where all distances are equal, a row is a
continuation only if it lacks the first column, which no row around it does, and contains no figures.
"""

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from penstock.documents.layout.lines import BoxedText, bounding_box, is_cjk, join_texts
from penstock.documents.ocr.text_sizes import width_of
from penstock.documents.pages import Box

CLOSER = 0.93  # of the row pitch; the pitch of equal rows varies by 5 %
CLOSER_TOGETHER = 0.96  # if the median of several such rows is closer
EQUAL = 1.05
MAX_PITCH = 1.7  # between lines of a cell, in line heights
AROUND = 3  # rows on each side that define the local pitch: parts of a table can differ
AIR = 0.3  # width of a space, in line heights

Row = list[BoxedText | None]

_WORD = re.compile(r"[^\W\d_](?<![A-Z])|[A-Z]{4}")  # more than figures with a currency
_AMOUNT = re.compile(r"[€$£¥￥%]|\d[.,]\d")
_BROKEN_OFF = re.compile(r"(?:\S+@|\w+://|www\.)\S*[.@/_=&?#-]")


def merge_wrapped_rows(cells: Sequence[Row]) -> list[Row]:
    """The rows of a table, with wrapped lines merged into their cells."""
    wraps = WrappedRows(cells).found
    rows: list[Row] = []
    for at, row in enumerate(cells):
        if at in wraps:
            rows[-1] = [_join_cells(above, cell) for above, cell in zip(rows[-1], row, strict=True)]
        else:
            rows.append(list(row))
    return rows


def _join_cells(above: BoxedText | None, cell: BoxedText | None) -> BoxedText | None:
    if above is None or cell is None:
        return above or cell
    is_one_word = _BROKEN_OFF.fullmatch(above[0]) and len(cell[0].split()) == 1
    text = above[0] + cell[0] if is_one_word else join_texts((above[0].strip(), cell[0].strip()))
    return text, bounding_box([above[1], cell[1]])


@dataclass(frozen=True)
class WrappedRows:
    """Finds rows of a table that continue the row above."""

    cells: Sequence[Row]

    @cached_property
    def found(self) -> set[int]:
        """The indexes of rows that continue the row above."""
        found: set[int] = set()
        for at in sorted(self._doubtful):
            base = next(above for above in range(at - 1, -1, -1) if above not in found)
            if self.is_close(base, at) or self._is_continuation(base, at):
                found.add(at)
        return found

    def is_close(self, base: int, at: int) -> bool:
        """Whether a row continues row `base`, because it is closer than rows are. Excluded: an amount below an amount,
        and a first word that would have fit on the line above."""
        has_first = min(self._filled[base]) in self._filled[at]
        return at in self._close and all(
            not (_is_amount(cell) and _is_amount(above))
            and not (has_first and self._would_have_fit(column, above, cell))
            for column, above, cell in self._pairs(at)
        )

    @cached_property
    def _filled(self) -> list[set[int]]:
        return [{column for column, cell in enumerate(row) if cell is not None} for row in self.cells]

    @cached_property
    def _doubtful(self) -> set[int]:
        """Rows that fill a proper subset of the columns of the row above, close enough to be lines of one text."""
        rows = range(1, len(self.cells))
        less = (at for at in rows if self._filled[at] < self._filled[at - 1])
        return {at for at in less if self._pitches[at] <= MAX_PITCH * self._height(at)}

    @cached_property
    def _pitches(self) -> list[float]:
        """The distance of each row from the row above, averaged over its cells since single boxes are imprecise."""
        middles = [statistics.fmean((box[1] + box[3]) / 2 for box in self._boxes(at)) for at in range(len(self.cells))]
        return [0.0, *(below - above for above, below in pairwise(middles))]

    def _boxes(self, at: int) -> list[Box]:
        return [cell[1] for cell in self.cells[at] if cell is not None]

    def _height(self, at: int) -> float:
        return statistics.fmean(box[3] - box[1] for box in self._boxes(at))

    def _usual_pitch(self, at: int) -> float | None:
        """The usual row pitch nearby, on the side where it is smaller. A single row is not enough."""
        above = [self._pitches[row] for row in range(at - 1, 0, -1) if row not in self._doubtful][:AROUND]
        below = [self._pitches[row] for row in range(at + 1, len(self.cells)) if row not in self._doubtful][:AROUND]
        sides = [side for side in (above, below) if len(side) > 1] or [above + below]
        return min((statistics.median(side) for side in sides if side), default=None)

    @cached_property
    def _close(self) -> set[int]:
        """The doubtful rows that are closer than rows are."""
        shares = {at: self._pitches[at] / usual for at in self._doubtful if (usual := self._usual_pitch(at))}
        most = CLOSER_TOGETHER if shares and statistics.median(shares.values()) <= CLOSER else CLOSER
        return {at for at, share in shares.items() if share <= most}

    def _is_continuation(self, base: int, at: int) -> bool:
        """Whether a row at the usual distance continues the row above, by the columns it fills."""
        first, *others = sorted(self._filled[base])
        usual = self._usual_pitch(at)
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

    def _pairs(self, at: int) -> Iterator[tuple[int, BoxedText, BoxedText]]:
        """The cells of a row that have a cell above: column, cell above, cell."""
        for column, (above, cell) in enumerate(zip(self.cells[at - 1], self.cells[at], strict=True)):
            if above is not None and cell is not None:
                yield column, above, cell

    def _would_have_fit(self, column: int, above: BoxedText, cell: BoxedText) -> bool:
        """Whether the first word of a cell would have fit on the line above. The column is at least as wide as its
        widest text."""
        right = max(other[1][2] for row in self.cells if (other := row[column]) is not None)
        text, (left, top, end, bottom) = cell
        word = text[:1] if is_cjk(text[0]) else text.split()[0]
        wide = (end - left) * width_of(word) / width_of(text)
        return above[1][2] + wide + 2 * AIR * (bottom - top) < right


def _is_amount(cell: BoxedText) -> bool:
    return not _WORD.search(cell[0]) and _AMOUNT.search(cell[0]) is not None
