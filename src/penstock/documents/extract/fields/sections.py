"""The section that a line belongs to, by the headings above it and by lines that name an object of the schema.

A party ("Buyer: A Ltd") opens a section also when its name follows on the line, and when the schema has no object for
it: values of the buyer are not values of the seller. On a page with boxes, parties may be side by side ("Bill to",
"Ship to"). A line then belongs to the lowest row of them above it, and within that row to the last one that does not
start right of the line.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.documents.extract.fields.label_index import LabelIndex, SectionOwner
from penstock.documents.extract.fields.label_keys import label_key
from penstock.documents.extract.fields.layout import LayoutText
from penstock.documents.pages import Box

UNKNOWN_PARTY = SectionOwner(node=None)


@dataclass(kw_only=True)
class SectionTracker:
    """Tracks the current section while a document is read."""

    label_index: LabelIndex
    _headings: list[tuple[int, str]] = field(default_factory=list)
    _line_owner: SectionOwner | None = None  # named by a line, which overrides the headings
    _boxes_on_page: list[tuple[Box, SectionOwner]] = field(default_factory=list)
    _is_after_items: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the current headings, innermost first."""
        return tuple(key for _, key in reversed(self._headings))

    @property
    def heading(self) -> str:
        """The key of the innermost heading."""
        return self._headings[-1][1] if self._headings else ""

    def start_page(self) -> None:
        """Forget the boxes of the previous page; headings continue."""
        self._boxes_on_page.clear()

    def end_item_table(self) -> None:
        """Note that a table of items ended: what follows may not belong to the party before it."""
        self._is_after_items = True

    def open(self, line: LayoutText, labels: Sequence[str] = ()) -> bool:
        """Read a line and the labels in it. Returns whether it opens a section."""
        named = self.owner_named_in(line, labels)
        if line.heading:
            self._headings = [(level, key) for level, key in self._headings if level < line.heading]
            self._headings.append((line.heading, label_key(line.text)))
            self._line_owner = None
        if named is not None:
            self._line_owner = named
            if line.box:
                self._boxes_on_page.append((line.box, named))
        if named is not None or line.heading:
            self._is_after_items = False
        return named is not None or line.heading > 0

    def owner_named_in(self, line: LayoutText, labels: Sequence[str]) -> SectionOwner | None:
        """The owner of the section that a line opens: the line names it, or one of its labels names a party."""
        return self.owner_named_by(line.text) or self._party_named(labels, line)

    def owner_named_by(self, text: str) -> SectionOwner | None:
        """The owner that a text names."""
        known = self.label_index.objects_by_key.get(label_key(text), [])
        if len({node.pointer for node in known}) == 1:
            return SectionOwner(node=known[0])
        return (
            SectionOwner(node=None, party=self.label_index.parties[label_key(text)])
            if self._is_unlisted_party(text)
            else None
        )

    def _is_unlisted_party(self, text: str) -> bool:
        return self.label_index.is_party(text) and label_key(text) not in self.label_index.objects_by_key

    def owner(self, line: LayoutText) -> SectionOwner | None:
        """The owner of the section that a line is in."""
        found = self._owner(line)
        if found is None or not self._is_after_items:
            return found
        return found._replace(has_ended=True) if found.node is not None else None

    def _owner(self, line: LayoutText) -> SectionOwner | None:
        by_box = self._owner_by_box(line.box) if line.box else None
        if by_box is not None or self._line_owner is not None:
            return by_box or self._line_owner
        return next(filter(None, map(self._owner_of_heading, self.keys)), None)

    def _owner_of_heading(self, key: str) -> SectionOwner | None:
        known = self.label_index.objects_by_key.get(key, [])
        if known:
            return SectionOwner(node=known[0])
        return SectionOwner(node=None, party=self.label_index.parties[key]) if key in self.label_index.parties else None

    def _party_named(self, labels: Iterable[str], line: LayoutText) -> SectionOwner | None:
        """The party named by a label of the line. With two of them, the owner is unknown."""
        parties = [label for label in labels if self.label_index.is_party(label)]
        owner = self.owner(line) if parties else None
        if owner is not None:
            parties = [label for label in parties if not self._has_label(owner, label)]
        if not parties:
            return None
        return (self.owner_named_by(parties[0]) if len(parties) == 1 else None) or UNKNOWN_PARTY

    def _has_label(self, owner: SectionOwner, label: str) -> bool:
        """Whether a label is a field of the owner: the "customer" of an order opens no section."""
        return any(owner.node in entry.ancestors for entry in self.label_index.leaves_by_key.get(label_key(label), []))

    def _owner_by_box(self, box: Box) -> SectionOwner | None:
        slack = box[3] - box[1]
        above = [
            (at, owner) for at, owner in self._boxes_on_page if at[1] <= box[1] + slack / 2 and at[0] <= box[0] + slack
        ]
        if not above:
            return None
        lowest = max(at[1] for at, _ in above)
        return max(((at[0], owner) for at, owner in above if at[1] >= lowest - slack), key=lambda one: one[0])[1]
