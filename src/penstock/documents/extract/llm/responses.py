"""Parse and validate a model's response. `parse_response` runs in the sandbox.

Of several JSON objects in a response, the first that satisfies the schema is used. Incomplete JSON is repaired only
when no complete object is valid, and the result says so. Everything else becomes a problem in words that the model can
be shown: a response never raises.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO, TypeAlias

import json_repair
import msgspec

from penstock.documents.extract.llm.json_candidates import MAX_DEPTH, JsonCandidate, json_candidates, strip_reasoning
from penstock.documents.extract.llm.optional_nulls import drop_optional_nulls
from penstock.kernel.json_object import JsonObject
from penstock.kernel.json_schema.pointers import format_pointer
from penstock.kernel.json_schema.validation import InvalidSchema, SchemaValidator, Violation, compile_schema

MAX_BYTES = 8 * 1024 * 1024
MAX_REPAIRED = 200_000  # characters of one response; repairing them takes seconds
MAX_PROBLEMS = 20
MAX_MESSAGE = 300
MAX_POINTER = 300
MAX_INTEGER = 2**63 - 1
MAX_DIGITS = 19  # of MAX_INTEGER
UNSTORABLE = re.compile("[\0\ud800-\udfff]")  # NUL, which PostgreSQL rejects, and lone surrogates

PathLink: TypeAlias = "tuple[PathLink, str | int] | None"  # the parent path and the last step; paths share parents


class ResponseProblem(msgspec.Struct, frozen=True):
    """A validation problem and its JSON Pointer into the response. The model sees both as JSON.

    The messages are therefore part of a prompt: changing one needs another `PROMPT_VERSION`.
    """

    pointer: str
    message: str


class ParsedResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value that satisfies the schema; or the problems of the response; or the error of the schema itself."""

    value: Any = None
    problems: tuple[ResponseProblem, ...] = ()
    repaired: bool = False  # the JSON was incomplete, so values may be missing
    schema_error: str | None = None  # no response could satisfy this schema

    @property
    def is_valid(self) -> bool:
        """Whether the response has a valid value."""
        return not self.problems and self.schema_error is None


def parse_response(file: BinaryIO, schema_json: bytes) -> ParsedResponse:
    """Parse a response, given as a file, and validate it against a schema."""
    content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        return _rejected(f"the answer is longer than {MAX_BYTES} bytes")
    schema = msgspec.json.decode(schema_json)
    try:
        validator = _ResponseValidator(schema=schema, validator=compile_schema(schema))
    except InvalidSchema as error:
        return ParsedResponse(schema_error=_shorten(str(error), MAX_MESSAGE))
    return _parse_text(content.decode(errors="replace"), validator)


def _parse_text(text: str, validator: "_ResponseValidator") -> ParsedResponse:
    whole = _parse(text)
    if isinstance(whole, list) and len(whole) == 1:
        whole = whole[0]
    if isinstance(whole, dict):
        return validator.validate(whole)
    if isinstance(whole, list):
        return _rejected("the answer is an array; one JSON object is wanted")
    candidates = list(json_candidates(strip_reasoning(text)))
    if not candidates:
        return _rejected("there is no JSON object in the answer")
    responses = list(_validated_candidates(candidates, validator))
    return min(responses, key=_rank) if responses else _rejected("the JSON in the answer is broken")


def _validated_candidates(candidates: list[JsonCandidate], validator: "_ResponseValidator") -> Iterator[ParsedResponse]:
    """The result of each candidate; broken ones are repaired only when no other is valid."""
    broken: list[JsonCandidate] = []
    any_valid = False
    for candidate in candidates:
        if candidate.is_too_deep:
            yield _rejected(f"the answer is nested more than {MAX_DEPTH} deep")
        elif isinstance(value := _parse(candidate.text), dict):
            response = validator.validate(value)
            any_valid |= response.is_valid
            yield response
        else:
            broken.append(candidate)
    for value in () if any_valid else _repaired(broken):
        response = validator.validate(value)
        yield msgspec.structs.replace(response, repaired=response.is_valid)


def _rank(response: ParsedResponse) -> tuple[bool, bool, int]:
    """Valid before invalid, non-empty before empty, few problems before many."""
    return not response.is_valid, not response.value, len(response.problems)


def _rejected(message: str) -> ParsedResponse:
    return ParsedResponse(problems=(ResponseProblem("", _shorten(message, MAX_MESSAGE)),))


class _DuplicateKeys(dict[str, Any]):
    """An object with duplicate property names."""

    names: tuple[str, ...] = ()


class _UnsupportedNumber:
    """NaN, an infinity, or an integer that does not fit 64 bits."""


def _parse(text: str) -> Any:
    """Parse JSON; the text itself when it is not JSON. Duplicate names and unsupported numbers are marked."""
    try:
        return json.loads(
            text, object_pairs_hook=_object_hook, parse_constant=_unsupported_number, parse_int=_parse_int
        )
    except RecursionError:
        return _nested(MAX_DEPTH + 1)  # reported like any other object that is too deep
    except ValueError:
        return text


def _nested(depth: int) -> JsonObject:
    nested: JsonObject = {}
    for _ in range(depth):
        nested = {"": nested}
    return nested


def _object_hook(pairs: list[tuple[str, Any]]) -> JsonObject:
    parsed = dict(pairs)
    if len(parsed) == len(pairs):
        return parsed
    duplicates = _DuplicateKeys(parsed)
    duplicates.names = tuple(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
    return duplicates


def _unsupported_number(_: str) -> _UnsupportedNumber:
    return _UnsupportedNumber()


def _parse_int(digits: str) -> int | _UnsupportedNumber:
    return int(digits) if len(digits.lstrip("-")) <= MAX_DIGITS else _UnsupportedNumber()


def _repaired(candidates: list[JsonCandidate]) -> Iterator[JsonObject]:
    """Repair incomplete JSON. `json_repair` may return anything, such as a list; only objects count."""
    remaining = MAX_REPAIRED
    for candidate in candidates:
        remaining -= len(candidate.text)
        if remaining < 0:
            return
        try:
            repaired = json_repair.loads(candidate.text)
        except Exception:  # noqa: BLE001, S112  (it may raise anything)
            continue
        if isinstance(repaired, dict):
            yield repaired


@dataclass(frozen=True, kw_only=True)
class _ResponseValidator:
    """Validates values against one schema."""

    schema: JsonObject
    validator: SchemaValidator

    def validate(self, value: JsonObject) -> ParsedResponse:
        checks: tuple[Callable[[JsonObject], Iterator[ResponseProblem]], ...] = (
            _structural_problems,
            self._schema_echo,
        )
        for check in checks:
            problems = tuple(islice(check(value), MAX_PROBLEMS))
            if problems:
                return ParsedResponse(problems=problems)
        if self.validator.is_valid(value):
            return ParsedResponse(value=value)
        cleaned = drop_optional_nulls(value, self.schema)
        problems = tuple(map(_problem_of, islice(self.validator.violations(cleaned), MAX_PROBLEMS)))
        return ParsedResponse(problems=problems) if problems else ParsedResponse(value=cleaned)

    def _schema_echo(self, value: JsonObject) -> Iterator[ResponseProblem]:
        """Weak models return the schema itself, which a schema without required properties would accept."""
        expected = self.schema.get("properties", {})
        given = value.get("properties")
        is_echo = isinstance(given, dict) and "properties" not in expected and bool(given.keys() & expected.keys())
        if is_echo or (value and value == self.schema):
            yield ResponseProblem("", "the answer is the schema itself; values of the document are wanted")


def _structural_problems(value: Any) -> Iterator[ResponseProblem]:
    """Problems beyond any schema: depth, duplicate names, numbers and characters that cannot be stored."""
    pending: list[tuple[Any, PathLink, int]] = [(value, None, 0)]
    while pending:
        part, path, depth = pending.pop()
        if depth > MAX_DEPTH:
            yield ResponseProblem("", f"the answer is nested more than {MAX_DEPTH} deep")
            return
        if message := _structural_problem(part):
            yield ResponseProblem(_pointer(_path_steps(path)), message)
        inner = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        pending += ((value, (path, step), depth + 1) for step, value in inner)


def _path_steps(path: PathLink) -> list[str | int]:
    steps: list[str | int] = []
    while path is not None:
        path, step = path
        steps.append(step)
    return steps[::-1]


def _structural_problem(part: Any) -> str | None:
    if isinstance(part, _DuplicateKeys):
        return f"these names stand in it more than once: {_shorten(', '.join(part.names), MAX_MESSAGE)}"
    if isinstance(part, dict) and not all(isinstance(name, str) and _is_storable(name) for name in part):
        return "a name in it has characters that cannot be kept"
    if isinstance(part, str) and not _is_storable(part):
        return "the text has characters that cannot be kept"
    if isinstance(part, _UnsupportedNumber) or (isinstance(part, float) and not math.isfinite(part)):
        return "this is no number that can be kept"
    if isinstance(part, int) and abs(part) > MAX_INTEGER:
        return "the number is too large to be kept"
    return None


def _is_storable(text: str) -> bool:
    return UNSTORABLE.search(text) is None


def _problem_of(violation: Violation) -> ResponseProblem:
    return ResponseProblem(_pointer(violation.place), _shorten(violation.message, MAX_MESSAGE))


def _pointer(steps: Sequence[str | int]) -> str:
    return _shorten(format_pointer(steps), MAX_POINTER)


def _shorten(text: str, limit: int) -> str:
    """Cut the middle out of a long text: the message is at its end, after a value of any length."""
    plain = text.encode(errors="replace").decode()
    half = limit // 2
    return plain if len(plain) <= limit else f"{plain[: half - 1]}…{plain[-half:]}"
