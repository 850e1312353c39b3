"""Validation of results against the schema of their task."""

import pytest

from penstock.tasks.result_schema import find_result_problem

PERSON = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://example.com/person",
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string", "pattern": "^[a-z]+$"}, "ages": {"items": {"$ref": "#/$defs/age~1s"}}},
    "$defs": {"age/s": {"type": "integer", "minimum": 0}},
}


def test_a_result_that_fits_has_no_misfit() -> None:
    assert find_result_problem(PERSON, {"name": "anna", "ages": [7, 8]}) is None


@pytest.mark.parametrize(
    ("result", "place"),
    [([], "the result"), ({}, "the result"), ({"name": "Secret"}, "name"), ({"name": "a", "ages": [1, -1]}, "ages[1]")],
)
def test_a_misfit_says_where_and_repeats_nothing(result: object, place: str) -> None:
    misfit = find_result_problem(PERSON, result)
    assert misfit is not None
    assert misfit.startswith(f"{place}: ")
    assert "Secret" not in misfit
