"""Array items and the page rows that they came from.

Most values of an item are in one row, and all values together decide which one. So a "1" is found in the right row, and
a value taken from the row below does not match. The few best rows per item are kept, page by page.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from penstock.documents.extract.fields.label_keys import label_key
from penstock.documents.grounding.amounts import digit_spans
from penstock.documents.grounding.dates import non_overlapping_dates
from penstock.documents.grounding.occurrences import Hits, Occurrence
from penstock.documents.grounding.page_text import PageText, Segment
from penstock.documents.grounding.result_leaves import ResultLeaf
from penstock.documents.grounding.search_terms import SearchTerm
from penstock.documents.pages import Box

MAX_ROWS = 3  # kept per item
MAX_SHARING_ITEMS = 8  # a value that more items share does not locate an item
MAX_CELLS = 60  # per row
MAX_TEXT = 300
MAX_EXTRA_LETTERS = 4  # around a value that still fills its segment
EDGE_TOLERANCE = 0.006  # of the page width: about three points

_LETTERS = re.compile(r"[^\W\d_]{2,}")


class RowSlot(NamedTuple):
    """A position within a row: a table column; or a horizontal extent, as fractions of the page width; or the index of
    a number in its line, counted from the end, or of a date or a run of words, counted from the start."""

    column: int | None = None
    extent: tuple[float, float] | None = None
    number: int | None = None
    date: int | None = None
    words: int | None = None

    @property
    def is_exclusive(self) -> bool:
        """Whether only one value fits there. An index is not exclusive: lines differ in what they contain."""
        return self.column is not None or self.extent is not None


class RowCell(NamedTuple):
    """A text in a row, with the key of its column header."""

    slot: RowSlot
    text: str
    box: Box | None
    header: str = ""


@dataclass(frozen=True, kw_only=True)
class RowCandidate:
    """A row that may belong to an item, with the values of the item found in it and their positions."""

    page: int
    row: int
    cells: tuple[RowCell, ...]
    leaves: Mapping[ResultLeaf, tuple[tuple[RowSlot, Occurrence], ...]]
    text_length: int

    @property
    def rank(self) -> tuple[int, int]:
        return len(self.leaves), self.text_length


Members: TypeAlias = dict[str, list[tuple[ResultLeaf, SearchTerm]]]


@dataclass(kw_only=True)
class ItemRows:
    """The items of a result and the rows that they may come from."""

    members: Members
    candidates: dict[str, list[RowCandidate]] = field(default_factory=dict)

    @classmethod
    def of(cls, terms: list[SearchTerm]) -> "ItemRows":
        """All items with more than one value."""
        members: Members = {}
        for term in terms:
            for leaf in term.leaves:
                if leaf.item:
                    members.setdefault(leaf.item, []).append((leaf, term))
        return cls(members={item: inner for item, inner in members.items() if len(inner) > 1})

    def add_page(self, page: PageText, hits: Hits) -> None:
        """Collect the candidate rows of a page."""
        present = dict.fromkeys(
            leaf.item
            for term in hits
            if len(term.leaves) <= MAX_SHARING_ITEMS
            for leaf in term.leaves
            if leaf.item in self.members
        )
        for item in present:
            kept = self.candidates.setdefault(item, [])
            least = kept[-1].rank if len(kept) == MAX_ROWS else (0, 0)
            kept += _row_candidates(page, self.members[item], hits, better_than=least)
            kept.sort(key=lambda each: each.rank, reverse=True)
            del kept[MAX_ROWS:]


def _row_candidates(
    page: PageText, members: list[tuple[ResultLeaf, SearchTerm]], hits: Hits, *, better_than: tuple[int, int]
) -> Iterator[RowCandidate]:
    rows: dict[int, dict[ResultLeaf, list[Occurrence]]] = {}
    text_lengths: dict[int, int] = {}
    for leaf, term in members:
        for occurrence in hits.get(term, ()):
            row = rows.setdefault(occurrence.row, {})
            if leaf not in row:
                text_lengths[occurrence.row] = text_lengths.get(occurrence.row, 0) + min(len(occurrence.text), 12)
            row.setdefault(leaf, []).append(occurrence)
    best = sorted(rows, key=lambda row: (len(rows[row]), text_lengths[row]), reverse=True)[:MAX_ROWS]
    for number in best:
        if (len(rows[number]), text_lengths[number]) <= better_than:
            return
        leaves = {
            leaf: tuple((slot_of(page, occurrence), occurrence) for occurrence in occurrences[:MAX_ROWS])
            for leaf, occurrences in rows[number].items()
        }
        cells = tuple(_row_cells(page, number))
        yield RowCandidate(page=page.number, row=number, cells=cells, leaves=leaves, text_length=text_lengths[number])


def slot_of(page: PageText, occurrence: Occurrence) -> RowSlot:
    """The position of an occurrence within its row."""
    segment = page.segments[occurrence.segment]
    if segment.table is not None:
        return RowSlot(column=segment.column)
    if not occurrence.start and len(segment.text) <= len(occurrence.text) + MAX_EXTRA_LETTERS:
        return _extent(page, segment)
    return next((slot for slot, start, end in _line_parts(segment.text) if start <= occurrence.start < end), RowSlot())


def _line_parts(text: str) -> Iterator[tuple[RowSlot, int, int]]:
    """The dates and numbers of a line, and the words between them."""
    text = text[:MAX_TEXT]
    dates = list(non_overlapping_dates(text))
    yield from ((RowSlot(date=at), date.start, date.end) for at, date in enumerate(dates))
    free = [each for each in digit_spans(text) if not any(date.start <= each[0] < date.end for date in dates)]
    yield from ((RowSlot(number=len(free) - at), start, end) for at, (start, end) in enumerate(free))
    taken = sorted([*((date.start, date.end) for date in dates), *free])
    starts, ends = [0, *(end for _, end in taken)], [*(start for start, _ in taken), len(text)]
    between = [(start, end) for start, end in zip(starts, ends, strict=True) if _LETTERS.search(text[start:end])]
    yield from ((RowSlot(words=at), start, end) for at, (start, end) in enumerate(between))


def _extent(page: PageText, segment: Segment) -> RowSlot:
    return RowSlot(extent=(segment.box[0] / page.width, segment.box[2] / page.width)) if segment.box else RowSlot()


def _row_cells(page: PageText, row: int) -> Iterator[RowCell]:
    for at in page.rows[row][:MAX_CELLS]:
        segment = page.segments[at]
        if segment.table is not None:
            over = page.headers.get((segment.table, segment.column or 0), at)
            header = label_key(page.segments[over].text) if over != at else ""
            yield RowCell(RowSlot(column=segment.column), segment.text[:MAX_TEXT], segment.box, header)
            continue
        yield RowCell(_extent(page, segment), segment.text[:MAX_TEXT], segment.box)
        for slot, start, end in _line_parts(segment.text):
            yield RowCell(slot, segment.text[start:end], segment.box)


def share_slot(one: RowSlot, other: RowSlot) -> bool:
    """Whether two positions of different rows are in one column."""
    if one.extent is not None and other.extent is not None:
        (left, right), (other_left, other_right) = one.extent, other.extent
        centers = abs(left + right - other_left - other_right) / 2
        return min(abs(left - other_left), abs(right - other_right), centers) < EDGE_TOLERANCE
    return one == other != RowSlot()
