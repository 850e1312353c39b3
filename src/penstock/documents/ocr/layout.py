"""Turns recognized lines into a page: reading order, paragraphs, headings, lists, simple tables.

The engine returns pieces of lines with boxes and nothing else. Pieces at one height form a row. Consecutive rows that
leave the same vertical gap free form a band: columns if the pieces beside the gap are running text, otherwise a table.
All other rows are lines of one column. Distances are multiples of the line height, so units and resolution cancel out.
"""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from penstock.documents.blocks import escape_page_markers
from penstock.documents.layout.lines import CJK, WIDE_GAP, BoxedText, PageRegion, TextLine, bounding_box, join_texts
from penstock.documents.layout.markdown import MarkdownWriter, drop_page_numbers, render_markdown
from penstock.documents.layout.paragraphs import group_paragraphs
from penstock.documents.ocr.tables import markdown_table, table_cells, table_end
from penstock.documents.ocr.text_sizes import TextSizes
from penstock.documents.pages import Box, Page, Span

GUTTER = 0.4  # smallest gap between columns, in line heights; the engine has already separated them
LEFT_OVER = 0.1  # smallest part of the gap that all rows must leave free
MIN_ROWS = 3  # of text columns; two lines side by side are a table
MIN_TABLE_ROWS = 2
FILLED = 0.55  # median share of its column that a line of running text fills
MIN_LETTERS = 20  # median characters of a line of running text
MAX_LINES = 4  # continuation lines of the last cell of a table
TABLE_GAP = 2.0  # vertical gap that ends a table
LEVELS = {1.6: 1, 1.5: 2, 1.4: 2, 1.3: 2, 1.2: 3, 1.1: 3}  # heading levels by rank


@dataclass(frozen=True, kw_only=True)
class OcrLine:
    """A line, or a piece of one, as the engine returns it."""

    text: str
    box: Box
    score: float

    @property
    def width(self) -> float:
        return self.box[2] - self.box[0]


Row = list[OcrLine]
Gap = tuple[float, float]  # left and right edge


def build_page(lines: Iterable[OcrLine], number: int, *, width: float, height: float) -> Page:
    """Build a page from recognized lines."""
    visible = [line for line in lines if line.text.strip()]
    sizes = TextSizes.of([(line.text, line.box) for line in visible])
    layout = _Layout(sizes)
    layout.add(visible)
    found = drop_page_numbers(group_paragraphs(layout.regions), height)
    return Page(
        number=number,
        origin="ocr",
        markdown=escape_page_markers(render_markdown(MarkdownWriter(sizes.letters).write(found), LEVELS)),
        spans=tuple(layout.spans),
        width=round(width, 2),
        height=round(height, 2),
        confidence=round(statistics.fmean(line.score for line in visible), 4) if visible else None,
    )


@dataclass(frozen=True, kw_only=True)
class LineBand:
    """Consecutive rows and the gap that all of them leave free; None for rows of one column."""

    rows: list[Row]
    gutter: Gap | None


def _rows(lines: Sequence[OcrLine]) -> list[Row]:
    """Group pieces at one height, from left to right; rows from top to bottom."""
    rows: list[Row] = []
    for line in sorted(lines, key=lambda each: (each.box[1] + each.box[3]) / 2):
        middle = (line.box[1] + line.box[3]) / 2
        if rows and any(each.box[1] <= middle <= each.box[3] for each in rows[-1]) and not _covers(rows[-1], line):
            rows[-1].append(line)
        else:
            rows.append([line])
    return [sorted(row, key=lambda each: each.box[0]) for row in rows]


def _covers(row: Row, line: OcrLine) -> bool:
    """Whether a piece of the row overlaps the line horizontally, so that they cannot share a row."""
    return any(min(each.box[2], line.box[2]) - max(each.box[0], line.box[0]) > 0.3 * line.width for each in row)


def _bands(rows: Sequence[Row], line_height: float) -> Iterator[LineBand]:
    """Split rows into bands: a band ends when its rows stop sharing a gap, or when a gap starts."""
    rows_taken: list[Row] = []
    gaps: list[Gap] = []
    for row in rows:
        remaining = _remaining_gaps(gaps, row, line_height) if gaps else _gaps(row, line_height)
        if rows_taken and bool(remaining) != bool(gaps):
            yield _band(rows_taken, gaps)
            rows_taken, remaining = [], _gaps(row, line_height)
        rows_taken.append(row)
        gaps = remaining
    if rows_taken:
        yield _band(rows_taken, gaps)


def _band(rows: list[Row], gaps: Sequence[Gap]) -> LineBand:
    return LineBand(rows=rows, gutter=max(gaps, key=lambda gap: gap[1] - gap[0], default=None))


def _gaps(row: Row, line_height: float) -> list[Gap]:
    between = pairwise(row)
    return [(one.box[2], other.box[0]) for one, other in between if other.box[0] - one.box[2] >= GUTTER * line_height]


def _remaining_gaps(gaps: Iterable[Gap], row: Row, line_height: float) -> list[Gap]:
    """The parts of the gaps that a row leaves free."""
    for line in row:
        gaps = [part for gap in gaps for part in _free_parts(gap, line)]
    return [gap for gap in gaps if gap[1] - gap[0] >= LEFT_OVER * line_height]


def _free_parts(gap: Gap, line: OcrLine) -> list[Gap]:
    left, _, right, _ = line.box
    if right <= gap[0] or left >= gap[1]:
        return [gap]
    return [part for part in ((gap[0], left), (right, gap[1])) if part[0] < part[1]]


class _Layout:
    """Collects the regions and spans of a page."""

    def __init__(self, sizes: TextSizes) -> None:
        self.regions: list[PageRegion] = []
        self.spans: list[Span] = []
        self._sizes = sizes
        self._tables = 0

    def add(self, lines: Sequence[OcrLine]) -> None:
        """Add a page, or one column of it."""
        for band in _bands(_rows(lines), self._sizes.height):
            self._add_band(band)

    def _add_band(self, band: LineBand) -> None:
        """Add a band as columns one after the other, as a table, or as lines."""
        if band.gutter is None:
            self._add_lines(band.rows)
            return
        left, right = _sides(band)
        if all(len(side) >= MIN_ROWS and _is_running_text(side) for side in (left, right)):
            self.add(left)
            self.add(right)
            return
        for run in self._table_candidates(band.rows):
            if len(run) >= MIN_TABLE_ROWS and len(run[0]) > 1:
                self._add_table(run)
            else:
                self._add_lines(run)

    def _add_table(self, rows: Sequence[Row]) -> None:
        cells = table_cells([_boxed_texts(row) for row in rows])
        self.regions.append(
            PageRegion(box=bounding_box([line.box for row in rows for line in row]), markdown=markdown_table(cells))
        )
        self.spans.extend(
            Span(text=cell[0], box=cell[1], table=self._tables, row=at, column=column)
            for at, row in enumerate(cells)
            for column, cell in enumerate(row)
            if cell is not None
        )
        self._tables += 1

    def _add_lines(self, rows: Sequence[Row]) -> None:
        lines = [self._join_row(row) for row in rows]
        self.regions.append(PageRegion(box=bounding_box([line.box for line in lines]), lines=lines))
        self.spans.extend(Span(text=line.text, box=line.box) for line in lines)

    def _join_row(self, row: Row) -> TextLine:
        """Join a row outside a table into one line."""
        box, longest = bounding_box([line.box for line in row]), max(row, key=lambda line: line.width)
        has_wide_gap = any(other.box[0] - one.box[2] > WIDE_GAP * self._sizes.letters for one, other in pairwise(row))
        size = self._sizes.line_size(longest.text, longest.box)
        return TextLine(join_texts(line.text.strip() for line in row), *box, size, "", has_wide_gap)

    def _table_candidates(self, rows: Sequence[Row]) -> Iterator[list[Row]]:
        """Split rows into candidate tables. A table starts with a row of several pieces, ends with such a row or with
        continuation lines of its cells, and contains no wide vertical gap and no heading."""
        run: list[Row] = []
        for row in rows:
            gap = min(line.box[1] for line in row) - max(line.box[3] for line in run[-1]) if run else 0.0
            if run and (gap > TABLE_GAP * self._sizes.height or self._is_heading(row)):
                yield from _split_table(run)
                run = []
            run.append(row)
        yield from _split_table(run)

    def _is_heading(self, row: Row) -> bool:
        return len(row) == 1 and self._sizes.line_size(row[0].text, row[0].box) > self._sizes.letters


def _split_table(run: list[Row]) -> Iterator[list[Row]]:
    full = [at for at, row in enumerate(run) if len(row) > 1]
    if not full:
        yield run
        return
    rows, end = run[full[0] :], full[-1] - full[0] + 1
    if 1 < end < len(rows):
        end = table_end([_boxed_texts(row) for row in rows[: end + MAX_LINES]], end)
    yield from (part for part in (run[: full[0]], rows[:end], rows[end:]) if part)


def _boxed_texts(row: Row) -> list[BoxedText]:
    return [(line.text, line.box) for line in row]


def _sides(band: LineBand) -> tuple[list[OcrLine], list[OcrLine]]:
    assert band.gutter is not None
    middle = sum(band.gutter) / 2
    lines = [line for row in band.rows for line in row]
    return [each for each in lines if each.box[2] <= middle], [each for each in lines if each.box[2] > middle]


def _is_running_text(lines: Sequence[OcrLine]) -> bool:
    """Lines of running text fill their column; table cells are short or vary in length."""
    width = max(line.box[2] for line in lines) - min(line.box[0] for line in lines)
    filled = statistics.median(line.width for line in lines) >= FILLED * width
    return filled and statistics.median(map(_letters, lines)) >= MIN_LETTERS


def _letters(line: OcrLine) -> int:
    """The length of a line; a Chinese character counts as two."""
    return len(line.text) * (2 if CJK.search(line.text) else 1)
