"""Tables that a reader has not seen as one: cut in two side by side, short of a column, or taken for lines.

A row of the page in which several texts name columns of an array is the header of a table, whatever pieces they came
in. What stands under it, row by row and without a wide gap, is put into its columns by the boxes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from penstock.documents.extract.fields.layout import Piece, Table, Text, share_row
from penstock.documents.extract.fields.words import MOST_LABEL
from penstock.documents.pages import Box

WIDEST_GAP = 2.5  # between two rows, in heights of the header
FEWEST_NAMED = 2
MOST_APART = 1.5  # from the edges of a column, in heights of the header

Line: TypeAlias = list[Text]
Named: TypeAlias = Callable[[Sequence[Text]], set[int]]  # which texts of a row name columns of one array


def regrid(found: list[Piece], named: Named) -> list[Piece]:
    """The pieces of a page, with tables put together that were not."""
    rows = list(_rows([text for piece in found for text in _texts(piece) if text.box]))
    home = {text: at for at, piece in enumerate(found) for text in _texts(piece)}
    made: list[tuple[int, Table, set[Text]]] = []
    at = 0
    while at < len(rows):
        headers = [rows[at][column] for column in sorted(named(rows[at]))]
        pieces = {(home[text], isinstance(found[home[text]], Text)) for text in headers}
        body = list(_body(rows[at], rows[at + 1 :])) if len(headers) >= FEWEST_NAMED and len(pieces) > 1 else []
        if body:
            used = {text for row in (rows[at], *body) for text in row}
            made.append((min(home[text] for text in used), _table(rows[at], body), used))
        at += 1 + len(body)
    return list(_without(found, made)) if made else found


def fitted(header: Sequence[Text | None], table: Table) -> Table | None:
    """A table without a header in the columns of an earlier one, by the boxes; None where its cells do not stand there,
    or two of them stand in one."""
    columns = [(at, text.box) for at, text in enumerate(header) if text is not None and text.box is not None]
    rows = [_fitted(row, columns, len(header)) for row in table.rows]
    return Table(rows=tuple(row for row in rows if row)) if columns and all(rows) else None


def parted(
    header: Sequence[Text | None], below: Sequence[Text | None], named: Callable[[str], bool]
) -> list[Text | None]:
    """A header with each name in a cell of its own: where a column is narrow, two stand in one cell, though the row
    below has two."""
    cells = list(header)
    for at in range(len(cells) - 1):
        one, other = cells[at : at + 2]
        text = (one or other) if one is None or other is None else None
        if (
            text is None
            or below[at] is None
            or below[at + 1] is None
            or len(text.text) > MOST_LABEL
            or named(text.text)
        ):
            continue
        words = text.text.split()
        halves = ((" ".join(words[:cut]), " ".join(words[cut:])) for cut in range(1, len(words)))
        both = next((pair for pair in halves if all(map(named, pair))), None)
        if both is not None:
            cells[at : at + 2] = [replace(text, text=half) for half in both]
    return cells


def _fitted(row: Sequence[Text | None], columns: list[tuple[int, Box]], width: int) -> tuple[Text | None, ...]:
    cells: list[Text | None] = [None] * width
    for text in row:
        if text is None:
            continue
        if text.box is None:
            return ()
        box = text.box
        at, column = min(columns, key=lambda each: _apart(box, each[1]))
        if cells[at] is not None or _apart(box, column) > MOST_APART * (column[3] - column[1]):
            return ()
        cells[at] = text
    return tuple(cells)


def _texts(piece: Piece) -> list[Text]:
    return [piece] if isinstance(piece, Text) else [cell for row in piece.rows for cell in row if cell is not None]


def _rows(texts: list[Text]) -> Iterator[Line]:
    row: Line = []
    for text in sorted(texts, key=_top):
        if row and not share_row(_box(row[0]), _box(text)):
            yield sorted(row, key=_left)
            row = []
        row.append(text)
    if row:
        yield sorted(row, key=_left)


def _body(header: Line, below: Sequence[Line]) -> Iterator[Line]:
    """The rows of the table: those that follow closely, and of which no text reaches over two columns."""
    height = max(_box(text)[3] - _box(text)[1] for text in header)
    bottom = max(_box(text)[3] for text in header)
    for row in below:
        if min(map(_top, row)) - bottom > WIDEST_GAP * height or any(_is_wide(text, header) for text in row):
            return
        yield row
        bottom = max(_box(text)[3] for text in row)


def _is_wide(text: Text, header: Line) -> bool:
    left, _, right, _ = _box(text)
    return sum(left < _box(column)[2] and right > _box(column)[0] for column in header) > 1


def _table(header: Line, body: list[Line]) -> Table:
    rows: list[tuple[Text | None, ...]] = [tuple(header)]
    for row in body:
        cells: list[Text | None] = [None] * len(header)
        for text in row:
            column = min(range(len(header)), key=lambda at: _apart(_box(text), _box(header[at])))
            cells[column] = cells[column] or text
        rows.append(tuple(cells))
    return Table(rows=tuple(rows))


def _apart(one: Box, other: Box) -> float:
    """How far two boxes are from standing in one column: they may share either edge, or their middle."""
    middles = abs(one[0] + one[2] - other[0] - other[2]) / 2
    return min(abs(one[0] - other[0]), abs(one[2] - other[2]), middles)


def _without(found: list[Piece], made: list[tuple[int, Table, set[Text]]]) -> Iterator[Piece]:
    used = {text for _, _, texts in made for text in texts}
    for at, piece in enumerate(found):
        yield from (table for home, table, _ in made if home == at)
        if isinstance(piece, Text):
            if piece not in used:
                yield piece
            continue
        rows = [tuple(None if cell in used else cell for cell in row) for row in piece.rows]
        left = tuple(row for row in rows if any(row))
        if left:
            yield Table(rows=left)


def _box(text: Text) -> Box:
    assert text.box is not None
    return text.box


def _top(text: Text) -> float:
    return _box(text)[1]


def _left(text: Text) -> float:
    return _box(text)[0]
