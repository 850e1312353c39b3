"""Splits table rows that are not rows: a block of labels beside a block of values, each parsed as one cell.

Invoices have their number and dates like this, to the right of the seller's address. Such a row is replaced by its
lines, each with its own box, and in markdown by as many rows. A row with a cell whose text merely wraps is kept.
"""

import re
from collections.abc import Iterable, Sequence

from penstock.documents.layout.columns import table_row
from penstock.documents.layout.lines import BoxedText, TableCell, without_spaces

DIGIT = re.compile(r"\d")
SLACK = 3.0  # points by which a run may start left of its cell or above it
MIN_LINES = 3  # of figures beside as many lines without; a header and a long name take two


def split_row(row: Sequence[TableCell], pieces: Sequence[BoxedText]) -> list[list[BoxedText]]:
    """The runs of each cell of a row to split; empty for a real row, or if its runs cannot be found."""
    if not _may_be_apart(row):
        return []
    found = [_pieces_of(cell, pieces) for cell in row if cell.text]
    return found if all(found) and (_has_labels(found) or _has_figures_beside_names(found)) else []


def table_markdown(cells: Sequence[Sequence[TableCell]], pieces: Sequence[BoxedText]) -> str:
    """A markdown table with split rows. The first row is the header."""
    lines: list[str] = []
    for row in cells:
        texts = [cell.text for cell in row]
        if lines and pieces and (apart := split_row(row, pieces)):
            found = iter(apart)
            lines += map(table_row, _rows_of([next(found) if text else [] for text in texts]))
            continue
        lines.append(table_row(texts))
        if len(lines) == 1:
            lines.append(f"|{'---|' * len(row)}")
    return "\n".join(lines)


def _rows_of(cells: Sequence[Sequence[BoxedText]]) -> list[list[str]]:
    """Rows by the cell with the most lines; lines of other cells go to the nearest row."""
    tops = [box[1] for _, box in max(cells, key=len)]
    rows: list[list[list[str]]] = [[[] for _ in cells] for _ in tops]
    for column, cell in enumerate(cells):
        for text, box in cell:
            nearest = min(range(len(tops)), key=lambda at: abs(tops[at] - box[1]))
            rows[nearest][column].append(text.strip())
    return [[" ".join(texts) for texts in row] for row in rows]


def _may_be_apart(row: Sequence[TableCell]) -> bool:
    texts = [cell.text for cell in row if cell.text]
    return len(texts) > 1 and any(map(_may_be_labels, texts))


def _may_be_labels(text: str) -> bool:
    return text.endswith((":", "：")) or DIGIT.search(text) is None


def _pieces_of(cell: TableCell, pieces: Sequence[BoxedText]) -> list[BoxedText]:
    """The runs that make up the text of a cell. Its box shows where they start, but not always where they end."""
    if cell.box is None:
        return []
    left, top, right, _ = cell.box
    begun = [piece for piece in pieces if left - SLACK <= piece[1][0] <= right and piece[1][1] >= top - SLACK]
    found: list[BoxedText] = []
    rest = without_spaces(cell.text)
    for piece in sorted(begun, key=lambda each: each[1][1]):
        if not rest or not rest.startswith(without_spaces(piece[0])):
            break
        rest = rest.removeprefix(without_spaces(piece[0]))
        found.append(piece)
    return [] if rest else found


def _has_labels(cells: Iterable[Sequence[BoxedText]]) -> bool:
    return any(len(cell) > 1 and all(text.rstrip().endswith((":", "：")) for text, _ in cell) for cell in cells)


def _has_figures_beside_names(cells: Sequence[Sequence[BoxedText]]) -> bool:
    names = [cell for cell in cells if not any(map(_has_digit, cell))]
    figures = [cell for cell in cells if all(map(_has_digit, cell))]
    return any(
        len(name) == len(figure) >= MIN_LINES and all(map(_share_row, name, figure))
        for name in names
        for figure in figures
    )


def _has_digit(piece: BoxedText) -> bool:
    return DIGIT.search(piece[0]) is not None


def _share_row(one: BoxedText, other: BoxedText) -> bool:
    (_, top, _, bottom), (_, other_top, _, other_bottom) = one[1], other[1]
    return min(bottom, other_bottom) - max(top, other_top) > (bottom - top) / 2
