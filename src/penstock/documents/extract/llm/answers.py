"""Reading an answer: text in, a verdict out. This is the function that runs in the sandbox.

Of several JSON objects in an answer the first one counts that satisfies the schema. Half JSON is mended only when no
whole object will do, and the verdict says so. Whatever else is wrong is a problem in words that the model can be shown:
an answer never raises anything.
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
import jsonschema_rs
import msgspec

from penstock.documents.extract.fields.schema import escaped
from penstock.documents.extract.llm.absent import without_absent
from penstock.documents.extract.llm.pieces import MOST_DEPTH, Piece, pieces_of, without_thoughts
from penstock.documents.json_schema import bounded_validator
from penstock.kernel.plain import Plain

MOST_BYTES = 8 * 1024 * 1024
MOST_MENDED = 200_000  # characters of one answer; mending them takes seconds
MOST_PROBLEMS = 20
MOST_MESSAGE = 300
MOST_POINTER = 300
MOST_WHOLE = 2**63 - 1
MOST_DIGITS = 19  # of such a number
UNKEPT = re.compile("[\0\ud800-\udfff]")  # NUL, which no database takes, and halves of characters

Way: TypeAlias = "tuple[Way, str | int] | None"  # the last step and what was before it, so that steps are shared


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with an answer, and where. The pointer is a JSON Pointer into the answer."""

    pointer: str
    message: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value that satisfies the schema, or the problems of what was said instead, or why nobody can tell."""

    value: Any = None
    problems: tuple[Problem, ...] = ()
    mended: bool = False  # it was half JSON, so its end may be missing
    flaw: str | None = None  # of the schema, which no answer could satisfy

    @property
    def holds(self) -> bool:
        """Whether there is a value."""
        return not self.problems and self.flaw is None


def read_answer(file: BinaryIO, schema_json: bytes) -> Verdict:
    """The verdict on an answer, which is given as a file."""
    said = file.read(MOST_BYTES + 1)
    if len(said) > MOST_BYTES:
        return _refused(f"the answer is longer than {MOST_BYTES} bytes")
    schema = msgspec.json.decode(schema_json)
    try:
        judge = _Judge(schema=schema, validator=bounded_validator(schema))
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        return Verdict(flaw=_shown(str(error), MOST_MESSAGE))
    return _read(said.decode(errors="replace"), judge)


def _read(text: str, judge: "_Judge") -> Verdict:
    whole = _parsed(text)
    if isinstance(whole, list) and len(whole) == 1:
        whole = whole[0]
    if isinstance(whole, dict):
        return judge.verdict(whole)
    if isinstance(whole, list):
        return _refused("the answer is an array; one JSON object is wanted")
    pieces = list(pieces_of(without_thoughts(text)))
    if not pieces:
        return _refused("there is no JSON object in the answer")
    verdicts = list(_verdicts(pieces, judge))
    return min(verdicts, key=_rank) if verdicts else _refused("the JSON in the answer is broken")


def _verdicts(pieces: list[Piece], judge: "_Judge") -> Iterator[Verdict]:
    """One for each piece; those of mended ones only when none of the others holds."""
    broken: list[Piece] = []
    good = False
    for piece in pieces:
        if piece.is_too_deep:
            yield _refused(f"the answer is nested more than {MOST_DEPTH} deep")
        elif isinstance(value := _parsed(piece.text), dict):
            verdict = judge.verdict(value)
            good |= verdict.holds
            yield verdict
        else:
            broken.append(piece)
    for value in () if good else _mended(broken):
        verdict = judge.verdict(value)
        yield msgspec.structs.replace(verdict, mended=verdict.holds)


def _rank(verdict: Verdict) -> tuple[bool, bool, int]:
    """What holds before what does not, something before nothing, few problems before many."""
    return not verdict.holds, not verdict.value, len(verdict.problems)


def _refused(message: str) -> Verdict:
    return Verdict(problems=(Problem("", _shown(message, MOST_MESSAGE)),))


class _Repeated(dict[str, Any]):
    """An object in which a name stands twice."""

    names: tuple[str, ...] = ()


class _NoNumber:
    """NaN and its kin, and numbers that nobody could keep."""


def _parsed(text: str) -> Any:
    """What a text is as JSON; itself when it is none. What JSON should not have is marked, to be told."""
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_number, parse_int=_whole_number)
    except RecursionError:
        return _nest(MOST_DEPTH + 1)  # it is told what is wrong with it like any other
    except ValueError:
        return text


def _nest(depth: int) -> Plain:
    made: Plain = {}
    for _ in range(depth):
        made = {"": made}
    return made


def _object(pairs: list[tuple[str, Any]]) -> Plain:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    repeated = _Repeated(made)
    repeated.names = tuple(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
    return repeated


def _no_number(_: str) -> _NoNumber:
    return _NoNumber()


def _whole_number(digits: str) -> int | _NoNumber:
    return int(digits) if len(digits.lstrip("-")) <= MOST_DIGITS else _NoNumber()


def _mended(pieces: list[Piece]) -> Iterator[Plain]:
    """Half JSON made whole. What comes out may be anything, a list and an empty text included; objects are wanted."""
    left = MOST_MENDED
    for piece in pieces:
        left -= len(piece.text)
        if left < 0:
            return
        try:
            made = json_repair.loads(piece.text)
        except Exception:  # noqa: BLE001, S112  (others' code on others' text: whatever it raises, this is no JSON)
            continue
        if isinstance(made, dict):
            yield made


@dataclass(frozen=True, kw_only=True)
class _Judge:
    """What a value is held against."""

    schema: Plain
    validator: jsonschema_rs.Validator

    def verdict(self, value: Plain) -> Verdict:
        checks: tuple[Callable[[Plain], Iterator[Problem]], ...] = (_flaws, self._echoes)
        for check in checks:
            problems = tuple(islice(check(value), MOST_PROBLEMS))
            if problems:
                return Verdict(problems=problems)
        if self.validator.is_valid(value):
            return Verdict(value=value)
        slim = without_absent(value, self.schema)
        problems = tuple(map(_told, islice(self.validator.iter_errors(slim), MOST_PROBLEMS)))
        return Verdict(problems=problems) if problems else Verdict(value=slim)

    def _echoes(self, value: Plain) -> Iterator[Problem]:
        """Weak models give the schema back, which a schema that requires nothing would take."""
        own = self.schema.get("properties", {})
        given = value.get("properties")
        alike = isinstance(given, dict) and "properties" not in own and bool(given.keys() & own.keys())
        if alike or (value and value == self.schema):
            yield Problem("", "the answer is the schema itself; values of the document are wanted")


def _flaws(value: Any) -> Iterator[Problem]:
    """What no schema is asked about: depth, names that stand twice, numbers and characters that cannot be kept."""
    waiting: list[tuple[Any, Way, int]] = [(value, None, 0)]
    while waiting:
        part, way, depth = waiting.pop()
        if depth > MOST_DEPTH:
            yield Problem("", f"the answer is nested more than {MOST_DEPTH} deep")
            return
        if flaw := _flaw(part):
            yield Problem(_pointer(_steps(way)), flaw)
        inner = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        waiting += ((value, (way, step), depth + 1) for step, value in inner)


def _steps(way: Way) -> list[str | int]:
    steps: list[str | int] = []
    while way is not None:
        way, step = way
        steps.append(step)
    return steps[::-1]


def _flaw(part: Any) -> str | None:
    if isinstance(part, _Repeated):
        return f"these names stand in it more than once: {_shown(', '.join(part.names), MOST_MESSAGE)}"
    if isinstance(part, dict) and not all(isinstance(name, str) and _can_be_kept(name) for name in part):
        return "a name in it has characters that cannot be kept"
    if isinstance(part, str) and not _can_be_kept(part):
        return "the text has characters that cannot be kept"
    if isinstance(part, _NoNumber) or (isinstance(part, float) and not math.isfinite(part)):
        return "this is no number that can be kept"
    if isinstance(part, int) and abs(part) > MOST_WHOLE:
        return "the number is too large to be kept"
    return None


def _can_be_kept(text: str) -> bool:
    return UNKEPT.search(text) is None


def _told(error: jsonschema_rs.ValidationError) -> Problem:
    return Problem(_pointer(error.instance_path), _shown(error.message, MOST_MESSAGE))


def _pointer(steps: Sequence[str | int]) -> str:
    return _shown("".join(f"/{escaped(str(step))}" for step in steps), MOST_POINTER)


def _shown(text: str, most: int) -> str:
    """A text that is not too long. What is wrong stands at its end, behind a value that may be endless."""
    plain = text.encode(errors="replace").decode()
    half = most // 2
    return plain if len(plain) <= most else f"{plain[: half - 1]}…{plain[-half:]}"
