"""Columns of a table, from boxes that overlap horizontally."""

from collections.abc import Sequence

from penstock.documents.pages import Box

Extent = tuple[float, float]  # left and right edge


def table_row(cells: Sequence[str]) -> str:
    """A row of a markdown table."""
    shown = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(shown)} |"


def columns_of(boxes: Sequence[Box]) -> list[Extent]:
    """The horizontal extents of columns, from left to right.

    The widest boxes come last and do not merge columns: a title across three columns must not turn them into one."""
    stretches: list[Extent] = []
    for left, _, right, _ in sorted(boxes, key=lambda box: box[2] - box[0]):
        met = [each for each in stretches if each[0] < right and left < each[1]]
        if len(met) > 1:
            continue
        stretches = [each for each in stretches if each not in met]
        stretches.append((min([left, *(each[0] for each in met)]), max([right, *(each[1] for each in met)])))
    return sorted(stretches)


def column_at(columns: Sequence[Extent], box: Box) -> int:
    """The column that contains most of the width of a box."""
    return max(range(len(columns)), key=lambda at: overlap(columns[at], box))


def overlap(column: Extent, box: Box) -> float:
    return min(column[1], box[2]) - max(column[0], box[0])
