"""A document goes through processes of ours to a model, and to MinerU, on other servers, and comes back as JSON."""

from collections.abc import AsyncIterator, Iterator
from importlib.resources import files
from typing import Any

import aiohttp
import jsonschema_rs
import pytest
from msgspec import json

from tests.adapters.mineru import zips
from tests.fakes.llm_server import LlmServer
from tests.fakes.mineru_server import TOKEN, MineruApi, MineruCloud
from tests.journeys.documents import Client, new_client, serving
from tests.journeys.profiles import Profile
from tests.servers.small_model import SmallModel

INVOICE = (files("penstock.cli") / "samples" / "invoice.pdf").read_bytes()
SCHEMA = {
    "type": "object",
    "properties": {
        "number": {"type": "string", "maxLength": 30},
        "total": {"type": ["number", "null"]},
        "currency": {"enum": ["EUR", "USD", "CNY"]},
    },
    "required": ["number", "currency"],
}
PROMPT = "You read invoices of a paper mill."
TRUE = {"number": "MS-2026-0117", "total": 387.2, "currency": "EUR"}

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
async def stub() -> AsyncIterator[LlmServer]:
    async with LlmServer() as server:
        yield server


@pytest.fixture(scope="module")
def small_model() -> Iterator[SmallModel]:
    with SmallModel.start() as model:
        yield model


async def make_rule(client: Client, **body: Any) -> int:
    status, made = await client.ask("POST", "/etl/rules", json={"name": "invoice", "json_schema": SCHEMA, **body})
    assert status == 201, made
    return int(json.decode(made)["rule_id"])


async def send(client: Client, rule_id: int, name: str = "invoice.pdf") -> dict[str, Any]:
    return (await client.watch(await client.send(name, INVOICE, rule_id=rule_id)))[-1]


async def test_a_model_fills_the_schema_for_whoever_pays_for_it(
    profile: Profile, session: aiohttp.ClientSession, stub: LlmServer
):
    settings = {
        "LLM_BASE_URL": stub.base_url,
        "LLM_API_KEY": "sk-of-the-journey",
        "LLM_MODEL": "wrong-type-once+think",
        "LLM_INPUT_PRICE": "1",
        "ETL_RETRY_BACKOFF_BASE_SECONDS": "0.1",
    }
    async with serving(profile, session, **settings) as server:
        ann, ben = [await new_client(server, session, user_id=user_id) for user_id in (71, 72)]
        rule_id = await make_rule(ann, system_prompt=PROMPT)
        await what_it_made_up_is_flagged(ann, rule_id, stub)
        await nothing_is_paid_for_twice(ann, rule_id, stub)
        await what_one_has_paid_for_is_not_anothers(ben, stub)
        await a_fault_is_tried_again(ann, stub)
        await a_rule_whose_model_is_not_set_is_refused_at_once(ann)
        await its_breaker_is_shown(session, server.url)


async def its_breaker_is_shown(session: aiohttp.ClientSession, url: str) -> None:
    async with session.get(f"{url}/metrics") as answer:
        assert 'penstock_breaker_open{name="llm:default"} 0.0' in await answer.text()


async def what_it_made_up_is_flagged(ann: Client, rule_id: int, stub: LlmServer) -> None:
    stub.answers(lambda call: {**TRUE, "number": "XX-1999-4242"})
    task = await send(ann, rule_id)
    assert (task["status"], task["error"]) == ("completed", None)
    usage = task["result"]["usage"]
    assert (usage["calls"], usage["repairs"], usage["response_mode"]) == (2, 1, "json_schema_strict")
    assert usage["cost"] > 0
    flags = {place["pointer"]: place["grounded"] for place in await places(ann, task)}
    assert flags == {"/number": False, "/total": True, "/currency": True}
    assert PROMPT in stub.calls[0].prompt
    assert "MS-2026-0117" in stub.calls[0].prompt
    assert [call.key for call in stub.calls] == ["sk-of-the-journey"] * 2


async def nothing_is_paid_for_twice(ann: Client, rule_id: int, stub: LlmServer) -> None:
    before = len(stub.calls)
    again = await send(ann, rule_id, "the same under another name.pdf")
    assert (again["status"], again["result"]["usage"]["cached"], len(stub.calls)) == ("completed", True, before)


async def what_one_has_paid_for_is_not_anothers(ben: Client, stub: LlmServer) -> None:
    before = len(stub.calls)
    await send(ben, await make_rule(ben, system_prompt=PROMPT))
    assert len(stub.calls) == before + 1


async def a_fault_is_tried_again(ann: Client, stub: LlmServer) -> None:
    before = len(stub.calls)
    task = await send(ann, await make_rule(ann, options={"model": "error-once"}))
    assert (task["status"], len(stub.calls)) == ("completed", before + 2)


async def a_rule_whose_model_is_not_set_is_refused_at_once(ann: Client) -> None:
    rule_id = await make_rule(ann, options={"server": "nowhere"})
    form = aiohttp.FormData({"project_id": "1", "rule_id": str(rule_id)})
    form.add_field("file", INVOICE, filename="invoice.pdf")
    status, body = await ann.ask("POST", "/etl/upload_and_submit", data=form)
    assert (status, json.decode(body)["code"]) == (400, "MODEL_NOT_SET")


@pytest.mark.storm
async def test_a_real_model_keeps_to_the_schema_from_a_document_to_its_result(
    profile: Profile, session: aiohttp.ClientSession, small_model: SmallModel
):
    llm = {"LLM_BASE_URL": small_model.base_url, "LLM_API_KEY": small_model.api_key, "LLM_MODEL": small_model.model}
    async with serving(profile, session, **llm, LLM_TEMPERATURE="0") as server:
        ann = await new_client(server, session, user_id=71)
        task = await send(ann, await make_rule(ann))
        assert (task["status"], task["error"]) == ("completed", None)
        result = await ann.get(f"/etl/tasks/{task['task_id']}/result")
        assert jsonschema_rs.is_valid(SCHEMA, result), result
        said = {f"/{name}" for name, value in result.items() if value not in (None, "")}
        assert {place["pointer"] for place in await places(ann, task)} == said
        assert task["result"]["usage"]["completion_tokens"] > 0


async def test_mineru_reads_a_document_and_is_asked_once(profile: Profile, session: aiohttp.ClientSession):
    kind = MineruCloud if profile.name == "scale" else MineruApi
    async with kind() as mineru:
        mineru.result = lambda tag, content: zips.pages("Invoice MS-2026-0117")
        settings = {
            "ETL_OCR_PROVIDER": "mineru",
            "MINERU_API_ENDPOINT": mineru.endpoint,
            "MINERU_API_KEY": TOKEN,
            "MINERU_POLL_INTERVAL": "0.05",
            "MINERU_SOURCE": "upload",
        }
        async with serving(profile, session, **settings) as server:
            ann = await new_client(server, session, user_id=71)
            task = await send(ann, 0)
            assert (task["status"], task["error"]) == ("completed", None)
            assert task["metadata"]["ocr"]["provider"] == "mineru"
            status, markdown = await ann.ask("GET", f"/etl/tasks/{task['task_id']}/markdown")
            assert (status, markdown[:15]) == (200, b"<!-- page 1 -->")
            asked = len(mineru.calls)
            again = await send(ann, 0, "again.pdf")
            assert (again["status"], len(mineru.calls)) == ("completed", asked)


async def places(client: Client, task: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.get(f"/etl/tasks/{task['task_id']}/grounding"))["places"]
    return found
