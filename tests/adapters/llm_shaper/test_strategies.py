"""The three strategies, chosen by the rule or by the size of the document."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from penstock.adapters.llm_shaper import LlmShaperConfig
from penstock.documents.chat_model import ChatRequest, ModelChoice, ModelNotConfigured, PromptTooLong
from penstock.documents.errors import DocumentUnreadable
from penstock.documents.extract.errors import (
    DocumentHasNoText,
    DocumentHasTooManyChunks,
    ModelRuleUnusable,
    ResultNotValid,
)
from penstock.documents.ocr.provider import Reading
from penstock.documents.postprocessor import ExtractionRule
from tests.adapters.llm_shaper.harness import SCHEMA, TEXT, ShaperHarness
from tests.adapters.local_reader_harness import NotingDesk
from tests.fakes.models import (
    ModelThatCountsNothing,
    ModelThatDoes,
    ModelThatIsNotToBeAsked,
    ModelThatReadsLabels,
    ModelThatSays,
    ModelThatWaits,
    data_of,
    labelled,
    outside_of,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHORT = LlmShaperConfig(threshold_characters=400, chunk_characters=200, max_chunks=5)
FILLER = "Nothing is said here. " * 6


class ModelThatWaitsForTwo(ModelThatWaits):
    """Answers only after a second question arrived."""

    async def say(self, question: ChatRequest) -> str:
        if self.calls == 2:
            self.go_on.set()
        return await super().say(question)


ROWS = {"type": "object", "properties": {"Name": TEXT, "rows": {"type": "array", "items": TEXT, "minItems": 2}}}


def rows_of(question: ChatRequest) -> dict[str, Any]:
    """The labels and the dashed lines of a document."""
    text = data_of(question)
    rows = [line.removeprefix("- ") for line in text.splitlines() if line.startswith("- ")]
    return {"Name": labelled(text).get("Name"), "rows": rows or None}


class TestDirect:
    async def test_asks_once_about_the_whole_document(self, shaper_harness: ShaperHarness):
        model = ModelThatReadsLabels()
        shaped = await shaper_harness.shape(model, "Name: Mill", "City: Ulm", system_prompt="Be brief.")
        assert (shaped.value, shaped.strategy, model.calls) == ({"Name": "Mill", "City": "Ulm"}, "direct-json", 1)
        question = model.questions[0]
        assert question.messages[0].text.startswith("Be brief.")
        assert data_of(question) == "<!-- page 1 -->\n\nName: Mill\n\n<!-- page 2 -->\n\nCity: Ulm\n\n"
        assert question.schema == SCHEMA
        assert question.strict_schema is not None
        assert question.strict_schema["required"] == ["Name", "City"]

    async def test_tells_what_it_cost(self, shaper_harness: ShaperHarness):
        shaped = await shaper_harness.shape(ModelThatReadsLabels(), "Name: Mill")
        assert shaped.usage == {
            "model": "fake-1",
            "server": "default",
            "calls": 1,
            "prompt_tokens": 100,
            "completion_tokens": 10,
            "cached_tokens": 0,
            "seconds": 0.5,
            "cost": 0.25,
            "response_mode": "json_schema",
            "repairs": 0,
            "strategy": "direct-json",
        }
        assert shaped.notes == {}

    async def test_does_not_invent_what_the_server_does_not_count(self, shaper_harness: ShaperHarness):
        usage = (await shaper_harness.shape(ModelThatCountsNothing(), "Name: Mill")).usage
        assert (usage["prompt_tokens"], usage["completion_tokens"], usage["cached_tokens"], usage["cost"]) == (
            None,
            None,
            None,
            None,
        )

    async def test_shows_its_progress_and_leaves_nothing_behind(self, shaper_harness: ShaperHarness):
        await shaper_harness.shape(ModelThatReadsLabels(), "Name: Mill")
        assert shaper_harness.desk.told == sorted(shaper_harness.desk.told)
        assert (shaper_harness.desk.told[0], shaper_harness.desk.told[-1]) == ((0, 2), (2, 2))
        assert shaper_harness.left_behind() == []

    async def test_is_done_for_a_long_document_when_the_rule_says_so(self, shaper_harness: ShaperHarness):
        shaper_harness.terms = SHORT
        model = ModelThatReadsLabels()
        shaped = await shaper_harness.shape(model, "Name: Mill", *[FILLER] * 4, strategy="direct-json")
        assert (shaped.strategy, model.calls) == ("direct-json", 1)

    async def test_asks_whom_the_rule_names(self, shaper_harness: ShaperHarness):
        model = ModelThatReadsLabels()
        options = {"server": "near", "model": "large", "temperature": 0, "colour": "red"}
        shaped = await shaper_harness.shape(model, "Name: Mill", options=options)
        assert model.questions[0].which == ModelChoice(server="near", model="large", temperature=0.0)
        assert shaped.usage["server"] == "near"


class TestSize:
    async def test_a_document_over_the_threshold_is_asked_about_as_the_settings_say(
        self, shaper_harness: ShaperHarness
    ):
        for strategy in ("chunked-summarize", "chunked-extract"):
            shaper_harness.terms = replace(SHORT, chunk_strategy=strategy)
            assert (
                await shaper_harness.shape(ModelThatReadsLabels(), "Name: Mill", *[FILLER] * 3)
            ).strategy == strategy

    async def test_the_rule_counts_before_the_size(self, shaper_harness: ShaperHarness):
        shaped = await shaper_harness.shape(ModelThatReadsLabels(), "Name: Mill", strategy="chunked-extract")
        assert shaped.strategy == "chunked-extract"

    @pytest.mark.parametrize("strategy", [None, "direct-json", "chunked-summarize", "chunked-extract"])
    async def test_too_many_chunks_are_a_failure_that_names_the_settings(
        self, shaper_harness: ShaperHarness, strategy: str | None
    ):
        shaper_harness.terms = SHORT
        with pytest.raises(DocumentHasTooManyChunks) as caught:
            await shaper_harness.shape(ModelThatIsNotToBeAsked(), *[FILLER] * 9, strategy=strategy)
        assert str(caught.value).startswith("paper.pdf is longer than the limit of 5 chunks of 200 characters")
        assert "ETL_POSTPROCESS_MAX_CHUNKS" in caught.value.hint
        assert "ETL_POSTPROCESS_CHUNK_SIZE_CHARS" in caught.value.hint
        assert caught.value.code == "DOCUMENT_HAS_TOO_MANY_CHUNKS"
        assert caught.value.retryable is False

    async def test_a_rule_may_ask_for_smaller_chunks_and_never_for_larger_ones(self, shaper_harness: ShaperHarness):
        shaper_harness.terms = replace(SHORT, chunk_characters=400)
        for size, calls in ((200, 4), (400, 2), (10_000, 2)):
            model = ModelThatReadsLabels()
            options, shaper_harness.desk = {"chunk_size_chars": size}, NotingDesk(folder=f"tries/{size}/")
            await shaper_harness.shape(
                model, *["Name: Mill\n" + FILLER] * 4, strategy="chunked-extract", options=options
            )
            assert model.calls == calls

    async def test_small_chunks_do_not_keep_a_short_document_from_being_asked_about_whole(
        self, shaper_harness: ShaperHarness
    ):
        shaper_harness.terms = LlmShaperConfig(threshold_characters=3000, chunk_characters=1000, max_chunks=5)
        options = {"chunk_size_chars": 200}
        shaped = await shaper_harness.shape(ModelThatReadsLabels(), "Name: Mill", *[FILLER] * 15, options=options)
        assert shaped.strategy == "direct-json"

    async def test_a_document_without_a_word_costs_nothing(self, shaper_harness: ShaperHarness):
        for pages in ([], ["", " \n"]):
            with pytest.raises(DocumentHasNoText, match=r"paper\.pdf"):
                await shaper_harness.shape(ModelThatIsNotToBeAsked(), *pages)

    async def test_a_damaged_file_of_pages_is_an_error_with_a_name(self, shaper_harness: ShaperHarness):
        await shaper_harness.blobs.put("damaged", b'{"number": "one"}\n')
        reading = Reading(markdown_key="m", pages_key="damaged", provider_task_id="t", page_count=1)
        shaper = shaper_harness.shaper(ModelThatIsNotToBeAsked())
        with pytest.raises(DocumentUnreadable, match="a file of pages"):
            await shaper.shape("paper.pdf", reading, ExtractionRule(json_schema=SCHEMA), shaper_harness.desk)


class TestExtract:
    async def test_asks_about_every_chunk_and_merges(self, shaper_harness: ShaperHarness):
        shaper_harness.terms = replace(SHORT, chunk_strategy="chunked-extract")
        model = ModelThatReadsLabels()
        shaped = await shaper_harness.shape(model, "Name: Mill\n" + FILLER, FILLER, "City: Ulm\n" + FILLER)
        assert shaped.value == {"Name": "Mill", "City": "Ulm"}
        assert (model.calls, shaped.usage["calls"], shaped.notes) == (3, 3, {})
        assert sorted("pages 3 to 3" in outside_of(question) for question in model.questions) == [False, False, True]
        assert all("required" not in (question.schema or {"required": 1}) for question in model.questions)

    async def test_keeps_conflicting_values_of_chunks(self, shaper_harness: ShaperHarness):
        shaper_harness.terms = replace(SHORT, chunk_strategy="chunked-extract")
        shaped = await shaper_harness.shape(
            ModelThatReadsLabels(), "Name: Mill\n" + FILLER, "Name: Weir\n" + FILLER, "Name: MILL\n" + FILLER
        )
        assert shaped.value == {"Name": "Mill"}
        values = [{"value": "Mill", "pages": [1, 1]}, {"value": "Weir", "pages": [2, 2]}]
        assert shaped.notes == {"conflicts": [{"pointer": "/Name", "values": values}]}

    async def test_puts_rows_in_the_order_of_the_document(self, shaper_harness: ShaperHarness):
        shaper_harness.terms = replace(SHORT, chunk_strategy="chunked-extract", side_by_side=2)
        pages = [f"- row {at}\n- common\n{FILLER}" for at in range(4)]
        shaped = await shaper_harness.shape(ModelThatDoes(rows_of), *pages, schema=ROWS)
        assert shaped.value["rows"] == ["row 0", "common", "row 1", "row 2", "row 3"]
        assert shaped.notes == {"repeats": {"/rows": 3}}

    async def test_is_judged_by_the_whole_schema_at_the_end_and_mended_once(self, shaper_harness: ShaperHarness):
        shaper_harness.terms = replace(SHORT, chunk_strategy="chunked-extract")

        def answer(question: ChatRequest) -> Any:
            at_hand = data_of(question, "JSON")
            return {**json.loads(at_hand), "Name": "unnamed"} if at_hand else {"City": "Ulm"}

        model = ModelThatDoes(answer)
        shaped = await shaper_harness.shape(model, *[FILLER + "City: Ulm"] * 3)
        assert shaped.value == {"Name": "unnamed", "City": "Ulm"}
        assert (model.calls, shaped.usage["repairs"]) == (4, 1)
        assert '"Name\\" is a required property' in data_of(model.questions[-1], "PROBLEMS")

    @pytest.mark.parametrize(("rounds", "calls"), [(2, 4), (0, 3)])
    async def test_fails_with_the_problems_when_that_did_not_help(
        self, shaper_harness: ShaperHarness, rounds: int, calls: int
    ):
        shaper_harness.terms = replace(SHORT, chunk_strategy="chunked-extract", repair_rounds=rounds)
        model = ModelThatDoes(lambda question: {"City": "Ulm"})
        with pytest.raises(ResultNotValid, match=f'after {min(rounds, 1)} repairs: /: "Name" is a required property'):
            await shaper_harness.shape(model, *[FILLER + "City: Ulm"] * 3)
        assert model.calls == calls

    async def test_does_not_ask_a_model_to_mend_what_no_model_takes_in(self, shaper_harness: ShaperHarness):
        shaper_harness.terms = replace(SHORT, chunk_strategy="chunked-extract")
        model = ModelThatDoes(lambda question: {"City": "x" * 600_000})
        with pytest.raises(ResultNotValid, match="after 0 repairs"):
            await shaper_harness.shape(model, *[FILLER] * 3)
        assert model.calls == 3

    async def test_asks_no_more_at_once_than_it_may(self, shaper_harness: ShaperHarness):
        shaper_harness.terms = replace(SHORT, chunk_strategy="chunked-extract", side_by_side=2)
        model = ModelThatWaitsForTwo(at=1)
        async with asyncio.timeout(30):
            await shaper_harness.shape(model, *[f"Name: Mill\nCity: {at}\n{FILLER}" for at in range(5)])
        assert (model.calls, model.most_at_once) == (5, 2)

    async def test_shows_its_progress(self, shaper_harness: ShaperHarness):
        shaper_harness.terms = replace(SHORT, chunk_strategy="chunked-extract")
        await shaper_harness.shape(ModelThatReadsLabels(), *["Name: Mill\n" + FILLER] * 3)
        assert {done for done, _ in shaper_harness.desk.told} == {0, 1, 2, 3, 4, 5}
        assert {of for _, of in shaper_harness.desk.told} == {5}


class TestSummarize:
    async def test_summarizes_every_chunk_and_asks_about_the_summaries(self, shaper_harness: ShaperHarness):
        shaper_harness.terms = SHORT

        def answer(question: ChatRequest) -> Any:
            text = data_of(question)
            if question.schema is None:
                return f"<think>hm</think> Name: {labelled(text)['Name']}"
            return {"Name": " and ".join(value for line in text.splitlines() for value in labelled(line).values())}

        model = ModelThatDoes(answer)
        shaped = await shaper_harness.shape(model, *[f"Name: {name}\n{FILLER}" for name in ("A", "B", "C")])
        assert shaped.value == {"Name": "A and B and C"}
        assert shaped.strategy == "chunked-summarize"
        *first, last = model.questions
        assert [question.schema for question in first] == [None, None, None]
        assert last.schema == SCHEMA
        notes = "".join(f"<!-- pages {at} to {at} -->\n\nName: {name}\n\n" for at, name in enumerate("ABC", 1))
        assert data_of(last) == notes

    async def test_asks_again_if_an_answer_is_only_reasoning(self, shaper_harness: ShaperHarness):
        model = ModelThatSays("<think>hm</think>", "Name: Mill", '{"Name": "Mill"}')
        shaped = await shaper_harness.shape(model, "Name: Mill", strategy="chunked-summarize")
        assert (shaped.value, model.calls, shaped.usage["repairs"]) == ({"Name": "Mill"}, 3, 1)

    async def test_fails_if_every_answer_is_only_reasoning(self, shaper_harness: ShaperHarness):
        model = ModelThatSays("<think>hm</think>")
        with pytest.raises(ResultNotValid, match="after 2 repairs: /: the answer contains only reasoning"):
            await shaper_harness.shape(model, "Name: Mill", strategy="chunked-summarize")
        assert model.calls == 3

    async def test_summaries_that_sum_nothing_up_are_a_failure_and_not_sent_in_one_piece(
        self, shaper_harness: ShaperHarness
    ):
        shaper_harness.terms = SHORT
        model = ModelThatSays("word " * 500)
        with pytest.raises(PromptTooLong, match=r"\d+ characters, over 3000"):
            await shaper_harness.shape(model, *["Name: Mill\n" + FILLER] * 3)
        assert [question.schema for question in model.questions] == [None, None, None]

    async def test_asks_for_what_fits_together(self, shaper_harness: ShaperHarness):
        shaper_harness.terms = replace(SHORT, threshold_characters=1800)
        model = ModelThatReadsLabels()
        await shaper_harness.shape(model, *["Name: Mill\n" + FILLER] * 3, strategy="chunked-summarize")
        assert "at most 600 characters" in outside_of(model.questions[0])

    async def test_sums_up_even_one_chunk_when_the_rule_says_so(self, shaper_harness: ShaperHarness):
        model = ModelThatReadsLabels()
        shaped = await shaper_harness.shape(model, "Name: Mill", strategy="chunked-summarize")
        assert (shaped.value, model.calls) == ({"Name": "Mill"}, 2)
        assert (shaper_harness.desk.told[0], shaper_harness.desk.told[-1]) == ((0, 3), (3, 3))


class TestIdentity:
    async def test_is_the_model_the_words_and_the_cut(self, shaper_harness: ShaperHarness):
        shaper = shaper_harness.shaper(ModelThatReadsLabels())
        rules = [
            ExtractionRule(),
            ExtractionRule(options={"model": "large"}),
            ExtractionRule(options={"temperature": 1}),
            ExtractionRule(strategy="direct-json"),
            ExtractionRule(options={"chunk_size_chars": 500}),
        ]
        seen = [json.dumps(shaper.identity(rule)) for rule in rules]
        assert len(set(seen)) == len(rules)
        assert shaper.identity(ExtractionRule())["prompts"] == 1

    async def test_changes_with_the_settings_that_matter(self, shaper_harness: ShaperHarness):
        model = ModelThatReadsLabels()
        before = shaper_harness.shaper(model)
        shaper_harness.terms = replace(shaper_harness.terms, threshold_characters=1, chunk_characters=300)
        after = shaper_harness.shaper(model)
        for strategy, is_same in ((None, False), ("chunked-extract", False), ("direct-json", True)):
            rule = ExtractionRule(strategy=strategy)
            assert (before.identity(rule) == after.identity(rule)) is is_same
        shaper_harness.terms = replace(shaper_harness.terms, repair_rounds=0, max_chunks=1, side_by_side=1)
        assert shaper_harness.shaper(model).identity(ExtractionRule()) == after.identity(ExtractionRule())

    async def test_is_refused_without_a_model(self, shaper_harness: ShaperHarness):
        with pytest.raises(ModelNotConfigured):
            shaper_harness.shaper(ModelThatReadsLabels()).identity(ExtractionRule(options={"server": "far"}))


class TestRules:
    async def test_need_a_schema(self, shaper_harness: ShaperHarness):
        missing: list[Any] = [None, {}]
        for schema in missing:
            with pytest.raises(ModelRuleUnusable, match="no json_schema"):
                await shaper_harness.shape(ModelThatIsNotToBeAsked(), "Name: Mill", schema=schema)

    async def test_with_an_unknown_strategy_are_refused(self, shaper_harness: ShaperHarness):
        with pytest.raises(ModelRuleUnusable, match="postprocess_strategy 'guess'"):
            await shaper_harness.shape(ModelThatIsNotToBeAsked(), "Name: Mill", strategy="guess")

    async def test_with_an_unknown_server_are_refused_before_anything_is_read(self, shaper_harness: ShaperHarness):
        with pytest.raises(ModelNotConfigured, match="far"):
            await shaper_harness.shape(ModelThatIsNotToBeAsked(), "Name: Mill", options={"server": "far"})
        assert shaper_harness.desk.told == []

    async def test_with_an_option_of_a_wrong_type_are_refused(self, shaper_harness: ShaperHarness):
        with pytest.raises(ModelRuleUnusable, match=r"options\.temperature"):
            await shaper_harness.shape(ModelThatSays(""), "Name: Mill", options={"temperature": "hot"})

    async def test_with_a_schema_that_is_too_much_are_refused(self, shaper_harness: ShaperHarness):
        deep: dict[str, Any] = {}
        for _ in range(50_000):
            deep = {"not": deep}
        for schema in (deep, {"type": "object", "description": "x" * 100_000}):
            with pytest.raises(ModelRuleUnusable):
                await shaper_harness.shape(ModelThatIsNotToBeAsked(), "Name: Mill", schema=schema)
