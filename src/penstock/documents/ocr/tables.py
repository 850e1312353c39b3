"""Tables from pieces of text that stand in rows and under each other."""

from collections import Counter
from collections.abc import Sequence

from penstock.documents.layout.columns import Extent, column_at, columns_of, overlap, table_row
from penstock.documents.layout.lines import Piece, around
from penstock.documents.ocr.wrapped_cells import Wraps, without_wraps
from penstock.documents.pages import Box

Cells = list[list[Piece | None]]


def cells_of(rows: Sequence[Sequence[Piece]]) -> Cells:
    """Each piece in the column that it stands in; pieces of one cell are put together, and so are its lines."""
    return without_wraps(_grid(rows))


def end_of(rows: Sequence[Sequence[Piece]], end: int) -> int:
    """Where a table ends of which `end` rows are sure: further lines of its last cells belong to it."""
    wraps, last = Wraps(_grid(rows)), end - 1
    while end < len(rows) and wraps.is_close(last, end):
        end += 1
    return end


def _grid(rows: Sequence[Sequence[Piece]]) -> Cells:
    boxes = [[piece[1] for piece in row] for row in rows]
    apart = [_apart(row) for row in boxes]
    width, homes = _placed(apart)
    uses = Counter(home for row in homes for home in set(row))
    if any(uses[home] == 1 for row, cut, own in zip(boxes, apart, homes, strict=True) if cut != row for home in own):
        width, homes = _placed(boxes)  # what only one row has is no column
    return [_row(row, own, width) for row, own in zip(rows, homes, strict=True)]


def _placed(rows: Sequence[Sequence[Box]]) -> tuple[int, list[list[int]]]:
    """How many columns there are, and which of them each box stands in.

    Two are one where no row has both and a text reaches from one into the other: a header that is centred over texts
    that begin at the left."""
    columns = columns_of([box for row in rows for box in row])
    homes = _homes(rows, columns)
    for at in reversed(range(len(columns) - 1)):
        one, other = columns[at : at + 2]
        if any({at, at + 1} <= set(row) for row in homes):
            continue
        if any(overlap(one, box) > 0 < overlap(other, box) for row in rows for box in row):
            columns[at : at + 2] = [(one[0], other[1])]
            homes = _homes(rows, columns)
    return len(columns), homes


def _homes(rows: Sequence[Sequence[Box]], columns: Sequence[Extent]) -> list[list[int]]:
    return [[column_at(columns, box) for box in row] for row in rows]


def _apart(row: Sequence[Box]) -> list[Box]:
    """The boxes of a row, each up to the middle of what it shares with the next: the engine gives them air, and columns
    that are close to each other would become one."""
    apart: list[Box] = []
    for box in row:
        if apart and apart[-1][0] < box[0] < apart[-1][2] < box[2]:
            left, top, right, bottom = apart[-1]
            middle = (box[0] + right) / 2
            apart[-1], box = (left, top, middle, bottom), (middle, *box[1:])
        apart.append(box)
    return apart


def table_of(cells: Cells) -> str:
    """As a markdown table, its first row the head."""
    lines = [table_row([cell[0] if cell else "" for cell in row]) for row in cells]
    lines.insert(1, table_row(["---"] * len(cells[0])))
    return "\n".join(lines)


def _row(row: Sequence[Piece], homes: Sequence[int], width: int) -> list[Piece | None]:
    cells: list[Piece | None] = [None] * width
    for at, (text, box) in zip(homes, row, strict=True):
        before = cells[at]
        cells[at] = (text, box) if before is None else (f"{before[0]} {text}", around([before[1], box]))
    return cells
