"""Rebuild tables that the reader did not detect as one: split vertically, without a column, or read as lines.

A row of the page in which several texts match columns of an array is the header of a table, whatever elements they come
from. The rows below it, up to a wide gap, are assigned to its columns by their boxes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from penstock.documents.extract.fields.label_keys import MAX_LABEL
from penstock.documents.extract.fields.layout import LayoutElement, LayoutTable, LayoutText, in_same_row
from penstock.documents.pages import Box

MAX_GAP = 2.5  # between two rows, in header heights
MIN_HEADERS = 2
MAX_COLUMN_DISTANCE = 1.5  # in header heights

Line: TypeAlias = list[LayoutText]
HeaderColumns: TypeAlias = Callable[[Sequence[LayoutText]], set[int]]  # the header cells of a row


def rebuild_tables(elements: list[LayoutElement], header_columns: HeaderColumns) -> list[LayoutElement]:
    """The elements of a page, with split tables joined."""
    rows = list(_rows([text for element in elements for text in _texts(element) if text.box]))
    element_of = {text: at for at, element in enumerate(elements) for text in _texts(element)}
    rebuilt: list[tuple[int, LayoutTable, set[LayoutText]]] = []
    at = 0
    while at < len(rows):
        headers = [rows[at][column] for column in sorted(header_columns(rows[at]))]
        origins = {(element_of[text], isinstance(elements[element_of[text]], LayoutText)) for text in headers}
        body = list(_body_rows(rows[at], rows[at + 1 :])) if len(headers) >= MIN_HEADERS and len(origins) > 1 else []
        if body:
            used = {text for row in (rows[at], *body) for text in row}
            rebuilt.append((min(element_of[text] for text in used), _table(rows[at], body), used))
        at += 1 + len(body)
    return list(_replace_used(elements, rebuilt)) if rebuilt else elements


def fit_to_columns(header: Sequence[LayoutText | None], table: LayoutTable) -> LayoutTable | None:
    """Assign a table without a header to the columns of an earlier one, by boxes; None when a cell fits no column, or
    two cells fit one."""
    columns = [(at, text.box) for at, text in enumerate(header) if text is not None and text.box is not None]
    rows = [_fit_row(row, columns, len(header)) for row in table.rows]
    return LayoutTable(rows=tuple(row for row in rows if row)) if columns and all(rows) else None


def split_header_cells(
    header: Sequence[LayoutText | None], below: Sequence[LayoutText | None], is_header: Callable[[str], bool]
) -> list[LayoutText | None]:
    """Split a header cell with the names of two columns, where the row below has two cells. Readers join the names of
    narrow columns."""
    cells = list(header)
    for at in range(len(cells) - 1):
        one, other = cells[at : at + 2]
        text = (one or other) if one is None or other is None else None
        if (
            text is None
            or below[at] is None
            or below[at + 1] is None
            or len(text.text) > MAX_LABEL
            or is_header(text.text)
        ):
            continue
        words = text.text.split()
        halves = ((" ".join(words[:cut]), " ".join(words[cut:])) for cut in range(1, len(words)))
        both = next((pair for pair in halves if all(map(is_header, pair))), None)
        if both is not None:
            cells[at : at + 2] = [replace(text, text=half) for half in both]
    return cells


def _fit_row(
    row: Sequence[LayoutText | None], columns: list[tuple[int, Box]], width: int
) -> tuple[LayoutText | None, ...]:
    cells: list[LayoutText | None] = [None] * width
    for text in row:
        if text is None:
            continue
        if text.box is None:
            return ()
        box = text.box
        at, column = min(columns, key=lambda each: _column_distance(box, each[1]))
        if cells[at] is not None or _column_distance(box, column) > MAX_COLUMN_DISTANCE * (column[3] - column[1]):
            return ()
        cells[at] = text
    return tuple(cells)


def _texts(element: LayoutElement) -> list[LayoutText]:
    if isinstance(element, LayoutText):
        return [element]
    return [cell for row in element.rows for cell in row if cell is not None]


def _rows(texts: list[LayoutText]) -> Iterator[Line]:
    row: Line = []
    for text in sorted(texts, key=_top):
        if row and not in_same_row(_box(row[0]), _box(text)):
            yield sorted(row, key=_left)
            row = []
        row.append(text)
    if row:
        yield sorted(row, key=_left)


def _body_rows(header: Line, below: Sequence[Line]) -> Iterator[Line]:
    """The rows of a table: those that follow closely and have no text across two columns."""
    height = max(_box(text)[3] - _box(text)[1] for text in header)
    bottom = max(_box(text)[3] for text in header)
    for row in below:
        if min(map(_top, row)) - bottom > MAX_GAP * height or any(_spans_columns(text, header) for text in row):
            return
        yield row
        bottom = max(_box(text)[3] for text in row)


def _spans_columns(text: LayoutText, header: Line) -> bool:
    left, _, right, _ = _box(text)
    return sum(left < _box(column)[2] and right > _box(column)[0] for column in header) > 1


def _table(header: Line, body: list[Line]) -> LayoutTable:
    rows: list[tuple[LayoutText | None, ...]] = [tuple(header)]
    for row in body:
        cells: list[LayoutText | None] = [None] * len(header)
        for text in row:
            column = min(range(len(header)), key=lambda at: _column_distance(_box(text), _box(header[at])))
            cells[column] = cells[column] or text
        rows.append(tuple(cells))
    return LayoutTable(rows=tuple(rows))


def _column_distance(one: Box, other: Box) -> float:
    """How far two boxes are from being in one column: the smallest distance of left edges, right edges or centers."""
    centers = abs(one[0] + one[2] - other[0] - other[2]) / 2
    return min(abs(one[0] - other[0]), abs(one[2] - other[2]), centers)


def _replace_used(
    elements: list[LayoutElement], rebuilt: list[tuple[int, LayoutTable, set[LayoutText]]]
) -> Iterator[LayoutElement]:
    used = {text for _, _, texts in rebuilt for text in texts}
    for at, element in enumerate(elements):
        yield from (table for first, table, _ in rebuilt if first == at)
        if isinstance(element, LayoutText):
            if element not in used:
                yield element
            continue
        rows = [tuple(None if cell in used else cell for cell in row) for row in element.rows]
        remaining = tuple(row for row in rows if any(row))
        if remaining:
            yield LayoutTable(rows=remaining)


def _box(text: LayoutText) -> Box:
    assert text.box is not None
    return text.box


def _top(text: LayoutText) -> float:
    return _box(text)[1]


def _left(text: LayoutText) -> float:
    return _box(text)[0]
