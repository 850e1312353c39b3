"""The reading itself: page by page, every label that is met gets to offer what stands by it."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from penstock.documents.extract.fields import cut
from penstock.documents.extract.fields.beside import NEAR, SAID, Around, Beside, around_box, around_cell, weighed
from penstock.documents.extract.fields.best import Best, offer_of, tick_of
from penstock.documents.extract.fields.labels import Labelled, Meant, Owner
from penstock.documents.extract.fields.layout import Piece, Table, Text, lines, pieces
from penstock.documents.extract.fields.regrid import regrid
from penstock.documents.extract.fields.rows import Arrays
from penstock.documents.extract.fields.sections import Sections
from penstock.documents.extract.fields.tree import Node
from penstock.documents.extract.fields.values import is_option, ticks
from penstock.documents.extract.fields.words import key_of
from penstock.documents.pages import Page

_BULLET = re.compile(r"\s*(?:[-*+•·●▪‣◦]|\d{1,3}[.)、])\s*(?=\S)")
_LISTED = re.compile(r"[,，、;；]")
_HEAD = re.compile(r"^\s*([^:：\n]+)[:：]", re.MULTILINE)  # what stands before the first colon of a line
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
    _answers: set[Text] = field(default_factory=set)  # of this page: values that look like labels

    @classmethod
    def of(cls, wanted: Node) -> "Gathered":
        """Nothing found yet."""
        labelled = Labelled.of(wanted)
        return cls(labelled=labelled, best=Best(), arrays=Arrays.of(labelled), sections=Sections(labelled=labelled))

    def read(self, page: Page) -> None:
        """Hear what one page says."""
        found = regrid(pieces(page), self.arrays.named)
        self._page_lines, self._page_width = lines(found), page.width
        self._answers.clear()
        self.sections.turn_page()
        had_table = False
        for at, piece in enumerate(found):
            if isinstance(piece, Table):
                self._read_table(piece, first_on_page=not had_table)
                had_table = True
            else:
                self._read_line(piece, found[at + 1 : at + 2])

    def _read_line(self, line: Text, after: Sequence[Piece]) -> None:
        pairs = self._pairs(line)
        if self.sections.open(line, [pair.label for pair in pairs]) and line.heading:
            self.arrays.close_table()
        owner = self.sections.owner(line)
        self._read_bullet(line)
        self._read_ticks(line, owner)
        self._read_pairs(pairs, line, owner)
        alone = pairs[-1].label if pairs and not pairs[-1].values else line.text
        if line not in self._answers and (not pairs or not pairs[-1].values):
            self._look_beside(line, alone, owner, after)

    def _pairs(self, text: Text) -> list[cut.Pair]:
        known = self.labelled
        return [
            pair
            for part in _parts(text.text, known)
            for pair in cut.pairs(part, known.is_wanted, known.ends_value, known.is_whole)
        ]

    def _read_pairs(self, pairs: Iterable[cut.Pair], at: Text, owner: Owner | None) -> None:
        for pair in pairs:
            for value in pair.values:
                if self._offer(pair.label, value, at, owner, parted=pair.parted):
                    break

    def _offer(self, label: str, value: str, at: Text, owner: Owner | None, *, parted: bool = True) -> bool:
        """Offer a value to whatever its label means. Says whether anyone could use it."""
        meant = self._meant(label, owner)
        if not parted:
            meant = [each for each in meant if not each.leaf.is_plain]
        heard = [self._hear(each, value, at, SAID if parted else NEAR) for each in meant]
        for array in self.arrays.named_by([key_of(label)]) if parted else ():
            for text in _LISTED.split(value):
                self.arrays.add_single(array, text, at, named=True)
        return any(heard)

    def _meant(self, label: str, owner: Owner | None) -> list[Meant]:
        return self.labelled.meant_by(label.strip(_COLONS), owner, self.sections.heading)

    def _hear(self, meant: Meant, text: str, at: Text, way: int) -> bool:
        offer = offer_of(meant.leaf, text, at)
        if offer is not None:
            self.best.hear(meant.leaf, (*meant.standing, way), offer)
        return offer is not None

    def _look_beside(self, line: Text, label: str, owner: Owner | None, after: Sequence[Piece]) -> None:
        """A label stands alone: its value is next to it, or under it, or in the next line where there are no boxes."""
        meant = self._meant(label, owner)
        if not meant:
            return
        if line.box is not None:
            texts = self._weighed(meant, line, around_box(line, self._page_lines, self._page_width))
        else:
            texts = self._next_line(line, after)
        self._hear_beside(meant, texts)

    def _weighed(self, meant: Sequence[Meant], label: Text, around: Around) -> list[Beside]:
        """What may be the value of a label. An option of it that stands right of it is no label, but its answer."""
        self._answers.update(self._answers_to(meant, around))
        return weighed(label, around, self.labelled.is_label, self._answers)

    def _answers_to(self, meant: Sequence[Meant], around: Around) -> Iterable[Text]:
        right = [] if around.is_apart else around.right[:1]
        below = around.below[:1] if len(around.row) > 1 else []  # a row of more may be a header, with values under it
        found = [text for text in (*below, *right) if any(is_option(each.leaf, text.text) for each in meant)]
        return right if right and found[:1] == [right[0]] else []

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

    def _read_ticks(self, line: Text, owner: Owner | None) -> None:
        """A box before a label says yes or no to it."""
        for is_ticked, label in ticks(line.text):
            for meant in self._meant(label, owner):
                offer = tick_of(meant.leaf, line, is_ticked=is_ticked)
                if offer is not None:
                    self.best.hear(meant.leaf, (*meant.standing, SAID), offer)

    def _read_table(self, table: Table, *, first_on_page: bool) -> None:
        before = self._count_items()
        for left in self.arrays.take(table, self.sections.keys, first_on_page=first_on_page):
            self._read_cells(left)
        if self._count_items() > before:
            self.sections.pass_items()

    def _count_items(self) -> int:
        return sum(len(array.named) + len(array.others) for array in self.arrays.arrays)

    def _read_cells(self, table: Table) -> None:
        """A table of labels and values. A cell that names a record speaks for its row and the rows below; where a row
        names several, each speaks for its column."""
        named: dict[int, Owner] = {}
        for at, row in enumerate(table.rows):
            cells = [(column, cell) for column, cell in enumerate(row) if cell is not None]
            named_in = ((column, self.sections.named_in(cell, _HEAD.findall(cell.text))) for column, cell in cells)
            here = {column: owner for column, owner in named_in if owner is not None}
            if len(here) == 1:
                here = dict.fromkeys(range(len(row)), *here.values())
            named = here or named
            for column, cell in cells:
                self._read_cell(table, at, column, cell, named.get(column) or self.sections.owner(cell))

    def _read_cell(self, table: Table, at: int, column: int, cell: Text, owner: Owner | None) -> None:
        self._read_ticks(cell, owner)
        self._read_pairs(self._pairs(cell), cell, owner)
        if cell in self._answers or not self.labelled.is_wanted(cell.text):
            return
        meant = self._meant(cell.text, owner)
        around = around_cell(table, at, column, self.labelled.is_label)
        self._hear_beside(meant, self._weighed(meant, cell, around))


def _parts(text: str, known: Labelled) -> Iterator[str]:
    """The lines of a text, each with those after it that do not begin with a label and so go on with what it says."""
    first, *others = text.split("\n")
    part = first
    for line in others:
        if known.is_label(line.strip()):
            yield part
            part = line
        else:
            part = f"{part}\n{line}"
    yield part
