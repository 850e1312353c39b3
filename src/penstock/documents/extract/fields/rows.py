"""Tables that become arrays: the cells of one row name properties, and the rows below it are items.

A table goes to the array that most of its header names; of two that are named equally, the one that the heading above
names. On the next page the table goes on, with its header again or without; on the same page too, where the reader has
cut it. A value of which the rest may stand in the next row is none.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeAlias

from penstock.documents.extract.fields.best import Offer, offer_of
from penstock.documents.extract.fields.labels import Labelled
from penstock.documents.extract.fields.layout import Table, Text
from penstock.documents.extract.fields.regrid import fitted, parted
from penstock.documents.extract.fields.rests import Rests, in_place, may_be_half, without_halves
from penstock.documents.extract.fields.tree import Leaf, Rows
from penstock.documents.extract.fields.words import key_of, parts_of

FEW_COLUMNS = 3  # a row of so many columns with a single text in it is a title, or the rest of a longer text
MOST_VALUES = 100_000  # of all arrays together

# What stands before an amount that belongs to all items; sums are in `words.py`.
FOR_ALL = """
    vat tax sales_tax gst hst pst value_added_tax discount rebate balance balance_due amount_paid paid deposit net gross
    net_amount gross_amount net_total rounding mwst ust umsatzsteuer mehrwertsteuer rabatt skonto netto brutto
    nettobetrag bruttobetrag gesamtbetrag summe gesamt zwischensumme tva remise iva
    税额 税金 增值税 折扣 优惠 余额 应付 实付 已付
"""

Item: TypeAlias = dict[Leaf, Offer]
Columns: TypeAlias = dict[int, Leaf]
Cells: TypeAlias = Sequence[Text | None]

_COLON = re.compile(r"[:：]")
_DIGIT = re.compile(r"\d")
_FOR_ALL = frozenset(key_of(word) for word in FOR_ALL.split())


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
            Match(array=self, header=at, columns=self.header(row, below), named=named)
            for at, (row, below) in enumerate(pairwise(table.rows))
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

    def header(self, row: Cells, below: Cells) -> Columns:
        """Which cells of a row are headers of what stands below."""
        return self.columns(parted(row, below, self._is_name))

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

    def _is_name(self, text: str) -> bool:
        return self._leaf_named(text, taken={}) is not None

    def _leaf_named(self, text: str, taken: Columns) -> Leaf | None:
        if self.single is not None:
            return self.single if not taken and self.is_named([key_of(text)]) else None
        free = [meant for meant in self.labelled.meant_by(text) if meant.leaf not in taken.values()]
        return min(free, key=lambda meant: meant.standing).leaf if free else None


@dataclass(frozen=True, kw_only=True)
class Open:
    """A table that may go on: its header, its width, and the item that its last row was."""

    match: Match
    header: Cells
    width: int
    last: tuple[Item, Cells] | None = None


@dataclass(kw_only=True)
class Arrays:
    """All arrays of a result."""

    arrays: tuple[Array, ...]
    labelled: Labelled
    contested: set[str] = field(default_factory=set)
    _open: Open | None = None
    _values: int = 0

    @classmethod
    def of(cls, labelled: Labelled) -> "Arrays":
        """Empty ones."""
        return cls(arrays=tuple(map(Array.of, labelled.rows)), labelled=labelled)

    def take(self, table: Table, headings: Sequence[str], *, first_on_page: bool) -> list[Table]:
        """Fill an array from a table, and give back what of it is no item: all, or what stands over the header, or
        single rows between and after the items. Half values are left out of it."""
        left = self._take(table, headings, first_on_page=first_on_page)
        return [without_halves(each, self.labelled) for each in left]

    def _take(self, table: Table, headings: Sequence[str], *, first_on_page: bool) -> list[Table]:
        going_on, self._open = self._open, None
        matches = [match for array in self.arrays if (match := array.match(table, headings))]
        best = max((match.rank for match in matches), default=None)
        winners = [match for match in matches if match.rank == best]
        if len(winners) > 1:
            self.contested.update(match.array.rows.pointer for match in winners)
            return []
        if winners:
            above, match = table.rows[: winners[0].header], winners[0]
            last = going_on.last if going_on and first_on_page and going_on.match.array is match.array else None
            opened = Open(match=match, header=table.rows[match.header], width=table.width, last=last)
            return [Table(rows=above)] * bool(above) + self._fill(opened, table, len(above) + 1)
        return [table] if going_on is None else self._go_on(going_on, table, first_on_page=first_on_page)

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

    def _go_on(self, going_on: Open, table: Table, *, first_on_page: bool) -> list[Table]:
        """Fill the array of the table before with what is its next part. What looks like one and cannot be put into its
        columns, or is of another width on another page, is missing from the array, and that is told."""
        if first_on_page and going_on.width == table.width and self._goes_on(going_on.match, table.rows[0]):
            return self._fill(going_on, table, 0)
        part = fitted(going_on.header, table)
        if part is None or not any(self._goes_on(going_on.match, row) for row in part.rows):
            return [table]
        if not first_on_page and all(self._goes_on(going_on.match, row) for row in part.rows):
            return self._fill(going_on, part, 0)
        self.contested.add(going_on.match.array.rows.pointer)
        self._open = replace(going_on, last=None)
        return [table]

    def _fill(self, opened: Open, table: Table, start: int) -> list[Table]:
        left: list[Table] = []
        match, last, rows, rests = opened.match, opened.last, table.rows[start:], Rests(table=table)
        summed_at: int | None = None
        for at, row in enumerate(rows):
            if match.array.header(row, rows[at + 1] if at + 1 < len(rows) else row) == match.columns:
                continue  # the header once more
            if last is not None and self._cut(last, row, match, rests):
                left.append(Table(rows=(row,)))
                continue
            last = None
            if self._is_item(row, match) and not self._is_for_all(row) and not _is_below(at, summed_at, row):
                last = (self._add(row, match), row)
                continue
            if summed_at is None and self._is_sum(_filled(row)[0]):
                summed_at = self._last_full(rows, at, match)
            if not self._is_wide_sum(row):
                left.append(Table(rows=(row,)))
        self._open = replace(opened, last=last)
        return left

    def _cut(self, last: tuple[Item, Cells], row: Cells, match: Match, rests: Rests) -> bool:
        """Take from the last item what may go on in this row: half a value is none. Says whether it may."""
        item, above = last
        rest = in_place(row, above)
        if not rests.may_be(rest, above) or not self._is_bare(rest, match):
            return False
        for at, leaf in match.columns.items():
            if rest[at] is not None and may_be_half(leaf):
                item.pop(leaf, None)
        return True

    def _add(self, row: Cells, match: Match) -> Item:
        item = match.array.take(row, match.columns)
        self._count(len(item))
        match.array.add(item, named=match.named)
        return item

    def _goes_on(self, match: Match, row: Cells) -> bool:
        """Whether every cell of a row is what its column has. Columns that take any text prove nothing."""
        filled = [leaf for at, leaf in match.columns.items() if row[at] is not None]
        proving = [leaf for leaf in filled if not leaf.is_plain]
        return bool(proving) and len(match.array.take(row, match.columns)) == len(filled)

    def _is_item(self, row: Cells, match: Match) -> bool:
        """Whether a row is an item, and not a title, nor a label with its value: a sum, a tax, what is to pay; nor a
        part of the document that has its own place in the result."""
        cells = _filled(row)
        if self._is_sum(cells[0]) or (len(cells) == 1 and len(match.columns) >= FEW_COLUMNS):
            return False
        if (len(cells) == 2 < len(row) and self.labelled.is_wanted(cells[0])) or key_of(
            cells[0]
        ) in self.labelled.records:
            return False
        return not self._is_told(row)

    def _is_bare(self, row: Cells, match: Match) -> bool:
        """Whether a row has neither a label nor a value that is more than text."""
        label = _filled(row)[0]
        if self._is_told(row) or self._is_sum(label) or self.labelled.is_label(label):
            return False
        return all(leaf.is_plain for leaf in match.array.take(row, match.columns))

    def _last_full(self, rows: Sequence[Cells], start: int, match: Match) -> int:
        """The last row that is an item for sure, with more than a label and a value; or the one to start with."""
        after = range(len(rows) - 1, start, -1)
        return next((at for at in after if len(_filled(rows[at])) > 2 and self._is_item(rows[at], match)), start)

    def _is_told(self, row: Cells) -> bool:
        """Whether a row has a label and a colon in a cell."""
        return any(_COLON.search(cell) and self.labelled.is_wanted(_COLON.split(cell)[0]) for cell in _filled(row))

    def _is_for_all(self, row: Cells) -> bool:
        """Whether a row has nothing but the label and the amount of what is for all items: a tax, a discount."""
        return _is_pair(row) and not _FOR_ALL.isdisjoint(_keys(_filled(row)[0]))

    def _is_wide_sum(self, row: Cells) -> bool:
        """Whether a row has sums of several columns: which of them is meant by its label cannot be told."""
        cells = _filled(row)
        return self._is_sum(cells[0]) and sum(bool(_DIGIT.search(cell)) for cell in cells[1:]) > 1

    def _is_sum(self, text: str) -> bool:
        return not self.labelled.totals.isdisjoint(_keys(_COLON.split(text, maxsplit=1)[0]))

    def _count(self, values: int) -> None:
        self._values += values
        if self._values > MOST_VALUES:
            raise TooManyValues


def _filled(row: Cells) -> list[str]:
    return [cell.text for cell in row if cell is not None]


def _is_pair(row: Cells) -> bool:
    """Whether a row of several columns has nothing but a label and a figure."""
    cells = _filled(row)
    return len(cells) == 2 < len(row) and _DIGIT.search(cells[1]) is not None


def _is_below(at: int, summed_at: int | None, row: Cells) -> bool:
    """Whether a row is a label with its figure below the sum: what is to pay, or how."""
    return summed_at is not None and at > summed_at and _is_pair(row)


def _keys(label: str) -> list[str]:
    """Those of a label, and of it without what stands after it in brackets, or the rate."""
    return [key_of(label), *map(key_of, parts_of(label)[:1])]
