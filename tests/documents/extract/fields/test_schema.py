"""Which schemas are supported, and that none does harm."""

from typing import Any

import pytest

from tests.documents.extract.fields.fill import (
    DATE,
    NUMBER,
    TEXT,
    array,
    fill,
    find,
    lines,
    one,
    record,
    tabled,
    written,
)


class TestAReference:
    def test_into_the_schema_is_resolved(self):
        schema = {
            "type": "object",
            "properties": {"price": {"$ref": "#/$defs/money"}, "when": {"$ref": "#/definitions/a~1b%25"}},
            "$defs": {"money": NUMBER},
            "definitions": {"a/b%": DATE},
        }
        assert fill(schema, lines("Price: 5", "When: 2026-01-05")) == {"price": 5, "when": "2026-01-05"}

    def test_to_an_object_keeps_each_use_apart(self):
        party = {"title": "Party", **record(name=TEXT)}
        schema = {
            **record(seller={"$ref": "#/$defs/party"}, buyer={"$ref": "#/$defs/party"}),
            "$defs": {"party": party},
        }
        page = lines("Seller name: Ann", "Name of the buyer: Bob", "Name: Cy")
        assert fill(schema, page) == {"seller": {"name": "Ann"}, "buyer": {"name": "Bob"}}

    def test_to_itself_ends(self):
        schema = {
            "type": "object",
            "properties": {"name": TEXT, "self": {"$ref": "#"}, "children": {"type": "array", "items": {"$ref": "#"}}},
        }
        assert fill(schema, lines("Name: Ann")) == {"name": "Ann", "self": None, "children": []}

    def test_between_two_definitions_ends(self):
        schema = {
            **record(a={"$ref": "#/$defs/a"}),
            "$defs": {"a": record(b={"$ref": "#/$defs/b"}), "b": record(a={"$ref": "#/$defs/a"}, x=TEXT)},
        }
        assert fill(schema, lines("x: 1")) == {"a": {"b": {"a": None, "x": "1"}}}

    @pytest.mark.parametrize(
        "reference", ["https://example.com/s.json", "other.json#/x", "#/nowhere", "#anchor", "file:///etc/passwd"]
    )
    def test_to_elsewhere_is_rejected_and_not_fetched(self, reference: str):
        found = find(record(x={"$ref": reference}), lines("x: 1"))
        assert found.schema_error
        assert found.value is None


class TestSeveralSchemasAtOnce:
    def test_are_one(self):
        schema = {"allOf": [record(a=TEXT), {"properties": {"b": {"allOf": [NUMBER, {"maximum": 9}]}}}]}
        assert fill(schema, lines("a: 1", "b: 5")) == {"a": "1", "b": 5}
        assert fill(schema, lines("a: 1", "b: 50")) == {"a": "1", "b": None}

    def test_of_one_property_must_all_be_satisfied(self):
        schema = {"allOf": [record(a={"type": "integer"}), record(a={"minimum": 5})]}
        assert (fill(schema, lines("a: 4"))["a"], fill(schema, lines("a: 6"))["a"]) == (None, 6)

    def test_of_which_one_is_null_are_the_other(self):
        schema = record(
            seller={"anyOf": [record(name=TEXT), {"type": "null"}]},
            items={"anyOf": [array(sku=TEXT, price=NUMBER), {"type": "null"}]},
        )
        page = tabled(("SKU", "Price"), ("A1", "3"), before=["Seller name: Ann"])
        assert fill(schema, page) == {"seller": {"name": "Ann"}, "items": [{"sku": "A1", "price": 3}]}

    def test_as_alternatives_are_the_first_that_can_be_filled(self):
        person = {**record(surname=TEXT, born=DATE), "required": ["surname", "born"]}
        firm = {**record(company=TEXT, vat=TEXT), "required": ["company"]}
        schema = record(party={"oneOf": [person, firm, TEXT]})
        assert fill(schema, lines("Company: ACME", "Surname: Doe")) == {"party": {"company": "ACME", "vat": None}}
        assert fill(schema, lines("Surname: Doe")) == {"party": {"surname": "Doe", "born": None}}
        assert fill(schema, lines("Party: somebody")) == {"party": "somebody"}


class TestAnObject:
    SCHEMA = record(name=TEXT, seller=record(name=TEXT, vat=TEXT), buyer=record(name=TEXT))

    def test_is_filled_from_the_section_under_its_heading(self):
        page = written(
            "Name: Invoice 5\n\n# Seller\n\nName: Ann\n\nVAT: 5\n\n## Bank\n\nIBAN: 9\n\n# Buyer\n\nName: Bob"
        )
        assert fill(self.SCHEMA, *page) == {
            "name": "Invoice 5",
            "seller": {"name": "Ann", "vat": "5"},
            "buyer": {"name": "Bob"},
        }

    def test_is_filled_from_what_follows_its_name(self):
        assert fill(self.SCHEMA, lines("Seller:", "Name: Ann", "Buyer", "Name: Bob")) == {
            "name": None,
            "seller": {"name": "Ann", "vat": None},
            "buyer": {"name": "Bob"},
        }

    def test_continues_over_pages(self):
        pages = [lines("Seller"), lines("Name: Ann", number=2)]
        assert fill(self.SCHEMA, *pages)["seller"]["name"] == "Ann"

    def test_does_not_take_a_label_that_another_object_has(self):
        schema = record(seller=record(name=TEXT), buyer=record(name=TEXT))
        assert fill(schema, lines("Name: Ann")) == {"seller": {"name": None}, "buyer": {"name": None}}

    def test_takes_a_label_that_nothing_else_has(self):
        assert fill(self.SCHEMA, lines("VAT: 5"))["seller"] == {"name": None, "vat": "5"}

    def test_leaves_labels_that_it_does_not_have_to_others(self):
        schema = record(total=NUMBER, seller=record(name=TEXT))
        assert fill(schema, lines("Seller", "Name: Ann", "Total: 5")) == {"total": 5, "seller": {"name": "Ann"}}

    def test_may_be_nested(self):
        schema = record(a=record(b=record(c=record(depth=NUMBER))))
        assert fill(schema, lines("Depth: 3")) == {"a": {"b": {"c": {"depth": 3}}}}

    def test_label_may_be_split_between_a_heading_and_a_line(self):
        assert fill(record(invoice_number=TEXT), *written("# Invoice\n\nNumber: 5")) == {"invoice_number": "5"}


class TestAHostileSchema:
    def test_that_is_deep_is_rejected(self):
        schema: dict[str, Any] = dict(TEXT)
        for _ in range(100):
            schema = record(a=schema)
        assert find(schema, lines("a: 1")).schema_error == "it is nested more than 64 deep"

    def test_that_doubles_with_each_reference_is_rejected(self):
        names = [f"d{at}" for at in range(14)]
        links = {
            name: record(left={"$ref": f"#/$defs/{after}"}, right={"$ref": f"#/$defs/{after}"})
            for name, after in zip(names, [*names[1:], "end"], strict=True)
        }
        found = find({**record(x={"$ref": "#/$defs/d0"}), "$defs": {**links, "end": TEXT}}, lines("x: 1"))
        assert found.schema_error == "it has more than 5000 fields"

    def test_of_a_thousand_properties_is_filled(self):
        schema = record(**{f"field_{at}": {"type": "integer"} for at in range(1000)})
        filled = fill(schema, lines(*(f"Field {at}: {at}" for at in range(1000))))
        assert filled == {f"field_{at}": at for at in range(1000)}

    @pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|aa)+$(?<!b)", "(?=(a+))\\1+$b", "^(([a-z])+.)+[A-Z]([a-z])+$"])
    def test_with_catastrophic_backtracking_takes_no_time(self, pattern: str):
        assert one({"type": "string", "pattern": pattern}, "a" * 900 + "!") is None

    @pytest.mark.parametrize(
        "schema", [[], 5, None, {"type": 5}, record(x={"pattern": "("}), record(x={"properties": []}), {"$ref": "#"}]
    )
    def test_that_is_invalid_is_rejected_or_empty(self, schema: Any):
        found = find(schema, lines("x: 1"))
        assert found.schema_error or found.value is None

    def test_with_nested_ids_is_rejected(self):
        assert find(record(x={"$id": "https://example.com/x", **TEXT}), lines("x: 1")).schema_error
        assert fill({"$id": "https://example.com/x", **record(x=TEXT)}, lines("x: 1")) == {"x": "1"}


def test_the_schema_true_accepts_any_text_and_false_accepts_none():
    assert fill(record(a={}, b=True, c=False), lines("a: 1", "b: 2", "c: 3")) == {"a": "1", "b": "2", "c": None}


def test_older_drafts_are_accepted_and_unknown_ones_are_rejected():
    older = {"$schema": "http://json-schema.org/draft-07/schema#", **record(a={"$ref": "#/definitions/n"})}
    assert fill({**older, "definitions": {"n": NUMBER}}, lines("a: 1")) == {"a": 1}
    assert find({"$schema": "https://example.com/own", **record(a=TEXT)}, lines("a: 1")).schema_error


def test_labels_that_are_not_strings_are_ignored():
    assert fill(record(a={"x-labels": "b"}, c={"x-labels": [5, None, "d"]}), lines("b: 1", "d: 2")) == {
        "a": None,
        "c": "2",
    }


def test_the_root_may_be_an_array():
    schema = {"type": "array", "items": record(a=TEXT, b=TEXT)}
    found = find(schema, tabled(("A", "B"), ("1", "2")))
    assert found.value == [{"a": "1", "b": "2"}]
    assert [citation.pointer for citation in found.citations] == ["/0/a", "/0/b"]


def test_all_properties_are_in_the_result_of_an_empty_document():
    schema = record(a=TEXT, b=record(c=NUMBER), d=array(e=TEXT), f={"anyOf": [{"type": "null"}, DATE]})
    assert fill({**schema, "required": ["a"]}) == {"a": None, "b": {"c": None}, "d": [], "f": None}
