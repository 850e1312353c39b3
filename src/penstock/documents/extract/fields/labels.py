"""Which label means which wanted value.

A leaf inside a record answers to its label within the record's section, and anywhere to both names together ("Seller
name"). By its own label alone, outside of any section, it is meant only when nothing else has that label. In the
section of a party (a buyer, a seller) nothing is of another party, even when nobody else wants it.
"""

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

from penstock.documents.extract.fields.tree import Labels, Leaf, Node, Record, Rows, parts
from penstock.documents.extract.fields.words import (
    MOST_LABEL,
    common_labels,
    key_of,
    parts_of,
    party_labels,
    total_labels,
    without_note,
    without_unit,
)

T = TypeVar("T")

MOST_COMMON = 24  # characters, spaces between letters included
MOST_COMPOSED = 64  # keys made of a record's name and a leaf's name

_BEGINS_WITH_LABEL = re.compile(r"[^:：\d]{1,40}[:：](?!//)")


class Claim(NamedTuple):
    """A leaf that answers to a key; `standing` is the place of that key among the leaf's labels."""

    leaf: Leaf
    standing: int
    around: tuple[Record, ...]
    whole: bool  # the key names the record too


class Owner(NamedTuple):
    """Whose section a label stands in: that of a record, or None for a party that the schema has no record for. Then
    `side` tells which, or None where it may be any."""

    record: Record | None
    side: int | None = None
    is_over: bool = False  # what follows may be anybody's again, where the record itself has no use for it


class Meant(NamedTuple):
    """A leaf that a label in the document means, and how well: less is better."""

    leaf: Leaf
    standing: tuple[int, int]


@dataclass(frozen=True, kw_only=True, eq=False)
class Labelled:
    """All labels of a tree. For the items of an array there is one more of these."""

    claims: dict[str, list[Claim]]
    records: dict[str, list[Record]]
    rows: tuple[Rows, ...]
    leaves: tuple[Leaf, ...]
    rows_by_key: dict[str, list[Rows]]

    @classmethod
    def of(cls, node: Node) -> "Labelled":
        """The labels of a node and of all below it, except inside arrays."""
        made = cls(claims={}, records={}, rows=tuple(_rows(node)), leaves=tuple(_leaves(node)), rows_by_key={})
        for part, around in parts(node):
            if isinstance(part, Leaf):
                made._add_leaf(part, around)
            elif isinstance(part, Record) and part.pointer:
                _add(made.records, part.labels, part)
            elif isinstance(part, Rows):
                _add(made.rows_by_key, part.labels, part)
        return made

    @cached_property
    def longest(self) -> int:
        """More characters than any label can take that is asked for, spaces, marks and small words counted."""
        keys = itertools.chain(self.claims, self.records, self.rows_by_key)
        return min(2 * max(map(len, keys), default=0) + 15, MOST_LABEL)

    @cached_property
    def common(self) -> frozenset[str]:
        """Keys of labels that forms have, asked for or not."""
        return common_labels()

    @cached_property
    def totals(self) -> frozenset[str]:
        """Keys of what stands before a sum."""
        return total_labels()

    @cached_property
    def parties(self) -> dict[str, int]:
        """Keys of those that a document may be about, and their sides."""
        return party_labels()

    def meant_by(self, label: str, owner: Owner | None = None, heading: str = "") -> list[Meant]:
        """The leaves that a label means in the section of its owner, or under a heading, best reading only."""
        key = key_of(label)
        if not key:
            return []
        for weakness, keys in enumerate(([key], [heading + key] if heading else [], map(key_of, parts_of(label)))):
            claims = [claim for each in keys for claim in self._claims(each, owner)]
            best = {claim.leaf: claim.standing for claim in sorted(claims, key=lambda claim: -claim.standing)}
            if best:
                return [Meant(leaf, (standing, weakness)) for leaf, standing in best.items()]
        return []

    def is_wanted(self, text: str) -> bool:
        """Whether a text is a label that the schema knows."""
        if len(text) > self.longest:
            return False
        return self._is_known(key_of(text), *(key_of(part) for part in parts_of(text)[:1]))

    def is_whole(self, text: str) -> bool:
        """Whether all of a text is such a label, a rate, a currency or a note in brackets after it included."""
        ways = (text, without_unit(text), without_note(text))
        return self._is_known(*(key_of(way) for way in ways if len(way) <= self.longest))

    def is_label(self, text: str) -> bool:
        """Whether a text is a label at all, or begins with one: then it is nobody else's value."""
        return bool(_BEGINS_WITH_LABEL.match(text)) or self.is_wanted(text) or self.is_common(text)

    def is_common(self, text: str) -> bool:
        """Whether a text is a label that forms have, asked for or not."""
        return len(text) <= MOST_COMMON and key_of(text) in self.common

    def is_party(self, text: str) -> bool:
        """Whether a text names a party, one of the schema or any other."""
        return len(text) <= MOST_COMMON and key_of(text) in self.parties

    def ends_value(self, text: str) -> bool:
        """Whether a value in a line ends where this text begins."""
        return self.is_common(text) or self.is_party(text)

    def _is_known(self, *keys: str) -> bool:
        return any(key in known for key in keys for known in (self.claims, self.records, self.rows_by_key))

    def _claims(self, key: str, owner: Owner | None) -> Iterable[Claim]:
        found = self.claims.get(key, [])
        inside = [claim for claim in found if owner is not None and owner.record in claim.around]
        if inside:
            return inside
        clear = [claim for claim in found if claim.whole or not claim.around]
        if clear or len({claim.leaf.pointer for claim in found}) > 1:
            return clear
        return [claim for claim in found if not self._is_anothers(claim, owner)]

    def _is_anothers(self, claim: Claim, owner: Owner | None) -> bool:
        """Whether a claim is one of another party than that whose section this is."""
        if owner is None or owner.is_over:
            return False
        sides = self._sides(*claim.around)
        if owner.record is None:
            return bool(sides) and owner.side not in sides
        theirs = claim.around[-1]
        if _is_within(owner.record, theirs) or _is_within(theirs, owner.record):
            return False
        are_parties = bool(sides and self._sides(owner.record))
        return are_parties or not self._keys_in[owner.record].isdisjoint(self._keys_in[theirs])

    @cached_property
    def _keys_in(self) -> dict[Record, set[str]]:
        """The keys of the leaves of each record."""
        found: dict[Record, set[str]] = defaultdict(set)
        for key, claims in self.claims.items():
            for claim in claims:
                for record in claim.around if not claim.whole else ():
                    found[record].add(key)
        return found

    def _sides(self, *records: Record) -> set[int]:
        names = (key for record in records for keys in record.labels for key in keys)
        return {self.parties[key] for key in names if key in self.parties}

    def _add_leaf(self, leaf: Leaf, around: tuple[Record, ...]) -> None:
        for standing, keys in enumerate(leaf.labels):
            for key in keys:
                self.claims.setdefault(key, []).append(Claim(leaf, standing, around, whole=False))
        if not around:
            return
        for standing, key in _composed(around[-1].labels, leaf.labels):
            self.claims.setdefault(key, []).append(Claim(leaf, standing, around, whole=True))


def _is_within(inner: Record, outer: Record) -> bool:
    return f"{inner.pointer}/".startswith(f"{outer.pointer}/")


def _composed(outer: Labels, inner: Labels) -> Iterator[tuple[int, str]]:
    pairs = ((at, left + right) for at, keys in enumerate(inner) for right in keys for one in outer for left in one)
    for count, pair in enumerate(pairs):
        if count >= MOST_COMPOSED:
            return
        yield pair


def _add(known: dict[str, list[T]], labels: Labels, node: T) -> None:
    for keys in labels:
        for key in keys:
            known.setdefault(key, []).append(node)


def _rows(node: Node) -> Iterator[Rows]:
    return (part for part, _ in parts(node) if isinstance(part, Rows))


def _leaves(node: Node) -> Iterator[Leaf]:
    return (part for part, _ in parts(node) if isinstance(part, Leaf))
