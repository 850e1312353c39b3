"""Whether a JSON Schema is cheap enough to be applied in this process, outside the sandbox.

Such a schema is bounded in size, depth and in the number of rules that a value may have to be validated against. A
`$ref` must not be recursive: two of them at one level would double the work with each level of a value.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.kernel.json_schema.pointers import ABSENT, resolve
from penstock.kernel.json_schema.validation import InvalidSchema, masked_validator
from penstock.kernel.json_schema.walk import Container, ref_tokens

DRAFT = "https://json-schema.org/draft/2020-12/schema"
MAX_BYTES = 65_536
MAX_DEPTH = 32
MAX_COST = 5_000  # subschemas that a value may have to be validated against
PATTERN_COST = 20  # a pattern is compiled each time, which takes as long as this many plain rules
UNEVALUATED_COST = 3  # a subschema under these keywords is evaluated this many times
MAX_REASON_LENGTH = 200
UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
UNSUPPORTED = ("$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor")


class CostlySchema(Exception):
    """Why a schema is rejected."""


def find_schema_problem(schema: Mapping[str, Any]) -> str | None:
    """Why a schema is rejected, or None if it is accepted."""
    try:
        encoded = msgspec.json.encode(schema)
        _check_cost(schema, len(encoded))
        masked_validator(encoded)
    except CostlySchema as problem:
        return str(problem)
    except InvalidSchema as error:
        return f"not a valid JSON Schema: {error.message}"[:MAX_REASON_LENGTH]
    return None


def _check_cost(schema: Mapping[str, Any], size_bytes: int) -> None:
    if size_bytes > MAX_BYTES:
        raise CostlySchema(f"longer than {MAX_BYTES} bytes")
    if str(schema.get("$schema", DRAFT)).rstrip("#") != DRAFT:
        raise CostlySchema(f"only {DRAFT} is supported")
    cost, _ = _SchemaCost(schema).measure(schema)
    if cost > MAX_COST:
        raise CostlySchema(f"more than {MAX_COST} rules, counted once per path that leads to them")


@dataclass
class _SchemaCost:
    """Computes the cost of a schema with everything it references. Anything that looks like a schema counts."""

    root: Mapping[str, Any]
    _known: dict[int, tuple[int, int]] = field(default_factory=dict)  # cost and height
    _visiting: set[int] = field(default_factory=set)

    def measure(self, part: Any, depth: int = 0) -> tuple[int, int]:
        """How many rules a value may have to be validated against, and their depth."""
        if not isinstance(part, dict | list):
            return 0, 0
        if id(part) in self._visiting:
            raise CostlySchema("a $ref is recursive")
        cost, height = self._known.get(id(part), (0, 1))
        if depth + height > MAX_DEPTH:
            raise CostlySchema(f"nested more than {MAX_DEPTH} levels deep, including references")
        if not cost:
            self._visiting.add(id(part))
            inner = [self.measure(one, depth + 1) for one in self._children(part)]
            self._visiting.discard(id(part))
            cost = _own_cost(part) + _evaluations(part) * sum(one for one, _ in inner)
            height = 1 + max((one for _, one in inner), default=0)
            self._known[id(part)] = cost, height
        return cost, height

    def _children(self, part: Container) -> Iterator[Any]:
        if isinstance(part, list):
            yield from part
            return
        if any(isinstance(part.get(keyword), str) for keyword in UNSUPPORTED):
            raise CostlySchema(f"{', '.join(UNSUPPORTED)} are not supported")
        if isinstance(part.get("$id"), str) and part is not self.root:
            raise CostlySchema("only the root schema may have an $id")
        yield from part.values()
        if isinstance(part.get("$ref"), str):
            yield self._target(part["$ref"])

    def _target(self, reference: str) -> Any:
        tokens = ref_tokens(reference)
        if tokens is None:
            raise CostlySchema("a $ref must point into the schema itself, as in #/$defs/name")
        target = resolve(self.root, tokens)
        if target is ABSENT:
            raise CostlySchema("a $ref has no target")
        return target


def _own_cost(part: Container) -> int:
    if isinstance(part, list):
        return 1
    patterns = part.get("patternProperties")
    count = isinstance(part.get("pattern"), str) + (len(patterns) if isinstance(patterns, dict) else 0)
    return 1 + PATTERN_COST * count


def _evaluations(part: Container) -> int:
    return UNEVALUATED_COST if isinstance(part, dict) and any(keyword in part for keyword in UNEVALUATED) else 1
