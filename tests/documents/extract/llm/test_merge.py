"""The results of the chunks of a document are merged into one value."""

from typing import Any

import pytest

from penstock.documents.extract.llm.merge import MergedResult, PartialResult, agree, merge


def merged(*values: dict[str, Any]) -> MergedResult:
    return merge([PartialResult(value=value, pages=[at, at]) for at, value in enumerate(values, 1)])


def test_any_value_replaces_null():
    result = merged({"a": None}, {"a": 1, "b": {"c": None}}, {"a": None, "b": {"c": "x"}, "d": None})
    assert result.value == {"a": 1, "b": {"c": "x"}, "d": None}
    assert (result.conflicts, result.repeats) == ([], {})


def test_of_different_values_the_first_wins_and_all_are_reported_with_their_pages():
    result = merged({"b": {"c/d": "x"}}, {"b": {"c/d": "y"}}, {"b": {"c/d": "z"}}, {"b": {"c/d": " Y "}})
    assert result.value == {"b": {"c/d": "x"}}
    values = [{"value": "x", "pages": [1, 1]}, {"value": "y", "pages": [2, 2]}, {"value": "z", "pages": [3, 3]}]
    assert result.conflicts == [{"pointer": "/b/c~1d", "values": values}]


def test_a_value_keeps_the_page_it_came_from():
    assert merged({}, {"a": None}, {"a": 1}, {"a": 2}).conflicts[0]["values"][0] == {"value": 1, "pages": [3, 3]}


@pytest.mark.parametrize(
    ("one", "other", "do"),
    [
        (1, 1.0, True),
        (0.1 + 0.2, 0.3, True),
        (1, 2, False),
        ("ACME  Ltd", "acme ltd", True),
        ("ＡＣＭＥ", "acme", True),
        ("a", "b", False),
        (True, 1, False),
        (False, False, True),
        ("1", 1, False),
        ({"a": 1}, 1, False),
    ],
)
def test_values_agree_by_meaning(one: Any, other: Any, do: bool):
    assert agree(one, other) is do


def test_values_of_different_types_are_a_conflict():
    result = merged({"a": {"b": 1}}, {"a": "text"}, {"a": [1]})
    assert result.value == {"a": {"b": 1}}
    assert [value["value"] for value in result.conflicts[0]["values"]] == [{"b": 1}, "text", [1]]
    assert result.conflicts[0]["values"][0]["pages"] == [1, 1]


def test_arrays_are_concatenated_without_repeated_rows():
    result = merged({"rows": [{"n": 1, "t": "a"}, {"n": 2}]}, {"rows": [{"t": "a", "n": 1}, {"n": 3}]}, {"rows": None})
    assert result.value == {"rows": [{"n": 1, "t": "a"}, {"n": 2}, {"n": 3}]}
    assert result.repeats == {"/rows": 1}


def test_equal_rows_of_one_chunk_are_kept():
    result = merged({"rows": [{"n": 1}, {"n": 1}]}, {"rows": [{"n": 2}]})
    assert result.value == {"rows": [{"n": 1}, {"n": 1}, {"n": 2}]}
    assert result.repeats == {}


def test_null_rows_are_dropped_and_not_counted():
    result = merged({"rows": [None, 1]}, {"rows": [None, 2]})
    assert (result.value, result.repeats) == ({"rows": [1, 2]}, {})


def test_no_results_merge_to_an_empty_value():
    assert merged({}, {}).value == {}


def test_reported_conflicts_are_bounded():
    one = {f"p{number}": 1 for number in range(1000)}
    assert len(merged(one, dict.fromkeys(one, 2)).conflicts) == 200
