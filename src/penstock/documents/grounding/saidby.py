"""What stands by the labels of a schema, as `documents/extract/fields` finds it.

A page on which no word of the schema stands is not read: it cannot say anything by a label. What was open before such a
page, a section or a table, is not held to go on after it.
"""

from dataclasses import dataclass, field
from itertools import chain

from penstock.documents.extract.fields.best import Offer
from penstock.documents.extract.fields.gather import Gathered
from penstock.documents.extract.fields.rows import TooManyValues
from penstock.documents.extract.fields.sections import Sections
from penstock.documents.extract.fields.tree import Leaf, Node
from penstock.documents.extract.fields.words import key_of
from penstock.documents.grounding.sheet import Sheet
from penstock.documents.pages import Page

MOST_LOOKED_UP = 1000  # labels; a schema of more is read on every page
PIECE = 60  # characters that become a key at once


@dataclass(kw_only=True)
class SaidBy:
    """What the labels of a schema have beside them so far; nothing where there is no schema, or too much of it all."""

    gathered: Gathered | None
    keys: tuple[str, ...] = field(default=())

    @classmethod
    def of(cls, tree: Node | None) -> "SaidBy":
        """Nothing read yet."""
        gathered = Gathered.of(tree) if tree is not None else None
        if gathered is None or not gathered.labelled.claims:
            return cls(gathered=None)
        known = gathered.labelled
        return cls(gathered=gathered, keys=tuple(chain(known.claims, known.records, known.rows_by_key)))

    def read(self, page: Page, sheet: Sheet) -> None:
        """Hear what a page says."""
        if self.gathered is None:
            return
        if not self._may_say(sheet):
            self.gathered.sections = Sections(labelled=self.gathered.labelled)
            self.gathered.arrays.close_table()
            return
        try:
            self.gathered.read(page)
        except TooManyValues:
            self.gathered = None

    def _may_say(self, sheet: Sheet) -> bool:
        if len(self.keys) > MOST_LOOKED_UP:
            return True
        letters = sheet.letters
        keys = "".join(key_of(letters[at : at + PIECE]) for at in range(0, len(letters), PIECE))
        return any(key in keys for key in self.keys)

    def offer(self, leaf: Leaf | None) -> Offer | None:
        """What stands by the label of a single value."""
        return self.gathered.best.of(leaf) if self.gathered is not None and leaf is not None else None

    def contested(self) -> frozenset[Leaf]:
        """The values whose labels have several things beside them."""
        return frozenset(self.gathered.best.contested()) if self.gathered is not None else frozenset()
