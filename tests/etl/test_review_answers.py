"""Answers of reviewers become the smallest corrections that turn the result into the answer."""

from typing import Any

import pytest
from msgspec import json

from penstock.etl.domain.review import MAX_CORRECTIONS_PER_CALL
from penstock.etl.review_answers import corrections_between

RESULT = {"number": "7", "total": 90, "items": [{"price": 1}, {"price": 2}]}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"total": 90.0}, []),
        ({"total": 91}, [("/total", 91)]),
        ({"number": None, "total": 91}, [("/number", None), ("/total", 91)]),
        ({"items": [{"price": 1}, {"price": 3}]}, [("/items/1/price", 3)]),
        ({"items": [{"price": 1}]}, [("/items", [{"price": 1}])]),
        ({"note": "new"}, [("", {**RESULT, "note": "new"})]),
    ],
)
def test_the_smallest_values_that_differ_are_corrected(change: dict[str, Any], expected: list[tuple[str, Any]]):
    found = corrections_between(RESULT, {**RESULT, **change})
    assert [(one.pointer, json.decode(one.value)) for one in found] == expected


def test_names_are_escaped_in_pointers():
    [one] = corrections_between({"a/b": {"c~d": 1}}, {"a/b": {"c~d": 2}})
    assert one.pointer == "/a~1b/c~0d"


def test_a_missing_member_corrects_its_object():
    [one] = corrections_between({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}})
    assert (one.pointer, json.decode(one.value)) == ("/a", {"b": 1})


def test_too_many_differences_are_one_correction_of_everything():
    many = MAX_CORRECTIONS_PER_CALL + 1
    [one] = corrections_between({"rows": [0] * many}, {"rows": [1] * many})
    assert (one.pointer, json.decode(one.value)) == ("", {"rows": [1] * many})


def test_an_answer_without_a_result_is_a_correction_that_the_schema_refuses():
    [one] = corrections_between(RESULT, None)
    assert (one.pointer, one.value) == ("", "null")
