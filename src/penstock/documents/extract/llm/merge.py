"""Merging: what the parts of a document say becomes one value.

Objects are merged field by field. Null gives way. Of scalars that differ the first stands, and the others are told as a
conflict with the pages they came from. Arrays are put one after another; a row that an earlier part has given already
is not put again, and how many were left out so is told. Rows that one part gives twice stand twice: it saw them both.
"""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.documents.extract.fields.schema import escaped
from penstock.kernel.plain import Plain

MOST_CONFLICTS = 200  # that are told


@dataclass(frozen=True, kw_only=True)
class Part:
    """What one part of a document says, and of which pages it is."""

    value: Plain
    pages: list[int]


@dataclass(frozen=True, kw_only=True)
class Merged:
    """One value, and what was not agreed upon."""

    value: Plain
    conflicts: list[Plain]
    repeats: dict[str, int]  # rows that were left out, by the pointer of their array


def merge(parts: Sequence[Part]) -> Merged:
    """One value of several, in the order of the document."""
    merging = _Merging()
    value: Any = {}
    for part in parts:
        value = merging.merged(value, part.value, "", part.pages)
    conflicts = [{"pointer": pointer, "values": values} for pointer, values in merging.conflicts.items()]
    return Merged(value=value, conflicts=conflicts[:MOST_CONFLICTS], repeats=merging.repeats)


@dataclass
class _Merging:
    conflicts: dict[str, list[Plain]] = field(default_factory=dict)
    repeats: dict[str, int] = field(default_factory=dict)
    rows: dict[str, set[bytes]] = field(default_factory=dict)  # of each array, what it holds
    pages: dict[str, list[int]] = field(default_factory=dict)  # where a value that stands came from

    def merged(self, one: Any, other: Any, pointer: str, pages: list[int]) -> Any:
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
            self._note(one, other, pointer, pages)
        return one

    def _fields(self, one: Plain, other: Plain, pointer: str, pages: list[int]) -> Plain:
        made = dict(one)
        for name, value in other.items():
            made[name] = self.merged(one.get(name), value, f"{pointer}/{escaped(name)}", pages)
        return made

    def _rows(self, one: list[Any], other: list[Any], pointer: str) -> list[Any]:
        held = self.rows.setdefault(pointer, set())
        other = [row for row in other if row is not None]
        written = [msgspec.json.encode(row, order="sorted") for row in other]
        new = [row for row, words in zip(other, written, strict=True) if words not in held]
        if left := sum(words in held for words in written):
            self.repeats[pointer] = self.repeats.get(pointer, 0) + left
        held.update(written)
        return [*one, *new]

    def _note(self, one: Any, other: Any, pointer: str, pages: list[int]) -> None:
        first = {"value": one, "pages": self.pages.get(pointer, pages)}
        told = self.conflicts.setdefault(pointer, [first])
        same = next((each for each in told if agree(each["value"], other)), None)
        if same is None:
            told.append({"value": other, "pages": pages})


def agree(one: Any, other: Any) -> bool:
    """Whether two values say the same: numbers by their value, text by its letters."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-12)
    if isinstance(one, str) and isinstance(other, str):
        return _letters(one) == _letters(other)
    return bool(one == other)


def _letters(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
