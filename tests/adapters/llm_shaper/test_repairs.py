"""An answer that does not satisfy the schema is returned with its problems, a limited number of times."""

import json
from dataclasses import replace

import pytest

from penstock.adapters.llm_shaper.validation import READING, AnswerChecker
from penstock.documents.chat_model import AnswerTruncated, ModelDeclined
from penstock.documents.errors import DocumentTookTooLong
from penstock.documents.extract.errors import ResultNotValid
from penstock.kernel.errors import PenstockError
from tests.adapters.llm_shaper.harness import SCHEMA, ShaperHarness
from tests.fakes.models import ModelThatFails, ModelThatSays, data_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

GOOD = '{"Name": "Mill"}'


@pytest.mark.parametrize(
    "odd",
    [
        "I am sorry, but I cannot.",
        '{"Name": 5}',
        '{"City": "Ulm"}',
        '{"Name": "Mill", "Name": "Weir"}',
        json.dumps(SCHEMA),
        "[" + GOOD + "," + GOOD + "]",
        '{"Name": ' * 500,
        '{"Name": NaN}',
        "",
    ],
)
async def test_every_odd_answer_is_asked_for_again_with_what_is_wrong(shaper_harness: ShaperHarness, odd: str):
    model = ModelThatSays(odd, GOOD)
    shaped = await shaper_harness.shape(model, "Name: Mill")
    assert (shaped.value, shaped.usage["repairs"], shaped.usage["calls"]) == ({"Name": "Mill"}, 1, 2)
    first, second = model.questions
    assert second.messages[:2] == first.messages
    assert second.messages[2].text == odd
    assert json.loads(data_of(second, "PROBLEMS"))
    assert shaped.usage["prompt_tokens"] == 200


@pytest.mark.parametrize("odd", [f"```json\n{GOOD}\n```", f"<think>?</think>{GOOD}", f"Here: {GOOD}", f"{GOOD} {GOOD}"])
async def test_what_can_be_read_is_not_asked_for_again(shaper_harness: ShaperHarness, odd: str):
    shaped = await shaper_harness.shape(ModelThatSays(odd), "Name: Mill")
    assert (shaped.value, shaped.usage["repairs"], shaped.notes) == ({"Name": "Mill"}, 0, {})


async def test_truncated_json_is_repaired_and_noted(shaper_harness: ShaperHarness):
    shaped = await shaper_harness.shape(ModelThatSays('{"Name": "Mill", "Ci'), "Name: Mill")
    assert shaped.value["Name"] == "Mill"
    assert shaped.notes == {"mended": 1}


@pytest.mark.parametrize("rounds", [0, 1, 2])
async def test_after_the_last_repair_round_it_fails_with_the_problems(shaper_harness: ShaperHarness, rounds: int):
    shaper_harness.terms = replace(shaper_harness.terms, repair_rounds=rounds)
    model = ModelThatSays('{"Name": 5, "City": 6}')
    with pytest.raises(ResultNotValid) as caught:
        await shaper_harness.shape(model, "Name: Mill")
    assert model.calls == rounds + 1
    assert caught.value.code == "RESULT_NOT_VALID"
    assert f"after {rounds} repairs" in str(caught.value)
    assert '/Name: 5 is not of type "string"; /City: 6 is not of type "string"' in str(caught.value)
    assert caught.value.retryable is False


async def test_an_error_shows_the_first_problems_and_counts_the_others(shaper_harness: ShaperHarness):
    schema = {"type": "object", "properties": {f"p{at}": {"type": "string"} for at in range(9)}}
    model = ModelThatSays(json.dumps({f"p{at}": at for at in range(9)}))
    with pytest.raises(ResultNotValid, match=r"/p4: 4 is not of type .string.; and 4 more"):
        await shaper_harness.shape(model, "Name: Mill", schema=schema)


async def test_a_round_shows_the_last_answer_and_not_all_of_them(shaper_harness: ShaperHarness):
    model = ModelThatSays('{"Name": 1}', '{"Name": 2}', GOOD)
    await shaper_harness.shape(model, "Name: Mill")
    assert [len(question.messages) for question in model.questions] == [2, 4, 4]
    assert model.questions[2].messages[2].text == '{"Name": 2}'


@pytest.mark.parametrize("error", [ModelDeclined(reason="no"), AnswerTruncated()])
async def test_what_a_model_declines_or_cuts_is_not_asked_for_again(
    shaper_harness: ShaperHarness, error: PenstockError
):
    model = ModelThatFails(error, at={1})
    with pytest.raises(type(error)):
        await shaper_harness.shape(model, "Name: Mill")
    assert model.calls == 1


async def test_nulls_that_stand_for_absent_are_no_problem(shaper_harness: ShaperHarness):
    shaped = await shaper_harness.shape(ModelThatSays('{"Name": "Mill", "City": null}'), "Name: Mill")
    assert shaped.value == {"Name": "Mill"}


class TestWhatCannotBeChecked:
    async def test_is_a_problem_of_the_answer(self, shaper_harness: ShaperHarness, monkeypatch: pytest.MonkeyPatch):
        bounds = replace(READING, result_bytes=64)
        monkeypatch.setattr("penstock.adapters.llm_shaper.validation.READING", bounds)
        model = ModelThatSays(json.dumps({"Name": "M" * 1000}), GOOD)
        assert (await shaper_harness.shape(model, "Name: Mill")).value == {"Name": "Mill"}
        assert "cannot be checked" in data_of(model.questions[1], "PROBLEMS")

    async def test_for_a_busy_machine_is_tried_again_later(
        self, shaper_harness: ShaperHarness, monkeypatch: pytest.MonkeyPatch
    ):
        bounds = replace(READING, seconds=0.05)
        monkeypatch.setattr("penstock.adapters.llm_shaper.validation.READING", bounds)
        checker = AnswerChecker(sandbox=shaper_harness.sandbox, scratch=shaper_harness.scratch)
        with pytest.raises(DocumentTookTooLong) as caught:
            await checker.read("paper.pdf", '{"a": "' + 'x"y' * 66_000, json.dumps(SCHEMA).encode())
        assert caught.value.retryable
        assert shaper_harness.left_behind() == []
