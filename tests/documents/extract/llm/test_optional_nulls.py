"""Nulls that only mean "absent" are dropped; nulls that the schema accepts stay."""

from typing import Any

import pytest

from penstock.documents.extract.llm.optional_nulls import drop_optional_nulls

TEXT = {"type": "string"}
MAYBE = {"type": ["string", "null"]}


def record(*, required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def test_the_null_of_an_optional_property_is_dropped():
    schema = record(a=TEXT, b=MAYBE, c=TEXT, required=("c",))
    assert drop_optional_nulls({"a": None, "b": None, "c": None}, schema) == {"b": None, "c": None}


def test_values_stay_as_they_are():
    schema = record(a=TEXT, n={"type": "number"})
    assert drop_optional_nulls({"a": "", "n": 0}, schema) == {"a": "", "n": 0}


def test_nulls_are_dropped_inside_objects_and_arrays():
    schema = record(o=record(a=TEXT), rows={"type": "array", "items": record(a=TEXT, b=MAYBE)})
    value = {"o": {"a": None}, "rows": [{"a": None, "b": None}, {"a": "x"}]}
    assert drop_optional_nulls(value, schema) == {"o": {}, "rows": [{"b": None}, {"a": "x"}]}


@pytest.mark.parametrize(
    "text",
    [
        {"$ref": "#/$defs/text"},
        {"allOf": [{"$ref": "#/$defs/text"}]},
        {"anyOf": [{"$ref": "#/$defs/text"}, {"type": "number"}]},
        {"enum": ["a", "b"]},
        {"const": "a"},
        {"oneOf": [TEXT, {"type": "array", "items": TEXT}]},
        False,
    ],
)
def test_a_null_is_dropped_wherever_the_schema_is_defined(text: Any):
    schema = {**record(a=text), "$defs": {"text": TEXT}}
    assert drop_optional_nulls({"a": None}, schema) == {}


@pytest.mark.parametrize(
    "text",
    [
        {"$ref": "#/$defs/maybe"},
        {"anyOf": [TEXT, {"type": "null"}]},
        {"oneOf": [{"$ref": "#/$defs/maybe"}, {"type": "number"}]},
        {"enum": ["a", None]},
        {"const": None},
        {},
        True,
        {"$ref": "#anchor"},
    ],
)
def test_a_null_that_the_schema_accepts_stays(text: Any):
    schema = {**record(a=text), "$defs": {"maybe": MAYBE}}
    assert drop_optional_nulls({"a": None}, schema) == {"a": None}


def test_a_branch_is_chosen_by_its_values():
    letter = record(kind={"const": "letter"}, to=TEXT, required=("kind",))
    note = record(kind={"const": "note"}, to=MAYBE, required=("kind", "to"))
    schema = record(it={"anyOf": [letter, note]})
    assert drop_optional_nulls({"it": {"kind": "letter", "to": None}}, schema) == {"it": {"kind": "letter"}}
    assert drop_optional_nulls({"it": {"kind": "note", "to": None}}, schema) == {"it": {"kind": "note", "to": None}}


def test_unknown_names_follow_additional_properties():
    schema = {"type": "object", "additionalProperties": TEXT}
    assert drop_optional_nulls({"a": None, "b": "x"}, schema) == {"b": "x"}
    assert drop_optional_nulls({"a": None}, {"type": "object"}) == {"a": None}


def test_prefix_items_follow_their_own_schema():
    schema = record(t={"type": "array", "prefixItems": [record(a=TEXT)], "items": record(a=MAYBE)})
    assert drop_optional_nulls({"t": [{"a": None}, {"a": None}]}, schema) == {"t": [{}, {"a": None}]}


def test_a_recursive_schema_terminates():
    schema = {**record(a=TEXT, child={"$ref": "#"}), "allOf": [{"$ref": "#"}], "anyOf": [{"$ref": "#"}]}
    value: Any = {"a": None}
    for _ in range(60):
        value = {"a": None, "child": value}
    slim = drop_optional_nulls(value, schema)
    for _ in range(60):
        assert "a" not in slim
        slim = slim["child"]
