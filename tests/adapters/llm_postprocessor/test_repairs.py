"""An answer that does not satisfy the schema is returned with its problems, a limited number of times."""

import json
from dataclasses import replace

import pytest

from penstock.adapters.llm_postprocessor.validation import READING, AnswerChecker
from penstock.documents.chat_model import AnswerTruncated, ModelDeclined
from penstock.documents.errors import DocumentTookTooLong
from penstock.documents.extract.errors import ResultNotValid
from penstock.kernel.errors import PenstockError
from tests.adapters.llm_postprocessor.harness import SCHEMA, LlmHarness
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
async def test_every_odd_answer_is_asked_for_again_with_what_is_wrong(llm_harness: LlmHarness, odd: str):
    model = ModelThatSays(odd, GOOD)
    extracted = await llm_harness.extract(model, "Name: Mill")
    assert (extracted.value, extracted.usage["repairs"], extracted.usage["calls"]) == ({"Name": "Mill"}, 1, 2)
    first, second = model.questions
    assert second.messages[:2] == first.messages
    assert second.messages[2].text == odd
    assert json.loads(data_of(second, "PROBLEMS"))
    assert extracted.usage["prompt_tokens"] == 200


@pytest.mark.parametrize("odd", [f"```json\n{GOOD}\n```", f"<think>?</think>{GOOD}", f"Here: {GOOD}", f"{GOOD} {GOOD}"])
async def test_what_can_be_read_is_not_asked_for_again(llm_harness: LlmHarness, odd: str):
    extracted = await llm_harness.extract(ModelThatSays(odd), "Name: Mill")
    assert (extracted.value, extracted.usage["repairs"], extracted.notes) == ({"Name": "Mill"}, 0, {})


async def test_truncated_json_is_repaired_and_noted(llm_harness: LlmHarness):
    extracted = await llm_harness.extract(ModelThatSays('{"Name": "Mill", "Ci'), "Name: Mill")
    assert extracted.value["Name"] == "Mill"
    assert extracted.notes == {"mended": 1}


@pytest.mark.parametrize("rounds", [0, 1, 2])
async def test_after_the_last_repair_round_it_fails_with_the_problems(llm_harness: LlmHarness, rounds: int):
    llm_harness.terms = replace(llm_harness.terms, repair_rounds=rounds)
    model = ModelThatSays('{"Name": 5, "City": 6}')
    with pytest.raises(ResultNotValid) as caught:
        await llm_harness.extract(model, "Name: Mill")
    assert model.calls == rounds + 1
    assert caught.value.code == "RESULT_NOT_VALID"
    assert f"after {rounds} repairs" in str(caught.value)
    assert '/Name: 5 is not of type "string"; /City: 6 is not of type "string"' in str(caught.value)
    assert caught.value.retryable is False


async def test_an_error_shows_the_first_problems_and_counts_the_others(llm_harness: LlmHarness):
    schema = {"type": "object", "properties": {f"p{at}": {"type": "string"} for at in range(9)}}
    model = ModelThatSays(json.dumps({f"p{at}": at for at in range(9)}))
    with pytest.raises(ResultNotValid, match=r"/p4: 4 is not of type .string.; and 4 more"):
        await llm_harness.extract(model, "Name: Mill", schema=schema)


async def test_a_round_shows_the_last_answer_and_not_all_of_them(llm_harness: LlmHarness):
    model = ModelThatSays('{"Name": 1}', '{"Name": 2}', GOOD)
    await llm_harness.extract(model, "Name: Mill")
    assert [len(question.messages) for question in model.questions] == [2, 4, 4]
    assert model.questions[2].messages[2].text == '{"Name": 2}'


@pytest.mark.parametrize("error", [ModelDeclined(reason="no"), AnswerTruncated()])
async def test_what_a_model_declines_or_cuts_is_not_asked_for_again(llm_harness: LlmHarness, error: PenstockError):
    model = ModelThatFails(error, at={1})
    with pytest.raises(type(error)):
        await llm_harness.extract(model, "Name: Mill")
    assert model.calls == 1


async def test_nulls_that_stand_for_absent_are_no_problem(llm_harness: LlmHarness):
    extracted = await llm_harness.extract(ModelThatSays('{"Name": "Mill", "City": null}'), "Name: Mill")
    assert extracted.value == {"Name": "Mill"}


class TestWhatCannotBeChecked:
    async def test_is_a_problem_of_the_answer(self, llm_harness: LlmHarness, monkeypatch: pytest.MonkeyPatch):
        bounds = replace(READING, result_bytes=64)
        monkeypatch.setattr("penstock.adapters.llm_postprocessor.validation.READING", bounds)
        model = ModelThatSays(json.dumps({"Name": "M" * 1000}), GOOD)
        assert (await llm_harness.extract(model, "Name: Mill")).value == {"Name": "Mill"}
        assert "cannot be checked" in data_of(model.questions[1], "PROBLEMS")

    async def test_for_a_busy_machine_is_tried_again_later(
        self, llm_harness: LlmHarness, monkeypatch: pytest.MonkeyPatch
    ):
        bounds = replace(READING, seconds=0.05)
        monkeypatch.setattr("penstock.adapters.llm_postprocessor.validation.READING", bounds)
        checker = AnswerChecker(sandbox=llm_harness.sandbox, scratch=llm_harness.scratch)
        with pytest.raises(DocumentTookTooLong) as caught:
            await checker.validate("paper.pdf", '{"a": "' + 'x"y' * 66_000, json.dumps(SCHEMA).encode())
        assert caught.value.retryable
        assert llm_harness.left_behind() == []
