"""Tables from recognized text that stands in rows and columns."""

from collections import Counter
from collections.abc import Sequence

from penstock.documents.layout.columns import Extent, column_at, columns_of, overlap, table_row
from penstock.documents.layout.lines import BoxedText, bounding_box
from penstock.documents.ocr.wrapped_cells import WrappedRows, merge_wrapped_rows
from penstock.documents.pages import Box

Cells = list[list[BoxedText | None]]


def table_cells(rows: Sequence[Sequence[BoxedText]]) -> Cells:
    """Assign each text to its column, joining the texts and lines of one cell."""
    return merge_wrapped_rows(_grid(rows))


def table_end(rows: Sequence[Sequence[BoxedText]], end: int) -> int:
    """The end of a table with at least `end` rows: continuation lines of its last cells are part of it."""
    wraps, last = WrappedRows(_grid(rows)), end - 1
    while end < len(rows) and wraps.is_close(last, end):
        end += 1
    return end


def _grid(rows: Sequence[Sequence[BoxedText]]) -> Cells:
    boxes = [[piece[1] for piece in row] for row in rows]
    without_overlap = [_split_overlaps(row) for row in boxes]
    width, columns_by_row = _assign_columns(without_overlap)
    uses = Counter(column for row in columns_by_row for column in set(row))
    if any(
        uses[column] == 1
        for row, cut, row_columns in zip(boxes, without_overlap, columns_by_row, strict=True)
        if cut != row
        for column in row_columns
    ):
        width, columns_by_row = _assign_columns(boxes)  # a column that only one row has is not a column
    return [_row(row, row_columns, width) for row, row_columns in zip(rows, columns_by_row, strict=True)]


def _assign_columns(rows: Sequence[Sequence[Box]]) -> tuple[int, list[list[int]]]:
    """The number of columns, and the column of each box.

    Two columns are merged if no row has both and a box overlaps both: a header centred over left-aligned text."""
    columns = columns_of([box for row in rows for box in row])
    columns_by_row = _columns_of(rows, columns)
    for at in reversed(range(len(columns) - 1)):
        one, other = columns[at : at + 2]
        if any({at, at + 1} <= set(row) for row in columns_by_row):
            continue
        if any(overlap(one, box) > 0 < overlap(other, box) for row in rows for box in row):
            columns[at : at + 2] = [(one[0], other[1])]
            columns_by_row = _columns_of(rows, columns)
    return len(columns), columns_by_row


def _columns_of(rows: Sequence[Sequence[Box]], columns: Sequence[Extent]) -> list[list[int]]:
    return [[column_at(columns, box) for box in row] for row in rows]


def _split_overlaps(row: Sequence[Box]) -> list[Box]:
    """The boxes of a row, with overlaps split in the middle: the engine pads its boxes, and narrow columns would
    merge."""
    without_overlap: list[Box] = []
    for box in row:
        if without_overlap and without_overlap[-1][0] < box[0] < without_overlap[-1][2] < box[2]:
            left, top, right, bottom = without_overlap[-1]
            middle = (box[0] + right) / 2
            without_overlap[-1], box = (left, top, middle, bottom), (middle, *box[1:])
        without_overlap.append(box)
    return without_overlap


def markdown_table(cells: Cells) -> str:
    """Format as a markdown table. The first row is the header."""
    lines = [table_row([cell[0] if cell else "" for cell in row]) for row in cells]
    lines.insert(1, table_row(["---"] * len(cells[0])))
    return "\n".join(lines)


def _row(row: Sequence[BoxedText], columns: Sequence[int], width: int) -> list[BoxedText | None]:
    cells: list[BoxedText | None] = [None] * width
    for at, (text, box) in zip(columns, row, strict=True):
        before = cells[at]
        cells[at] = (text, box) if before is None else (f"{before[0]} {text}", bounding_box([before[1], box]))
    return cells
