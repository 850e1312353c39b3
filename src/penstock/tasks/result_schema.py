"""The JSON Schema (`result_schema`) of a task: which schemas are accepted; a result is validated against it.

Schemas and results are user input, so a schema is bounded before it is stored. Nothing is fetched: a `$ref` must point
into the schema itself. Patterns use Rust's regex engine, which runs in linear time. A `$ref` must not be recursive: two
of them at one level would double the work with each level of a result.
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
MAX_BYTES = 65_536
MAX_DEPTH = 32
MAX_WEIGHT = 5_000  # subschemas that a value may have to be validated against
PATTERN_WEIGHT = 20  # a pattern is compiled each time, which takes as long as this many plain rules
UNEVALUATED_WEIGHT = 3  # a subschema under these keywords is evaluated this many times
PATTERN_BYTES = 100_000  # memory of one compiled pattern
MAX_REASON_LENGTH = 200
UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
UNSUPPORTED = ("$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor")


class SchemaProblem(Exception):
    """Why a schema is rejected."""


def find_schema_problem(schema: Mapping[str, Any]) -> str | None:
    """Why a schema is rejected, or None if it is accepted."""
    try:
        _check(schema)
        _validator(msgspec.json.encode(schema))
    except SchemaProblem as flaw:
        return str(flaw)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        return f"not a valid JSON Schema: {error.message}"[:MAX_REASON_LENGTH]
    return None


def find_result_problem(schema: Mapping[str, Any], result: object) -> str | None:
    """Where a result violates an accepted schema, or None if it is valid. The result itself is not quoted."""
    try:
        _validator(msgspec.json.encode(schema)).validate(result)
    except jsonschema_rs.ValidationError as error:
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
        return f"{path.lstrip('.') or 'the result'}: {error.message}"[:MAX_REASON_LENGTH]
    return None


def validate_result(schema: Mapping[str, Any] | None, result: object, *, field: str = "result") -> None:
    """Validate a result against the schema of its task, if it has one. Raises `BadTask`."""
    problem = None if schema is None else find_result_problem(schema, result)
    if problem is not None:
        raise BadTask(field=field, reason=problem, reason_zh=f"不符合 result_schema：{problem}")


@lru_cache(maxsize=64)  # a push may have thousands of results for one schema
def _validator(schema: bytes) -> jsonschema_rs.Draft202012Validator:
    patterns = jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES, dfa_size_limit=PATTERN_BYTES)
    known = msgspec.json.decode(schema)
    return jsonschema_rs.Draft202012Validator(known, pattern_options=patterns, offline=True, mask="it")


def _check(schema: Mapping[str, Any]) -> None:
    if len(msgspec.json.encode(schema)) > MAX_BYTES:
        raise SchemaProblem(f"longer than {MAX_BYTES} bytes")
    if str(schema.get("$schema", DRAFT)).rstrip("#") != DRAFT:
        raise SchemaProblem(f"only {DRAFT} is supported")
    weight, _ = _SchemaWeight(schema).weigh(schema)
    if weight > MAX_WEIGHT:
        raise SchemaProblem(f"more than {MAX_WEIGHT} rules, counted once per path that leads to them")


@dataclass
class _SchemaWeight:
    """Computes the weight of a schema with everything it references. Anything that looks like a schema counts."""

    root: Mapping[str, Any]
    _known: dict[int, tuple[int, int]] = field(default_factory=dict)  # weight and height
    _visiting: set[int] = field(default_factory=set)

    def weigh(self, part: Any, depth: int = 0) -> tuple[int, int]:
        """How many rules a value may have to be validated against, and their depth."""
        if not isinstance(part, dict | list):
            return 0, 0
        if id(part) in self._visiting:
            raise SchemaProblem("a $ref is recursive")
        weight, height = self._known.get(id(part), (0, 1))
        if depth + height > MAX_DEPTH:
            raise SchemaProblem(f"nested more than {MAX_DEPTH} levels deep, including references")
        if not weight:
            self._visiting.add(id(part))
            inner = [self.weigh(one, depth + 1) for one in self._children(part)]
            self._visiting.discard(id(part))
            weight = _own_weight(part) + _evaluations(part) * sum(one for one, _ in inner)
            height = 1 + max((one for _, one in inner), default=0)
            self._known[id(part)] = weight, height
        return weight, height

    def _children(self, part: dict[str, Any] | list[Any]) -> Iterator[Any]:
        if isinstance(part, list):
            yield from part
            return
        if any(isinstance(part.get(keyword), str) for keyword in UNSUPPORTED):
            raise SchemaProblem(f"{', '.join(UNSUPPORTED)} are not supported")
        if isinstance(part.get("$id"), str) and part is not self.root:
            raise SchemaProblem("only the root schema may have an $id")
        yield from part.values()
        if isinstance(part.get("$ref"), str):
            yield self._target(part["$ref"])

    def _target(self, reference: str) -> Any:
        """The target of a reference; its steps may be URL-encoded and JSON-Pointer-escaped."""
        start, *names = reference.split("/")
        if start != "#":
            raise SchemaProblem("a $ref must point into the schema itself, as in #/$defs/name")
        found: Any = self.root
        for name in names:
            name = unquote(name).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            elif isinstance(found, dict) and name in found:
                found = found[name]
            else:
                raise SchemaProblem("a $ref has no target")
        return found


def _own_weight(part: dict[str, Any] | list[Any]) -> int:
    if isinstance(part, list):
        return 1
    patterns = part.get("patternProperties")
    count = isinstance(part.get("pattern"), str) + (len(patterns) if isinstance(patterns, dict) else 0)
    return 1 + PATTERN_WEIGHT * count


def _evaluations(part: dict[str, Any] | list[Any]) -> int:
    return UNEVALUATED_WEIGHT if isinstance(part, dict) and any(keyword in part for keyword in UNEVALUATED) else 1
