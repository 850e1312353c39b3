"""The texts right of a label and below it: by boxes on the page, or by rows and columns of a table.

Whether the value of a label is right of it or below it cannot be seen from text alone. A label is never a value. Where
rows are pairs and other labels are in the label's column, values are to the right. Otherwise a text with digits beats
one without; and where that does not decide either, both are returned and make the leaf ambiguous.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeAlias

from penstock.documents.extract.fields.label_keys import is_rate, names_a_unit
from penstock.documents.extract.fields.layout import LayoutTable, LayoutText, in_same_row
from penstock.documents.pages import Box

BESIDE, BELOW = 0, 1  # of a value: right of its label or after a separator; below its label
MAX_GAP = 0.6  # between a label and a text right of it, in page widths
MAX_GAP_HEIGHTS = 15  # or in label heights, where the page width is unknown
MAX_VERTICAL_GAP = 2.0  # in label heights

IsLabel: TypeAlias = Callable[[str], bool]

_DIGIT = re.compile(r"\d")
_OWN_VALUE = re.compile(r"[:：]\s*\S")


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The texts around a label: the others of its row and column; those right of it and close below it, nearest
    first."""

    row: Sequence[LayoutText] = ()
    column: Sequence[LayoutText] = ()
    right: Sequence[LayoutText] = ()
    below: Sequence[LayoutText] = ()
    has_gap: bool = False  # an empty cell is between: the text to the right may be another label


@dataclass(frozen=True, kw_only=True)
class AdjacentText:
    """A text that may be the value of a label. `is_loose`: free text is not accepted from it, since it may be prose."""

    text: LayoutText
    position: int
    is_loose: bool = False


def adjacent_values(
    label: LayoutText, surroundings: Surroundings, is_label: IsLabel, options: Collection[LayoutText] = ()
) -> list[AdjacentText]:
    """The texts around a label that may be its value. `options` are values even if they look like labels."""
    values = [each for each in _nearest_right(label, surroundings) if each in options or not is_label(each.text)]
    under = list(takewhile(lambda each: not is_label(each.text), surroundings.below))
    if label.text.rstrip().endswith((":", "：")):
        first = [AdjacentText(text=each, position=BESIDE) for each in values] + [
            AdjacentText(text=each, position=BELOW) for each in under
        ]
        return first[: max(len(values), 1)]
    is_clear = any(is_label(each.text) for each in surroundings.row)
    if len(surroundings.row) == 1 and any(
        is_label(each.text) and not _OWN_VALUE.search(each.text) for each in surroundings.column
    ):
        under = []  # pairs in rows, with labels below labels: values are to the right
    beside = [AdjacentText(text=each, position=BESIDE, is_loose=surroundings.has_gap) for each in values]
    if values and under:
        right_has, below_has = bool(_DIGIT.search(values[0].text)), bool(_DIGIT.search(under[0].text))
        if right_has == below_has:
            return beside + [AdjacentText(text=each, position=BESIDE, is_loose=surroundings.has_gap) for each in under]
        beside, is_clear = (beside if right_has else []), True
    return beside or [AdjacentText(text=each, position=BELOW, is_loose=not is_clear) for each in under]


def _nearest_right(label: LayoutText, surroundings: Surroundings) -> Sequence[LayoutText]:
    """The nearest text right of a label. After "VAT" a rate and an amount are both returned, as either may be meant."""
    right = surroundings.right
    if surroundings.has_gap and len(right) > 1:
        return ()  # another label with its value
    is_ambiguous = len(right) > 1 and is_rate(right[0].text) and not names_a_unit(label.text)
    return right[: 2 if is_ambiguous else 1]


def surroundings_by_box(label: LayoutText, lines: Sequence[LayoutText], width: float) -> Surroundings:
    """The surroundings of a label on a page of this width, by boxes."""
    if label.box is None:
        return Surroundings()
    row = _row_of(label.box, lines)
    column = _same_block(label, [line for line in lines if line.box and _share_edge(label.box, line.box)])
    right = _right_of(label.box, row, width)
    has_gap = any(
        _skips_column(right, _right_of(line.box, _row_of(line.box, lines), width)) for line in column if line.box
    )
    below = _below(label, lines) if not has_gap else ()  # values are to the right here
    return Surroundings(row=row, column=column, right=right, below=below, has_gap=has_gap)


def _row_of(box: Box, lines: Sequence[LayoutText]) -> list[LayoutText]:
    return [line for line in lines if line.box and line.box != box and in_same_row(box, line.box)]


def _skips_column(right: Sequence[LayoutText], other: Sequence[LayoutText]) -> bool:
    """Whether the text right of a label starts where another row of the block has its third text: then the value of
    this label is missing, and the text is another label."""
    edges = [line.box for line in (*right[:1], *other[:2]) if line.box]
    return len(edges) == 3 and _share_edge(edges[0], edges[2]) and not _share_edge(edges[0], edges[1])


def surroundings_in_table(table: LayoutTable, at: int, column: int, is_label: IsLabel) -> Surroundings:
    """The surroundings of a label in a table. After an empty cell, a text belongs to the label only in the last column,
    where it has no cell for a value of its own."""
    cell, right = table.rows[at][column], table.rows[at][column + 1 :]
    row = [each for each in table.rows[at] if each is not None and each is not cell]
    is_first = all(sum(each is not None for each in above) < 2 for above in table.rows[:at])
    has_gap = any(right) and right[0] is None
    over_a_column = table.width > 2 or is_first or any(is_label(each.text) for each in row)
    if has_gap and any(each[column + 1] is not None for each in table.rows[at + 1 :]):
        over_a_column = False  # values are in the next column, and this one is missing
    under = [each[column] for each in table.rows[at + 1 :]] if over_a_column else []
    return Surroundings(
        row=row,
        column=[other for each in table.rows if (other := each[column]) is not None and other is not cell],
        right=[each for each in right if each is not None],
        below=list(filter(None, takewhile(lambda each: each is not None, under))),
        has_gap=has_gap and not all(each is None for each in right[:-1]),
    )


def _same_block(label: LayoutText, column: Sequence[LayoutText]) -> list[LayoutText]:
    """The lines of a column in the same block as a label; lines far away do not matter."""
    placed = sorted(((line.box[1], line.box[3], line) for line in column if line.box), key=lambda one: one[:2])
    blocks: list[list[LayoutText]] = []
    end = 0.0
    for top, bottom, line in placed:
        if not blocks or top - end > MAX_VERTICAL_GAP * (bottom - top):
            blocks.append([])
        blocks[-1].append(line)
        end = bottom
    return [line for block in blocks if label in block for line in block if line is not label]


def _right_of(box: Box, row: Sequence[LayoutText], width: float) -> list[LayoutText]:
    """The lines right of a label, in its row."""
    left, top, right, bottom = box
    after = [(line.box[0], line) for line in row if line.box and line.box[0] >= right - (right - left) * 0.05]
    reach = right + max(MAX_GAP * width, MAX_GAP_HEIGHTS * (bottom - top))
    return [line for at, line in sorted(after, key=lambda one: one[0]) if at <= reach]


def _below(label: LayoutText, lines: Sequence[LayoutText]) -> list[LayoutText]:
    """The lines below a label that follow each other as closely as the first follows the label."""
    found: list[LayoutText] = []
    current, max_gap = label, MAX_VERTICAL_GAP
    while current.box is not None and len(found) < 3:
        following = _next_below(current, lines, max_gap)
        if following is None or following.box is None:
            break
        gap = max(following.box[1] - current.box[3], 0.0)
        max_gap = min(max_gap, 1.5 * gap / max(_height(following.box), 1e-9) + 0.3)  # a wider gap starts a new block
        found.append(following)
        current = following
    return found


def _next_below(label: LayoutText, lines: Sequence[LayoutText], max_gap: float) -> LayoutText | None:
    assert label.box is not None
    box, reach = label.box, max_gap * _height(label.box)
    under = [
        (line.box[1], line)
        for line in lines
        if line.box
        and line is not label
        and _share_column(box, line.box)
        and -0.3 * _height(box) <= line.box[1] - box[3] <= reach
    ]
    return min(under, key=lambda one: one[0])[1] if under else None


def _share_column(one: Box, other: Box) -> bool:
    shared = min(one[2], other[2]) - max(one[0], other[0])
    return shared > 0.5 * min(one[2] - one[0], other[2] - other[0])


def _share_edge(one: Box, other: Box) -> bool:
    return abs(one[0] - other[0]) < _height(one) / 2


def _height(box: Box) -> float:
    return box[3] - box[1]
