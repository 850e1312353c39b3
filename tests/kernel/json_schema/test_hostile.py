"""Hostile schemas: whatever their references, nesting and patterns are, every walk and check ends."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernel.json_schema.cost import find_schema_problem
from penstock.kernel.json_schema.pointers import ABSENT, format_pointer
from penstock.kernel.json_schema.validation import InvalidSchema, compile_schema, masked_validator
from penstock.kernel.json_schema.walk import (
    ANY_BRANCH,
    MAX_SUBSCHEMAS,
    admits_null,
    levels,
    matching_branches,
    ref_tokens,
    resolve_ref,
    schema_covers,
    subschemas,
)

NAMES = ("a", "b", "a/b", "~", "%25", "")
LEVELS = 60  # two recursive references per level would take 2 ** 60 steps

REFERENCES = st.sampled_from(["#", "#/items", "#x", "other.json", *(f"#{format_pointer(('$defs', n))}" for n in NAMES)])
PATTERNS = st.sampled_from(["^(a+)+$", "(a|aa)+b", "(x+x+)+y", "(", "(?=a)b", "(a{1000}){1000}", "[a-z]{1,30}"])
KEYWORDS = st.fixed_dictionaries(
    {},
    optional={"$ref": REFERENCES, "pattern": PATTERNS, "type": st.sampled_from(["object", "array", "string", "null"])},
)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    many = st.lists(inner, min_size=1, max_size=3)
    by_name = st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "$ref": REFERENCES, "properties": by_name, "items": inner,
            "patternProperties": st.dictionaries(PATTERNS, inner, max_size=2),
            "allOf": many, "anyOf": many, "oneOf": many, "not": inner, "then": inner,
            "unevaluatedProperties": inner, "enum": st.lists(st.integers(), max_size=5),
        },
    )  # fmt: skip


SUBSCHEMAS = st.recursive(KEYWORDS | st.booleans(), _nested, max_leaves=12)
SCHEMAS = st.builds(
    lambda root, definitions: {**root, "$defs": definitions},
    _nested(SUBSCHEMAS),
    st.dictionaries(st.sampled_from(NAMES), SUBSCHEMAS, max_size=4),
)


def _deep_value() -> Any:
    value: Any = "a" * 30 + "!"
    for _ in range(LEVELS):
        value = {"a": value, "b": [value]} if not isinstance(value, dict) else {"a": value, "b": [1]}
    return value


@given(schema=SCHEMAS)
@settings(max_examples=200, deadline=None)
def test_a_schema_that_is_accepted_is_applied_to_any_value(schema: dict[str, Any]):
    if find_schema_problem(schema) is None:
        validator = masked_validator(msgspec.json.encode(schema))
        assert (validator.find_violation(_deep_value()) is None) is validator.is_valid(_deep_value())


@given(schema=SCHEMAS)
@settings(max_examples=200, deadline=None)
def test_every_walk_ends(schema: dict[str, Any]):
    found = subschemas(schema, [("", schema)], keywords=ANY_BRANCH)
    assert 1 <= len(found) <= MAX_SUBSCHEMAS
    assert len({id(each.schema) for each in found}) == len(found)
    assert isinstance(admits_null(schema, schema), bool)
    assert isinstance(schema_covers(schema, ("a", "b", "0", "a") * 5), bool)
    assert len(matching_branches(schema, [schema], {"a": 1})) <= MAX_SUBSCHEMAS


@given(encoded=st.lists(st.booleans(), min_size=30, max_size=30))
@settings(max_examples=50, deadline=None)
def test_a_recursive_reference_is_found_in_any_spelling(encoded: list[bool]):
    pointer = "/$defs/a~1b/properties/~0"
    spelled = "".join(f"%{ord(sign):02X}" if code else sign for sign, code in zip(pointer, encoded, strict=False))
    step = {"$ref": f"#{spelled}"}
    loop = {"properties": {"~": {"properties": {"x": step, "y": step}}}}
    schema = {"$defs": {"a/b": loop}, "items": step}
    assert resolve_ref(schema, f"#{spelled}") is loop["properties"]["~"]
    assert find_schema_problem(schema) == "a $ref is recursive"


@pytest.mark.parametrize("accepted", ["null", "string"])
def test_definitions_that_double_are_visited_once(accepted: str):
    links = {
        f"d{at}": {"anyOf": [{"$ref": f"#/$defs/d{at + 1}"}, {"$ref": f"#/$defs/d{at + 1}"}]} for at in range(LEVELS)
    }
    schema = {"$defs": {**links, f"d{LEVELS}": {"type": accepted}}, "$ref": "#/$defs/d0"}
    assert admits_null(schema, schema) is (accepted == "null")


def test_a_schema_that_offers_only_itself_does_not_admit_null():
    assert not admits_null(loop := {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, loop)


@pytest.mark.parametrize("reference", ["other.json#/a", "#anchor", "https://example.com/#/a", "", 5, None, {}])
def test_a_reference_to_elsewhere_has_no_place_here(reference: object):
    assert ref_tokens(reference) is None
    assert resolve_ref({"a": {}}, reference) is ABSENT


def test_levels_of_a_very_deep_value_need_no_stack():
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    assert sum(1 for _ in levels(value)) == 100_001


def test_a_huge_enum_takes_no_time():
    values = [f"value {number}" for number in range(50_000)]
    validator = compile_schema({"enum": values})
    assert validator.is_valid(values[-1])
    assert not validator.is_valid("another")


@pytest.mark.parametrize("pattern", ["(?=a)b", "(a)\\1", "(", "(a{1000}){1000}"])
def test_a_pattern_that_is_not_linear_is_refused(pattern: str):
    with pytest.raises(InvalidSchema, match="regex"):
        compile_schema({"pattern": pattern})


def test_a_reference_is_never_fetched():
    with pytest.raises(InvalidSchema):
        compile_schema({"$ref": "http://127.0.0.1:9/schema.json"})
