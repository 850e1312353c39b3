"""Walks through a schema: which pointers it covers; recursive references end."""

from typing import Any

import pytest

from penstock.kernel.json_schema.pointers import parse_pointer
from penstock.kernel.json_schema.walk import schema_covers

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]},
        "rows": {"type": "array", "items": {"properties": {"x": True}}},
        "pair": {"prefixItems": [{"properties": {"first": {}}}]},
        "by_name": {"additionalProperties": {"properties": {"age": {}}}},
        "open": {"type": "object"},
    },
    "$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}, "n/m": {}}}},
    "if": {},
    "then": {"properties": {"late": {}}},
}


@pytest.mark.parametrize(
    ("pointer", "is_known"),
    [
        ("/a", True), ("/a/next/next/n~1m", True), ("/a/other", False), ("/rows/3/x", True), ("/rows/3/y", False),
        ("/pair/0/first", True), ("/by_name/ann/age", True), ("/by_name/ann/size", False), ("/open/x", False),
        ("/late", True), ("/b", False), ("", True),
    ],
)  # fmt: skip
def test_a_schema_knows_what_it_speaks_of_on_any_branch(pointer: str, is_known: bool):
    assert schema_covers(SCHEMA, parse_pointer(pointer)) is is_known


def test_references_that_go_round_or_nowhere_end():
    looped = {"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#/$defs/a"}]}}}
    assert not schema_covers(looped, ("x",))
    assert not schema_covers({"$ref": "#/$defs/none"}, ("x",))
