"""With `null_ungrounded`, ungrounded values are removed from the result as far as the schema allows."""

from typing import Any

from tests.documents.extract.fields.fill import TEXT, lines, record
from tests.documents.grounding.ground import flagged, ground

PAGE = lines("Name: Ann")
OPEN = {"type": ["string", "null"]}


def kept(value: Any, schema: Any) -> Any:
    return ground(value, PAGE, schema=schema, null_ungrounded=True).value


def test_it_becomes_null_where_the_schema_admits_null():
    assert kept({"name": "Ann", "town": "Rome"}, record(name=OPEN, town=OPEN)) == {"name": "Ann", "town": None}
    assert kept({"name": "Ann", "town": "Rome"}, None) == {"name": "Ann", "town": None}


def test_it_is_dropped_where_it_is_not_required():
    assert kept({"name": "Ann", "town": "Rome"}, record(name=TEXT, town=TEXT)) == {"name": "Ann"}


def test_it_stays_and_is_flagged_where_it_is_required():
    schema = {**record(name=TEXT, town=TEXT), "required": ["town"]}
    found = ground({"name": "Ann", "town": "Rome"}, PAGE, schema=schema, null_ungrounded=True)
    assert found.value == {"name": "Ann", "town": "Rome"}
    assert flagged(found) == {"/town"}


def test_items_of_a_list_keep_their_index():
    schema = record(names={"type": "array", "items": TEXT}, open={"type": "array", "items": OPEN})
    value = {"names": ["Bob", "Ann"], "open": ["Bob", "Ann"]}
    assert kept(value, schema) == {"names": ["Bob", "Ann"], "open": [None, "Ann"]}


def test_a_constraint_over_several_values_is_not_broken():
    schema = {**record(name=TEXT, town=TEXT), "minProperties": 2}
    assert kept({"name": "Ann", "town": "Rome"}, schema) == {"name": "Ann", "town": "Rome"}


def test_escaped_property_names_are_resolved():
    assert kept({"a/b": {"c~d": "Rome"}}, None) == {"a/b": {"c~d": None}}


def test_without_the_option_nothing_is_removed():
    found = ground({"town": "Rome"}, PAGE)
    assert found.value == {"town": "Rome"}
    assert flagged(found) == {"/town"}


def test_a_result_that_is_one_value_may_become_null():
    assert kept("Rome", None) is None
    assert kept("Ann", None) == "Ann"
