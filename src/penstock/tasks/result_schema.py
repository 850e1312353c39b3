"""The JSON Schema that a task's result must fit: which schemas are taken, and whether a result fits.

A schema comes from outside and is run against what comes from outside, so it is bounded before it is kept. Nothing is
ever fetched: a `$ref` leads into the schema itself. Patterns are Rust's, which take a time that grows only with the
text. A `$ref` may not lead to itself: two of them at one level would double the work with each level of a result.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import jsonschema_rs
import msgspec

from penstock.tasks.errors import BadTask

DRAFT = "https://json-schema.org/draft/2020-12/schema"
MOST_BYTES = 65_536
MOST_DEPTH = 32
MOST_WEIGHT = 5_000  # objects that a value may have to be held against
PATTERN_WEIGHT = 20  # a pattern is made ready each time, which takes as long as this many plain rules
UNEVALUATED_WEIGHT = 3  # what stands under such a word is gone through as many times
PATTERN_BYTES = 100_000  # of memory, for one pattern
MOST_REASON = 200
UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
ELSEWHERE = ("$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor")


class _Flaw(Exception):
    """Why a schema is not taken."""


def flaw_of(schema: Mapping[str, Any]) -> str | None:
    """Why a schema is not taken, or None when it is."""
    try:
        _check(schema)
        _validator(msgspec.json.encode(schema))
    except _Flaw as flaw:
        return str(flaw)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        return f"it is no JSON Schema: {error.message}"[:MOST_REASON]
    return None


def misfit_of(schema: Mapping[str, Any], result: object) -> str | None:
    """Where a result does not fit a schema that was taken, or None when it fits. What was sent is not repeated."""
    try:
        _validator(msgspec.json.encode(schema)).validate(result)
    except jsonschema_rs.ValidationError as error:
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
        return f"{place.lstrip('.') or 'the result'}: {error.message}"[:MOST_REASON]
    return None


def refuse_misfit(schema: Mapping[str, Any] | None, result: object, *, field: str = "result") -> None:
    """Hold a result against the schema of its task, if it has one."""
    misfit = None if schema is None else misfit_of(schema, result)
    if misfit is not None:
        raise BadTask(field=field, reason=misfit, reason_zh=f"不符合 result_schema：{misfit}")


@lru_cache(maxsize=64)  # a push may bring thousands of results for one schema
def _validator(schema: bytes) -> jsonschema_rs.Draft202012Validator:
    patterns = jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES, dfa_size_limit=PATTERN_BYTES)
    known = msgspec.json.decode(schema)
    return jsonschema_rs.Draft202012Validator(known, pattern_options=patterns, offline=True, mask="it")


def _check(schema: Mapping[str, Any]) -> None:
    if len(msgspec.json.encode(schema)) > MOST_BYTES:
        raise _Flaw(f"it is longer than {MOST_BYTES} bytes")
    if str(schema.get("$schema", DRAFT)).rstrip("#") != DRAFT:
        raise _Flaw(f"only {DRAFT} is taken")
    weight, _ = _Scale(schema).weigh(schema)
    if weight > MOST_WEIGHT:
        raise _Flaw(f"it comes to more than {MOST_WEIGHT} rules, counted once for each way that leads to them")


@dataclass
class _Scale:
    """Weighs a schema with everything that its references lead to. Whatever looks like a schema is taken for one."""

    root: Mapping[str, Any]
    _known: dict[int, tuple[int, int]] = field(default_factory=dict)  # weight and height
    _open: set[int] = field(default_factory=set)

    def weigh(self, part: Any, depth: int = 0) -> tuple[int, int]:
        """How many rules a value may have to be held against, and how deep they go."""
        if not isinstance(part, dict | list):
            return 0, 0
        if id(part) in self._open:
            raise _Flaw("a $ref leads to itself")
        weight, height = self._known.get(id(part), (0, 1))
        if depth + height > MOST_DEPTH:
            raise _Flaw(f"it is nested more than {MOST_DEPTH} deep, references counted")
        if not weight:
            self._open.add(id(part))
            inner = [self.weigh(one, depth + 1) for one in self._inside(part)]
            self._open.discard(id(part))
            weight = _own_weight(part) + _times(part) * sum(one for one, _ in inner)
            height = 1 + max((one for _, one in inner), default=0)
            self._known[id(part)] = weight, height
        return weight, height

    def _inside(self, part: dict[str, Any] | list[Any]) -> Iterator[Any]:
        if isinstance(part, list):
            yield from part
            return
        if any(isinstance(part.get(word), str) for word in ELSEWHERE):
            raise _Flaw(f"{', '.join(ELSEWHERE)} are not taken")
        if isinstance(part.get("$id"), str) and part is not self.root:
            raise _Flaw("only the schema as a whole may have an $id")
        yield from part.values()
        if isinstance(part.get("$ref"), str):
            yield self._target(part["$ref"])

    def _target(self, reference: str) -> Any:
        """What a reference means; the names on its way may be escaped in two ways."""
        start, *names = reference.split("/")
        if start != "#":
            raise _Flaw("a $ref may only lead into the schema itself, as #/$defs/name does")
        found: Any = self.root
        for name in names:
            name = unquote(name).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            elif isinstance(found, dict) and name in found:
                found = found[name]
            else:
                raise _Flaw("a $ref leads nowhere")
        return found


def _own_weight(part: dict[str, Any] | list[Any]) -> int:
    if isinstance(part, list):
        return 1
    patterns = part.get("patternProperties")
    count = isinstance(part.get("pattern"), str) + (len(patterns) if isinstance(patterns, dict) else 0)
    return 1 + PATTERN_WEIGHT * count


def _times(part: dict[str, Any] | list[Any]) -> int:
    return UNEVALUATED_WEIGHT if isinstance(part, dict) and any(word in part for word in UNEVALUATED) else 1
