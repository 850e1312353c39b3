"""Tables that become arrays: the cells of one row name properties, and the rows below it are items.

A table goes to the array that most of its header names; of two that are named equally, the one that the heading above
names. On the next page the table goes on, with its header again or without.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.documents.fields.best import Offer, offer_of
from penstock.documents.fields.labels import Labelled
from penstock.documents.fields.layout import Table, Text
from penstock.documents.fields.tree import Leaf, Rows
from penstock.documents.fields.words import key_of

FEW_COLUMNS = 3  # a row of so many columns with a single text in it is a title, or the rest of a longer text
MOST_VALUES = 100_000  # of all arrays together

Item: TypeAlias = dict[Leaf, Offer]
Columns: TypeAlias = dict[int, Leaf]
Cells: TypeAlias = Sequence[Text | None]

_COLON = re.compile(r"[:：]")


class TooManyValues(Exception):
    """The arrays of a result come to more than one may hold."""


@dataclass(frozen=True, kw_only=True)
class Match:
    """How a table fills an array: its header, and which column is which leaf."""

    array: "Array"
    header: int
    columns: Columns
    named: bool  # by the heading above

    @property
    def rank(self) -> tuple[int, bool]:
        return len(self.columns), self.named


@dataclass(kw_only=True, eq=False)
class Array:
    """One array of the result, as far as it is filled. Items under its own name win over all others."""

    rows: Rows
    labelled: Labelled
    named: list[Item] = field(default_factory=list)
    others: list[Item] = field(default_factory=list)

    @classmethod
    def of(cls, rows: Rows) -> "Array":
        """An empty one."""
        return cls(rows=rows, labelled=Labelled.of(rows.item))

    @property
    def items(self) -> list[Item]:
        return self.named or self.others

    @property
    def single(self) -> Leaf | None:
        """The leaf that each item is, where items are no objects."""
        return self.rows.item if isinstance(self.rows.item, Leaf) else None

    def is_named(self, keys: Sequence[str]) -> bool:
        """Whether one of the keys names this array."""
        return any(key in names for key in keys for names in self.rows.labels)

    def match(self, table: Table, headings: Sequence[str]) -> Match | None:
        """How a table fills this array, None when it does not."""
        named = self.is_named(headings[:1])
        matches = [
            Match(array=self, header=at, columns=self.columns(row), named=named)
            for at, row in enumerate(table.rows[:-1])
        ]
        best = max(matches, key=lambda match: len(match.columns), default=None)
        few = min(2, len(self.labelled.leaves)) if not named else 1
        return best if best is not None and len(best.columns) >= max(few, 1) else None

    def take(self, row: Cells, columns: Columns) -> Item:
        """The item of a row."""
        found = {leaf: offer_of(leaf, cell.text, cell) for at, leaf in columns.items() if (cell := row[at]) is not None}
        return {leaf: offer for leaf, offer in found.items() if offer is not None}

    def add(self, item: Item, *, named: bool) -> None:
        """Keep an item; one without any value is none."""
        if item:
            (self.named if named else self.others).append(item)

    def columns(self, row: Cells) -> Columns:
        """Which cells of a row are headers. A row with figures in it is none."""
        found: Columns = {}
        for at, cell in enumerate(row):
            if cell is None:
                continue
            leaf = None if cell.text.rstrip().endswith((":", "：")) else self._leaf_named(cell.text, taken=found)
            if leaf is not None:
                found[at] = leaf
            elif any(map(str.isdigit, cell.text)):
                return {}
        return found

    def _leaf_named(self, text: str, taken: Columns) -> Leaf | None:
        if self.single is not None:
            return self.single if not taken and self.is_named([key_of(text)]) else None
        free = [meant for meant in self.labelled.meant_by(text) if meant.leaf not in taken.values()]
        return min(free, key=lambda meant: meant.standing).leaf if free else None


@dataclass(kw_only=True)
class Arrays:
    """All arrays of a result."""

    arrays: tuple[Array, ...]
    labelled: Labelled
    contested: set[str] = field(default_factory=set)
    _open: tuple[Match, int] | None = None  # the table that the page ended with, and its width
    _values: int = 0

    @classmethod
    def of(cls, labelled: Labelled) -> "Arrays":
        """Empty ones."""
        return cls(arrays=tuple(map(Array.of, labelled.rows)), labelled=labelled)

    def take(self, table: Table, headings: Sequence[str], *, first_on_page: bool) -> list[Table]:
        """Fill an array from a table, and give back what of it is no item: all, or what stands over the header, or
        single rows between and after the items."""
        going_on, self._open = self._open, None
        matches = [match for array in self.arrays if (match := array.match(table, headings))]
        best = max((match.rank for match in matches), default=None)
        winners = [match for match in matches if match.rank == best]
        if len(winners) > 1:
            self.contested.update(match.array.rows.pointer for match in winners)
            return []
        if winners:
            above = table.rows[: winners[0].header]
            return [Table(rows=above)] * bool(above) + self._fill(winners[0], table, len(above) + 1)
        if going_on and first_on_page and going_on[1] == table.width and self._goes_on(going_on[0], table):
            return self._fill(going_on[0], table, 0)
        return [table]

    def named(self, row: Cells) -> set[int]:
        """Which cells of a row name columns of an array: those of the array that it names most of."""
        return max((set(array.columns(row)) for array in self.arrays), key=len, default=set())

    def close_table(self) -> None:
        """A new section has begun, so the last table does not go on."""
        self._open = None

    def add_single(self, array: Array, text: str, at: Text, *, named: bool) -> None:
        """An item that is one value."""
        leaf = array.single
        offer = offer_of(leaf, text, at) if leaf is not None else None
        if leaf is not None and offer is not None:
            self._count(1)
            array.add({leaf: offer}, named=named)

    def named_by(self, keys: Sequence[str]) -> list[Array]:
        """The arrays of single values that one of the keys names."""
        return [array for array in self.arrays if array.single is not None and array.is_named(keys)]

    def _fill(self, match: Match, table: Table, start: int) -> list[Table]:
        left: list[Table] = []
        for row in table.rows[start:]:
            if match.array.columns(row) == match.columns:
                continue  # the header once more
            if self._is_item(row, match):
                item = match.array.take(row, match.columns)
                self._count(len(item))
                match.array.add(item, named=match.named)
            elif not self._is_wide_sum(row):
                left.append(Table(rows=(row,)))
        self._open = (match, table.width)
        return left

    def _goes_on(self, match: Match, table: Table) -> bool:
        """Whether every cell of the first row is what its column has. Columns that take any text prove nothing."""
        row = table.rows[0]
        filled = [leaf for at, leaf in match.columns.items() if row[at] is not None]
        proving = [leaf for leaf in filled if not leaf.is_plain]
        return bool(proving) and len(match.array.take(row, match.columns)) == len(filled)

    def _is_item(self, row: tuple[Text | None, ...], match: Match) -> bool:
        """Whether a row is an item, and not a title, nor a label with its value: a sum, a tax, what is to pay."""
        cells = [cell.text for cell in row if cell is not None]
        if self._is_sum(cells[0]) or (len(cells) == 1 and len(match.columns) >= FEW_COLUMNS):
            return False
        if len(cells) == 2 < len(row) and self.labelled.is_wanted(cells[0]):
            return False
        return not any(_COLON.search(cell) and self.labelled.is_wanted(_COLON.split(cell)[0]) for cell in cells)

    def _is_wide_sum(self, row: Cells) -> bool:
        """Whether a row has sums of several columns: which of them is meant by its label cannot be told."""
        cells = [cell.text for cell in row if cell is not None]
        return self._is_sum(cells[0]) and len(cells) > 2

    def _is_sum(self, text: str) -> bool:
        return key_of(_COLON.split(text, maxsplit=1)[0]) in self.labelled.totals

    def _count(self, values: int) -> None:
        self._values += values
        if self._values > MOST_VALUES:
            raise TooManyValues
