"""The strict and the relaxed variant of a schema."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.documents.extract.llm.schema_variants import MAX_DEPTH, relaxed_schema, strict_schema
from penstock.etl.rule_validation import MAX_SCHEMA_BYTES
from penstock.kernel.json_schema.validation import compile_schema

TEXT = {"type": "string"}
KNOWN = {"type", "properties", "required", "additionalProperties", "items", "enum", "anyOf", "title", "description"}
INVOICE = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://example.com/invoice",
    "type": "object",
    "title": "An invoice",
    "required": ["number", "seller"],
    "properties": {
        "number": {"type": "string", "minLength": 1, "pattern": "^A", "description": "As printed."},
        "date": {"type": "string", "format": "date"},
        "currency": {"enum": ["EUR", "CNY"], "default": "EUR"},
        "paid": {"type": ["boolean", "null"]},
        "kind": {"const": "invoice"},
        "seller": {"$ref": "#/$defs/party"},
        "buyer": {"allOf": [{"$ref": "#/$defs/party"}], "description": "Who pays."},
        "amount": {"oneOf": [{"type": "number", "minimum": 0}, {"type": "string"}]},
        "items": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/item"}},
    },
    "$defs": {
        "party": {"type": "object", "required": ["name"], "properties": {"name": TEXT, "city": TEXT}},
        "item": {"type": "object", "properties": {"name": TEXT, "price": {"type": "number"}}},
    },
}


def record(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def copied(schema: Any) -> dict[str, Any]:
    result = strict_schema(schema)
    assert result is not None
    return result


def schemas_in(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    held = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    for inner in [*held, *([schema["items"]] if "items" in schema else [])]:
        yield from schemas_in(inner)


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = record(a=TEXT)
    for _ in range(depth):
        schema = record(a=schema)
    return schema


class TestStrict:
    def test_every_object_lists_all_its_properties(self):
        for schema in schemas_in(copied(INVOICE)):
            assert schema.keys() <= KNOWN
            if schema.get("type") == "object":
                assert schema["required"] == list(schema["properties"])
                assert schema["additionalProperties"] is False

    def test_optional_properties_are_nullable_and_required_ones_are_not(self):
        result = compile_schema(copied(INVOICE))
        value = {
            "number": "A-1",
            "date": None,
            "currency": None,
            "paid": None,
            "kind": None,
            "seller": {"name": "Mill", "city": None},
            "buyer": None,
            "amount": 3,
            "items": [{"name": "x", "price": None}],
        }
        assert result.is_valid(value)
        assert not result.is_valid({**value, "number": None})
        assert not result.is_valid({**value, "currency": "USD"})
        assert not result.is_valid({**value, "seller": {"name": "Mill"}})
        assert not result.is_valid({**value, "more": 1})

    def test_titles_and_descriptions_stay(self):
        properties = copied(INVOICE)["properties"]
        assert properties["number"] == {"type": "string", "description": "As printed."}
        assert properties["buyer"]["description"] == "Who pays."

    def test_nullable_properties_are_not_made_nullable_twice(self):
        assert copied(record(a={"type": ["string", "null"]}))["properties"]["a"] == {"type": ["string", "null"]}
        assert copied(record(a={"enum": ["x", None]}))["properties"]["a"]["enum"] == ["x", None]

    def test_keywords_beside_branches_apply_to_each(self):
        schema = record(a={**record(x=TEXT, y=TEXT), "anyOf": [{"required": ["x"]}, {"required": ["y"]}]})
        *ways, null = copied(schema)["properties"]["a"]["anyOf"]
        assert [list(way["properties"]) for way in ways] == [["x", "y"], ["x", "y"]]
        assert null == {"type": "null"}

    def test_a_reference_at_the_root_is_resolved(self):
        schema = {"type": "object", "$ref": "#/$defs/r", "$defs": {"r": record(a=TEXT)}}
        assert list(copied(schema)["properties"]) == ["a"]

    def test_a_property_may_be_called_like_a_keyword(self):
        assert list(copied(record(required=TEXT, properties=TEXT))["properties"]) == ["required", "properties"]

    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "string"},
            {"type": "object"},
            {"anyOf": [record(a=TEXT), record(b=TEXT)]},
            record(a={}),
            record(a=True),
            record(a={"type": "object"}),
            record(a={"type": "object", "additionalProperties": TEXT}),
            record(a={"type": "array"}),
            record(a={"type": "array", "prefixItems": [TEXT]}),
            record(a={"type": "object", "patternProperties": {"^a": TEXT}}),
            record(a={"not": TEXT}),
            record(a={"allOf": [TEXT, {"type": "number"}]}),
            record(a={"$ref": "#"}),
            record(a={"$ref": "#/nowhere"}),
            record(a={"$ref": "#anchor"}),
            record(a={"$id": "x", **record(b=TEXT)}),
            record(a={"enum": [{"b": 1}]}),
            record(a={"enum": []}),
            record(a={"type": "text"}),
            record(a={"enum": [str(number) for number in range(1001)]}),
            record(**{f"p{number}": TEXT for number in range(5001)}),
            {**record(a=TEXT), "required": ["b"]},
            nested(MAX_DEPTH),
        ],
    )
    def test_a_schema_outside_the_subset_has_no_strict_variant(self, schema: dict[str, Any]):
        assert strict_schema(schema) is None

    def test_references_that_multiply_are_bounded(self):
        double = {
            f"d{at}": record(a={"$ref": f"#/$defs/d{at + 1}"}, b={"$ref": f"#/$defs/d{at + 1}"}) for at in range(40)
        }
        assert strict_schema({**record(a={"$ref": "#/$defs/d0"}), "$defs": {**double, "d40": TEXT}}) is None
        wide = {f"w{at}": {"anyOf": [{"$ref": f"#/$defs/w{at + 1}"}] * 9} for at in range(9)}
        assert strict_schema({**record(a={"$ref": "#/$defs/w0"}), "$defs": {**wide, "w9": TEXT}}) is None

    def test_combined_references_that_multiply_are_bounded(self):
        many = {f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 200} for at in range(4)}
        assert strict_schema({**record(a={"$ref": "#/$defs/d0"}), "$defs": {**many, "d4": TEXT}}) is None

    def test_a_recursive_schema_has_no_strict_variant(self):
        ring = {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}
        assert strict_schema({**record(a={"$ref": "#/$defs/a"}), "$defs": ring}) is None

    def test_the_largest_schema_of_a_rule_is_converted_quickly(self):
        count = MAX_SCHEMA_BYTES // len('"p1000":{"type":"string"},')
        assert len(copied(record(**{f"p{at}": TEXT for at in range(count)}))["properties"]) == count


class TestRelaxed:
    def test_nothing_is_required_anywhere(self):
        result = compile_schema(relaxed_schema(INVOICE))
        partial: list[Any] = [{}, {"seller": {}}, {"items": []}, {"items": [{}]}, {"amount": 3}]
        for value in partial:
            assert result.is_valid(value)
            assert not compile_schema(INVOICE).is_valid(value)

    def test_existing_values_are_still_validated(self):
        result = compile_schema(relaxed_schema(INVOICE))
        for value in ({"number": 4}, {"currency": "USD"}, {"items": [{"price": "much"}]}, {"seller": {"name": 1}}):
            assert not result.is_valid(value)

    def test_keywords_of_the_whole_value_are_dropped(self):
        schema = {
            **record(a=TEXT, b={"type": "array", "contains": {"const": 1}}),
            "minProperties": 2,
            "dependentRequired": {"a": ["b"]},
            "if": {"required": ["a"]},
            "then": {"required": ["b"]},
            "not": {"maxProperties": 1},
        }
        assert compile_schema(relaxed_schema(schema)).is_valid({"a": "x"})
        assert compile_schema(relaxed_schema(schema)).is_valid({"b": []})

    def test_branches_may_overlap(self):
        schema = record(a={"oneOf": [{**record(x=TEXT), "required": ["x"]}, {**record(y=TEXT), "required": ["y"]}]})
        assert compile_schema(relaxed_schema(schema)).is_valid({"a": {}})

    def test_a_property_called_required_stays(self):
        assert relaxed_schema(record(required=TEXT, items=TEXT)) == record(required=TEXT, items=TEXT)

    def test_the_original_is_unchanged(self):
        before = repr(INVOICE)
        relaxed_schema(INVOICE)
        assert repr(INVOICE) == before
