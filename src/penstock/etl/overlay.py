"""Corrections laid over a result.

`examine` runs in the sandbox, since results and schemas come from outside: it lays corrections over a result, checks
the whole against the rule's schema, and counts what was right. A flaw that the original has already is nobody's fault
who corrects something else, so it is not held against them.
"""

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import jsonschema_rs
import msgspec

from penstock.documents.extract.fields.schema import escape_pointer
from penstock.documents.json_schema import bounded_validator
from penstock.etl.domain.review import MOST_RESULT_BYTES, MOST_VALUE_BYTES, Problem, Tally
from penstock.etl.pointers import (
    ABSENT,
    BadPointer,
    Tokens,
    around,
    field_of,
    found,
    knows,
    lies_in,
    placed,
    pointer_of,
    tokens_of,
)
from penstock.kernel.json_object import JsonObject
from penstock.kernel.sandbox.limits import SandboxLimits

PRELOAD = (__name__,)  # what a sandbox should have imported before it examines
LIMITS = SandboxLimits(memory_bytes=768 * 1024 * 1024, cpu_seconds=15, seconds=30.0, result_bytes=16 * 1024 * 1024)
MOST_LEAVES = 100_000
MOST_FIELDS = 200  # that are counted one by one; the sums have all
MOST_FIELD = 200  # characters
MOST_PROBLEMS = 20
MOST_REASON = 300


class TooManyLeaves(Exception):
    """A result has more values than anybody could look at."""


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """What a value should be."""

    pointer: str
    value: Any


class Sheet(msgspec.Struct, frozen=True, kw_only=True):
    """What is examined: a result, its schema, the corrections that stand, and new ones."""

    result: Any
    json_schema: JsonObject | None
    standing: list[Patch]
    new: list[Patch]


class Met(msgspec.Struct, frozen=True, kw_only=True):
    """What a new correction met: the original as JSON, or none, and whether it says the same."""

    original: str | None
    field: str
    confirms: bool


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. `whole` counts every value of the result, `part` those that corrections are about."""

    flaw: str | None = None  # why nothing can be said at all
    problems: tuple[Problem, ...] = ()
    met: tuple[Met, ...] = ()
    whole: Tally = Tally()
    part: Tally = Tally()


def laid_over(result: bytes, patches: Sequence[Patch]) -> bytes:
    """A result with corrections that were examined before."""
    whole = msgspec.json.decode(result)
    for patch in patches:
        whole = placed(whole, tokens_of(patch.pointer), patch.value)
    return msgspec.json.encode(whole)


def examine(file: BinaryIO) -> Examined:
    """Lay the corrections of a `Sheet` over its result, and look at it."""
    written = file.read()
    try:
        sheet, copy = (msgspec.json.decode(written, type=Sheet) for _ in range(2))
        return _examined(sheet, copy.result)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Examined(flaw="it is no JSON")
    except RecursionError:
        return Examined(flaw="it is nested too deep")
    except TooManyLeaves:
        return Examined(flaw=f"it has more than {MOST_LEAVES} values")


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON; to Python, true would be 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _examined(sheet: Sheet, copy: Any) -> Examined:
    whole, problems, met = copy, list[Problem](), list[Met]()
    for number, patch in enumerate((*sheet.standing, *sheet.new)):
        try:
            tokens = tokens_of(patch.pointer)
            _check_known(whole, tokens, sheet.json_schema)
            whole = placed(whole, tokens, patch.value)
            if number >= len(sheet.standing):
                met.append(_met(sheet.result, whole, tokens, patch.value))
        except BadPointer as bad:
            problems.append(Problem(place=patch.pointer, reason=bad.reason, reason_zh=bad.reason_zh))
    if problems:
        return Examined(problems=tuple(problems[:MOST_PROBLEMS]))
    patched = {tokens_of(patch.pointer) for patch in (*sheet.standing, *sheet.new)}
    if objections := _objections(sheet, whole, patched):
        return Examined(problems=tuple(objections))
    return Examined(
        met=tuple(met), whole=_counted(sheet.result, whole, [()]), part=_counted(sheet.result, whole, patched)
    )


def _check_known(whole: Any, tokens: Tokens, schema: JsonObject | None) -> None:
    """Refuse a pointer that leads nowhere; a name that only the schema knows may be added to an object."""
    if found(whole, tokens) is not ABSENT:
        return
    parent = found(whole, tokens[:-1])
    if isinstance(parent, list):
        raise BadPointer(
            "The list has no such item; items count from 0. To add one, correct the whole list.",
            "列表中没有该项（从 0 计数）。如需添加，请更正整个列表。",
        )
    if not isinstance(parent, dict):
        raise BadPointer("There is no such value in the result.", "结果中没有该值。")
    if schema is None or not knows(schema, tokens):
        raise BadPointer(
            "There is no such value in the result, and the schema does not know it.",
            "结果中没有该值，schema 中也没有。",
        )


def _met(original: Any, whole: Any, tokens: Tokens, value: Any) -> Met:
    before = found(original, tokens)
    written = None if before is ABSENT else msgspec.json.encode(before)
    if written is not None and len(written) > MOST_VALUE_BYTES:
        raise BadPointer(
            f"The value there is longer than {MOST_VALUE_BYTES} bytes. Correct a smaller part of it.",
            f"该处的值超过 {MOST_VALUE_BYTES} 字节，请更正其中较小的部分。",
        )
    known = None if written is None else written.decode()
    return Met(original=known, field=field_of(whole, tokens), confirms=same(before, value))


def _objections(sheet: Sheet, whole: Any, patched: set[Tokens]) -> list[Problem]:
    """What is wrong with the corrected whole, and was not wrong with the original already."""
    if len(msgspec.json.encode(whole)) > MOST_RESULT_BYTES:
        told = f"It would be longer than {MOST_RESULT_BYTES} bytes."
        return [Problem(place="", reason=told, reason_zh=f"将超过 {MOST_RESULT_BYTES} 字节。")]
    if sheet.json_schema is None:
        return []
    schema = bounded_validator(sheet.json_schema)
    known = {_name_of(error) for error in schema.iter_errors(sheet.result)}
    objections = []
    for error in schema.iter_errors(whole):
        if _name_of(error) in known and not _is_given(sheet, whole, _name_of(error)[0], patched):
            continue
        objections.append(_objection(error))
        if len(objections) == MOST_PROBLEMS:
            break
    return objections


def _name_of(error: jsonschema_rs.ValidationError) -> tuple[Tokens, Tokens]:
    return tuple(map(str, error.instance_path)), tuple(map(str, error.schema_path))


def _is_given(sheet: Sheet, whole: Any, place: Tokens, patched: set[Tokens]) -> bool:
    """Whether somebody says now that this value should be there, and the original did not have it."""
    said = any(outer in patched for outer in around(place))
    return said and not same(found(sheet.result, place), found(whole, place))


def _objection(error: jsonschema_rs.ValidationError) -> Problem:
    said = error.message[:MOST_REASON]
    place = pointer_of(error.instance_path)
    return Problem(place=place, reason=f"The schema says: {said}", reason_zh=f"不符合 schema：{said}")


def _counted(original: Any, whole: Any, places: Sequence[Tokens] | set[Tokens]) -> Tally:
    """The values at these places and below them, each once."""
    count, last = _Count(), None
    for tokens in sorted(places):
        if last is None or not lies_in(tokens, last):
            last = tokens
            count.add(found(original, tokens), found(whole, tokens), field_of(whole, tokens))
    return count.tally


class _Count:
    """Counts values by field. What is wrong counts by the leaves that the original has there; what was missing, by
    those that should be there."""

    def __init__(self) -> None:
        self._values = 0
        self._corrected = 0
        self._fields: dict[str, tuple[int, int]] = {}

    @property
    def tally(self) -> Tally:
        """The sums."""
        return Tally(values=self._values, corrected=self._corrected, fields=self._fields)

    def add(self, original: Any, corrected: Any, field: str) -> None:
        """Compare what is with what should be, at one place and below it."""
        if isinstance(original, dict) and isinstance(corrected, dict):
            for name in original | corrected:
                self.add(original.get(name, ABSENT), corrected.get(name, ABSENT), f"{field}/{escape_pointer(name)}")
        elif isinstance(original, list) and isinstance(corrected, list):
            for number in range(max(len(original), len(corrected))):
                one, other = (part[number] if number < len(part) else ABSENT for part in (original, corrected))
                self.add(one, other, f"{field}/*")
        else:
            is_wrong = not same(original, corrected)
            for leaf in list(_leaves(original, field)) or _leaves(corrected, field):
                self._count(leaf, is_wrong=is_wrong)

    def _count(self, field: str, *, is_wrong: bool) -> None:
        if self._values == MOST_LEAVES:
            raise TooManyLeaves
        self._values += 1
        self._corrected += is_wrong
        if field in self._fields or (len(self._fields) < MOST_FIELDS and _can_be_named(field)):
            values, corrected = self._fields.get(field, (0, 0))
            self._fields[field] = (values + 1, corrected + is_wrong)


def _can_be_named(field: str) -> bool:
    """Whether a field is counted by itself: no database keeps a NUL."""
    return len(field) <= MOST_FIELD and "\x00" not in field


def _leaves(value: Any, field: str) -> Iterator[str]:
    """The field of each text, number, boolean and null; empty objects and lists hold no value."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{field}/{escape_pointer(name)}")
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, f"{field}/*")
    elif value is not ABSENT:
        yield field
