"""Labels around a value, and values beside a label.

A value stands by its label when that is before it in its line, left of it in its row, or over its column. What stands
beside a label is kept for days and numbers, which can be told from all else; whose label is beside another one, and
nowhere beside the value that a result states, that value was taken from elsewhere.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from penstock.documents.extract.fields.words import MOST_LABEL, key_of
from penstock.documents.grounding.leaves import Claim
from penstock.documents.grounding.sheet import Sheet
from penstock.documents.grounding.spots import Spot
from penstock.documents.pages import Box

MOST_LEFT = 6  # bits left of a value that may be its label
MOST_SAYINGS = 4  # kept of one label
MOST_SAID = 60  # characters beside a label; what is longer is prose
MOST_IN_ROW = 500  # bits

_WORD = re.compile(r"[^\W_]+")
_COLON = re.compile(r"[:：]")


class Around:
    """The labels that a value stands by, as keys with the places where their words begin and end."""

    def __init__(self, sheet: Sheet, spot: Spot) -> None:
        self._found = [_cut(text[-MOST_LABEL:]) for text in _texts(sheet, spot) if text.strip()]

    def has(self, labels: Collection[str]) -> bool:
        """Whether one of these is among them. "Total due" is a label of a total; "Subtotal" is none."""
        return any(_is_inside(label, key, edges) for key, edges in self._found for label in labels)


def _cut(text: str) -> tuple[str, frozenset[int]]:
    words = [key_of(word) for word in _WORD.findall(text)]
    return "".join(words), frozenset(accumulate(map(len, words), initial=0))


def _is_inside(label: str, key: str, edges: frozenset[int]) -> bool:
    at = key.find(label)
    while at >= 0:
        if not label.isascii() or (at in edges and at + len(label) in edges):
            return True
        at = key.find(label, at + 1)
    return False


def _texts(sheet: Sheet, spot: Spot) -> Iterator[str]:
    bit = sheet.bits[spot.bit]
    yield bit.text[: spot.start]
    row = sheet.rows[bit.row]
    at = row.index(spot.bit) if len(row) < MOST_IN_ROW else 0
    yield from (sheet.bits[left].text for left in row[max(0, at - MOST_LEFT) : at])
    if bit.table is not None and bit.column is not None:
        header = sheet.headers.get((bit.table, bit.column))
        if header is not None and header != spot.bit:
            yield sheet.bits[header].text
    elif spot.bit and not bit.text[: spot.start].strip():
        yield sheet.bits[spot.bit - 1].text  # over it, where nothing tells rows


@dataclass(frozen=True, kw_only=True)
class Saying:
    """What stands beside a label."""

    text: str
    page: int
    box: Box | None


@dataclass(kw_only=True)
class Sayings:
    """What stands beside the labels of single values, as pages go by."""

    claims: dict[str, Claim] = field(default_factory=dict)
    heard: dict[Claim, list[Saying]] = field(default_factory=dict)

    @classmethod
    def of(cls, claims: Iterable[Claim]) -> "Sayings":
        """Nothing heard yet. A label that two values answer to is nobody's."""
        named: dict[str, list[Claim]] = {}
        for claim in claims:
            if not claim.item:
                for key in claim.labels:
                    named.setdefault(key, []).append(claim)
        return cls(claims={key: those[0] for key, those in named.items() if len(those) == 1})

    def read(self, sheet: Sheet) -> None:
        """Hear what a page says."""
        for at, bit in enumerate(sheet.bits):
            label, *rest = _COLON.split(bit.text, maxsplit=1)
            claim = self.claims.get(key_of(label))
            if claim is None:
                continue
            saying = _saying(sheet, at, "".join(rest))
            kept = self.heard.setdefault(claim, [])
            if saying is not None and len(kept) < MOST_SAYINGS:
                kept.append(saying)


def _saying(sheet: Sheet, at: int, rest: str) -> Saying | None:
    """The rest of the label's own bit, else the next bit of its row."""
    bit = sheet.bits[at]
    if not rest.strip():
        row = sheet.rows[bit.row]
        after = row.index(at) + 1 if len(row) < MOST_IN_ROW else len(row)
        if after >= len(row):
            return None
        bit = sheet.bits[row[after]]
        rest = bit.text
    return Saying(text=rest.strip(), page=sheet.number, box=bit.box) if len(rest.strip()) <= MOST_SAID else None
