"""After a crash, or an outage of the model, no call is paid for twice."""

import asyncio
from dataclasses import replace

import pytest

from penstock.adapters.llm_postprocessor import LlmPostProcessorConfig
from penstock.documents.chat_model import ChatRequest, ModelDeclined, ModelUnavailable
from penstock.kernel.errors import Conflict
from tests.adapters.llm_postprocessor.harness import LlmHarness
from tests.adapters.local_reader_harness import RecordingContext
from tests.fakes.models import (
    ModelThatFails,
    ModelThatIsNotToBeAsked,
    ModelThatReadsLabels,
    ModelThatSays,
    ModelThatWaits,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONFIG = LlmPostProcessorConfig(
    threshold_characters=100, chunk_characters=200, chunk_strategy="chunked-extract", concurrency=1
)
FILLER = "Nothing is said here. " * 6
PAGES = [f"Name: Mill\nCity: Ulm\n{at}{FILLER}" for at in range(5)]


class NotWantedAnyMore(Conflict):
    """The task was cancelled."""


class LostContext(RecordingContext):
    """Cancels the task after the second chunk."""

    async def progress(self, done: int, of: int) -> None:
        await super().progress(done, of)
        if done == 2:
            raise NotWantedAnyMore(reason="cancelled")


class ModelThatDeclinesWhileAnotherWaits(ModelThatWaits):
    """Declines the second question."""

    async def say(self, question: ChatRequest) -> str:
        if self.calls == 2:
            raise ModelDeclined(reason="no")
        return await super().say(question)


@pytest.mark.parametrize("strategy", ["chunked-extract", "chunked-summarize"])
async def test_a_worker_that_dies_pays_for_one_call_again(llm_harness: LlmHarness, strategy: str):
    llm_harness.terms = replace(CONFIG, chunk_strategy=strategy)
    model = ModelThatWaits(at=3)
    stage = asyncio.create_task(llm_harness.extract(model, *PAGES))
    await model.waits.wait()
    stage.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stage
    assert model.calls == 3
    next_one = ModelThatReadsLabels()
    extracted = await llm_harness.extract(next_one, *PAGES)
    left = 3 if strategy == "chunked-extract" else 4
    assert next_one.calls == left
    assert extracted.usage["calls"] == left + 2
    assert extracted.value == {"Name": "Mill", "City": "Ulm"}
    assert llm_harness.left_behind() == []


async def test_a_worker_that_dies_after_the_last_answer_pays_for_nothing(llm_harness: LlmHarness):
    await llm_harness.extract(ModelThatReadsLabels(), *PAGES, strategy="direct-json")
    extracted = await llm_harness.extract(ModelThatIsNotToBeAsked(), *PAGES, strategy="direct-json")
    assert (extracted.value["Name"], extracted.usage["calls"]) == ("Mill", 1)


async def test_repairs_that_were_made_are_not_made_again(llm_harness: LlmHarness):
    llm_harness.terms = replace(CONFIG, threshold_characters=10_000)
    first = ModelThatFails(ModelUnavailable(reason="cut"), at={2})
    schema = {"type": "object", "properties": {"Name": {"type": "number"}}}
    with pytest.raises(ModelUnavailable):
        await llm_harness.extract(first, "Name: Mill", schema=schema)
    second = ModelThatSays('{"Name": 5}')
    extracted = await llm_harness.extract(second, "Name: Mill", schema=schema)
    assert (second.calls, extracted.usage["calls"], extracted.usage["repairs"]) == (1, 2, 1)


async def test_a_kept_reply_belongs_to_its_question(llm_harness: LlmHarness):
    await llm_harness.extract(ModelThatReadsLabels(), "Name: Mill")
    for pages, rule in (
        (["Name: Weir"], {}),
        (["Name: Mill"], {"system_prompt": "Be brief."}),
        (["Name: Mill"], {"options": {"model": "large"}}),
        (["Name: Mill"], {"schema": {"type": "object", "properties": {"Name": {}}}}),
    ):
        model = ModelThatReadsLabels()
        await llm_harness.extract(model, *pages, **rule)
        assert model.calls == 1


async def test_a_reply_that_was_damaged_is_asked_for_again(llm_harness: LlmHarness):
    await llm_harness.extract(ModelThatReadsLabels(), "Name: Mill")
    (key,) = await llm_harness.kept()
    await llm_harness.blobs.put(key, b'{"text": ')
    model = ModelThatReadsLabels()
    assert (await llm_harness.extract(model, "Name: Mill")).value["Name"] == "Mill"
    assert model.calls == 1


async def test_after_a_transient_error_calls_in_flight_are_awaited(llm_harness: LlmHarness):
    llm_harness.terms = replace(CONFIG, concurrency=4)
    model = ModelThatFails(ModelUnavailable(reason="cut"), at={1})
    with pytest.raises(ModelUnavailable):
        await llm_harness.extract(model, *PAGES)
    assert model.calls == 4
    assert len(await llm_harness.kept()) == 3
    next_one = ModelThatReadsLabels()
    await llm_harness.extract(next_one, *PAGES)
    assert next_one.calls == 2


async def test_after_a_final_error_calls_in_flight_are_cancelled(llm_harness: LlmHarness):
    llm_harness.terms = replace(CONFIG, concurrency=2)
    model = ModelThatDeclinesWhileAnotherWaits(at=1)
    with pytest.raises(ModelDeclined):
        await asyncio.wait_for(llm_harness.extract(model, *PAGES), timeout=30)
    assert model.calls == 2


async def test_a_cancelled_task_stops_at_its_next_progress_update(llm_harness: LlmHarness):
    llm_harness.terms, llm_harness.context = CONFIG, LostContext()
    model = ModelThatReadsLabels()
    with pytest.raises(NotWantedAnyMore):
        await llm_harness.extract(model, *PAGES)
    assert model.calls == 2
    assert llm_harness.left_behind() == []
