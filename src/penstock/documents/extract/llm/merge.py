"""Merge the results of the parts of a document into one value.

Objects are merged by property, and any value replaces null. Of different scalars the first wins, and all are reported
as a conflict with their pages. Arrays are concatenated; a row that an earlier part already has is skipped, and the
number of skipped rows is reported. Equal rows of one part are all kept, since the part contains them more than once.
"""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.kernel.json_object import JsonObject
from penstock.kernel.json_schema.pointers import escape_token

MAX_CONFLICTS = 200  # reported


@dataclass(frozen=True, kw_only=True)
class PartialResult:
    """The result of one part of a document, and the first and last page of the part."""

    value: JsonObject
    pages: list[int]


@dataclass(frozen=True, kw_only=True)
class MergedResult:
    """The merged value, its conflicts and skipped rows."""

    value: JsonObject
    conflicts: list[JsonObject]
    repeats: dict[str, int]  # number of skipped rows, by the pointer of their array


def merge(parts: Sequence[PartialResult]) -> MergedResult:
    """Merge results in document order."""
    merger = _Merger()
    value: Any = {}
    for part in parts:
        value = merger.merge(value, part.value, "", part.pages)
    conflicts = [{"pointer": pointer, "values": values} for pointer, values in merger.conflicts.items()]
    return MergedResult(value=value, conflicts=conflicts[:MAX_CONFLICTS], repeats=merger.repeats)


@dataclass
class _Merger:
    conflicts: dict[str, list[JsonObject]] = field(default_factory=dict)
    repeats: dict[str, int] = field(default_factory=dict)
    rows: dict[str, set[bytes]] = field(default_factory=dict)  # the encoded rows of each array
    pages: dict[str, list[int]] = field(default_factory=dict)  # the pages of each kept value

    def merge(self, one: Any, other: Any, pointer: str, pages: list[int]) -> Any:
        if other is None:
            return one
        if one is None:
            self.pages[pointer] = pages
        if isinstance(other, list) and (one is None or isinstance(one, list)):
            return self._rows(one or [], other, pointer)
        if isinstance(other, dict) and (one is None or isinstance(one, dict)):
            return self._fields(one or {}, other, pointer, pages)
        if one is None:
            return other
        if not agree(one, other):
            self._add_conflict(one, other, pointer, pages)
        return one

    def _fields(self, one: JsonObject, other: JsonObject, pointer: str, pages: list[int]) -> JsonObject:
        merged = dict(one)
        for name, value in other.items():
            merged[name] = self.merge(one.get(name), value, f"{pointer}/{escape_token(name)}", pages)
        return merged

    def _rows(self, one: list[Any], other: list[Any], pointer: str) -> list[Any]:
        seen = self.rows.setdefault(pointer, set())
        other = [row for row in other if row is not None]
        encoded = [msgspec.json.encode(row, order="sorted") for row in other]
        new = [row for row, row_json in zip(other, encoded, strict=True) if row_json not in seen]
        if skipped := sum(row_json in seen for row_json in encoded):
            self.repeats[pointer] = self.repeats.get(pointer, 0) + skipped
        seen.update(encoded)
        return [*one, *new]

    def _add_conflict(self, one: Any, other: Any, pointer: str, pages: list[int]) -> None:
        first = {"value": one, "pages": self.pages.get(pointer, pages)}
        values = self.conflicts.setdefault(pointer, [first])
        same = next((each for each in values if agree(each["value"], other)), None)
        if same is None:
            values.append({"value": other, "pages": pages})


def agree(one: Any, other: Any) -> bool:
    """Whether two values are equal: numbers by value, text without case, width and spacing."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-12)
    if isinstance(one, str) and isinstance(other, str):
        return _normalize(one) == _normalize(other)
    return bool(one == other)


def _normalize(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
