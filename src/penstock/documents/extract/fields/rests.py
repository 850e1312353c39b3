"""Rows that may be the rest of the row above them: a cell had more text than fits into one line, or the page ended.

Such a row fills some columns of the row above and no others, and has no figures. It may as well be a title, or a row
with empty cells. Where that cannot be told, a text above it is not known to be whole, and half a value is none. Numbers
and dates do not go on in a second line.
"""

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

from penstock.documents.extract.fields.labels import Labelled
from penstock.documents.extract.fields.layout import Table, Text
from penstock.documents.extract.fields.tree import Leaf, kinds_of

FARTHER = 1.15  # times the usual distance of two rows, and a row is no second line of the one above
AIR = 0.3  # between two words, in heights of a line

Cells: TypeAlias = Sequence[Text | None]

ENDS_OPEN = tuple(",;，、；(（/&+-")

_LETTER = re.compile(r"[^\W\d_]")
_COLON = re.compile(r"[:：]")
_TITLE = re.compile(r"\*\*.*\*\*|__.*__|.*[:：]")


@dataclass(frozen=True, kw_only=True)
class Rests:
    """A table in which rows may be the rest of others."""

    table: Table

    def may_be(self, row: Cells, above: Cells) -> bool:
        """Whether a row may be the rest of the row above, which may be the last one of an earlier page."""
        pairs = [(over, cell) for over, cell in zip(above, row, strict=False) if cell is not None]
        if (
            len(row) != len(above)
            or not _is_part(row, above)
            or not all(_LETTER.search(cell.text) for _, cell in pairs)
        ):
            return False
        if any(_TITLE.fullmatch(cell.text) for _, cell in pairs):
            return False
        if any(_goes_on(over, cell) for over, cell in pairs if over is not None):
            return True
        first = next(at for at, cell in enumerate(above) if cell is not None)
        return not self.is_far(row, above) and (row[first] is None or self._had_no_room(first, row, above))

    def is_far(self, row: Cells, above: Cells) -> bool:
        """Whether a row stands farther below the row above than rows of this table do."""
        here, before = _top(row), _top(above)
        if here is None or before is None or self._pitch is None or _page(row) != _page(above):
            return False
        return here - before > FARTHER * self._pitch

    def _had_no_room(self, first: int, row: Cells, above: Cells) -> bool:
        """Whether the first word of a cell in the first column had no room in the line above. Where nothing has a
        place, it may be a title just as well, except where a page has ended."""
        over, cell = above[first], row[first]
        if over is None or cell is None or over.box is None or cell.box is None:
            return _page(row) != _page(above)
        left, top, right, bottom = cell.box
        word = (right - left) * len(cell.text.split()[0]) / len(cell.text)
        return over.box[2] + word + 2 * AIR * (bottom - top) >= self._rights.get(first, 0.0)

    @cached_property
    def _pitch(self) -> float | None:
        tops = [top for row in self.table.rows if (top := _top(row)) is not None]
        return statistics.median(below - over for over, below in pairwise(tops)) if len(tops) > 2 else None

    @cached_property
    def _rights(self) -> dict[int, float]:
        """How far to the right each column reaches."""
        rights: dict[int, float] = {}
        for row in self.table.rows:
            for at, cell in enumerate(row):
                if cell is not None and cell.box is not None:
                    rights[at] = max(rights.get(at, 0.0), cell.box[2])
        return rights


def in_place(row: Cells, above: Cells) -> Cells:
    """A row with its only cell under the one that begins where it does: a long text may be seen in a wrong column."""
    filled = [cell for cell in row if cell is not None]
    lefts = [
        (abs(over.box[0] - cell.box[0]), at) for cell in filled if cell.box for at, over in _boxed(above) if over.box
    ]
    if len(filled) != 1 or len(row) != len(above) or not lefts:
        return row
    home = min(lefts)[1]
    return [filled[0] if at == home else None for at in range(len(row))]


def _boxed(row: Cells) -> Iterator[tuple[int, Text]]:
    return ((at, cell) for at, cell in enumerate(row) if cell is not None and cell.box is not None)


def may_be_half(leaf: Leaf) -> bool:
    """Whether a part of its value would be taken for the whole."""
    texts = [hint for hint in leaf.hints if "string" in kinds_of(hint)]
    return any("enum" not in hint and hint.get("format") != "date" for hint in texts)


def without_halves(table: Table, labelled: Labelled) -> Table:
    """A form without the values of which the rest may stand below, in a row without labels. Their labels go with them:
    what else stands beside one is not its value."""
    rows, rests = [list(row) for row in table.rows], Rests(table=table)
    for at, (above, row) in enumerate(pairwise(table.rows)):
        if not _is_below_values(row, above) or rests.is_far(row, above):
            continue
        for column, (label, over, cell) in enumerate(zip(above[:-1], above[1:], row[1:], strict=True)):
            if label is not None and over is not None and cell is not None and _is_half(label, over, cell, labelled):
                rows[at][column : column + 2] = [None, None]
    return Table(rows=tuple(tuple(row) for row in rows if any(row)))


def _is_below_values(row: Cells, above: Cells) -> bool:
    """Whether a row has texts without labels, under labels with values. Texts side by side stand under headers."""
    is_under = all(cell is None or over is not None for over, cell in zip(above, row, strict=True))
    return is_under and row[0] is None and not any(one and other for one, other in pairwise(row))


def _is_half(label: Text, over: Text, cell: Text, labelled: Labelled) -> bool:
    if any(_COLON.search(text.text) or labelled.is_label(text.text) for text in (over, cell)):
        return False
    return any(may_be_half(meant.leaf) for meant in labelled.meant_by(label.text))


def _is_part(row: Cells, above: Cells) -> bool:
    """Whether a row has a part of what the row above has: one cell of several, or some without the first."""
    own, over = ({at for at, cell in enumerate(cells) if cell is not None} for cells in (row, above))
    return bool(own) and own < over and (len(own) == 1 or min(over) not in own) and len(over) > 2


def _goes_on(over: Text, cell: Text) -> bool:
    return cell.text[:1].islower() or over.text.endswith(ENDS_OPEN)


def _top(row: Cells) -> float | None:
    return min((cell.box[1] for cell in row if cell is not None and cell.box is not None), default=None)


def _page(row: Cells) -> int:
    return next(cell.page for cell in row if cell is not None)
