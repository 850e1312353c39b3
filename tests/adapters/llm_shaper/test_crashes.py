"""After a crash, or an outage of the model, no call is paid for twice."""

import asyncio
from dataclasses import replace

import pytest

from penstock.adapters.llm_shaper import LlmShaperConfig
from penstock.documents.chat_model import ChatRequest, ModelDeclined, ModelUnavailable
from penstock.kernel.errors import Conflict
from tests.adapters.llm_shaper.harness import ShaperHarness
from tests.adapters.local_reader_harness import NotingDesk
from tests.fakes.models import (
    ModelThatFails,
    ModelThatIsNotToBeAsked,
    ModelThatReadsLabels,
    ModelThatSays,
    ModelThatWaits,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONFIG = LlmShaperConfig(
    threshold_characters=100, chunk_characters=200, chunk_strategy="chunked-extract", side_by_side=1
)
FILLER = "Nothing is said here. " * 6
PAGES = [f"Name: Mill\nCity: Ulm\n{at}{FILLER}" for at in range(5)]


class NotWantedAnyMore(Conflict):
    """The task was cancelled."""


class DeskThatIsTakenAway(NotingDesk):
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
async def test_a_worker_that_dies_pays_for_one_call_again(shaper_harness: ShaperHarness, strategy: str):
    shaper_harness.terms = replace(CONFIG, chunk_strategy=strategy)
    model = ModelThatWaits(at=3)
    stage = asyncio.create_task(shaper_harness.shape(model, *PAGES))
    await model.waits.wait()
    stage.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stage
    assert model.calls == 3
    next_one = ModelThatReadsLabels()
    shaped = await shaper_harness.shape(next_one, *PAGES)
    left = 3 if strategy == "chunked-extract" else 4
    assert next_one.calls == left
    assert shaped.usage["calls"] == left + 2
    assert shaped.value == {"Name": "Mill", "City": "Ulm"}
    assert shaper_harness.left_behind() == []


async def test_a_worker_that_dies_after_the_last_answer_pays_for_nothing(shaper_harness: ShaperHarness):
    await shaper_harness.shape(ModelThatReadsLabels(), *PAGES, strategy="direct-json")
    shaped = await shaper_harness.shape(ModelThatIsNotToBeAsked(), *PAGES, strategy="direct-json")
    assert (shaped.value["Name"], shaped.usage["calls"]) == ("Mill", 1)


async def test_repairs_that_were_made_are_not_made_again(shaper_harness: ShaperHarness):
    shaper_harness.terms = replace(CONFIG, threshold_characters=10_000)
    first = ModelThatFails(ModelUnavailable(reason="cut"), at={2})
    schema = {"type": "object", "properties": {"Name": {"type": "number"}}}
    with pytest.raises(ModelUnavailable):
        await shaper_harness.shape(first, "Name: Mill", schema=schema)
    second = ModelThatSays('{"Name": 5}')
    shaped = await shaper_harness.shape(second, "Name: Mill", schema=schema)
    assert (second.calls, shaped.usage["calls"], shaped.usage["repairs"]) == (1, 2, 1)


async def test_a_kept_reply_belongs_to_its_question(shaper_harness: ShaperHarness):
    await shaper_harness.shape(ModelThatReadsLabels(), "Name: Mill")
    for pages, rule in (
        (["Name: Weir"], {}),
        (["Name: Mill"], {"system_prompt": "Be brief."}),
        (["Name: Mill"], {"options": {"model": "large"}}),
        (["Name: Mill"], {"schema": {"type": "object", "properties": {"Name": {}}}}),
    ):
        model = ModelThatReadsLabels()
        await shaper_harness.shape(model, *pages, **rule)
        assert model.calls == 1


async def test_a_reply_that_was_damaged_is_asked_for_again(shaper_harness: ShaperHarness):
    await shaper_harness.shape(ModelThatReadsLabels(), "Name: Mill")
    (key,) = await shaper_harness.kept()
    await shaper_harness.blobs.put(key, b'{"text": ')
    model = ModelThatReadsLabels()
    assert (await shaper_harness.shape(model, "Name: Mill")).value["Name"] == "Mill"
    assert model.calls == 1


async def test_after_a_transient_error_calls_in_flight_are_awaited(shaper_harness: ShaperHarness):
    shaper_harness.terms = replace(CONFIG, side_by_side=4)
    model = ModelThatFails(ModelUnavailable(reason="cut"), at={1})
    with pytest.raises(ModelUnavailable):
        await shaper_harness.shape(model, *PAGES)
    assert model.calls == 4
    assert len(await shaper_harness.kept()) == 3
    next_one = ModelThatReadsLabels()
    await shaper_harness.shape(next_one, *PAGES)
    assert next_one.calls == 2


async def test_after_a_final_error_calls_in_flight_are_cancelled(shaper_harness: ShaperHarness):
    shaper_harness.terms = replace(CONFIG, side_by_side=2)
    model = ModelThatDeclinesWhileAnotherWaits(at=1)
    with pytest.raises(ModelDeclined):
        await asyncio.wait_for(shaper_harness.shape(model, *PAGES), timeout=30)
    assert model.calls == 2


async def test_a_cancelled_task_stops_at_its_next_progress_update(shaper_harness: ShaperHarness):
    shaper_harness.terms, shaper_harness.desk = CONFIG, DeskThatIsTakenAway()
    model = ModelThatReadsLabels()
    with pytest.raises(NotWantedAnyMore):
        await shaper_harness.shape(model, *PAGES)
    assert model.calls == 2
    assert shaper_harness.left_behind() == []
