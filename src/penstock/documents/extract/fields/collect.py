"""Collect candidates page by page: for each label found, the values next to it."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from penstock.documents.extract.fields import key_value
from penstock.documents.extract.fields.adjacent import (
    BELOW,
    BESIDE,
    AdjacentText,
    Surroundings,
    adjacent_values,
    surroundings_by_box,
    surroundings_in_table,
)
from penstock.documents.extract.fields.arrays import ArrayFields
from penstock.documents.extract.fields.candidates import CandidateSet, checkbox_candidate, parse_candidate
from penstock.documents.extract.fields.label_index import LabelIndex, LabelMatch, SectionOwner
from penstock.documents.extract.fields.label_keys import label_key
from penstock.documents.extract.fields.layout import LayoutElement, LayoutTable, LayoutText, page_elements, text_lines
from penstock.documents.extract.fields.rebuild_tables import rebuild_tables
from penstock.documents.extract.fields.schema_tree import Node
from penstock.documents.extract.fields.sections import SectionTracker
from penstock.documents.extract.fields.values import checkboxes, is_option
from penstock.documents.pages import Page

_BULLET = re.compile(r"\s*(?:[-*+•·●▪‣◦]|\d{1,3}[.)、])\s*(?=\S)")
_LIST_SEPARATOR = re.compile(r"[,，、;；]")
_BEFORE_COLON = re.compile(r"^\s*([^:：\n]+)[:：]", re.MULTILINE)  # the text before the first colon of a line
_COLONS = " \t:：*_"


@dataclass(kw_only=True, eq=False)
class FieldCollector:
    """The candidates for a schema tree, collected page by page."""

    label_index: LabelIndex
    candidates: CandidateSet
    arrays: ArrayFields
    sections: SectionTracker
    _page_lines: list[LayoutText] = field(default_factory=list)
    _page_width: float = 0.0
    _option_texts: set[LayoutText] = field(default_factory=set)  # values of this page that look like labels

    @classmethod
    def of(cls, schema: Node) -> "FieldCollector":
        """A collector for a schema, before the first page."""
        label_index = LabelIndex.of(schema)
        return cls(
            label_index=label_index,
            candidates=CandidateSet(),
            arrays=ArrayFields.of(label_index),
            sections=SectionTracker(label_index=label_index),
        )

    def read(self, page: Page) -> None:
        """Collect the candidates of a page."""
        elements = rebuild_tables(page_elements(page), self.arrays.header_columns)
        self._page_lines, self._page_width = text_lines(elements), page.width
        self._option_texts.clear()
        self.sections.start_page()
        had_table = False
        for at, element in enumerate(elements):
            if isinstance(element, LayoutTable):
                self._read_table(element, first_on_page=not had_table)
                had_table = True
            else:
                self._read_line(element, elements[at + 1 : at + 2])

    def _read_line(self, line: LayoutText, after: Sequence[LayoutElement]) -> None:
        pairs = self._pairs(line)
        if self.sections.open(line, [pair.label for pair in pairs]) and line.heading:
            self.arrays.close_table()
        owner = self.sections.owner(line)
        self._read_bullet(line)
        self._read_checkboxes(line, owner)
        self._read_pairs(pairs, line, owner)
        label = pairs[-1].label if pairs and not pairs[-1].values else line.text
        if line not in self._option_texts and (not pairs or not pairs[-1].values):
            self._read_adjacent(line, label, owner, after)

    def _pairs(self, text: LayoutText) -> list[key_value.KeyValuePair]:
        label_index = self.label_index
        return [
            pair
            for part in _parts(text.text, label_index)
            for pair in key_value.key_value_pairs(
                part, label_index.is_schema_label, label_index.ends_value, label_index.is_entire_label
            )
        ]

    def _read_pairs(
        self, pairs: Iterable[key_value.KeyValuePair], source: LayoutText, owner: SectionOwner | None
    ) -> None:
        for pair in pairs:
            for value in pair.values:
                if self._add_pair(pair.label, value, source, owner, is_separated=pair.is_separated):
                    break

    def _add_pair(
        self, label: str, value: str, source: LayoutText, owner: SectionOwner | None, *, is_separated: bool = True
    ) -> bool:
        """Add a value as candidate of the leaves that its label matches. Returns whether any accepts it."""
        matches = self._matches(label, owner)
        if not is_separated:
            matches = [each for each in matches if not each.leaf.is_free_text]
        added = [self._add(each, value, source, BESIDE if is_separated else BELOW) for each in matches]
        for array in self.arrays.named_by([label_key(label)]) if is_separated else ():
            for text in _LIST_SEPARATOR.split(value):
                self.arrays.add_single(array, text, source, named=True)
        return any(added)

    def _matches(self, label: str, owner: SectionOwner | None) -> list[LabelMatch]:
        return self.label_index.match(label.strip(_COLONS), owner, self.sections.heading)

    def _add(self, match: LabelMatch, text: str, source: LayoutText, position: int) -> bool:
        candidate = parse_candidate(match.leaf, text, source)
        if candidate is not None:
            self.candidates.add(match.leaf, (*match.rank, position), candidate)
        return candidate is not None

    def _read_adjacent(
        self, line: LayoutText, label: str, owner: SectionOwner | None, after: Sequence[LayoutElement]
    ) -> None:
        """Read the value of a label without one in its line: beside it, below it, or the next line without boxes."""
        matches = self._matches(label, owner)
        if not matches:
            return
        if line.box is not None:
            texts = self._adjacent_values(matches, line, surroundings_by_box(line, self._page_lines, self._page_width))
        else:
            texts = self._next_line(line, after)
        self._add_adjacent(matches, texts)

    def _adjacent_values(
        self, matches: Sequence[LabelMatch], label: LayoutText, surroundings: Surroundings
    ) -> list[AdjacentText]:
        """The possible values of a label. An enum option right of it is a value even if it looks like a label."""
        self._option_texts.update(self._option_text(matches, surroundings))
        return adjacent_values(label, surroundings, self.label_index.is_label, self._option_texts)

    def _option_text(self, matches: Sequence[LabelMatch], surroundings: Surroundings) -> Iterable[LayoutText]:
        right = [] if surroundings.has_gap else surroundings.right[:1]
        may_be_header = len(surroundings.row) > 1  # with values below it
        below = surroundings.below[:1] if may_be_header else []
        found = [text for text in (*below, *right) if any(is_option(each.leaf, text.text) for each in matches)]
        return right if right and found[:1] == [right[0]] else []

    def _add_adjacent(self, matches: Iterable[LabelMatch], texts: Iterable[AdjacentText]) -> None:
        for adjacent in texts:
            for each in matches:
                if not (adjacent.is_loose and each.leaf.is_free_text):
                    self._add(each, adjacent.text.text, adjacent.text, adjacent.position)

    def _next_line(self, line: LayoutText, after: Sequence[LayoutElement]) -> list[AdjacentText]:
        following = [
            element
            for element in after
            if isinstance(element, LayoutText) and not element.heading and element.box is None
        ]
        if not following or self.label_index.is_label(following[0].text):
            return []
        is_clear = line.heading > 0 or line.text.rstrip(" *_").endswith((":", "："))
        return [AdjacentText(text=following[0], position=BELOW, is_loose=not is_clear)]

    def _read_bullet(self, line: LayoutText) -> None:
        bullet = _BULLET.match(line.text)
        if bullet and self.sections.heading:
            for array in self.arrays.named_by([self.sections.heading]):
                self.arrays.add_single(array, line.text[bullet.end() :], line, named=True)

    def _read_checkboxes(self, line: LayoutText, owner: SectionOwner | None) -> None:
        """Read checkboxes, each before its label."""
        for is_checked, label in checkboxes(line.text):
            for match in self._matches(label, owner):
                candidate = checkbox_candidate(match.leaf, line, is_checked=is_checked)
                if candidate is not None:
                    self.candidates.add(match.leaf, (*match.rank, BESIDE), candidate)

    def _read_table(self, table: LayoutTable, *, first_on_page: bool) -> None:
        before = self._count_items()
        for rest in self.arrays.read_table(table, self.sections.keys, first_on_page=first_on_page):
            self._read_cells(rest)
        if self._count_items() > before:
            self.sections.end_item_table()

    def _count_items(self) -> int:
        return sum(len(array.named) + len(array.others) for array in self.arrays.arrays)

    def _read_cells(self, table: LayoutTable) -> None:
        """Read a table of labels and values. A cell that names an object owns its row and the rows below; where a row
        names several objects, each owns its column."""
        owners: dict[int, SectionOwner] = {}
        for at, row in enumerate(table.rows):
            cells = [(column, cell) for column, cell in enumerate(row) if cell is not None]
            named = (
                (column, self.sections.owner_named_in(cell, _BEFORE_COLON.findall(cell.text))) for column, cell in cells
            )
            here = {column: owner for column, owner in named if owner is not None}
            if len(here) == 1:
                here = dict.fromkeys(range(len(row)), *here.values())
            owners = here or owners
            for column, cell in cells:
                self._read_cell(table, at, column, cell, owners.get(column) or self.sections.owner(cell))

    def _read_cell(
        self, table: LayoutTable, at: int, column: int, cell: LayoutText, owner: SectionOwner | None
    ) -> None:
        self._read_checkboxes(cell, owner)
        self._read_pairs(self._pairs(cell), cell, owner)
        if cell in self._option_texts or not self.label_index.is_schema_label(cell.text):
            return
        matches = self._matches(cell.text, owner)
        surroundings = surroundings_in_table(table, at, column, self.label_index.is_label)
        self._add_adjacent(matches, self._adjacent_values(matches, cell, surroundings))


def _parts(text: str, label_index: LabelIndex) -> Iterator[str]:
    """The lines of a text, joined with the following lines that do not start with a label."""
    first, *others = text.split("\n")
    part = first
    for line in others:
        if label_index.is_label(line.strip()):
            yield part
            part = line
        else:
            part = f"{part}\n{line}"
    yield part
