"""Tables that become arrays: the cells of a header row name properties, and the rows below it are items.

A table fills the array that most of its header cells match; on a tie, the one that the heading above names. It may
continue on the next page, with or without its header, and on the same page where the reader split it. A value that may
continue in the next row is dropped.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeAlias

from penstock.documents.extract.fields.candidates import Candidate, parse_candidate
from penstock.documents.extract.fields.continuation_rows import (
    ContinuationRows,
    may_be_truncated,
    realign,
    without_truncated_values,
)
from penstock.documents.extract.fields.label_index import LabelIndex
from penstock.documents.extract.fields.label_keys import label_key, parts_of
from penstock.documents.extract.fields.layout import LayoutTable, LayoutText
from penstock.documents.extract.fields.rebuild_tables import fit_to_columns, split_header_cells
from penstock.documents.extract.fields.schema_tree import ArrayNode, LeafNode

FEW_COLUMNS = 3  # from here on, a row with a single text is a title or a continuation
MAX_VALUES = 100_000  # in all arrays of a result

# Labels of amounts that belong to all items; those of totals are in `label_keys.py`.
SUMMARY_LABELS = """
    vat tax sales_tax gst hst pst value_added_tax discount rebate balance balance_due amount_paid paid deposit net gross
    net_amount gross_amount net_total rounding mwst ust umsatzsteuer mehrwertsteuer rabatt skonto netto brutto
    nettobetrag bruttobetrag gesamtbetrag summe gesamt zwischensumme tva remise iva
    税额 税金 增值税 折扣 优惠 余额 应付 实付 已付
"""

Item: TypeAlias = dict[LeafNode, Candidate]
Columns: TypeAlias = dict[int, LeafNode]
Cells: TypeAlias = Sequence[LayoutText | None]

_COLON = re.compile(r"[:：]")
_DIGIT = re.compile(r"\d")
_SUMMARY_KEYS = frozenset(label_key(word) for word in SUMMARY_LABELS.split())


class TooManyArrayValues(Exception):
    """The arrays of a result hold too many values."""


@dataclass(frozen=True, kw_only=True)
class HeaderMatch:
    """How a table fills an array: the row of its header, and the leaf of each column."""

    array: "ArrayField"
    header: int
    columns: Columns
    is_named: bool  # by the heading above

    @property
    def rank(self) -> tuple[int, bool]:
        return len(self.columns), self.is_named


@dataclass(kw_only=True, eq=False)
class ArrayField:
    """One array of the result with its items. Items under its own heading take precedence over all others."""

    node: ArrayNode
    label_index: LabelIndex
    named: list[Item] = field(default_factory=list)
    others: list[Item] = field(default_factory=list)

    @classmethod
    def of(cls, node: ArrayNode) -> "ArrayField":
        """An empty array."""
        return cls(node=node, label_index=LabelIndex.of(node.item))

    @property
    def items(self) -> list[Item]:
        return self.named or self.others

    @property
    def single_leaf(self) -> LeafNode | None:
        """The leaf of each item, where items are scalars."""
        return self.node.item if isinstance(self.node.item, LeafNode) else None

    def is_named(self, keys: Sequence[str]) -> bool:
        """Whether one of the keys names this array."""
        return any(key in names for key in keys for names in self.node.labels)

    def match(self, table: LayoutTable, headings: Sequence[str]) -> HeaderMatch | None:
        """How a table fills this array; None when it does not."""
        named = self.is_named(headings[:1])
        matches = [
            HeaderMatch(array=self, header=at, columns=self.header(row, below), is_named=named)
            for at, (row, below) in enumerate(pairwise(table.rows))
        ]
        best = max(matches, key=lambda match: len(match.columns), default=None)
        required = min(2, len(self.label_index.leaves)) if not named else 1
        return best if best is not None and len(best.columns) >= max(required, 1) else None

    def parse_row(self, row: Cells, columns: Columns) -> Item:
        """The item of a row."""
        found = {
            leaf: parse_candidate(leaf, cell.text, cell)
            for at, leaf in columns.items()
            if (cell := row[at]) is not None
        }
        return {leaf: candidate for leaf, candidate in found.items() if candidate is not None}

    def add(self, item: Item, *, named: bool) -> None:
        """Add an item, unless it has no values."""
        if item:
            (self.named if named else self.others).append(item)

    def header(self, row: Cells, below: Cells) -> Columns:
        """The leaf of each column, for a row that may be the header of the row below."""
        return self.columns(split_header_cells(row, below, self._is_name))

    def columns(self, row: Cells) -> Columns:
        """The leaf of each header cell of a row. A row with digits in other cells is not a header."""
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

    def _leaf_named(self, text: str, taken: Columns) -> LeafNode | None:
        if self.single_leaf is not None:
            return self.single_leaf if not taken and self.is_named([label_key(text)]) else None
        free = [match for match in self.label_index.match(text) if match.leaf not in taken.values()]
        return min(free, key=lambda match: match.rank).leaf if free else None


@dataclass(frozen=True, kw_only=True)
class OpenTable:
    """A table that may continue: its header, its width, and its last item with its row."""

    match: HeaderMatch
    header: Cells
    width: int
    last: tuple[Item, Cells] | None = None


@dataclass(kw_only=True)
class ArrayFields:
    """All arrays of a result."""

    arrays: tuple[ArrayField, ...]
    label_index: LabelIndex
    ambiguous: set[str] = field(default_factory=set)
    _open_table: OpenTable | None = None
    _values: int = 0

    @classmethod
    def of(cls, label_index: LabelIndex) -> "ArrayFields":
        """Empty arrays."""
        return cls(arrays=tuple(map(ArrayField.of, label_index.arrays)), label_index=label_index)

    def read_table(self, table: LayoutTable, headings: Sequence[str], *, first_on_page: bool) -> list[LayoutTable]:
        """Fill an array from a table, and return the rows that are not items: all of them, or those above the header,
        or single rows between and after the items; without truncated values."""
        remaining = self._read_table(table, headings, first_on_page=first_on_page)
        return [without_truncated_values(each, self.label_index) for each in remaining]

    def _read_table(self, table: LayoutTable, headings: Sequence[str], *, first_on_page: bool) -> list[LayoutTable]:
        previous, self._open_table = self._open_table, None
        matches = [match for array in self.arrays if (match := array.match(table, headings))]
        best = max((match.rank for match in matches), default=None)
        winners = [match for match in matches if match.rank == best]
        if len(winners) > 1:
            self.ambiguous.update(match.array.node.pointer for match in winners)
            return []
        if winners:
            above, match = table.rows[: winners[0].header], winners[0]
            last = previous.last if previous and first_on_page and previous.match.array is match.array else None
            current = OpenTable(match=match, header=table.rows[match.header], width=table.width, last=last)
            return [LayoutTable(rows=above)] * bool(above) + self._fill(current, table, len(above) + 1)
        return [table] if previous is None else self._continue_table(previous, table, first_on_page=first_on_page)

    def header_columns(self, row: Cells) -> set[int]:
        """The header cells of a row, for the array that most of its cells match."""
        return max((set(array.columns(row)) for array in self.arrays), key=len, default=set())

    def close_table(self) -> None:
        """Note that a new section starts, so that the last table does not continue."""
        self._open_table = None

    def add_single(self, array: ArrayField, text: str, source: LayoutText, *, named: bool) -> None:
        """Add an item that is a single value."""
        leaf = array.single_leaf
        candidate = parse_candidate(leaf, text, source) if leaf is not None else None
        if leaf is not None and candidate is not None:
            self._count(1)
            array.add({leaf: candidate}, named=named)

    def named_by(self, keys: Sequence[str]) -> list[ArrayField]:
        """The arrays of scalars that one of the keys names."""
        return [array for array in self.arrays if array.single_leaf is not None and array.is_named(keys)]

    def _continue_table(self, previous: OpenTable, table: LayoutTable, *, first_on_page: bool) -> list[LayoutTable]:
        """Fill the array of the previous table from a table that continues it. One that seems to continue it, but does
        not fit its columns or has another width on another page, makes the array ambiguous."""
        if first_on_page and previous.width == table.width and self._fits_columns(previous.match, table.rows[0]):
            return self._fill(previous, table, 0)
        part = fit_to_columns(previous.header, table)
        if part is None or not any(self._fits_columns(previous.match, row) for row in part.rows):
            return [table]
        if not first_on_page and all(self._fits_columns(previous.match, row) for row in part.rows):
            return self._fill(previous, part, 0)
        self.ambiguous.add(previous.match.array.node.pointer)
        self._open_table = replace(previous, last=None)
        return [table]

    def _fill(self, current: OpenTable, table: LayoutTable, start: int) -> list[LayoutTable]:
        remaining: list[LayoutTable] = []
        match, last, rows = current.match, current.last, table.rows[start:]
        continuations = ContinuationRows(table=table)
        total_at: int | None = None
        for at, row in enumerate(rows):
            if match.array.header(row, rows[at + 1] if at + 1 < len(rows) else row) == match.columns:
                continue  # the repeated header
            if last is not None and self._drop_truncated(last, row, match, continuations):
                remaining.append(LayoutTable(rows=(row,)))
                continue
            last = None
            if self._is_item(row, match) and not self._is_summary_row(row) and not _is_below_total(at, total_at, row):
                last = (self._add(row, match), row)
                continue
            if total_at is None and self._is_total(_cell_texts(row)[0]):
                total_at = self._last_item_row(rows, at, match)
            if not self._is_multi_column_total(row):
                remaining.append(LayoutTable(rows=(row,)))
        self._open_table = replace(current, last=last)
        return remaining

    def _drop_truncated(
        self, last: tuple[Item, Cells], row: Cells, match: HeaderMatch, continuations: ContinuationRows
    ) -> bool:
        """Drop the values of the last item that may continue in this row. Returns whether the row is a continuation."""
        item, above = last
        aligned = realign(row, above)
        if not continuations.may_continue(aligned, above) or not self._is_text_only(aligned, match):
            return False
        for at, leaf in match.columns.items():
            if aligned[at] is not None and may_be_truncated(leaf):
                item.pop(leaf, None)
        return True

    def _add(self, row: Cells, match: HeaderMatch) -> Item:
        item = match.array.parse_row(row, match.columns)
        self._count(len(item))
        match.array.add(item, named=match.is_named)
        return item

    def _fits_columns(self, match: HeaderMatch, row: Cells) -> bool:
        """Whether every cell of a row parses as the leaf of its column. Free-text columns alone prove nothing."""
        filled_leaves = [leaf for at, leaf in match.columns.items() if row[at] is not None]
        specific = [leaf for leaf in filled_leaves if not leaf.is_free_text]
        return bool(specific) and len(match.array.parse_row(row, match.columns)) == len(filled_leaves)

    def _is_item(self, row: Cells, match: HeaderMatch) -> bool:
        """Whether a row is an item, and not a title, a label with its value (a total, a tax, the amount due), or the
        start of another object of the result."""
        cells = _cell_texts(row)
        if self._is_total(cells[0]) or (len(cells) == 1 and len(match.columns) >= FEW_COLUMNS):
            return False
        if (len(cells) == 2 < len(row) and self.label_index.is_schema_label(cells[0])) or label_key(
            cells[0]
        ) in self.label_index.objects_by_key:
            return False
        return not self._has_label(row)

    def _is_text_only(self, row: Cells, match: HeaderMatch) -> bool:
        """Whether a row has no label and no value other than free text."""
        label = _cell_texts(row)[0]
        if self._has_label(row) or self._is_total(label) or self.label_index.is_label(label):
            return False
        return all(leaf.is_free_text for leaf in match.array.parse_row(row, match.columns))

    def _last_item_row(self, rows: Sequence[Cells], start: int, match: HeaderMatch) -> int:
        """The last row that is certainly an item, with more than a label and a value; else the start row."""
        after = range(len(rows) - 1, start, -1)
        return next((at for at in after if len(_cell_texts(rows[at])) > 2 and self._is_item(rows[at], match)), start)

    def _has_label(self, row: Cells) -> bool:
        """Whether a cell of a row has a label of the schema before a colon."""
        return any(
            _COLON.search(cell) and self.label_index.is_schema_label(_COLON.split(cell)[0]) for cell in _cell_texts(row)
        )

    def _is_summary_row(self, row: Cells) -> bool:
        """Whether a row is only a label and an amount that belongs to all items, such as a tax or a discount."""
        return _is_pair(row) and not _SUMMARY_KEYS.isdisjoint(_label_keys(_cell_texts(row)[0]))

    def _is_multi_column_total(self, row: Cells) -> bool:
        """Whether a row has totals of several columns, so that its label is ambiguous."""
        cells = _cell_texts(row)
        return self._is_total(cells[0]) and sum(bool(_DIGIT.search(cell)) for cell in cells[1:]) > 1

    def _is_total(self, text: str) -> bool:
        return not self.label_index.totals.isdisjoint(_label_keys(_COLON.split(text, maxsplit=1)[0]))

    def _count(self, values: int) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            raise TooManyArrayValues


def _cell_texts(row: Cells) -> list[str]:
    return [cell.text for cell in row if cell is not None]


def _is_pair(row: Cells) -> bool:
    """Whether a row of several columns has only a label and a number."""
    cells = _cell_texts(row)
    return len(cells) == 2 < len(row) and _DIGIT.search(cells[1]) is not None


def _is_below_total(at: int, total_at: int | None, row: Cells) -> bool:
    """Whether a row is a label with a number below the total: the amount due, a payment."""
    return total_at is not None and at > total_at and _is_pair(row)


def _label_keys(label: str) -> list[str]:
    """The keys of a label, with and without a note in brackets or a rate after it."""
    return [label_key(label), *map(label_key, parts_of(label)[:1])]
