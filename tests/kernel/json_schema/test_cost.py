"""Which schemas may be applied in this process."""

from typing import Any

import msgspec
import pytest

from penstock.kernel.json_schema.cost import MAX_BYTES, MAX_DEPTH, find_schema_problem
from penstock.kernel.json_schema.validation import masked_validator

PERSON = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://example.com/person",
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string", "pattern": "^[a-z]+$"}, "ages": {"items": {"$ref": "#/$defs/age~1s"}}},
    "$defs": {"age/s": {"type": "integer", "minimum": 0}},
}


def _nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def _doubling(levels: int) -> dict[str, Any]:
    """Each definition references the next one many times."""
    many = {f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 20} for level in range(levels)}
    return {"$defs": {**many, f"d{levels}": {"type": "integer"}}, "$ref": "#/$defs/d0"}


def _unevaluated(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"allOf": [schema], "unevaluatedProperties": False}
    return schema


def _hidden_loop() -> dict[str, Any]:
    """The validator decodes %2F before it splits a reference, so this one leads to `a` and `b`, not to `a/b`."""
    step = {"$ref": "#/$defs/a%2Fb"}
    return {"$defs": {"a/b": {}, "a": {"b": {"properties": {"x": step, "y": step}}}}, "items": step}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("no such type", {"type": "strin"}, "not a valid JSON Schema"),
    ("no such form", {"properties": 5}, "not a valid JSON Schema"),
    ("an older draft", {"$schema": "http://json-schema.org/draft-07/schema#"}, "only https://json-schema.org"),
    ("a remote reference", {"items": {"$ref": "https://example.com/a.json"}}, "into the schema itself"),
    ("a file", {"$ref": "file:///etc/hostname"}, "into the schema itself"),
    ("a relative reference", {"$ref": "other.json"}, "into the schema itself"),
    ("a reference by anchor", {"$ref": "#there"}, "into the schema itself"),
    ("a reference to nothing", {"$ref": "#/$defs/missing"}, "has no target"),
    ("a loop", {"$ref": "#"}, "is recursive"),
    ("a tree", {"properties": {"children": {"items": {"$ref": "#"}}}}, "is recursive"),
    ("a loop behind an escape", _hidden_loop(), "is recursive"),
    ("a longer loop", {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "is recursive"),
    ("a dynamic reference", {"$dynamicRef": "#x", "$dynamicAnchor": "x"}, "are not supported"),
    ("an inner id", {"items": {"$id": "https://example.com/inner"}}, "only the root schema"),
    ("too long", {"description": "x" * MAX_BYTES}, "longer than"),
    ("too deep", _nested(MAX_DEPTH), "deep"),
    ("too much by references", _doubling(4), "rules"),
    ("too much by what is unevaluated", _unevaluated(9), "rules"),
    ("too many patterns", {"properties": {f"p{n}": {"pattern": "^[a-z]{30}$"} for n in range(300)}}, "rules"),
    ("a pattern that looks around", {"pattern": "(?=a)b"}, "regex"),
    ("a pattern that grows", {"pattern": "(a{1000}){1000}"}, "regex"),
]


@pytest.mark.parametrize(("schema", "why"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_harmful_schema_is_rejected(schema: dict[str, Any], why: str) -> None:
    assert why in (find_schema_problem(schema) or "")


@pytest.mark.parametrize(
    "schema",
    [{}, PERSON, _nested(MAX_DEPTH - 2), _doubling(2), {"properties": {"$ref": {}, "$id": {}, "$anchor": {}}}],
    ids=["anything", "a person", "as deep as may be", "shared definitions", "fields with such names"],
)
def test_a_plain_schema_is_taken(schema: dict[str, Any]) -> None:
    assert find_schema_problem(schema) is None


def test_a_pattern_that_would_hang_elsewhere_takes_no_time() -> None:
    schema = {"pattern": "^(a+)+$"}
    assert find_schema_problem(schema) is None
    assert masked_validator(msgspec.json.encode(schema)).find_violation("a" * 500_000 + "b") is not None
