"""Every response is parsed or reported as a problem, and none raises."""

import io
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.documents.extract.llm.responses import (
    MAX_BYTES,
    MAX_MESSAGE,
    MAX_PROBLEMS,
    ParsedResponse,
    parse_response,
)

SCHEMA = {
    "type": "object",
    "required": ["total"],
    "properties": {"total": {"type": "number"}, "note": {"type": "string"}, "items": {"type": "array"}},
    "additionalProperties": False,
}
LAX = {"type": "object", "properties": {"total": {"type": "number"}}}
GOOD = '{"total": 4}'


def read(text: str | bytes, schema: Any = SCHEMA) -> ParsedResponse:
    content = text if isinstance(text, bytes) else text.encode()
    return parse_response(io.BytesIO(content), json.dumps(schema).encode())


def value_of(text: str, schema: Any = SCHEMA) -> Any:
    verdict = read(text, schema)
    assert verdict.is_valid, verdict.problems
    return verdict.value


def problem_of(text: str | bytes, schema: Any = SCHEMA) -> tuple[str, str]:
    verdict = read(text, schema)
    assert not verdict.is_valid
    assert verdict.value is None
    return verdict.problems[0].pointer, verdict.problems[0].message


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"\n\n  {GOOD}\n",
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```\nI hope this helps!",
        f"Here is the result: {GOOD}",
        f"Here is it {{see below}}:\n{GOOD} and that {{ was }} all.",
        f'<think>Is it {{"total": 5}}? No.</think>{GOOD}',
        f"<THINK>\nhm {{\n</THINK>\n```json\n{GOOD}\n```",
        f'It may be {{"total": 5}}.\n</think>\n{GOOD}',
        f"<think>never closed\n{GOOD}",
        f"{GOOD}<think>was that right?",
        f'<think>a<think>b</think>{{"total": 5}}</think>{GOOD}',
        f"[{GOOD}]",
        f'{{"other": 1}} {GOOD}',
        f'{{}} {GOOD} {{"total": 5}}',
        f'{{"total": "four"}} or rather {GOOD}',
    ],
)
def test_the_value_is_found_anywhere_in_the_response(text: str):
    verdict = read(text)
    assert (verdict.value, verdict.repaired) == ({"total": 4}, False)


@pytest.mark.parametrize(
    "text",
    [
        '{"total": 4',
        '{"total": 4, "items": [1, 2',
        "{'total': 4}",
        '{"total": 4,}',
        "{total: 4}",
        '{"total": 4 // as printed\n}',
        '```json\n{"total": 4, "note": "cut of',
    ],
)
def test_incomplete_json_is_repaired_and_reported(text: str):
    verdict = read(text)
    assert verdict.repaired
    assert verdict.value["total"] == 4


def test_complete_json_is_preferred_to_repaired_json():
    assert value_of('The schema wants {"total": number}. {"total": 4}', LAX) == {"total": 4}


def test_an_inner_object_of_a_broken_one_is_not_the_response():
    assert value_of('{"rows": [{"total": 1}, {"total": 2}], "total": 3', LAX)["total"] == 3


def test_text_that_looks_like_reasoning_inside_a_value_stays():
    assert value_of('{"total": 4, "note": "<think>x</think> {y"}')["note"] == "<think>x</think> {y"


def test_an_empty_object_counts_only_without_another_one():
    assert value_of(f"{{}} {GOOD}", LAX) == {"total": 4}
    assert value_of("{}", LAX) == {}


def test_nulls_that_mean_absent_are_dropped():
    assert value_of('{"total": 4, "note": null}') == {"total": 4}


def test_problems_have_a_pointer():
    verdict = read('{"total": "four", "note": 5, "a/b": 1}')
    assert {problem.pointer for problem in verdict.problems} == {"", "/total", "/note"}
    assert problem_of('{"total": null}') == ("/total", 'null is not of type "number"')


@pytest.mark.parametrize("text", ["", "   ", "I cannot do that.", "42", '"text"', "null", "{see below}", "{", "}{"])
def test_a_response_without_an_object_is_a_problem(text: str):
    assert problem_of(text) == ("", "there is no JSON object in the answer")


def test_an_array_is_a_problem():
    assert "array" in problem_of(f"[{GOOD}, {GOOD}]")[1]
    assert "no JSON object" in problem_of("[1, 2, 3")[1]


@pytest.mark.parametrize("schema", [SCHEMA, LAX])
def test_an_echoed_schema_is_a_problem(schema: Any):
    assert "the schema itself" in problem_of(json.dumps(schema), schema)[1]
    echo = {"properties": {"total": {"type": "number", "value": 4}}, "required": ["total"]}
    assert "the schema itself" in problem_of(f"Here: {json.dumps(echo)}", schema)[1]


def test_a_value_with_a_property_called_properties_is_not_an_echo():
    schema = {"type": "object", "properties": {"properties": {"type": "object"}}}
    assert value_of('{"properties": {"properties": 1}}', schema) == {"properties": {"properties": 1}}


def test_a_duplicate_name_is_a_problem():
    assert problem_of('{"total": 4, "total": 5}') == ("", "these names stand in it more than once: total")
    assert problem_of('{"total": 4, "items": [{"a": 1, "a": 1}]}')[0] == "/items/0"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "9" * 19, "-" + "9" * 400])
def test_a_number_that_cannot_be_stored_is_a_problem(number: str):
    pointer, message = problem_of(f'{{"total": {number}}}')
    assert pointer == "/total"
    assert "number" in message


def test_a_64_bit_number_can_be_stored():
    assert value_of(f'{{"total": {2**63 - 1}}}') == {"total": 2**63 - 1}


@pytest.mark.parametrize("text", [r'{"total": 4, "note": "a\u0000b"}', r'{"total": 4, "note": "\ud83d"}'])
def test_characters_that_cannot_be_stored_are_a_problem(text: str):
    assert problem_of(text) == ("/note", "the text has characters that cannot be kept")


def test_other_characters_are_unchanged():
    assert value_of(r'{"total": 4, "note": "\ud83d\ude00 界"}')["note"] == "😀 界"


@pytest.mark.parametrize(
    "text",
    ['{"items": ' * 200 + "1" + "}" * 200, '{"items": ' * 200_000, '{"items": [' + "[" * 5000, '{"a":' + "[" * 100_000],
)
def test_deep_nesting_is_a_problem(text: str):
    began = time.perf_counter()
    assert "deep" in problem_of(text)[1]
    assert "deep" in problem_of(f"Here: {text}")[1]
    assert time.perf_counter() - began < 10


@pytest.mark.parametrize(
    "text", ["{" * 300_000, '{"' * 100_000, '{"a": {}, ' * 50_000, "<think>" * 100_000, "{} " * 99_999]
)
def test_a_hostile_response_does_not_take_long(text: str):
    began = time.perf_counter()
    assert not read(text).is_valid
    assert time.perf_counter() - began < 10


def test_a_response_that_is_too_long_is_a_problem():
    assert "longer than" in problem_of(b'{"total": 4}' + b" " * MAX_BYTES)[1]


def test_the_texts_of_problems_are_those_of_the_prompt_version():
    """A prompt shows them to the model, and its reply is stored under the hash of the prompt."""
    expected = {
        b" " * (MAX_BYTES + 1): f"the answer is longer than {MAX_BYTES} bytes",
        b"[{}, {}]": "the answer is an array; one JSON object is wanted",
        b"none": "there is no JSON object in the answer",
        b'{"items": ' * 200 + b"1" + b"}" * 200: "the answer is nested more than 64 deep",
        json.dumps(SCHEMA).encode(): "the answer is the schema itself; values of the document are wanted",
        b'{"total": 4, "total": 5}': "these names stand in it more than once: total",
        rb'{"total": 4, "\u0000": 5}': "a name in it has characters that cannot be kept",
        rb'{"total": 4, "note": "\u0000"}': "the text has characters that cannot be kept",
        b'{"total": NaN}': "this is no number that can be kept",
        b'{"total": 9223372036854775808}': "the number is too large to be kept",
    }
    assert {text: problem_of(text)[1] for text in expected} == expected


def test_problems_are_bounded_in_number_and_length():
    many = {f"p{number}": {"type": "string", "maxLength": 1} for number in range(100)}
    verdict = read(json.dumps(dict.fromkeys(many, "x" * 10_000)), {"type": "object", "properties": many})
    assert len(verdict.problems) == MAX_PROBLEMS
    assert all(len(problem.message) <= MAX_MESSAGE for problem in verdict.problems)
    long = read(json.dumps({"k" * 10_000: 1}), {"type": "object", "additionalProperties": {"type": "string"}})
    assert len(long.problems[0].pointer) <= MAX_MESSAGE


def test_an_invalid_schema_is_reported_and_nothing_is_fetched():
    for schema in ({"$ref": "http://127.0.0.1:9/x.json"}, {"type": "text"}):
        verdict = read(GOOD, schema)
        assert (verdict.is_valid, verdict.value, bool(verdict.schema_error)) == (False, None, True)


def test_a_recursive_schema_accepts_a_deep_response():
    tree = {"type": "object", "properties": {"child": {"$ref": "#"}, "n": {"type": "number"}}, "allOf": [{"$ref": "#"}]}
    deep = '{"child": ' * 40 + '{"n": "x"}' + "}" * 40
    assert problem_of(deep, tree)[0] == "/child" * 40 + "/n"


def test_a_pattern_with_catastrophic_backtracking_takes_no_time():
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"}}}
    began = time.perf_counter()
    assert not read(json.dumps({"a": "a" * 50_000}), schema).is_valid
    assert time.perf_counter() - began < 5


@given(text=st.text(alphabet='{}[]":,\\ntrue1-.e<think>/`a\n', max_size=80))
def test_no_response_raises(text: str):
    verdict = read(text, LAX)
    assert verdict.is_valid == isinstance(verdict.value, dict)
