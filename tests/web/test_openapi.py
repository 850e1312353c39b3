"""The OpenAPI document of the whole app: a generator can read it, and it says what the routes accept."""

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from penstock.web.app import build_app
from penstock.wiring import Runtime

PULL = "/api/v1/projects/{project_id}/tasks/pull"
BOUNDS = {"ge", "gt", "le", "lt"}  # Pydantic's words, which JSON Schema does not know


@pytest.fixture
def document(runtime: Runtime) -> dict[str, Any]:
    return build_app(runtime).openapi()


def parts(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of the document."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from parts(one)


def accepts(document: dict[str, Any], schema: dict[str, Any], value: Any) -> bool:
    whole = {**schema, "components": document["components"]}
    return jsonschema_rs.Draft202012Validator(whole).is_valid(value)


def query_schema(document: dict[str, Any], path: str, name: str) -> dict[str, Any]:
    [found] = [one for one in document["paths"][path]["get"]["parameters"] if one["name"] == name]
    schema: dict[str, Any] = found["schema"]
    return schema


async def test_every_reference_leads_somewhere(document: dict[str, Any]):
    refs = {part["$ref"] for part in parts(document) if isinstance(part.get("$ref"), str)}
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert refs
    assert refs <= known


async def test_every_schema_is_a_json_schema(document: dict[str, Any]):
    for name, schema in document["components"]["schemas"].items():
        assert jsonschema_rs.meta.is_valid(schema), name
    for path, item in document["paths"].items():
        for operation in item.values():
            for parameter in operation.get("parameters", ()):
                assert jsonschema_rs.meta.is_valid(parameter["schema"]), (path, parameter["name"])
                assert not BOUNDS & parameter["schema"].keys(), (path, parameter["name"])


async def test_the_bounds_of_a_limit_are_shown(document: dict[str, Any]):
    limit = query_schema(document, "/api/v1/etl/tasks", "limit")
    assert (limit["minimum"], limit["maximum"]) == (1, 100)


@pytest.mark.parametrize("model", ["TaskAsked", "TaskEdit"])
async def test_a_priority_is_a_number_or_a_word_or_null(document: dict[str, Any], model: str):
    schema = document["components"]["schemas"][model]["properties"]["priority"]
    good: list[object] = [1, 10, "high", "low", "7", None]
    bad: list[object] = [0, 11, "highest", 5.5, True, []]
    assert all(accepts(document, schema, value) for value in good)
    assert not any(accepts(document, schema, value) for value in bad)
    assert "default" not in schema


@pytest.mark.parametrize("value", [7, "7", "5-8", "high", "10"])
async def test_the_filter_of_a_pull_is_as_it_is_taken(document: dict[str, Any], value: object):
    schema = query_schema(document, PULL, "priority")
    assert accepts(document, schema, value)
    assert not accepts(document, schema, "11")
    assert accepts(document, query_schema(document, PULL, "status"), ["pending", "error"])


async def test_what_may_be_null_in_a_push_says_so(document: dict[str, Any]):
    least = {"id": "t1", "name": "n", "prompt": "p", "status": "done"}
    schema = {"$ref": "#/components/schemas/TaskTold"}
    assert accepts(document, schema, {**least, "tags": None, "report": None, "spec_file": None, "priority": None})
    assert accepts(document, schema, {**least, "tags": "fr", "spec_file": "a.md", "priority": "urgent"})  # not checked
    assert not accepts(document, schema, {**least, "name": None})
    assert not accepts(document, schema, {**least, "messages": None})


async def test_every_operation_lists_the_errors_of_its_url_with_their_format(document: dict[str, Any]):
    for path, item in document["paths"].items():
        for method, operation in item.items():
            assert {"400", "414", "500", "503"} <= operation["responses"].keys(), (method, path)
            for status, described in operation["responses"].items():
                if status.isdigit() and int(status) >= 400:
                    assert described["content"], (method, path, status)


async def test_a_refusal_in_the_envelope_is_described_as_one(document: dict[str, Any]):
    refused = document["paths"]["/api/v1/submit"]["post"]["responses"]
    schema = refused["409"]["content"]["application/json"]["schema"]
    assert schema == refused["default"]["content"]["application/json"]["schema"]
    assert {"401", "403", "404", "409", "410", "413", "429"} <= refused.keys()
