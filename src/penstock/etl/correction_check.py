"""Apply corrections to a result, and check the corrected result.

`check_corrections` runs in the sandbox, since results and schemas are untrusted. It applies the corrections, validates
the corrected result against the rule's schema, and counts right and wrong values. Schema violations that the original
result already has do not fail a correction of something else.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO

import msgspec

from penstock.etl.domain.review import MAX_RESULT_BYTES, MAX_VALUE_BYTES, CorrectionProblem, ValueCounts
from penstock.kernel.json_object import JsonObject
from penstock.kernel.json_schema.pointers import (
    ABSENT,
    BadPointer,
    Tokens,
    escape_token,
    field_path,
    format_pointer,
    is_within,
    parse_pointer,
    resolve,
    self_and_ancestors,
    set_value,
)
from penstock.kernel.json_schema.validation import Violation, compile_schema
from penstock.kernel.json_schema.walk import schema_covers
from penstock.kernel.sandbox.limits import SandboxLimits

PRELOAD = (__name__,)  # modules that the sandbox imports in advance
LIMITS = SandboxLimits(memory_bytes=768 * 1024 * 1024, cpu_seconds=15, seconds=30.0, result_bytes=16 * 1024 * 1024)
MAX_VALUES = 100_000
MAX_FIELDS = 200  # counted by field; the totals include all
MAX_FIELD_CHARS = 200
MAX_PROBLEMS = 20
MAX_REASON = 300


class TooManyValues(Exception):
    """A result has more than MAX_VALUES values."""


class CorrectionPatch(msgspec.Struct, frozen=True, kw_only=True):
    """A corrected value and where it belongs."""

    pointer: str
    value: Any


class CorrectionCheckInput(msgspec.Struct, frozen=True, kw_only=True):
    """A result with its schema, its active corrections, and new ones."""

    result: Any
    json_schema: JsonObject | None
    active: list[CorrectionPatch]
    new: list[CorrectionPatch]


class CheckedValue(msgspec.Struct, frozen=True, kw_only=True):
    """The original value (JSON text, None if missing) at a new correction, and whether the correction confirms it."""

    original: str | None
    field: str
    confirms: bool


class CorrectionCheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a check. `whole` counts every value of the result, `part` only those that corrections cover."""

    failure: str | None = None  # why the result cannot be checked at all
    problems: tuple[CorrectionProblem, ...] = ()
    values: tuple[CheckedValue, ...] = ()  # one for each new correction
    whole: ValueCounts = ValueCounts()
    part: ValueCounts = ValueCounts()


def apply_corrections(result: bytes, patches: Sequence[CorrectionPatch]) -> bytes:
    """A result with corrections that were checked before."""
    whole = msgspec.json.decode(result)
    for patch in patches:
        whole = set_value(whole, parse_pointer(patch.pointer), patch.value)
    return msgspec.json.encode(whole)


def check_corrections(file: BinaryIO) -> CorrectionCheckResult:
    """Apply the corrections of a `CorrectionCheckInput` to its result, and check it. Runs in the sandbox."""
    raw = file.read()
    try:
        given, copy = (msgspec.json.decode(raw, type=CorrectionCheckInput) for _ in range(2))
        return _check(given, copy.result)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return CorrectionCheckResult(failure="it is not JSON")
    except RecursionError:
        return CorrectionCheckResult(failure="it is nested too deeply")
    except TooManyValues:
        return CorrectionCheckResult(failure=f"it has more than {MAX_VALUES} values")


def is_same_json(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON. In Python, True == 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same_json(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same_json, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _check(given: CorrectionCheckInput, copy: Any) -> CorrectionCheckResult:
    whole, problems, values = copy, list[CorrectionProblem](), list[CheckedValue]()
    for number, patch in enumerate((*given.active, *given.new)):
        try:
            tokens = parse_pointer(patch.pointer)
            _check_pointer(whole, tokens, given.json_schema)
            whole = set_value(whole, tokens, patch.value)
            if number >= len(given.active):
                values.append(_checked_value(given.result, whole, tokens, patch.value))
        except BadPointer as bad:
            problems.append(CorrectionProblem(place=patch.pointer, reason=bad.reason, reason_zh=bad.reason_zh))
    if problems:
        return CorrectionCheckResult(problems=tuple(problems[:MAX_PROBLEMS]))
    patched = {parse_pointer(patch.pointer) for patch in (*given.active, *given.new)}
    if violations := _find_violations(given, whole, patched):
        return CorrectionCheckResult(problems=tuple(violations))
    return CorrectionCheckResult(
        values=tuple(values),
        whole=_count_values(given.result, whole, [()]),
        part=_count_values(given.result, whole, patched),
    )


def _check_pointer(whole: Any, tokens: Tokens, schema: JsonObject | None) -> None:
    """Reject a pointer to nothing; a member that only the schema describes may be added to an object."""
    if resolve(whole, tokens) is not ABSENT:
        return
    parent = resolve(whole, tokens[:-1])
    if isinstance(parent, list):
        raise BadPointer(
            "The list has no such item; indexes start at 0. To add an item, correct the whole list.",
            "列表中没有该项（从 0 计数）。如需添加，请更正整个列表。",
        )
    if not isinstance(parent, dict):
        raise BadPointer("There is no such value in the result.", "结果中没有该值。")
    if schema is None or not schema_covers(schema, tokens):
        raise BadPointer(
            "There is no such value in the result or in the schema.",
            "结果中没有该值，schema 中也没有。",
        )


def _checked_value(original: Any, whole: Any, tokens: Tokens, value: Any) -> CheckedValue:
    before = resolve(original, tokens)
    encoded = None if before is ABSENT else msgspec.json.encode(before)
    if encoded is not None and len(encoded) > MAX_VALUE_BYTES:
        raise BadPointer(
            f"The value there is longer than {MAX_VALUE_BYTES} bytes. Correct a smaller part of it.",
            f"该处的值超过 {MAX_VALUE_BYTES} 字节，请更正其中较小的部分。",
        )
    text = None if encoded is None else encoded.decode()
    return CheckedValue(original=text, field=field_path(whole, tokens), confirms=is_same_json(before, value))


def _find_violations(given: CorrectionCheckInput, whole: Any, patched: set[Tokens]) -> list[CorrectionProblem]:
    """What is wrong with the corrected result and was not wrong with the original."""
    if len(msgspec.json.encode(whole)) > MAX_RESULT_BYTES:
        reason = f"The corrected result would be longer than {MAX_RESULT_BYTES} bytes."
        return [CorrectionProblem(place="", reason=reason, reason_zh=f"更正后的结果将超过 {MAX_RESULT_BYTES} 字节。")]
    if given.json_schema is None:
        return []
    schema = compile_schema(given.json_schema)
    in_original = {violation.key for violation in schema.violations(given.result)}
    introduced = (
        _problem_of(violation)
        for violation in schema.violations(whole)
        if violation.key not in in_original or _is_introduced(given, whole, violation.key[0], patched)
    )
    return list(islice(introduced, MAX_PROBLEMS))


def _is_introduced(given: CorrectionCheckInput, whole: Any, place: Tokens, patched: set[Tokens]) -> bool:
    """Whether a correction put this value there, and the original had another one."""
    is_patched = any(outer in patched for outer in self_and_ancestors(place))
    return is_patched and not is_same_json(resolve(given.result, place), resolve(whole, place))


def _problem_of(violation: Violation) -> CorrectionProblem:
    reason, place = violation.message[:MAX_REASON], format_pointer(violation.place)
    return CorrectionProblem(place=place, reason=f"Schema violation: {reason}", reason_zh=f"不符合 schema：{reason}")


def _count_values(original: Any, whole: Any, pointers: Sequence[Tokens] | set[Tokens]) -> ValueCounts:
    """Count the values at these pointers and below them, each once."""
    counter, last = _ValueCounter(), None
    for tokens in sorted(pointers):
        if last is None or not is_within(tokens, last):
            last = tokens
            counter.add(resolve(original, tokens), resolve(whole, tokens), field_path(whole, tokens))
    return counter.counts


class _ValueCounter:
    """Counts values by field. A wrong value counts by the leaves that the original has there; a missing one by the
    leaves of the correction."""

    def __init__(self) -> None:
        self._values = 0
        self._corrected = 0
        self._fields: dict[str, tuple[int, int]] = {}

    @property
    def counts(self) -> ValueCounts:
        """The totals."""
        return ValueCounts(values=self._values, corrected=self._corrected, fields=self._fields)

    def add(self, original: Any, corrected: Any, field: str) -> None:
        """Compare the original and the corrected value, recursively."""
        if isinstance(original, dict) and isinstance(corrected, dict):
            for name in original | corrected:
                self.add(original.get(name, ABSENT), corrected.get(name, ABSENT), f"{field}/{escape_token(name)}")
        elif isinstance(original, list) and isinstance(corrected, list):
            for index in range(max(len(original), len(corrected))):
                one, other = (part[index] if index < len(part) else ABSENT for part in (original, corrected))
                self.add(one, other, f"{field}/*")
        else:
            is_wrong = not is_same_json(original, corrected)
            for leaf in list(_leaves(original, field)) or _leaves(corrected, field):
                self._count(leaf, is_wrong=is_wrong)

    def _count(self, field: str, *, is_wrong: bool) -> None:
        if self._values == MAX_VALUES:
            raise TooManyValues
        self._values += 1
        self._corrected += is_wrong
        if field in self._fields or (len(self._fields) < MAX_FIELDS and _is_countable(field)):
            values, corrected = self._fields.get(field, (0, 0))
            self._fields[field] = (values + 1, corrected + is_wrong)


def _is_countable(field: str) -> bool:
    """Whether a field gets a count of its own. PostgreSQL stores no NUL."""
    return len(field) <= MAX_FIELD_CHARS and "\x00" not in field


def _leaves(value: Any, field: str) -> Iterator[str]:
    """The field of each string, number, boolean and null; empty objects and lists have none."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{field}/{escape_token(name)}")
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, f"{field}/*")
    elif value is not ABSENT:
        yield field
