"""The reading itself: page by page, every label that is met gets to offer what stands by it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.documents.fields import cut
from penstock.documents.fields.beside import NEAR, SAID, Around, Beside, around_box, weighed
from penstock.documents.fields.best import Best, offer_of, tick_of
from penstock.documents.fields.labels import Labelled, Meant
from penstock.documents.fields.layout import Piece, Table, Text, lines, pieces
from penstock.documents.fields.regrid import regrid
from penstock.documents.fields.rows import Arrays
from penstock.documents.fields.sections import Sections
from penstock.documents.fields.tree import Node, Record
from penstock.documents.fields.values import ticks
from penstock.documents.fields.words import key_of
from penstock.documents.ground import Page

_BULLET = re.compile(r"\s*(?:[-*+•·●▪‣◦]|\d{1,3}[.)、])\s*(?=\S)")
_LISTED = re.compile(r"[,，、;；]")
_COLONS = " \t:：*_"


@dataclass(kw_only=True, eq=False)
class Gathered:
    """What has been found for a tree so far."""

    labelled: Labelled
    best: Best
    arrays: Arrays
    sections: Sections
    _page_lines: list[Text] = field(default_factory=list)
    _page_width: float = 0.0

    @classmethod
    def of(cls, wanted: Node) -> "Gathered":
        """Nothing found yet."""
        labelled = Labelled.of(wanted)
        return cls(labelled=labelled, best=Best(), arrays=Arrays.of(labelled), sections=Sections(labelled=labelled))

    def read(self, page: Page) -> None:
        """Hear what one page says."""
        found = regrid(pieces(page), self.arrays.named)
        self._page_lines, self._page_width = lines(found), page.width
        self.sections.turn_page()
        had_table = False
        for at, piece in enumerate(found):
            if isinstance(piece, Table):
                self._read_table(piece, first_on_page=not had_table)
                had_table = True
            else:
                self._read_line(piece, found[at + 1 : at + 2])

    def _read_line(self, line: Text, after: Sequence[Piece]) -> None:
        if self.sections.open(line) and line.heading:
            self.arrays.close_table()
        owner = self.sections.owner(line)
        self._read_bullet(line)
        self._read_ticks(line, owner)
        pairs = self._pairs(line)
        self._read_pairs(pairs, line, owner)
        alone = pairs[-1].label if pairs and not pairs[-1].values else line.text
        if not pairs or not pairs[-1].values:
            self._look_beside(line, alone, owner, after)

    def _pairs(self, text: Text) -> list[cut.Pair]:
        known = self.labelled
        return cut.pairs(text.text, known.is_wanted, known.is_common, known.is_whole)

    def _read_pairs(self, pairs: Iterable[cut.Pair], at: Text, owner: Record | None) -> None:
        for pair in pairs:
            for value in pair.values:
                if self._offer(pair.label, value, at, owner, parted=pair.parted):
                    break

    def _offer(self, label: str, value: str, at: Text, owner: Record | None, *, parted: bool = True) -> bool:
        """Offer a value to whatever its label means. Says whether anyone could use it."""
        meant = self._meant(label, owner)
        if not parted:
            meant = [each for each in meant if not each.leaf.is_plain]
        heard = [self._hear(each, value, at, SAID if parted else NEAR) for each in meant]
        for array in self.arrays.named_by([key_of(label)]) if parted else ():
            for text in _LISTED.split(value):
                self.arrays.add_single(array, text, at, named=True)
        return any(heard)

    def _meant(self, label: str, owner: Record | None) -> list[Meant]:
        return self.labelled.meant_by(label.strip(_COLONS), owner, self.sections.heading)

    def _hear(self, meant: Meant, text: str, at: Text, way: int) -> bool:
        offer = offer_of(meant.leaf, text, at)
        if offer is not None:
            self.best.hear(meant.leaf, (*meant.standing, way), offer)
        return offer is not None

    def _look_beside(self, line: Text, label: str, owner: Record | None, after: Sequence[Piece]) -> None:
        """A label stands alone: its value is next to it, or under it, or in the next line where there are no boxes."""
        meant = self._meant(label, owner)
        if not meant:
            return
        if line.box is not None:
            texts = weighed(line, around_box(line, self._page_lines, self._page_width), self.labelled.is_label)
        else:
            texts = self._next_line(line, after)
        self._hear_beside(meant, texts)

    def _hear_beside(self, meant: Iterable[Meant], texts: Iterable[Beside]) -> None:
        for beside in texts:
            for each in meant:
                if not (beside.loose and each.leaf.is_plain):
                    self._hear(each, beside.text.text, beside.text, beside.way)

    def _next_line(self, line: Text, after: Sequence[Piece]) -> list[Beside]:
        following = [piece for piece in after if isinstance(piece, Text) and not piece.heading and piece.box is None]
        if not following or self.labelled.is_label(following[0].text):
            return []
        is_clear = line.heading > 0 or line.text.rstrip(" *_").endswith((":", "："))
        return [Beside(text=following[0], way=NEAR, loose=not is_clear)]

    def _read_bullet(self, line: Text) -> None:
        bullet = _BULLET.match(line.text)
        if bullet and self.sections.heading:
            for array in self.arrays.named_by([self.sections.heading]):
                self.arrays.add_single(array, line.text[bullet.end() :], line, named=True)

    def _read_ticks(self, line: Text, owner: Record | None) -> None:
        """A box before a label says yes or no to it."""
        for is_ticked, label in ticks(line.text):
            for meant in self._meant(label, owner):
                offer = tick_of(meant.leaf, line, is_ticked=is_ticked)
                if offer is not None:
                    self.best.hear(meant.leaf, (*meant.standing, SAID), offer)

    def _read_table(self, table: Table, *, first_on_page: bool) -> None:
        for left in self.arrays.take(table, self.sections.keys, first_on_page=first_on_page):
            self._read_cells(left)

    def _read_cells(self, table: Table) -> None:
        """A table of labels and values. A cell that names a record speaks for its row and the rows below; where a row
        names several, each speaks for its column."""
        named: dict[int, Record] = {}
        for at, row in enumerate(table.rows):
            cells = [(column, cell) for column, cell in enumerate(row) if cell is not None]
            here = {column: record for column, cell in cells if (record := self.sections.named_by(cell.text))}
            if len(here) == 1:
                here = dict.fromkeys(range(len(row)), *here.values())
            named = here or named
            for column, cell in cells:
                self._read_cell(table, at, column, cell, named.get(column) or self.sections.owner(cell))

    def _read_cell(self, table: Table, at: int, column: int, cell: Text, owner: Record | None) -> None:
        self._read_ticks(cell, owner)
        self._read_pairs(self._pairs(cell), cell, owner)
        if not self.labelled.is_wanted(cell.text):
            return
        row = [each for each in table.rows[at] if each is not None and each is not cell]
        is_first = all(sum(each is not None for each in above) < 2 for above in table.rows[:at])
        over_a_column = table.width > 2 or is_first or any(self.labelled.is_label(each.text) for each in row)
        under = [each[column] for each in table.rows[at + 1 :]] if over_a_column else []
        beside = Around(
            row=row,
            column=[other for each in table.rows if (other := each[column]) is not None and other is not cell],
            right=[each for each in table.rows[at][column + 1 :] if each is not None],
            below=[each for each in under if each is not None],
        )
        self._hear_beside(self._meant(cell.text, owner), weighed(cell, beside, self.labelled.is_label))
