"""Malicious schemas: refused or bounded, also if a rule got past the check, and nothing is ever fetched."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from penstock.documents.extract.errors import ModelRuleUnusable, ResultNotValid
from penstock.etl.rule_validation import schema_error
from tests.adapters.llm_postprocessor.harness import TEXT, LlmHarness
from tests.fakes.models import ModelThatIsNotToBeAsked, ModelThatSays

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODE = {"type": "object", "properties": {"Name": TEXT, "child": {"$ref": "#"}}}


class Door:
    """A server that counts its connections."""

    def __init__(self) -> None:
        self.knocks = 0
        self.url = ""

    async def open(self) -> asyncio.Server:
        server = await asyncio.start_server(self._knocked, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/schema.json"
        return server

    async def _knocked(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.knocks += 1
        body = b'{"type": "object"}'
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        await writer.drain()
        writer.close()


@pytest_asyncio.fixture(loop_scope="module")
async def door() -> AsyncIterator[Door]:
    opened = Door()
    async with await opened.open():
        yield opened


@pytest.mark.parametrize("word", ["$ref", "$dynamicRef", "$schema"])
async def test_a_remote_reference_is_never_followed(llm_harness: LlmHarness, door: Door, word: str):
    schema = {"type": "object", "properties": {"Name": {word: door.url}}}
    if word == "$schema":
        schema = {"type": "object", word: door.url}
    assert await schema_error(schema, llm_harness.sandbox) is not None
    model = ModelThatSays('{"Name": "Mill"}')
    with pytest.raises(ModelRuleUnusable, match="json_schema cannot be used"):
        await llm_harness.extract(model, "Name: Mill", schema=schema)
    assert model.calls == 1
    assert door.knocks == 0


async def test_a_remote_base_uri_is_not_fetched(llm_harness: LlmHarness, door: Door):
    schema = {
        "$id": door.url,
        "type": "object",
        "properties": {"Name": {"$ref": "#/$defs/text"}},
        "$defs": {"text": TEXT},
    }
    extracted = await llm_harness.extract(ModelThatSays('{"Name": "Mill"}'), "Name: Mill", schema=schema)
    assert (extracted.value, door.knocks) == ({"Name": "Mill"}, 0)


async def test_a_recursive_schema_accepts_a_deep_answer(llm_harness: LlmHarness):
    assert await schema_error(NODE, llm_harness.sandbox) is None
    value: dict[str, Any] = {"Name": "Mill"}
    for _ in range(30):
        value = {"Name": "Mill", "child": value}
    extracted = await llm_harness.extract(ModelThatSays(json.dumps(value)), "Name: Mill", schema=NODE)
    assert extracted.value == value


@pytest.mark.parametrize("depth", [100, 100_000])
async def test_a_recursive_schema_refuses_an_answer_that_is_too_deep(llm_harness: LlmHarness, depth: int):
    deep = '{"child": ' * depth + "{}" + "}" * depth
    with pytest.raises(ResultNotValid, match="nested more than 64 deep"):
        await llm_harness.extract(ModelThatSays(deep), "Name: Mill", schema=NODE)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "allOf": [{"$ref": "#"}]},
        {"type": "object", "anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"oneOf": [{"$ref": "#"}]}}},
        {"type": "object", "properties": {"Name": {"$ref": "#/properties/Name"}}},
        {"type": "object", "not": {"$ref": "#"}},
    ],
)
@pytest.mark.parametrize("strategy", ["direct-json", "chunked-extract"])
async def test_a_circular_reference_terminates(llm_harness: LlmHarness, schema: Any, strategy: str):
    await schema_error(schema, llm_harness.sandbox)
    model = ModelThatSays('{"Name": "Mill", "City": null}')
    try:
        extracted = await llm_harness.extract(model, "Name: Mill", schema=schema, strategy=strategy)
    except ResultNotValid:
        return
    assert extracted.value["Name"] == "Mill"


async def test_a_pattern_that_explodes_elsewhere_costs_no_time(llm_harness: LlmHarness):
    name = {"type": "string", "pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"}
    schema = {"type": "object", "properties": {"Name": name}}
    with pytest.raises(ResultNotValid, match="does not match"):
        await asyncio.wait_for(
            llm_harness.extract(ModelThatSays(json.dumps({"Name": "a" * 100_000})), "Name: Mill", schema=schema),
            timeout=60,
        )


async def test_a_pattern_that_is_too_large_is_refused_before_a_rule_is_made_and_after(llm_harness: LlmHarness):
    schema = {"type": "object", "properties": {"Name": {"type": "string", "pattern": "(a{1000}){1000}"}}}
    assert "regex" in (await schema_error(schema, llm_harness.sandbox) or "")
    with pytest.raises(ModelRuleUnusable, match="json_schema cannot be used"):
        await llm_harness.extract(ModelThatSays('{"Name": "a"}'), "Name: Mill", schema=schema)


async def test_an_invalid_schema_is_refused(llm_harness: LlmHarness):
    schema = {"type": "object", "properties": {"Name": {"type": "text"}}}
    assert "/properties/Name/type" in (await schema_error(schema, llm_harness.sandbox) or "")
    with pytest.raises(ModelRuleUnusable):
        await llm_harness.extract(ModelThatIsNotToBeAsked(), "Name: Mill", schema={})
