"""A page prepared for search: segments in rows, and one sequence of words across all segments.

A segment is a line or a table cell. Segments at the same height, and the cells of one table row, share a row, in which
the label of a value is searched. Text that is in the markdown but not in the spans becomes a segment without a box.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from penstock.documents.extract.fields import markdown
from penstock.documents.extract.fields.layout import in_same_row
from penstock.documents.grounding.tokens import Token, text_key, tokens
from penstock.documents.layout.lines import bounding_box
from penstock.documents.pages import Box, Page

MAX_PAGE = 2_000_000  # characters read of a page; a file without pages is one page
MAX_ROW, MAX_CELLS = 1000, 50  # characters per segment and segments per row in `row_text`
MAX_COMPARED = 100_000  # characters of a page whose markdown is compared with its spans


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A line or a table cell. `row` is its row on the page, `column` the column of a cell."""

    text: str
    row: int
    box: Box | None = None
    table: int | None = None
    column: int | None = None


@dataclass(frozen=True, kw_only=True)
class PageText:
    """A page prepared for search."""

    number: int
    segments: Sequence[Segment]
    words: Sequence[Token]
    segment_of_word: Sequence[int]  # the segment index of each word
    joined_tokens: str  # the keys of all words, concatenated
    starts: Sequence[int]  # the offset of each word in `joined_tokens`

    @cached_property
    def ends(self) -> dict[int, int]:
        """The word that ends at each offset of `joined_tokens`."""
        return dict(zip([*self.starts[1:], len(self.joined_tokens)], range(len(self.words)), strict=False))

    @cached_property
    def rows(self) -> dict[int, list[int]]:
        """The segment indexes of each row, from left to right where positions are known."""
        found: dict[int, list[int]] = {}
        for at, segment in enumerate(self.segments):
            found.setdefault(segment.row, []).append(at)
        for row in found.values():
            row.sort(key=lambda at: (_left(self.segments[at]), at))
        return found

    @cached_property
    def headers(self) -> dict[tuple[int, int], int]:
        """The first cell of each column, by (table, column)."""
        found: dict[tuple[int, int], int] = {}
        for at, segment in enumerate(self.segments):
            if segment.table is not None and segment.column is not None:
                found.setdefault((segment.table, segment.column), at)
        return found

    @cached_property
    def vocabulary(self) -> dict[int, set[str]]:
        """The words of each segment, without the plural s."""
        found: dict[int, set[str]] = {}
        for word, segment in zip(self.words, self.segment_of_word, strict=True):
            found.setdefault(segment, set()).add(word.key.removesuffix("s"))
        return found

    @cached_property
    def width(self) -> float:
        """The right edge of the page's text."""
        return max((segment.box[2] for segment in self.segments if segment.box), default=1.0) or 1.0

    def row_text(self, at: int) -> str:
        """The text of the row that a segment is in."""
        return " ".join(self.segments[other].text[:MAX_ROW] for other in self.rows[self.segments[at].row][:MAX_CELLS])


def page_text(page: Page) -> PageText:
    """Prepare a page for search."""
    segments = list(_span_segments(page)) if page.spans else list(_markdown_segments(page.markdown[:MAX_PAGE], 0))
    if page.spans and len(page.markdown) <= MAX_COMPARED:
        segments += _markdown_only_segments(page, segments)
    words: list[Token] = []
    segment_of_word: list[int] = []
    for at, segment in enumerate(segments):
        found = tokens(segment.text)
        words += found
        segment_of_word += [at] * len(found)
    starts = list(accumulate((len(word.key) for word in words), initial=0))[: len(words)]
    return PageText(
        number=page.number,
        segments=segments,
        words=words,
        segment_of_word=segment_of_word,
        joined_tokens="".join([word.key for word in words]),
        starts=starts,
    )


def _markdown_only_segments(page: Page, segments: Sequence[Segment]) -> list[Segment]:
    """Segments of the markdown whose text is not in the spans."""
    known = text_key("\n".join([segment.text for segment in segments]))
    first = 1 + max((segment.row for segment in segments), default=0)
    return [segment for segment in _markdown_segments(page.markdown, first) if text_key(segment.text) not in known]


def _span_segments(page: Page) -> Iterator[Segment]:
    rows = _row_numbers([(span.box, span.table, span.row) for span in page.spans])
    remaining = MAX_PAGE
    for span, row in zip(page.spans, rows, strict=True):
        yield Segment(text=span.text[:remaining], row=row, box=span.box, table=span.table, column=span.column)
        remaining = max(remaining - len(span.text), 0)


def _row_numbers(places: Sequence[tuple[Box | None, int | None, int | None]]) -> list[int]:
    """The row of each place: the cells of one table row share it, and so does everything at the same height."""
    units: dict[tuple[int, ...], list[int]] = {}
    for at, (_, table, row) in enumerate(places):
        units.setdefault((at,) if table is None else (table, row or 0, -1), []).append(at)
    found = [0] * len(places)
    count, first = -1, None
    boxed = ((enclosing_box(places[at][0] for at in unit), unit) for unit in units.values())
    for box, unit in sorted(boxed, key=_reading_order):
        if box is None or first is None or not in_same_row(first, box):
            count, first = count + 1, box
        for at in unit:
            found[at] = count
    return found


def _reading_order(unit: tuple[Box | None, list[int]]) -> tuple[bool, float, int]:
    box, places = unit
    return box is None, box[1] if box else 0.0, places[0]


def enclosing_box(boxes: Iterable[Box | None]) -> Box | None:
    """The box around all known boxes."""
    known = [box for box in boxes if box is not None]
    return bounding_box(known) if known else None


def _markdown_segments(text: str, row: int) -> Iterator[Segment]:
    """The lines and table cells of markdown."""
    tables = 0
    for block in markdown.blocks(text):
        if isinstance(block, markdown.MarkdownLine):
            yield Segment(text=block.text, row=row)
            row += 1
            continue
        for cells in block.rows:
            yield from (
                Segment(text=cell, row=row, table=-1 - tables, column=at)
                for at, cell in enumerate(cells)
                if cell.strip()
            )
            row += 1
        tables += 1


def _left(segment: Segment) -> float:
    return segment.box[0] if segment.box else float(segment.column or 0)
