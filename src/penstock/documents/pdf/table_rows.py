"""Rows of a table that are none: a block of labels and a block of values side by side, each taken for one cell.

An invoice has its number and dates so, right of the seller's address. Such a row is given back as the lines that it was
made of, each in its own box, and in markdown as so many rows. A cell whose text merely goes on in the next line is left
as it is: there the row is one.
"""

import re
from collections.abc import Iterable, Sequence

from penstock.documents.layout.columns import table_row
from penstock.documents.layout.lines import Cell, Piece, bare

DIGIT = re.compile(r"\d")
SLACK = 3.0  # points that a run may begin left of its cell or above it
FEWEST_LINES = 3  # of figures beside as many lines without any; a header and a long name take two


def pieces_of_row(row: Sequence[Cell], pieces: Sequence[Piece]) -> list[list[Piece]]:
    """The runs of each cell of a row that is none; nothing when it is one, or its runs cannot be found."""
    if not _may_be_apart(row):
        return []
    found = [_pieces_of(cell, pieces) for cell in row if cell.text]
    return found if all(found) and (_has_labels(found) or _has_figures_beside_names(found)) else []


def markdown_of(cells: Sequence[Sequence[Cell]], pieces: Sequence[Piece]) -> str:
    """A table, its first row the head, with such rows as the rows that they look like."""
    lines: list[str] = []
    for row in cells:
        texts = [cell.text for cell in row]
        if lines and pieces and (apart := pieces_of_row(row, pieces)):
            found = iter(apart)
            lines += map(table_row, _rows_of([next(found) if text else [] for text in texts]))
            continue
        lines.append(table_row(texts))
        if len(lines) == 1:
            lines.append(f"|{'---|' * len(row)}")
    return "\n".join(lines)


def _rows_of(cells: Sequence[Sequence[Piece]]) -> list[list[str]]:
    """The cell with the most lines says where the rows are; a line of another cell goes to the nearest."""
    tops = [box[1] for _, box in max(cells, key=len)]
    rows: list[list[list[str]]] = [[[] for _ in cells] for _ in tops]
    for column, cell in enumerate(cells):
        for text, box in cell:
            nearest = min(range(len(tops)), key=lambda at: abs(tops[at] - box[1]))
            rows[nearest][column].append(text.strip())
    return [[" ".join(texts) for texts in row] for row in rows]


def _may_be_apart(row: Sequence[Cell]) -> bool:
    texts = [cell.text for cell in row if cell.text]
    return len(texts) > 1 and any(map(_may_be_labels, texts))


def _may_be_labels(text: str) -> bool:
    return text.endswith((":", "：")) or DIGIT.search(text) is None


def _pieces_of(cell: Cell, pieces: Sequence[Piece]) -> list[Piece]:
    """The runs that together say what the cell says. Its box tells where they begin, and not always where they end."""
    if cell.box is None:
        return []
    left, top, right, _ = cell.box
    begun = [piece for piece in pieces if left - SLACK <= piece[1][0] <= right and piece[1][1] >= top - SLACK]
    found: list[Piece] = []
    rest = bare(cell.text)
    for piece in sorted(begun, key=lambda each: each[1][1]):
        if not rest or not rest.startswith(bare(piece[0])):
            break
        rest = rest.removeprefix(bare(piece[0]))
        found.append(piece)
    return [] if rest else found


def _has_labels(cells: Iterable[Sequence[Piece]]) -> bool:
    return any(len(cell) > 1 and all(text.rstrip().endswith((":", "：")) for text, _ in cell) for cell in cells)


def _has_figures_beside_names(cells: Sequence[Sequence[Piece]]) -> bool:
    names = [cell for cell in cells if not any(map(_has_digit, cell))]
    figures = [cell for cell in cells if all(map(_has_digit, cell))]
    return any(
        len(name) == len(figure) >= FEWEST_LINES and all(map(_share_row, name, figure))
        for name in names
        for figure in figures
    )


def _has_digit(piece: Piece) -> bool:
    return DIGIT.search(piece[0]) is not None


def _share_row(one: Piece, other: Piece) -> bool:
    (_, top, _, bottom), (_, other_top, _, other_bottom) = one[1], other[1]
    return min(bottom, other_bottom) - max(top, other_top) > (bottom - top) / 2
