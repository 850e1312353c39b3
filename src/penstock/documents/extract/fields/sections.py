"""Whose part of the document a line stands in: the headings above it, and the names of records that stand alone.

A party ("Buyer: A Ltd") has its part also where its name stands after it, and where the schema has no record for it:
what is the buyer's is not the seller's. On a page with boxes such names may stand side by side ("Bill to", "Ship to");
a line then belongs to the lowest row of them above it, and there to the last one that does not begin right of the line.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.documents.extract.fields.labels import Labelled, Owner
from penstock.documents.extract.fields.layout import Text
from penstock.documents.extract.fields.words import key_of
from penstock.documents.pages import Box

SOMEBODY = Owner(record=None)


@dataclass(kw_only=True)
class Sections:
    """Where the reading has come to."""

    labelled: Labelled
    _headings: list[tuple[int, str]] = field(default_factory=list)
    _named: Owner | None = None  # by a line of its own, below all headings
    _on_page: list[tuple[Box, Owner]] = field(default_factory=list)
    _is_past_items: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the headings that hold here, innermost first."""
        return tuple(key for _, key in reversed(self._headings))

    @property
    def heading(self) -> str:
        """The key of the innermost heading."""
        return self._headings[-1][1] if self._headings else ""

    def turn_page(self) -> None:
        """Boxes count on their own page only; headings hold on."""
        self._on_page.clear()

    def pass_items(self) -> None:
        """A table of items has been read: what comes after it is not sure to be of the party before it."""
        self._is_past_items = True

    def open(self, line: Text, labels: Sequence[str] = ()) -> bool:
        """Take note of a line and of the labels in it, and say whether it opens a section."""
        named = self.named_in(line, labels)
        if line.heading:
            self._headings = [(level, key) for level, key in self._headings if level < line.heading]
            self._headings.append((line.heading, key_of(line.text)))
            self._named = None
        if named is not None:
            self._named = named
            if line.box:
                self._on_page.append((line.box, named))
        if named is not None or line.heading:
            self._is_past_items = False
        return named is not None or line.heading > 0

    def named_in(self, line: Text, labels: Sequence[str]) -> Owner | None:
        """Whose section begins with a line: it is the name, or one of its labels names a party."""
        return self.named_by(line.text) or self._party_among(labels, line)

    def named_by(self, text: str) -> Owner | None:
        """Whose section a text is the name of."""
        known = self.labelled.records.get(key_of(text), [])
        if len({record.pointer for record in known}) == 1:
            return Owner(record=known[0])
        return Owner(record=None, side=self.labelled.parties[key_of(text)]) if self._is_stranger(text) else None

    def _is_stranger(self, text: str) -> bool:
        return self.labelled.is_party(text) and key_of(text) not in self.labelled.records

    def owner(self, line: Text) -> Owner | None:
        """Whose section a line stands in."""
        found = self._owner(line)
        if found is None or not self._is_past_items:
            return found
        return found._replace(is_over=True) if found.record is not None else None

    def _owner(self, line: Text) -> Owner | None:
        beside = self._beside(line.box) if line.box else None
        if beside is not None or self._named is not None:
            return beside or self._named
        return next(filter(None, map(self._named_by_heading, self.keys)), None)

    def _named_by_heading(self, key: str) -> Owner | None:
        known = self.labelled.records.get(key, [])
        if known:
            return Owner(record=known[0])
        return Owner(record=None, side=self.labelled.parties[key]) if key in self.labelled.parties else None

    def _party_among(self, labels: Iterable[str], line: Text) -> Owner | None:
        """The party that one of the labels of a line names. Of two, what follows may be either's."""
        parties = [label for label in labels if self.labelled.is_party(label)]
        own = self.owner(line) if parties else None
        if own is not None:
            parties = [label for label in parties if not self._has(own, label)]
        if not parties:
            return None
        return (self.named_by(parties[0]) if len(parties) == 1 else None) or SOMEBODY

    def _has(self, owner: Owner, label: str) -> bool:
        """Whether a label is one of the owner's own values: the customer of an order opens no part of its own."""
        return any(owner.record in claim.around for claim in self.labelled.claims.get(key_of(label), []))

    def _beside(self, box: Box) -> Owner | None:
        slack = box[3] - box[1]
        above = [(at, owner) for at, owner in self._on_page if at[1] <= box[1] + slack / 2 and at[0] <= box[0] + slack]
        if not above:
            return None
        lowest = max(at[1] for at, _ in above)
        return max(((at[0], owner) for at, owner in above if at[1] >= lowest - slack), key=lambda one: one[0])[1]
