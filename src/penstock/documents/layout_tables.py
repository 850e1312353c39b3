"""Tables from pieces of text that stand in rows and under each other."""

from collections.abc import Sequence

from penstock.documents.ground import Box
from penstock.documents.lines import Piece, around

Cells = list[list[Piece | None]]


def cells_of(rows: Sequence[Sequence[Piece]]) -> Cells:
    """Each piece in the column that it stands in; pieces of one cell are put together."""
    columns = _columns([piece[1] for row in rows for piece in row])
    return [_row(row, columns) for row in rows]


def table_of(cells: Cells) -> str:
    """As a markdown table, its first row the head."""
    lines = [table_row([cell[0] if cell else "" for cell in row]) for row in cells]
    lines.insert(1, table_row(["---"] * len(cells[0])))
    return "\n".join(lines)


def table_row(cells: Sequence[str]) -> str:
    """A row of such a table."""
    shown = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(shown)} |"


def _columns(boxes: Sequence[Box]) -> list[tuple[float, float]]:
    """Stretches of the line that some piece stands on, from left to right.

    The widest boxes come last and join nothing: a title over three columns must not make one of them."""
    stretches: list[tuple[float, float]] = []
    for left, _, right, _ in sorted(boxes, key=lambda box: box[2] - box[0]):
        met = [each for each in stretches if each[0] < right and left < each[1]]
        if len(met) > 1:
            continue
        stretches = [each for each in stretches if each not in met]
        stretches.append((min([left, *(each[0] for each in met)]), max([right, *(each[1] for each in met)])))
    return sorted(stretches)


def _row(row: Sequence[Piece], columns: Sequence[tuple[float, float]]) -> list[Piece | None]:
    cells: list[Piece | None] = [None] * len(columns)
    for text, box in row:
        at = max(range(len(columns)), key=lambda column: _shared(columns[column], box))
        before = cells[at]
        cells[at] = (text, box) if before is None else (f"{before[0]} {text}", around([before[1], box]))
    return cells


def _shared(column: tuple[float, float], box: Box) -> float:
    return min(column[1], box[2]) - max(column[0], box[0])
