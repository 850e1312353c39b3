"""What stands right of a label, and below it: by boxes on the page, or by rows and columns of a table.

A label over its value and a label left of its value look alike where nothing but text is known. So what is a label
itself is no value; where rows are pairs and other labels stand in the label's column, values stand to the right; else
one with digits beats one without; and where that does not decide either, both are offered, and disagree.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeAlias

from penstock.documents.extract.fields.layout import Table, Text, share_row
from penstock.documents.extract.fields.words import is_rate, names_a_unit
from penstock.documents.pages import Box

SAID, NEAR = 0, 1  # how a value belongs to its label: left of it or by a mark, or above it
WIDEST_GAP = 0.6  # between a label and what is right of it: of the page's width
WIDEST_GAP_HEIGHTS = 15  # or of a label's height, where a page does not tell its width
TALLEST_GAP = 2.0  # of a label's height

IsLabel: TypeAlias = Callable[[str], bool]

_DIGIT = re.compile(r"\d")
_OWN_VALUE = re.compile(r"[:：]\s*\S")


@dataclass(frozen=True, kw_only=True)
class Around:
    """What stands around a label: all else in its row and in its column, what is right of it and what is close under
    it, both nearest first."""

    row: Sequence[Text] = ()
    column: Sequence[Text] = ()
    right: Sequence[Text] = ()
    below: Sequence[Text] = ()
    is_apart: bool = False  # an empty cell stands between: what is right of it may be another label


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A text that may be a label's value. `loose`: only a value that cannot be taken for prose is read from it."""

    text: Text
    way: int
    loose: bool = False


def weighed(label: Text, around: Around, is_label: IsLabel, answers: Collection[Text] = ()) -> list[Beside]:
    """Which of what stands beside a label may be its value. `answers` are values, whatever they look like."""
    values = [each for each in _nearest(label, around) if each in answers or not is_label(each.text)]
    under = list(takewhile(lambda each: not is_label(each.text), around.below))
    if label.text.rstrip().endswith((":", "：")):
        first = [Beside(text=each, way=SAID) for each in values] + [Beside(text=each, way=NEAR) for each in under]
        return first[: max(len(values), 1)]
    clear = any(is_label(each.text) for each in around.row)
    if len(around.row) == 1 and any(is_label(each.text) and not _OWN_VALUE.search(each.text) for each in around.column):
        under = []  # two in a row, and labels over labels: values stand to the right
    beside = [Beside(text=each, way=SAID, loose=around.is_apart) for each in values]
    if values and under:
        right_has, below_has = bool(_DIGIT.search(values[0].text)), bool(_DIGIT.search(under[0].text))
        if right_has == below_has:
            return beside + [Beside(text=each, way=SAID, loose=around.is_apart) for each in under]
        beside, clear = (beside if right_has else []), True
    return beside or [Beside(text=each, way=NEAR, loose=not clear) for each in under]


def _nearest(label: Text, around: Around) -> Sequence[Text]:
    """The nearest right of a label. After "VAT" a rate and an amount are both: which of them is meant, nobody said."""
    right = around.right
    if around.is_apart and len(right) > 1:
        return ()  # another label with its value
    unsaid = len(right) > 1 and is_rate(right[0].text) and not names_a_unit(label.text)
    return right[: 2 if unsaid else 1]


def around_box(label: Text, lines: Sequence[Text], width: float) -> Around:
    """What stands around a label, by boxes; `width` is that of the page."""
    if label.box is None:
        return Around()
    row = _row_of(label.box, lines)
    column = _block(label, [line for line in lines if line.box and _share_edge(label.box, line.box)])
    right = _right_of(label.box, row, width)
    is_apart = any(_skips(right, _right_of(line.box, _row_of(line.box, lines), width)) for line in column if line.box)
    below = _below(label, lines) if not is_apart else ()  # values stand to the right here
    return Around(row=row, column=column, right=right, below=below, is_apart=is_apart)


def _row_of(box: Box, lines: Sequence[Text]) -> list[Text]:
    return [line for line in lines if line.box and line.box != box and share_row(box, line.box)]


def _skips(right: Sequence[Text], other: Sequence[Text]) -> bool:
    """Whether what is right of a label begins where another row of its block has its third text: then this label's own
    place is empty, and the text is another label."""
    edges = [line.box for line in (*right[:1], *other[:2]) if line.box]
    return len(edges) == 3 and _share_edge(edges[0], edges[2]) and not _share_edge(edges[0], edges[1])


def around_cell(table: Table, at: int, column: int, is_label: IsLabel) -> Around:
    """What stands around a label in a table. Over an empty cell a text is the label's only at the end of its row, where
    a label would have no cell for its own value."""
    cell, right = table.rows[at][column], table.rows[at][column + 1 :]
    row = [each for each in table.rows[at] if each is not None and each is not cell]
    is_first = all(sum(each is not None for each in above) < 2 for above in table.rows[:at])
    has_gap = any(right) and right[0] is None
    over_a_column = table.width > 2 or is_first or any(is_label(each.text) for each in row)
    if has_gap and any(each[column + 1] is not None for each in table.rows[at + 1 :]):
        over_a_column = False  # values stand in the next column, and here there is none
    under = [each[column] for each in table.rows[at + 1 :]] if over_a_column else []
    return Around(
        row=row,
        column=[other for each in table.rows if (other := each[column]) is not None and other is not cell],
        right=[each for each in right if each is not None],
        below=list(filter(None, takewhile(lambda each: each is not None, under))),
        is_apart=has_gap and not all(each is None for each in right[:-1]),
    )


def _block(label: Text, column: Sequence[Text]) -> list[Text]:
    """The lines of a column that stand with a label in one block: a label far below says nothing about this one."""
    placed = sorted(((line.box[1], line.box[3], line) for line in column if line.box), key=lambda one: one[:2])
    blocks: list[list[Text]] = []
    end = 0.0
    for top, bottom, line in placed:
        if not blocks or top - end > TALLEST_GAP * (bottom - top):
            blocks.append([])
        blocks[-1].append(line)
        end = bottom
    return [line for block in blocks if label in block for line in block if line is not label]


def _right_of(box: Box, row: Sequence[Text], width: float) -> list[Text]:
    """The lines right of a label, in its own row."""
    left, top, right, bottom = box
    after = [(line.box[0], line) for line in row if line.box and line.box[0] >= right - (right - left) * 0.05]
    reach = right + max(WIDEST_GAP * width, WIDEST_GAP_HEIGHTS * (bottom - top))
    return [line for at, line in sorted(after, key=lambda one: one[0]) if at <= reach]


def _below(label: Text, lines: Sequence[Text]) -> list[Text]:
    """The lines under a label that follow each other as closely as the first follows the label."""
    found: list[Text] = []
    current, most = label, TALLEST_GAP
    while current.box is not None and len(found) < 3:
        following = _next_below(current, lines, most)
        if following is None or following.box is None:
            break
        gap = max(following.box[1] - current.box[3], 0.0)
        most = min(most, 1.5 * gap / max(_height(following.box), 1e-9) + 0.3)  # a new block begins after a wider gap
        found.append(following)
        current = following
    return found


def _next_below(label: Text, lines: Sequence[Text], most: float) -> Text | None:
    assert label.box is not None
    box, reach = label.box, most * _height(label.box)
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
