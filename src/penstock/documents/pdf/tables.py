"""Rebuilds tables whose cells differ from their text runs.

The parser loses runs inside tables, appends the first total to the last item, puts a whole row into one cell, and
splits words where another row has a border. Such a table is rebuilt from its runs, so that each is written once. Runs
at one height form a line; a line continues the row above unless it looks like a row of its own; columns are where runs
overlap horizontally. Two things are taken from the parser's cells: where rows start, and where a run across several
cells is split.
"""

import re
import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from penstock.documents.layout.columns import column_at, columns_of
from penstock.documents.layout.lines import (
    WORD_GAP,
    PageRegion,
    TableCell,
    TextLine,
    bounding_box,
    join_texts,
    merge_runs,
    without_spaces,
)
from penstock.documents.pages import Box
from penstock.documents.pdf.table_rows import split_row, table_markdown

DIGIT = re.compile(r"\d")
LABELLED = re.compile(r"[^\W\d_][^:：]{0,39}[:：]\s*\S")  # "Due date: 5 May"
LARGER = 1.12  # size of a heading inside a table, relative to the rest
CLOSEST = 0.9  # smallest row pitch, in font sizes
AS_FAR = 0.8  # of the usual row pitch: a line this far down may be a row
NEARER = 0.8  # ratio of the distances to the next and the previous line, for a line that belongs to the next row
LETTERS_OFF = 1.5  # tolerance for the split of a run, in characters: their widths differ
SLACK = 1.0  # points by which a run may extend into the next column
SAME_PLACE = 0.05  # points between cells that share a border
MAX_RUNS, MAX_COLUMNS = 3000, 60  # a table with more is a drawing

Filled = dict[int, list[TextLine]]  # the runs of a line, by column
Column = tuple[float, float]  # left and right edge


def table_regions(cells: Sequence[Sequence[TableCell]], runs: list[TextLine], box: Box) -> Iterator[PageRegion]:
    """The parser's table; if its cells differ from the runs, the tables and lines that the runs form."""
    if not runs or _cells_match(cells, runs):
        yield PageRegion(box=box, runs=runs, cells=cells, markdown=table_markdown(cells, ()))
        return
    pieces = [(run.text, run.box) for run in runs]
    if _have_same_characters(cells, runs) and any(split_row(row, pieces) for row in cells[1:]):
        yield PageRegion(box=box, runs=runs, cells=cells, pieces=pieces, markdown=table_markdown(cells, pieces))
        return
    yield from rebuild_table(cells, runs)


def _cells_match(cells: Sequence[Sequence[TableCell]], runs: Sequence[TextLine]) -> bool:
    """Whether the cells contain the runs: one run per cell, or one run across several cells."""
    filled = [cell for row in cells for cell in row if cell.text]
    if len(runs) > len(filled):
        return False
    if len(runs) == len(filled) and sorted(run.text for run in runs) == sorted(cell.text for cell in filled):
        return True
    at, texts = 0, [cell.text for cell in filled]
    for run in runs:
        is_one = texts[at : at + 1] == [run.text]  # the common case
        end = at + 1 if is_one else _end_of(run, filled, at)
        if end == at:
            return False
        at = end
    return at == len(filled)


def _have_same_characters(cells: Sequence[Sequence[TableCell]], runs: Sequence[TextLine]) -> bool:
    """Whether the cells have the same characters as the runs, in any order."""
    texts = (cell.text for row in cells for cell in row)
    return sorted(without_spaces("".join(texts))) == sorted(without_spaces("".join(run.text for run in runs)))


def rebuild_table(cells: Sequence[Sequence[TableCell]], runs: Sequence[TextLine]) -> Iterator[PageRegion]:
    """The regions that the runs of a table form. A heading is not a row, and splits the table."""
    if len(runs) > MAX_RUNS:
        yield _text_part(runs)
        return
    grid = _ParserGrid(cells)
    larger = LARGER * Counter([run.size for run in runs]).most_common(1)[0][0]
    groups = groupby(group_by_height(runs), lambda line: len(line) == 1 and line[0].size >= larger)
    for is_heading, found in groups:
        lines = [*found]
        columns = _columns_of(lines, grid)
        is_table = not is_heading and 1 < len(columns) <= MAX_COLUMNS
        rows = _rows_of(lines, columns, grid) if is_table else []
        line_runs = [run for line in lines for run in line]
        yield _table_part(rows, len(columns), line_runs) if len(rows) > 1 else _text_part(line_runs)


def _table_part(rows: Sequence[Sequence[Filled]], width: int, runs: list[TextLine]) -> PageRegion:
    cells = [[_cell_of([line[column] for line in row if column in line]) for column in range(width)] for row in rows]
    return PageRegion(
        box=bounding_box([run.box for run in runs]), runs=runs, cells=cells, markdown=table_markdown(cells, ())
    )


def _text_part(runs: Sequence[TextLine]) -> PageRegion:
    return PageRegion(box=bounding_box([run.box for run in runs]), runs=[*runs], lines=list(merge_runs(runs)))


def _end_of(run: TextLine, cells: Sequence[TableCell], begin: int) -> int:
    """The end of the cells, from `begin` on, that contain a run; `begin` if they do not."""
    if begin < len(cells) and cells[begin].text == run.text:
        return begin + 1
    whole, cell_text = without_spaces(run.text), ""
    for end in range(begin, len(cells)):
        cell_text += without_spaces(cells[end].text)
        if len(cell_text) >= len(whole):
            is_run = cell_text == whole and (end == begin or _can_span(run, cells[begin : end + 1]))
            return end + 1 if is_run else begin
    return begin


def _can_span(run: TextLine, cells: Sequence[TableCell]) -> bool:
    """Whether a run can stand in these cells as they split it. If not, they split words."""
    letter = (run.right - run.left) / len(run.text)
    off, end = LETTERS_OFF * letter, run.left
    for at, cell in enumerate(cells):
        if cell.box is None:
            return False
        width = letter * len(cell.text)
        begin = run.right - width if at == len(cells) - 1 else end
        if (at and begin < cell.box[0] - off) or (at < len(cells) - 1 and begin + width > cell.box[2] + off):
            return False
        end = max(begin + width + letter, cell.box[2])
    return True


class _ParserGrid:
    """What the parser knows of a table: where rows start, and its columns if they have borders."""

    def __init__(self, cells: Sequence[Sequence[TableCell]]) -> None:
        rows = [[cell for cell in row if cell.text and cell.box is not None] for row in cells]
        self._rows = [row for row in rows if row]
        self._tops = [min(cell.box[1] for cell in row if cell.box) for row in self._rows]
        steps = [below - above for above, below in pairwise(self._tops) if below > above]
        self.pitch = statistics.median_low(steps) if steps else float("inf")  # row pitch
        has_borders = all(_touch(one, other) for row in cells for one, other in pairwise(row))
        widest = max(cells, key=len)
        self.borders = [(cell.box[0], cell.box[2]) for cell in widest if cell.box] if has_borders else []

    def row_at(self, middle: float) -> int:
        """The row at this height."""
        return max(bisect_right(self._tops, middle) - 1, 0)

    def split_run(self, run: TextLine) -> list[TextLine]:
        """Split a run at the cells of its row that it spans."""
        row = self._rows[self.row_at(_middle(run))] if self._rows else []
        for begin in range(len(row) - 1):
            end = _end_of(run, row, begin)
            if end > begin + 1:
                return list(_split_run(run, row[begin:end]))
        return [run]


def _touch(one: TableCell, other: TableCell) -> bool:
    return one.box is not None and other.box is not None and abs(one.box[2] - other.box[0]) < SAME_PLACE


def _split_run(run: TextLine, cells: Sequence[TableCell]) -> Iterator[TextLine]:
    """The pieces of a run that spans these cells, at their approximate positions, one character apart."""
    letter, left = (run.right - run.left) / len(run.text), run.left
    for at, cell in enumerate(cells):
        width = letter * len(cell.text)
        left = max(left, cell.box[0] if cell.box and at else left)
        right = run.right if at == len(cells) - 1 else left + width
        yield run._replace(text=cell.text, left=left, right=max(left, right))
        left = right + letter


def _middle(run: TextLine) -> float:
    return (run.top + run.bottom) / 2


def group_by_height(runs: Sequence[TextLine]) -> list[list[TextLine]]:
    """Group runs at one height, from left to right; lines from top to bottom."""
    lines: list[list[TextLine]] = []
    for run in sorted(runs, key=_middle):
        if lines and any(each.top <= _middle(run) <= each.bottom and not _covers(each, run) for each in lines[-1]):
            lines[-1].append(run)
        else:
            lines.append([run])
    return [sorted(line, key=lambda run: run.left) for line in lines]


def _covers(one: TextLine, other: TextLine) -> bool:
    return min(one.right, other.right) - max(one.left, other.left) > (other.right - other.left) / 3


def _columns_of(lines: Sequence[Sequence[TextLine]], grid: _ParserGrid) -> list[Column]:
    """Columns from borders, or else from runs that overlap horizontally. Two columns are merged if far more runs span
    both than stand side by side in them: then the gap is a wide space in a few rows."""
    pieces = [piece for line in lines for run in line for piece in grid.split_run(run)]
    columns = grid.borders
    if not columns or _hold_several(columns, lines):
        columns = columns_of([piece.box for piece in pieces])
    while len(columns) <= MAX_COLUMNS and (merged := _column_to_merge(columns, lines, pieces)) is not None:
        columns = [*columns[:merged], (columns[merged][0], columns[merged + 1][1]), *columns[merged + 2 :]]
    filled = {_column_of(columns, piece) for piece in pieces}
    return [column for at, column in enumerate(columns) if at in filled]


def _hold_several(columns: Sequence[Column], lines: Sequence[Sequence[TextLine]]) -> bool:
    """Whether most lines have several runs between the same borders: then the table has other columns."""
    overlapped = [[_columns_met(columns, run) for run in line] for line in lines]
    return sum(1 for line in overlapped if any(one == other for one, other in pairwise(line))) > len(lines) / 2


def _column_to_merge(
    columns: Sequence[Column], lines: Sequence[Sequence[TextLine]], pieces: Sequence[TextLine]
) -> int | None:
    """The first of two columns to merge."""
    overlapped = [_columns_met(columns, piece) for piece in pieces]
    through = Counter([each[0] for each in overlapped if len(each) == 2])
    if not through:
        return None
    beside: Counter[int] = Counter()
    for line in lines:
        overlapped = [_columns_met(columns, run) for run in line]
        beside.update(one[-1] for one, other in pairwise(overlapped) if one and other and one[-1] + 1 == other[0])
    return next((at for at in sorted(through) if through[at] >= 2 * beside[at]), None)


def _columns_met(columns: Sequence[Column], run: TextLine) -> list[int]:
    return [at for at, (left, right) in enumerate(columns) if left + SLACK < run.right and run.left + SLACK < right]


def _column_of(columns: Sequence[Column], run: TextLine) -> int:
    """The first column that a run overlaps if it spans several, as the text of a wide cell does."""
    overlapped = _columns_met(columns, run)
    return overlapped[0] if len(overlapped) > 2 else column_at(columns, run.box)


def _rows_of(lines: Sequence[Sequence[TextLine]], columns: Sequence[Column], grid: _ParserGrid) -> list[list[Filled]]:
    """Group lines into rows."""
    rows: list[list[Filled]] = []
    band = -1
    for line in lines:
        filled: Filled = {}
        for run in line:
            for piece in grid.split_run(run):
                filled.setdefault(_column_of(columns, piece), []).append(piece)
        before, band = band, grid.row_at(statistics.median_low([_middle(run) for run in line]))
        if not rows or band != before or _starts_row(filled, rows[-1], grid):
            rows.append([])
        rows[-1].append(filled)
    return rows if grid.borders else _move_leading_lines(rows)


def _starts_row(line: Filled, row: Sequence[Filled], grid: _ParserGrid) -> bool:
    """Whether a line is a row of its own, although the parser counts it to the row above."""
    before = {column for each in row for column in each}
    pitch = _top(line) - _top(row[-1])
    if pitch >= CLOSEST * next(iter(line.values()))[0].size and len(before) > 1 and not line.keys() <= before:
        return len(line) > 1
    if grid.borders:
        return False
    if len(line) == 1:
        return all(_is_labelled(line, column) and _is_labelled(row[-1], column) for column in line)
    texts = [runs[0].text for _, runs in sorted(line.items())]
    if not any(map(DIGIT.search, texts)) or any(text[0].islower() for text in texts) or pitch < AS_FAR * grid.pitch:
        return False
    return line.keys() == before or DIGIT.search(texts[-1]) is not None


def _is_labelled(line: Filled, column: int) -> bool:
    return column in line and LABELLED.match(line[column][0].text) is not None


def _top(line: Filled) -> float:
    return min(run.top for runs in line.values() for run in runs)


def _move_leading_lines(rows: list[list[Filled]]) -> list[list[Filled]]:
    """If the text of a cell starts above the other cells of its row, move its first line to the row below."""
    found: list[list[Filled]] = []
    for row in rows:
        lead: list[Filled] = []
        if _ends_with_leading_line(found, row[0]):
            lead.append(found[-1].pop())
            found = found if found[-1] else found[:-1]
        found.append([*lead, *row])
    return found


def _ends_with_leading_line(rows: Sequence[Sequence[Filled]], below: Filled) -> bool:
    """Whether the last line has a single cell and is nearer to the next line than to the previous one."""
    above, line = [{}, {}, *(line for row in rows[-2:] for line in row)][-2:]
    if not above or len(line) > 1 or 0 in line or not line.keys() < below.keys():
        return False
    return _top(below) - _top(line) < NEARER * (_top(line) - _top(above))


def _cell_of(lines: Sequence[Sequence[TextLine]]) -> TableCell:
    if not lines:
        return TableCell("", None)
    text = ""
    for more in map(_text_of, lines):
        text = f"{text} {more}" if text and LABELLED.match(more) else join_texts([text, more] if text else [more])
    return TableCell(text, bounding_box([run.box for line in lines for run in line]))


def _text_of(line: Sequence[TextLine]) -> str:
    text = line[0].text
    for one, other in pairwise(line):
        text += (" " if other.left - one.right > WORD_GAP * other.size else "") + other.text
    return text
