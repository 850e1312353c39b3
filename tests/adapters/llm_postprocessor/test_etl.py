"""The post-processor `llm` in the etl module."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.adapters.llm_postprocessor import PRELOAD, LlmPostProcessor, LlmPostProcessorConfig
from penstock.adapters.postprocessors import SkipPostProcessor
from penstock.documents.chat_model import ChatModel, ModelRateLimited, ModelUnavailable
from penstock.etl import retry
from penstock.etl.api import actions
from penstock.etl.domain import EtlTask, Mode, RuleBody, Status, Strategy
from penstock.etl.rule_validation import PRELOAD as SCHEMAS
from penstock.kernel.clock import ManualClock
from penstock.kernel.sandbox.call import Sandbox
from tests.adapters.llm_postprocessor.harness import SCHEMA
from tests.etl.harness import ANNA, EtlHarness, EtlProfile, open_harness
from tests.fakes.grounding import ground_by_letters
from tests.fakes.models import ModelThatFails, ModelThatIsNotToBeAsked, ModelThatReadsLabels, ModelThatSays

CONFIG = LlmPostProcessorConfig(
    threshold_characters=200, chunk_characters=200, chunk_strategy="chunked-extract", concurrency=1
)
FILLER = "Nothing is said here. " * 6
LONG = "\f".join(f"Name: Mill\nCity: {city}\n{FILLER}" for city in ("Ulm", "Ulm", "Bonn"))


@pytest.fixture
def profile(sqlite_url: str, tmp_path: Path) -> EtlProfile:
    """One profile: how a model is asked does not depend on the database."""
    return EtlProfile(database=sqlite_url, scratch=tmp_path)


@pytest.fixture
async def harness(profile: EtlProfile, clock: ManualClock) -> AsyncIterator[EtlHarness]:
    async with (
        open_harness(profile, clock) as opened,
        Sandbox(preload=(*SCHEMAS, *PRELOAD, "tests.fakes.grounding")) as sandbox,
    ):
        opened.deps = replace(opened.deps, sandbox=sandbox)
        yield opened


def employ(harness: EtlHarness, model: ChatModel) -> None:
    """Let rules of mode `llm` ask this model."""
    deps = harness.deps
    asking = LlmPostProcessor(model, deps.blobs, deps.sandbox, deps.scratch, ground=ground_by_letters, config=CONFIG)
    harness.deps = replace(deps, post_processors={Mode.SKIP: SkipPostProcessor(), Mode.LLM: asking})


async def submitted(harness: EtlHarness, text: str, **body: Any) -> EtlTask:
    rule = await actions.add_rule(harness.deps, ANNA, RuleBody(name="r", **{"json_schema": SCHEMA, **body}))
    return await harness.submit(text=text, rule_id=rule.id)


async def result_of(harness: EtlHarness) -> Any:
    return json.loads(await harness.deps.blobs.get("users/5/processed/3/a.txt.json"))


async def test_a_document_becomes_a_result_with_usage_and_citations(harness: EtlHarness):
    employ(harness, ModelThatReadsLabels())
    task = await submitted(harness, "Name: Mill\nCity: Ulm")
    await harness.work()
    row = await harness.row(task)
    assert row.status is Status.COMPLETED
    assert row.result is not None
    assert (row.result["strategy"], row.result["usage"]["prompt_tokens"]) == ("direct-json", 100)
    assert await result_of(harness) == {"Name": "Mill", "City": "Ulm"}
    sidecar = msgspec.json.decode(await harness.deps.blobs.get(f"users/5/etl_artifacts/3/{task.id}/grounding-1.json"))
    assert [citation["grounded"] for citation in sidecar["places"]] == [True, True]


async def test_a_rule_that_skips_and_the_default_one_make_no_call(harness: EtlHarness):
    employ(harness, ModelThatIsNotToBeAsked())
    skipping = await submitted(harness, "Name: Mill", postprocess_mode=Mode.SKIP, json_schema=None)
    plain = await harness.submit("b.txt")
    await harness.work()
    for task in (skipping, plain):
        assert (await harness.row(task)).status is Status.COMPLETED
    assert "markdown_s3_key" in await result_of(harness)


async def test_after_an_outage_of_the_model_no_call_is_paid_twice(harness: EtlHarness):
    model = ModelThatFails(ModelUnavailable(reason="cut"), at={2})
    employ(harness, model)
    task = await submitted(harness, LONG)
    await harness.work()
    assert await harness.status(task) is Status.LLM_PROCESSING
    harness.clock.advance(seconds=20)
    await harness.work()
    row = await harness.row(task)
    assert row.status is Status.COMPLETED
    assert (model.calls, row.result and row.result["usage"]["calls"]) == (4, 3)
    assert not [key for key in await harness.keys() if "/shapes/" in key]
    sidecar = msgspec.json.decode(await harness.deps.blobs.get(f"users/5/etl_artifacts/3/{task.id}/grounding-1.json"))
    values = [{"value": "Ulm", "pages": [1, 1]}, {"value": "Bonn", "pages": [3, 3]}]
    assert sidecar["notes"]["conflicts"] == [{"pointer": "/City", "values": values}]


async def test_an_answer_that_stays_wrong_fails_the_task_with_its_problems(harness: EtlHarness):
    model = ModelThatSays('{"City": "Ulm"}')
    employ(harness, model)
    task = await submitted(harness, "City: Ulm", postprocess_strategy=Strategy.DIRECT_JSON)
    await harness.work()
    row = await harness.row(task)
    assert row.status is Status.FAILED
    assert '"Name" is a required property' in (row.error or "")
    assert row.metadata["error_stage"] == "postprocess"
    assert model.calls == 3


async def test_our_own_rate_limit_costs_no_attempt(harness: EtlHarness):
    model = ModelThatFails(ModelRateLimited(wait_seconds=90), at={1, 2, 3, 4, 5})
    employ(harness, model)
    task = await submitted(harness, "Name: Mill", postprocess_strategy=Strategy.DIRECT_JSON)
    for _ in range(6):
        await harness.work()
        harness.clock.advance(seconds=20)
    row = await harness.row(task)
    assert (row.status, model.calls) == (Status.COMPLETED, 6)


async def test_a_retry_keeps_the_rule_as_it_was_and_a_new_task_gets_the_changed_one(harness: EtlHarness):
    employ(harness, ModelThatSays('{"City": "Ulm"}'))
    task = await submitted(harness, "City: Ulm", postprocess_strategy=Strategy.DIRECT_JSON)
    await harness.work()
    open_schema = {"type": "object", "properties": SCHEMA["properties"]}
    await actions.change_rule(harness.deps, ANNA, task.rule_id, {"json_schema": open_schema})
    await actions.retry_task(harness.deps, ANNA, task.id, retry.RetryOptions())
    await harness.work()
    assert (await harness.row(task)).status is Status.FAILED
    again = await harness.submit(text="City: Ulm", rule_id=task.rule_id)
    await harness.work()
    assert (await harness.row(again)).status is Status.COMPLETED
