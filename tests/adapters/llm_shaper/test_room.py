"""The post-processor `llm` in its room, with one file and a folder as well as at scale."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.adapters.llm_shaper import PRELOAD, AskingTerms, LlmShaper
from penstock.adapters.shapers import SkipShaper
from penstock.documents.chat_model import ChatModel, ModelAway, ModelGateShut
from penstock.etl import rules, steer
from penstock.etl.domain import EtlTask, Mode, RuleBody, Status, Strategy
from penstock.etl.schemas import PRELOAD as SCHEMAS
from penstock.kernel.clock import ManualClock
from penstock.kernel.sandbox.call import Sandbox
from tests.adapters.llm_shaper.study import SCHEMA
from tests.etl.workshop import ANNA, Grounds, Workshop, open_workshop
from tests.fakes.grounds import ground_by_letters
from tests.fakes.models import ModelThatFails, ModelThatIsNotToBeAsked, ModelThatReadsLabels, ModelThatSays

TERMS = AskingTerms(threshold_characters=200, chunk_characters=200, chunk_strategy="chunked-extract", side_by_side=1)
FILLER = "Nothing is said here. " * 6
LONG = "\f".join(f"Name: Mill\nCity: {city}\n{FILLER}" for city in ("Ulm", "Ulm", "Bonn"))


@pytest.fixture(params=["sqlite", "scale"])
def grounds(request: pytest.FixtureRequest, tmp_path: Path) -> Grounds:
    if request.param == "sqlite":
        return Grounds(database=request.getfixturevalue("sqlite_url"), scratch=tmp_path)
    named = {name: request.getfixturevalue(name) for name in ("postgres_url", "redis_url", "s3_place")}
    return Grounds(database=named["postgres_url"], scratch=tmp_path, redis=named["redis_url"], bucket=named["s3_place"])


@pytest.fixture
async def shop(grounds: Grounds, clock: ManualClock) -> AsyncIterator[Workshop]:
    async with (
        open_workshop(grounds, clock) as opened,
        Sandbox(preload=(*SCHEMAS, *PRELOAD, "tests.fakes.grounds")) as sandbox,
    ):
        opened.tools = replace(opened.tools, sandbox=sandbox)
        yield opened


def employ(shop: Workshop, model: ChatModel) -> None:
    """Let rules of mode `llm` ask this model."""
    tools = shop.tools
    asking = LlmShaper(model, tools.blobs, tools.sandbox, tools.scratch, ground=ground_by_letters, terms=TERMS)
    shop.tools = replace(tools, shapers={Mode.SKIP: SkipShaper(), Mode.LLM: asking})


async def submitted(shop: Workshop, text: str, **body: Any) -> EtlTask:
    rule = await rules.add(shop.tools, ANNA, RuleBody(name="r", **{"json_schema": SCHEMA, **body}))
    return await shop.submit(text=text, rule_id=rule.id)


async def result_of(shop: Workshop) -> Any:
    return json.loads(await shop.tools.blobs.get("users/5/processed/3/a.txt.json"))


async def test_a_document_becomes_a_result_with_its_price_and_its_places(shop: Workshop):
    employ(shop, ModelThatReadsLabels())
    task = await submitted(shop, "Name: Mill\nCity: Ulm")
    await shop.work()
    row = await shop.row(task)
    assert row.status is Status.COMPLETED
    assert row.result is not None
    assert (row.result["strategy"], row.result["usage"]["prompt_tokens"]) == ("direct-json", 100)
    assert await result_of(shop) == {"Name": "Mill", "City": "Ulm"}
    sidecar = msgspec.json.decode(await shop.tools.blobs.get(f"users/5/etl_artifacts/3/{task.id}/grounding-1.json"))
    assert [citation["grounded"] for citation in sidecar["places"]] == [True, True]


async def test_a_rule_that_skips_and_the_default_one_make_no_call(shop: Workshop):
    employ(shop, ModelThatIsNotToBeAsked())
    skipping = await submitted(shop, "Name: Mill", postprocess_mode=Mode.SKIP, json_schema=None)
    plain = await shop.submit("b.txt")
    await shop.work()
    for task in (skipping, plain):
        assert (await shop.row(task)).status is Status.COMPLETED
    assert "markdown_s3_key" in await result_of(shop)


async def test_a_model_that_goes_away_in_the_middle_is_not_paid_twice(shop: Workshop):
    model = ModelThatFails(ModelAway(reason="cut"), at={2})
    employ(shop, model)
    task = await submitted(shop, LONG)
    await shop.work()
    assert await shop.status(task) is Status.LLM_PROCESSING
    shop.clock.advance(seconds=20)
    await shop.work()
    row = await shop.row(task)
    assert row.status is Status.COMPLETED
    assert (model.calls, row.result and row.result["usage"]["calls"]) == (4, 3)
    assert not [key for key in await shop.keys() if "/shapes/" in key]
    sidecar = msgspec.json.decode(await shop.tools.blobs.get(f"users/5/etl_artifacts/3/{task.id}/grounding-1.json"))
    values = [{"value": "Ulm", "pages": [1, 1]}, {"value": "Bonn", "pages": [3, 3]}]
    assert sidecar["notes"]["conflicts"] == [{"pointer": "/City", "values": values}]


async def test_an_answer_that_stays_wrong_fails_the_task_with_its_problems(shop: Workshop):
    model = ModelThatSays('{"City": "Ulm"}')
    employ(shop, model)
    task = await submitted(shop, "City: Ulm", postprocess_strategy=Strategy.DIRECT_JSON)
    await shop.work()
    row = await shop.row(task)
    assert row.status is Status.FAILED
    assert '"Name" is a required property' in (row.error or "")
    assert row.metadata["error_stage"] == "postprocess"
    assert model.calls == 3


async def test_a_gate_that_is_shut_costs_no_attempt(shop: Workshop):
    model = ModelThatFails(ModelGateShut(wait_seconds=90), at={1, 2, 3, 4, 5})
    employ(shop, model)
    task = await submitted(shop, "Name: Mill", postprocess_strategy=Strategy.DIRECT_JSON)
    for _ in range(6):
        await shop.work()
        shop.clock.advance(seconds=20)
    row = await shop.row(task)
    assert (row.status, model.calls) == (Status.COMPLETED, 6)


async def test_a_retry_keeps_the_rule_as_it_was_and_a_new_task_gets_the_changed_one(shop: Workshop):
    employ(shop, ModelThatSays('{"City": "Ulm"}'))
    task = await submitted(shop, "City: Ulm", postprocess_strategy=Strategy.DIRECT_JSON)
    await shop.work()
    open_schema = {"type": "object", "properties": SCHEMA["properties"]}
    await rules.change(shop.tools, ANNA, task.rule_id, {"json_schema": open_schema})
    await steer.retry(shop.tools, ANNA, task.id, steer.Again())
    await shop.work()
    assert (await shop.row(task)).status is Status.FAILED
    again = await shop.submit(text="City: Ulm", rule_id=task.rule_id)
    await shop.work()
    assert (await shop.row(again)).status is Status.COMPLETED
