"""Lines that OCR has seen become a page: reading order, paragraphs, headings, lists, simple tables.

The engine gives pieces of lines with boxes, nothing else. Pieces at one height are a row. Rows that leave the same gap
free from top to bottom are a band: of columns when the pieces beside the gap are running text, else of a table. All
other rows are lines of one column. Distances are in heights of a usual line, so no unit or resolution matters.
"""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from penstock.documents.blocks import guarded
from penstock.documents.layout import lines
from penstock.documents.layout.lines import NO_SPACE, SPREAD, Part, Piece, around, together
from penstock.documents.layout.markdown import Writing, markdown_of, without_page_numbers
from penstock.documents.layout.paragraphs import paragraphs_of
from penstock.documents.ocr.tables import cells_of, end_of, table_of
from penstock.documents.ocr.text_sizes import Sizes
from penstock.documents.pages import Box, Page, Span

GUTTER = 0.4  # the least width of a gap between columns, in heights of a line; the engine has parted them already
LEFT_OVER = 0.1  # what many rows must leave free of it
LEAST_ROWS = 3  # of columns of text; two lines side by side are a table
LEAST_TABLE_ROWS = 2
FILLED = 0.55  # how much of its column a line of running text fills, in the middle
LEAST_LETTERS = 20  # in a line of running text, in the narrowest columns
MOST_LINES = 4  # of the last cell of a table, after its first
TABLE_GAP = 2.0  # an empty space that no table has between its rows
LEVELS = {1.6: 1, 1.5: 2, 1.4: 2, 1.3: 2, 1.2: 3, 1.1: 3}  # of headings, by rank


@dataclass(frozen=True, kw_only=True)
class Line:
    """A piece of a line as the engine gives it."""

    text: str
    box: Box
    score: float

    @property
    def width(self) -> float:
        return self.box[2] - self.box[0]


Row = list[Line]
Gap = tuple[float, float]  # from left to right


def page_of(lines: Iterable[Line], number: int, *, width: float, height: float) -> Page:
    """The page that these lines make."""
    seen = [line for line in lines if line.text.strip()]
    sizes = Sizes.of([(line.text, line.box) for line in seen])
    layout = _Layout(sizes)
    layout.add(seen)
    found = without_page_numbers(paragraphs_of(layout.parts), height)
    return Page(
        number=number,
        origin="ocr",
        markdown=guarded(markdown_of(Writing(sizes.letters).write(found), LEVELS)),
        spans=tuple(layout.spans),
        width=round(width, 2),
        height=round(height, 2),
        confidence=round(statistics.fmean(line.score for line in seen), 4) if seen else None,
    )


@dataclass(frozen=True, kw_only=True)
class Band:
    """Rows that belong together, and the gap that they all leave free; None for rows of one column."""

    rows: list[Row]
    gutter: Gap | None


def _rows(lines: Sequence[Line]) -> list[Row]:
    """Pieces at one height, from left to right; rows from top to bottom."""
    rows: list[Row] = []
    for line in sorted(lines, key=lambda each: (each.box[1] + each.box[3]) / 2):
        middle = (line.box[1] + line.box[3]) / 2
        if rows and any(each.box[1] <= middle <= each.box[3] for each in rows[-1]) and not _covers(rows[-1], line):
            rows[-1].append(line)
        else:
            rows.append([line])
    return [sorted(row, key=lambda each: each.box[0]) for row in rows]


def _covers(row: Row, line: Line) -> bool:
    """Whether a piece stands over or under this one, so that the two cannot be in one row."""
    return any(min(each.box[2], line.box[2]) - max(each.box[0], line.box[0]) > 0.3 * line.width for each in row)


def _bands(rows: Sequence[Row], usual: float) -> Iterator[Band]:
    """Rows are taken as long as one gap is left that all of them keep free, or as long as none has one."""
    taken: list[Row] = []
    gaps: list[Gap] = []
    for row in rows:
        kept = _kept(gaps, row, usual) if gaps else _gaps(row, usual)
        if taken and bool(kept) != bool(gaps):
            yield _band(taken, gaps)
            taken, kept = [], _gaps(row, usual)
        taken.append(row)
        gaps = kept
    if taken:
        yield _band(taken, gaps)


def _band(rows: list[Row], gaps: Sequence[Gap]) -> Band:
    return Band(rows=rows, gutter=max(gaps, key=lambda gap: gap[1] - gap[0], default=None))


def _gaps(row: Row, usual: float) -> list[Gap]:
    between = pairwise(row)
    return [(one.box[2], other.box[0]) for one, other in between if other.box[0] - one.box[2] >= GUTTER * usual]


def _kept(gaps: Iterable[Gap], row: Row, usual: float) -> list[Gap]:
    """What a row leaves of the gaps: it may only stand beside them."""
    for line in row:
        gaps = [part for gap in gaps for part in _beside(gap, line)]
    return [gap for gap in gaps if gap[1] - gap[0] >= LEFT_OVER * usual]


def _beside(gap: Gap, line: Line) -> list[Gap]:
    left, _, right, _ = line.box
    if right <= gap[0] or left >= gap[1]:
        return [gap]
    return [part for part in ((gap[0], left), (right, gap[1])) if part[0] < part[1]]


class _Layout:
    """The parts of the page as they are found."""

    def __init__(self, sizes: Sizes) -> None:
        self.parts: list[Part] = []
        self.spans: list[Span] = []
        self._sizes = sizes
        self._tables = 0

    def add(self, lines: Sequence[Line]) -> None:
        """A page, or a column of one."""
        for band in _bands(_rows(lines), self._sizes.height):
            self._add_band(band)

    def _add_band(self, band: Band) -> None:
        """Columns one after the other, a table, or lines."""
        if band.gutter is None:
            self._add_lines(band.rows)
            return
        left, right = _sides(band)
        if all(len(side) >= LEAST_ROWS and _is_running_text(side) for side in (left, right)):
            self.add(left)
            self.add(right)
            return
        for run in self._runs(band.rows):
            if len(run) >= LEAST_TABLE_ROWS and len(run[0]) > 1:
                self._add_table(run)
            else:
                self._add_lines(run)

    def _add_table(self, rows: Sequence[Row]) -> None:
        cells = cells_of([_pieces(row) for row in rows])
        self.parts.append(Part(box=around([line.box for row in rows for line in row]), markdown=table_of(cells)))
        self.spans.extend(
            Span(text=cell[0], box=cell[1], table=self._tables, row=at, column=column)
            for at, row in enumerate(cells)
            for column, cell in enumerate(row)
            if cell is not None
        )
        self._tables += 1

    def _add_lines(self, rows: Sequence[Row]) -> None:
        lines = [self._joined(row) for row in rows]
        self.parts.append(Part(box=around([line.box for line in lines]), lines=lines))
        self.spans.extend(Span(text=line.text, box=line.box) for line in lines)

    def _joined(self, row: Row) -> lines.Line:
        """A row that is no table's as one line."""
        box, longest = around([line.box for line in row]), max(row, key=lambda line: line.width)
        is_spread = any(other.box[0] - one.box[2] > SPREAD * self._sizes.letters for one, other in pairwise(row))
        size = self._sizes.of_line(longest.text, longest.box)
        return lines.Line(together(line.text.strip() for line in row), *box, size, "", is_spread)

    def _runs(self, rows: Sequence[Row]) -> Iterator[list[Row]]:
        """Rows that may be one table: it begins with a row of several pieces, ends with one or with further
        lines of its cells, and has no wide space in it, and no heading."""
        run: list[Row] = []
        for row in rows:
            gap = min(line.box[1] for line in row) - max(line.box[3] for line in run[-1]) if run else 0.0
            if run and (gap > TABLE_GAP * self._sizes.height or self._is_heading(row)):
                yield from _trimmed(run)
                run = []
            run.append(row)
        yield from _trimmed(run)

    def _is_heading(self, row: Row) -> bool:
        return len(row) == 1 and self._sizes.of_line(row[0].text, row[0].box) > self._sizes.letters


def _trimmed(run: list[Row]) -> Iterator[list[Row]]:
    full = [at for at, row in enumerate(run) if len(row) > 1]
    if not full:
        yield run
        return
    rows, end = run[full[0] :], full[-1] - full[0] + 1
    if 1 < end < len(rows):
        end = end_of([_pieces(row) for row in rows[: end + MOST_LINES]], end)
    yield from (part for part in (run[: full[0]], rows[:end], rows[end:]) if part)


def _pieces(row: Row) -> list[Piece]:
    return [(line.text, line.box) for line in row]


def _sides(band: Band) -> tuple[list[Line], list[Line]]:
    assert band.gutter is not None
    middle = sum(band.gutter) / 2
    lines = [line for row in band.rows for line in row]
    return [each for each in lines if each.box[2] <= middle], [each for each in lines if each.box[2] > middle]


def _is_running_text(lines: Sequence[Line]) -> bool:
    """Lines of a text fill their column; cells of a table are short, or of any length."""
    width = max(line.box[2] for line in lines) - min(line.box[0] for line in lines)
    filled = statistics.median(line.width for line in lines) >= FILLED * width
    return filled and statistics.median(map(_letters, lines)) >= LEAST_LETTERS


def _letters(line: Line) -> int:
    """How long it is; a Chinese letter is as wide as two."""
    return len(line.text) * (2 if NO_SPACE.search(line.text) else 1)
