"""Corrections of a result: how they are applied, compared and counted."""

import io
import json

import pytest

from penstock.etl.correction_check import (
    CorrectionCheckResult,
    CorrectionPatch,
    apply_corrections,
    check_corrections,
    is_same_json,
)
from penstock.etl.domain.review import ValueCounts


def test_true_is_not_one_and_one_is_one_point_nought():
    assert is_same_json(1, 1.0)
    assert not is_same_json(1, True)
    assert not is_same_json({"a": [0]}, {"a": [False]})
    assert is_same_json({"a": 1, "b": [None]}, {"b": [None], "a": 1})


def check(
    result: object, *patches: tuple[str, object], schema: object = None, active: int = 0
) -> CorrectionCheckResult:
    given = [{"pointer": pointer, "value": value} for pointer, value in patches]
    body = {"result": result, "json_schema": schema, "active": given[:active], "new": given[active:]}
    return check_corrections(io.BytesIO(json.dumps(body).encode()))


@pytest.mark.parametrize(
    ("result", "patch", "whole", "part"),
    [
        ({"a": 1, "b": 2}, ("/a", 1), (2, 0), (1, 0)),
        ({"a": 1, "b": 2}, ("/a", 5), (2, 1), (1, 1)),
        ({"a": None, "b": 2}, ("/a", {"x": 1, "y": 2}), (2, 1), (1, 1)),
        ({"a": {"x": 1, "y": 2}}, ("/a", None), (2, 2), (2, 2)),
        ({"a": [1, 2, 3]}, ("/a", [1, 2]), (3, 1), (3, 1)),
        ({"a": [1]}, ("/a", [1, 2, 3]), (3, 2), (3, 2)),
        ({"a": []}, ("/a", [{"x": 1}]), (1, 1), (1, 1)),
        ({"a": {}}, ("/a", {}), (0, 0), (0, 0)),
        ({"a": [{"x": 1}, {"x": 2}]}, ("/a/1/x", 3), (2, 1), (1, 1)),
        ({"a": 1}, ("", {"b": 1}), (2, 2), (2, 2)),
    ],
)
def test_wrong_values_count_by_the_original_and_missing_ones_by_what_should_be_there(
    result: object, patch: tuple[str, object], whole: tuple[int, int], part: tuple[int, int]
):
    seen = check(result, patch)
    assert (seen.whole.values, seen.whole.corrected) == whole
    assert (seen.part.values, seen.part.corrected) == part


def test_no_value_is_counted_twice_and_each_counts_under_its_field():
    result = {"rows": [{"x": 1, "y": 1}, {"x": 1, "y": 1}]}
    seen = check(result, ("/rows/0", {"x": 2, "y": 1}), ("/rows/0/y", 3), active=1)
    assert dict(seen.part.fields) == {"/rows/*/x": (1, 1), "/rows/*/y": (1, 1)}
    assert dict(seen.whole.fields) == {"/rows/*/x": (2, 1), "/rows/*/y": (2, 1)}


def test_fields_beyond_measure_count_in_the_sums_only():
    seen = check({f"n{number}": 1 for number in range(300)}, ("/n0", 2))
    assert (seen.whole.values, len(seen.whole.fields)) == (300, 200)


def test_a_field_that_no_database_keeps_counts_in_the_sums_only():
    seen = check({"a\x00b": 1, "c": 1}, ("/c", 2))
    assert (seen.whole.values, dict(seen.whole.fields)) == (2, {"/c": (1, 1)})


def test_a_share_is_as_exact_as_can_be():
    assert ValueCounts(values=10, corrected=9).accuracy == 0.1


def test_integers_of_any_length_stay_what_they_are():
    long = 123456789012345678901234567890
    seen = check({"a": long}, ("/a", long), schema={"properties": {"a": {"type": "integer"}}})
    assert [(one.original, one.confirms) for one in seen.values] == [(str(long), True)]
    assert not is_same_json(long, float(long))
    assert apply_corrections(
        b'{"a":%d,"b":1}' % long, [CorrectionPatch(pointer="/b", value=long + 1)]
    ) == b'{"a":%d,"b":%d}' % (
        long,
        long + 1,
    )


def test_what_is_no_json_or_too_deep_is_told_as_a_flaw():
    assert check_corrections(io.BytesIO(b'{"result": ')).failure == "it is not JSON"
    deep = b"[" * 100_000 + b"]" * 100_000
    body = b'{"result": %b, "json_schema": null, "active": [], "new": []}' % deep
    assert check_corrections(io.BytesIO(body)).failure == "it is nested too deeply"


def test_corrections_are_laid_over_in_their_order():
    patches = [CorrectionPatch(pointer="/a", value={"b": 1}), CorrectionPatch(pointer="/a/b", value=2)]
    assert apply_corrections(b'{"a": null, "z": 1e2}', patches) == b'{"a":{"b":2},"z":100.0}'
