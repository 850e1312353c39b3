"""Rows that may continue the row above: the text of a cell did not fit into one line, or the page ended.

Such a row fills a subset of the columns of the row above and has no numbers. It may also be a title, or a row with
empty cells. Where that is ambiguous, the text above may be incomplete and becomes null. Numbers and dates do not wrap.
"""

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

from penstock.documents.extract.fields.label_index import LabelIndex
from penstock.documents.extract.fields.layout import LayoutTable, LayoutText
from penstock.documents.extract.fields.schema_tree import LeafNode, leaf_types

MAX_PITCH_RATIO = 1.15  # of the usual row distance; a row farther away does not continue the one above
WORD_GAP = 0.3  # between two words, in line heights

Cells: TypeAlias = Sequence[LayoutText | None]

OPEN_ENDINGS = tuple(",;，、；(（/&+-")

_LETTER = re.compile(r"[^\W\d_]")
_COLON = re.compile(r"[:：]")
_TITLE = re.compile(r"\*\*.*\*\*|__.*__|.*[:：]")


@dataclass(frozen=True, kw_only=True)
class ContinuationRows:
    """Detects continuation rows of one table."""

    table: LayoutTable

    def may_continue(self, row: Cells, above: Cells) -> bool:
        """Whether a row may continue the row above, which may be the last one of an earlier page."""
        pairs = [(above_cell, cell) for above_cell, cell in zip(above, row, strict=False) if cell is not None]
        if (
            len(row) != len(above)
            or not _is_subset(row, above)
            or not all(_LETTER.search(cell.text) for _, cell in pairs)
        ):
            return False
        if any(_TITLE.fullmatch(cell.text) for _, cell in pairs):
            return False
        if any(_continues(above_cell, cell) for above_cell, cell in pairs if above_cell is not None):
            return True
        first = next(at for at, cell in enumerate(above) if cell is not None)
        return not self.is_far(row, above) and (row[first] is None or self._did_not_fit(first, row, above))

    def is_far(self, row: Cells, above: Cells) -> bool:
        """Whether a row is farther below the row above than is usual in this table."""
        here, before = _top(row), _top(above)
        if here is None or before is None or self._pitch is None or _page(row) != _page(above):
            return False
        return here - before > MAX_PITCH_RATIO * self._pitch

    def _did_not_fit(self, first: int, row: Cells, above: Cells) -> bool:
        """Whether the first word of a cell in the first column did not fit into the line above. Without boxes it may
        also be a title, except after a page break."""
        above_cell, cell = above[first], row[first]
        if above_cell is None or cell is None or above_cell.box is None or cell.box is None:
            return _page(row) != _page(above)
        left, top, right, bottom = cell.box
        word = (right - left) * len(cell.text.split()[0]) / len(cell.text)
        return above_cell.box[2] + word + 2 * WORD_GAP * (bottom - top) >= self._right_edges.get(first, 0.0)

    @cached_property
    def _pitch(self) -> float | None:
        tops = [top for row in self.table.rows if (top := _top(row)) is not None]
        return statistics.median(below - top for top, below in pairwise(tops)) if len(tops) > 2 else None

    @cached_property
    def _right_edges(self) -> dict[int, float]:
        """The right edge of each column."""
        right_edges: dict[int, float] = {}
        for row in self.table.rows:
            for at, cell in enumerate(row):
                if cell is not None and cell.box is not None:
                    right_edges[at] = max(right_edges.get(at, 0.0), cell.box[2])
        return right_edges


def realign(row: Cells, above: Cells) -> Cells:
    """Move the only cell of a row below the cell with the same left edge: a long text may be in the wrong column."""
    filled = [cell for cell in row if cell is not None]
    lefts = [
        (abs(above_cell.box[0] - cell.box[0]), at)
        for cell in filled
        if cell.box
        for at, above_cell in _boxed(above)
        if above_cell.box
    ]
    if len(filled) != 1 or len(row) != len(above) or not lefts:
        return row
    column = min(lefts)[1]
    return [filled[0] if at == column else None for at in range(len(row))]


def _boxed(row: Cells) -> Iterator[tuple[int, LayoutText]]:
    return ((at, cell) for at, cell in enumerate(row) if cell is not None and cell.box is not None)


def may_be_truncated(leaf: LeafNode) -> bool:
    """Whether a part of its value would still be valid."""
    texts = [hint for hint in leaf.hints if "string" in leaf_types(hint)]
    return any("enum" not in hint and hint.get("format") != "date" for hint in texts)


def without_truncated_values(table: LayoutTable, label_index: LabelIndex) -> LayoutTable:
    """A form without the values that may continue below, in a row without labels. Their labels are removed too, so that
    no other text is taken for their value."""
    rows, continuations = [list(row) for row in table.rows], ContinuationRows(table=table)
    for at, (above, row) in enumerate(pairwise(table.rows)):
        if not _is_below_values(row, above) or continuations.is_far(row, above):
            continue
        for column, (label, above_cell, cell) in enumerate(zip(above[:-1], above[1:], row[1:], strict=True)):
            if (
                label is not None
                and above_cell is not None
                and cell is not None
                and _is_truncated(label, above_cell, cell, label_index)
            ):
                rows[at][column : column + 2] = [None, None]
    return LayoutTable(rows=tuple(tuple(row) for row in rows if any(row)))


def _is_below_values(row: Cells, above: Cells) -> bool:
    """Whether a row has texts only below values. Adjacent texts are below headers instead."""
    is_under = all(cell is None or above_cell is not None for above_cell, cell in zip(above, row, strict=True))
    return is_under and row[0] is None and not any(one and other for one, other in pairwise(row))


def _is_truncated(label: LayoutText, above_cell: LayoutText, cell: LayoutText, label_index: LabelIndex) -> bool:
    if any(_COLON.search(text.text) or label_index.is_label(text.text) for text in (above_cell, cell)):
        return False
    return any(may_be_truncated(match.leaf) for match in label_index.match(label.text))


def _is_subset(row: Cells, above: Cells) -> bool:
    """Whether a row fills a part of the columns of the row above: one of several, or some without the first."""
    own, other = ({at for at, cell in enumerate(cells) if cell is not None} for cells in (row, above))
    return bool(own) and own < other and (len(own) == 1 or min(other) not in own) and len(other) > 2


def _continues(above_cell: LayoutText, cell: LayoutText) -> bool:
    return cell.text[:1].islower() or above_cell.text.endswith(OPEN_ENDINGS)


def _top(row: Cells) -> float | None:
    return min((cell.box[1] for cell in row if cell is not None and cell.box is not None), default=None)


def _page(row: Cells) -> int:
    return next(cell.page for cell in row if cell is not None)
