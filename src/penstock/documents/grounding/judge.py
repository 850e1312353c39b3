"""The verdict on each value, when all pages have been read.

A value is grounded where it stands by its own label, or in the row of its item, or at all. It is not when it stands
nowhere; nor when its own label clearly has another value beside it, or its own row another in its column: then it was
taken from elsewhere, and its place shows what stands there instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from penstock.documents.extract.fields.best import Offer
from penstock.documents.grounding.amounts import atoms, says
from penstock.documents.grounding.days import apart
from penstock.documents.grounding.items import Home, Items, Slot, share_slot
from penstock.documents.grounding.labelled import Around, Sayings
from penstock.documents.grounding.leaves import Claim, Scalar
from penstock.documents.grounding.saidby import SaidBy
from penstock.documents.grounding.sheet import Sheet
from penstock.documents.grounding.sought import Sought
from penstock.documents.grounding.spots import Hits, Spot
from penstock.documents.grounding.tokens import key_of
from penstock.documents.pages import Place

BY_LABEL, NEAR, PLAIN, WEAK = range(4)  # how a value stands where it stands; NEAR a word of its name
MOST_CLAIMS = 50  # of one value for which labels are looked at; a value so frequent says little anyway
MOST_LOOKED_AT = 12  # spots of one value on a page
MOST_NUMBER = 20  # characters of a number with its currency or unit
CLEAR = 100  # a number of three digits is hardly in a mark by chance
MOST_OTHERS_AWAY = 1 / 2  # of an array's items whose value may be elsewhere than in its row
MOST_TRIED = 20  # slots of one name; values that stand in more show no column
FEWEST_ALIKE = 2  # items that show where in its row a value stands


@dataclass(kw_only=True)
class Verdicts:
    """What has been seen so far."""

    wanted: list[Sought]
    items: Items
    sayings: Sayings
    best: dict[Claim, tuple[int, Spot]] = field(default_factory=dict)

    @classmethod
    def of(cls, wanted: list[Sought]) -> "Verdicts":
        """Nothing seen yet."""
        sayings = Sayings.of(claim for sought in wanted for claim in sought.claims)
        return cls(wanted=wanted, items=Items.of(wanted), sayings=sayings)

    def hear(self, sheet: Sheet, hits: Hits) -> None:
        """Take note of what stands on a page."""
        for sought, spots in hits.items():
            for claim in sought.claims:
                self._hear(sheet, claim, spots, is_many=len(sought.claims) > MOST_CLAIMS)
        self.items.read(sheet, hits)
        self.sayings.read(sheet)

    def _hear(self, sheet: Sheet, claim: Claim, spots: list[Spot], *, is_many: bool) -> None:
        held = self.best.get(claim)
        if held is not None and (held[0] == BY_LABEL or is_many):
            return
        looked_at = spots[: 1 if is_many else MOST_LOOKED_AT]
        best = min(((_rank(sheet, claim, spot), spot) for spot in looked_at), key=lambda each: each[0])
        if held is None or best[0] < held[0]:
            self.best[claim] = best

    def places(self, labels: SaidBy) -> dict[Claim, Place]:
        """The place of each value."""
        found: dict[Claim, Place] = {}
        rows = _Rows.of(self.items)
        contested = labels.contested()
        for sought in self.wanted:
            for claim in sought.claims:
                offer = None if claim.item else labels.offer(claim.leaf)
                place = rows.place(claim) or (self._by_label(claim, offer) if offer else None)
                if place is None and offer is None and claim.leaf not in contested:
                    place = self._by_saying(claim, sought)
                found[claim] = place or self._anywhere(claim)
        return found

    def _by_label(self, claim: Claim, offer: Offer) -> Place | None:
        if agree(claim.value, offer.value):
            return _shown(claim, offer, grounded=True)
        if self._is_by_label(claim) or _overlap(claim.value, offer.value):
            return None
        return _shown(claim, offer, grounded=False)

    def _by_saying(self, claim: Claim, sought: Sought) -> Place | None:
        """A day or a number whose label has another one beside it."""
        heard = self.sayings.heard.get(claim, [])
        if self._is_by_label(claim) or len({saying.text for saying in heard}) != 1:
            return None
        said = heard[0]
        if not (_is_other_day(said.text, sought) or _is_other_number(said.text, sought)):
            return None
        return Place(pointer=claim.pointer, grounded=False, page=said.page, box=said.box, text=said.text)

    def _is_by_label(self, claim: Claim) -> bool:
        return claim in self.best and self.best[claim][0] == BY_LABEL

    def _anywhere(self, claim: Claim) -> Place:
        rank, spot = self.best.get(claim, (WEAK, None))
        if spot is None or (isinstance(claim.value, bool) and rank != BY_LABEL):
            return Place(pointer=claim.pointer, grounded=False)
        if rank == WEAK and not isinstance(claim.value, str) and abs(claim.value) < CLEAR:
            return Place(pointer=claim.pointer, grounded=False)
        return placed(claim, spot)


def _rank(sheet: Sheet, claim: Claim, spot: Spot) -> int:
    if Around(sheet, spot).has(claim.labels):
        return BY_LABEL
    if claim.words & sheet.vocabulary.get(spot.bit, set()):
        return NEAR
    return WEAK if spot.weak else PLAIN


def placed(claim: Claim, spot: Spot) -> Place:
    """A value that stands there."""
    return Place(pointer=claim.pointer, grounded=True, page=spot.page, box=spot.box, text=spot.text)


def agree(one: Scalar, other: Scalar) -> bool:
    """Whether two values say the same."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return Decimal(repr(one)) == Decimal(repr(other))
    return key_of(str(one)) == key_of(str(other))


def _overlap(one: Scalar, other: Scalar) -> bool:
    """Whether one text is a part of the other: more or less of the same."""
    if not isinstance(one, str) or not isinstance(other, str):
        return False
    left, right = key_of(one), key_of(other)
    return left in right or right in left


def _is_other_day(text: str, sought: Sought) -> bool:
    """Whether a text has one day in it, and not this one."""
    written = apart(text) if sought.days else []
    return len(written) == 1 and not set(written[0].days) & set(sought.days)


def _is_other_number(text: str, sought: Sought) -> bool:
    """Whether a text is one number, and not this one."""
    if sought.number is None or isinstance(sought.value, str) or len(text) > MOST_NUMBER:
        return False
    return len(atoms(text)) == 1 and not apart(text) and not says(text, sought.number)


def _shown(claim: Claim, offer: Offer, *, grounded: bool) -> Place:
    at = offer.at
    return Place(pointer=claim.pointer, grounded=grounded, page=at.page, box=at.box, text=offer.text)


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """The row of each item, and where in it each of its values is expected."""

    homes: dict[str, Home]
    slots: dict[tuple[str, str], Slot]

    @classmethod
    def of(cls, items: Items) -> "_Rows":
        homes = dict(_chosen(items))
        return cls(homes=homes, slots=dict(_expected(homes, items)))

    def place(self, claim: Claim) -> Place | None:
        """Where a value stands in its item's row, or what stands there instead; None when the row does not tell."""
        home = self.homes.get(claim.item)
        if home is None:
            return None
        slot = self._slot(claim, home)
        inside = home.found.get(claim, ())
        at_home = [spot for here, spot in inside if slot is None or share_slot(here, slot)]
        if at_home:
            return placed(claim, at_home[0])
        instead = [piece for piece in home.pieces if slot is not None and share_slot(piece.slot, slot)]
        if instead and len(home.found) > 1 and (not inside or instead[0].slot.is_sure):
            piece = instead[0]
            return Place(pointer=claim.pointer, grounded=False, page=home.page, box=piece.box, text=piece.text)
        return placed(claim, inside[0][1]) if inside else None

    def _slot(self, claim: Claim, home: Home) -> Slot | None:
        """Where in its row a value is expected: under its own label, or where those of other items are."""
        named = [piece.slot for piece in home.pieces if piece.header and piece.header in claim.labels]
        return named[0] if len(named) == 1 else self.slots.get((_array(claim.item), claim.name))


def _chosen(items: Items) -> Iterator[tuple[str, Home]]:
    """The row of each item. One that another item fits better is not taken where there is a choice."""
    taken: dict[tuple[int, int], str] = {}
    by_rank = sorted(items.homes.items(), key=lambda each: each[1][0].rank, reverse=True)
    for item, homes in by_rank:
        most = len(homes[0].found)
        free = [home for home in homes if (home.page, home.row) not in taken and len(home.found) == most]
        home = (free or homes)[0]
        taken.setdefault((home.page, home.row), item)
        yield item, home


def _expected(homes: dict[str, Home], items: Items) -> Iterator[tuple[tuple[str, str], Slot]]:
    """Where in their rows the values of one name stand, if that is nearly always the same."""
    slots: dict[tuple[str, str], list[tuple[Slot, ...]]] = {}
    for item, home in homes.items():
        for claim, _ in items.members[item]:
            inside = tuple(slot for slot, _ in home.found.get(claim, ()))
            slots.setdefault((_array(item), claim.name), []).append(inside)
    taken: list[tuple[str, Slot]] = []
    best = {name: _most_frequent(found) for name, found in slots.items()}
    for name, (count, ties) in sorted(best.items(), key=lambda each: -each[1][0]):
        if count >= FEWEST_ALIKE and count >= (1 - MOST_OTHERS_AWAY) * len(slots[name]):
            free = [slot for slot in ties if not any(name[0] == a and share_slot(slot, other) for a, other in taken)]
            taken.append((name[0], (free or ties)[0]))
            yield name, taken[-1][1]


def _most_frequent(found: list[tuple[Slot, ...]]) -> tuple[int, list[Slot]]:
    """The slots that most items have, and how many these are."""
    tried = list(_tried(found))
    most = max((count for count, _ in tried), default=0)
    return most, [slot for count, slot in tried if count == most]


def _tried(found: list[tuple[Slot, ...]]) -> Iterator[tuple[int, Slot]]:
    """Each slot with the number of items that have it."""
    tried: list[Slot] = []
    for slot in (slot for inside in found for slot in inside):
        if not any(share_slot(slot, other) for other in tried):
            tried.append(slot)
            if len(tried) > MOST_TRIED:
                return
            yield sum(any(share_slot(slot, each) for each in inside) for inside in found), slot


def _array(item: str) -> str:
    return item.rpartition("/")[0]
