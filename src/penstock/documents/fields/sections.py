"""Whose part of the document a line stands in: the headings above it, and the names of records that stand alone.

On a page with boxes such names may stand side by side ("Bill to", "Ship to"); a line then belongs to the lowest row of
them above it, and there to the last one that does not begin right of the line.
"""

from dataclasses import dataclass, field

from penstock.documents.fields.labels import Labelled
from penstock.documents.fields.layout import Text
from penstock.documents.fields.tree import Record
from penstock.documents.fields.words import key_of
from penstock.documents.ground import Box


@dataclass(kw_only=True)
class Sections:
    """Where the reading has come to."""

    labelled: Labelled
    _headings: list[tuple[int, str]] = field(default_factory=list)
    _named: Record | None = None  # by a line of its own, below all headings
    _on_page: list[tuple[Box, Record]] = field(default_factory=list)

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

    def open(self, line: Text) -> bool:
        """Take note of a line, and say whether it opens a section."""
        record = self.named_by(line.text)
        if line.heading:
            self._headings = [(level, key) for level, key in self._headings if level < line.heading]
            self._headings.append((line.heading, key_of(line.text)))
            self._named = None
        if record is not None:
            self._named = record
            if line.box:
                self._on_page.append((line.box, record))
        return record is not None or line.heading > 0

    def named_by(self, text: str) -> Record | None:
        """The record that a text is the name of."""
        known = self.labelled.records.get(key_of(text), [])
        return known[0] if len({record.pointer for record in known}) == 1 else None

    def owner(self, line: Text) -> Record | None:
        """The record whose section a line stands in."""
        beside = self._beside(line.box) if line.box else None
        if beside is not None or self._named is not None:
            return beside or self._named
        for key in self.keys:
            known = self.labelled.records.get(key, [])
            if known:
                return known[0]
        return None

    def _beside(self, box: Box) -> Record | None:
        slack = box[3] - box[1]
        above = [
            (at, record) for at, record in self._on_page if at[1] <= box[1] + slack / 2 and at[0] <= box[0] + slack
        ]
        if not above:
            return None
        lowest = max(at[1] for at, _ in above)
        return max(((at[0], record) for at, record in above if at[1] >= lowest - slack), key=lambda one: one[0])[1]
