"""Items of arrays and the rows of the page that they came from.

Most values of an item stand in one row. Which row that is, its values decide together; so a "1" is found in the right
row, and a value that was taken from the row below is not at home in its own. Of each item the few rows that fit best
are kept, as pages go by.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from penstock.documents.extract.fields.words import key_of as label_key
from penstock.documents.grounding.amounts import atoms
from penstock.documents.grounding.days import apart
from penstock.documents.grounding.leaves import Claim
from penstock.documents.grounding.sheet import Bit, Sheet
from penstock.documents.grounding.sought import Sought
from penstock.documents.grounding.spots import Hits, Spot
from penstock.documents.pages import Box

MOST_ROWS = 3  # kept of each item
MOST_SHARED = 8  # items that a value may stand in and still tell where an item is
MOST_PIECES = 60  # of a row
MOST_TEXT = 300
FEW_LETTERS = 4  # around a value that is still alone in its bit
SAME_EDGE = 0.006  # of the page's width: some three points

_LETTERS = re.compile(r"[^\W\d_]{2,}")


class Slot(NamedTuple):
    """Where in its row a thing stands: in which column of a table; or from where to where on the page, as shares of its
    width; or as which number of its line, from the end, or as which day or stretch of words, from the start."""

    column: int | None = None
    stretch: tuple[float, float] | None = None
    number: int | None = None
    day: int | None = None
    words: int | None = None

    @property
    def is_sure(self) -> bool:
        """Whether nothing else of the row can stand there: lines need not have the same number of things in them."""
        return self.column is not None or self.stretch is not None


class Piece(NamedTuple):
    """Something in a row, and the key of what stands over its column."""

    slot: Slot
    text: str
    box: Box | None
    header: str = ""


@dataclass(frozen=True, kw_only=True)
class Home:
    """A row that may be an item's, and the values of the item that stand in it, each in so many places."""

    page: int
    row: int
    pieces: tuple[Piece, ...]
    found: Mapping[Claim, tuple[tuple[Slot, Spot], ...]]
    weight: int

    @property
    def rank(self) -> tuple[int, int]:
        return len(self.found), self.weight


Members: TypeAlias = dict[str, list[tuple[Claim, Sought]]]


@dataclass(kw_only=True)
class Items:
    """The items of a result, and the rows that they may be at home in."""

    members: Members
    homes: dict[str, list[Home]] = field(default_factory=dict)

    @classmethod
    def of(cls, wanted: list[Sought]) -> "Items":
        """All items with more than one value."""
        members: Members = {}
        for sought in wanted:
            for claim in sought.claims:
                if claim.item:
                    members.setdefault(claim.item, []).append((claim, sought))
        return cls(members={item: inner for item, inner in members.items() if len(inner) > 1})

    def read(self, sheet: Sheet, hits: Hits) -> None:
        """See which items have a row on this page."""
        present = dict.fromkeys(
            claim.item
            for sought in hits
            if len(sought.claims) <= MOST_SHARED
            for claim in sought.claims
            if claim.item in self.members
        )
        for item in present:
            kept = self.homes.setdefault(item, [])
            least = kept[-1].rank if len(kept) == MOST_ROWS else (0, 0)
            kept += _homes(sheet, self.members[item], hits, better_than=least)
            kept.sort(key=lambda each: each.rank, reverse=True)
            del kept[MOST_ROWS:]


def _homes(
    sheet: Sheet, members: list[tuple[Claim, Sought]], hits: Hits, *, better_than: tuple[int, int]
) -> Iterator[Home]:
    rows: dict[int, dict[Claim, list[Spot]]] = {}
    weights: dict[int, int] = {}
    for claim, sought in members:
        for spot in hits.get(sought, ()):
            row = rows.setdefault(spot.row, {})
            if claim not in row:
                weights[spot.row] = weights.get(spot.row, 0) + min(len(spot.text), 12)
            row.setdefault(claim, []).append(spot)
    best = sorted(rows, key=lambda row: (len(rows[row]), weights[row]), reverse=True)[:MOST_ROWS]
    for number in best:
        if (len(rows[number]), weights[number]) <= better_than:
            return
        found = {
            claim: tuple((slot_of(sheet, spot), spot) for spot in spots[:MOST_ROWS])
            for claim, spots in rows[number].items()
        }
        pieces = tuple(_pieces(sheet, number))
        yield Home(page=sheet.number, row=number, pieces=pieces, found=found, weight=weights[number])


def slot_of(sheet: Sheet, spot: Spot) -> Slot:
    """Where in its row a value stands."""
    bit = sheet.bits[spot.bit]
    if bit.table is not None:
        return Slot(column=bit.column)
    if not spot.start and len(bit.text) <= len(spot.text) + FEW_LETTERS:
        return _stretch(sheet, bit)
    return next((slot for slot, start, end in _inner(bit.text) if start <= spot.start < end), Slot())


def _inner(text: str) -> Iterator[tuple[Slot, int, int]]:
    """The days and numbers of a line, and the words between them."""
    text = text[:MOST_TEXT]
    found = list(apart(text))
    yield from ((Slot(day=at), day.start, day.end) for at, day in enumerate(found))
    free = [each for each in atoms(text) if not any(day.start <= each[0] < day.end for day in found)]
    yield from ((Slot(number=len(free) - at), start, end) for at, (start, end) in enumerate(free))
    taken = sorted([*((day.start, day.end) for day in found), *free])
    starts, ends = [0, *(end for _, end in taken)], [*(start for start, _ in taken), len(text)]
    between = [(start, end) for start, end in zip(starts, ends, strict=True) if _LETTERS.search(text[start:end])]
    yield from ((Slot(words=at), start, end) for at, (start, end) in enumerate(between))


def _stretch(sheet: Sheet, bit: Bit) -> Slot:
    return Slot(stretch=(bit.box[0] / sheet.width, bit.box[2] / sheet.width)) if bit.box else Slot()


def _pieces(sheet: Sheet, row: int) -> Iterator[Piece]:
    for at in sheet.rows[row][:MOST_PIECES]:
        bit = sheet.bits[at]
        if bit.table is not None:
            over = sheet.headers.get((bit.table, bit.column or 0), at)
            header = label_key(sheet.bits[over].text) if over != at else ""
            yield Piece(Slot(column=bit.column), bit.text[:MOST_TEXT], bit.box, header)
            continue
        yield Piece(_stretch(sheet, bit), bit.text[:MOST_TEXT], bit.box)
        for slot, start, end in _inner(bit.text):
            yield Piece(slot, bit.text[start:end], bit.box)


def share_slot(one: Slot, other: Slot) -> bool:
    """Whether two things of different rows stand in one column."""
    if one.stretch is not None and other.stretch is not None:
        (left, right), (other_left, other_right) = one.stretch, other.stretch
        middles = abs(left + right - other_left - other_right) / 2
        return min(abs(left - other_left), abs(right - other_right), middles) < SAME_EDGE
    return one == other != Slot()
