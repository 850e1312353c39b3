"""The three strategies, chosen by the rule or by the size of the document."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from penstock.adapters.llm_postprocessor import LlmPostProcessorConfig
from penstock.documents.chat_model import ChatRequest, ModelChoice, ModelNotConfigured, PromptTooLong
from penstock.documents.errors import DocumentUnreadable
from penstock.documents.extract.errors import (
    DocumentHasNoText,
    DocumentHasTooManyChunks,
    ModelRuleUnusable,
    ResultNotValid,
)
from penstock.documents.ocr.provider import Reading
from penstock.documents.pages import Page
from penstock.documents.postprocessor import ExtractionRule
from tests.adapters.llm_postprocessor.harness import SCHEMA, TEXT, LlmHarness
from tests.adapters.local_reader_harness import RecordingContext
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

SHORT = LlmPostProcessorConfig(threshold_characters=400, chunk_characters=200, max_chunks=5)
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
    async def test_asks_about_the_one_page_that_is_given(self, llm_harness: LlmHarness):
        page = Page(number=7, origin="text", markdown="Name: Mill")
        post_processor = llm_harness.post_processor(ModelThatReadsLabels())
        rule = ExtractionRule(json_schema=SCHEMA)
        extracted = await post_processor.extract_pages("paper.pdf", [page], rule, llm_harness.context)
        assert extracted.value["Name"] == "Mill"
        assert {place.page for place in extracted.citations if place.grounded} == {7}
        assert llm_harness.left_behind() == []

    async def test_asks_once_about_the_whole_document(self, llm_harness: LlmHarness):
        model = ModelThatReadsLabels()
        extracted = await llm_harness.extract(model, "Name: Mill", "City: Ulm", system_prompt="Be brief.")
        assert (extracted.value, extracted.strategy, model.calls) == ({"Name": "Mill", "City": "Ulm"}, "direct-json", 1)
        question = model.questions[0]
        assert question.messages[0].text.startswith("Be brief.")
        assert data_of(question) == "<!-- page 1 -->\n\nName: Mill\n\n<!-- page 2 -->\n\nCity: Ulm\n\n"
        assert question.schema == SCHEMA
        assert question.strict_schema is not None
        assert question.strict_schema["required"] == ["Name", "City"]

    async def test_tells_what_it_cost(self, llm_harness: LlmHarness):
        extracted = await llm_harness.extract(ModelThatReadsLabels(), "Name: Mill")
        assert extracted.usage == {
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
        assert extracted.notes == {}

    async def test_does_not_invent_what_the_server_does_not_count(self, llm_harness: LlmHarness):
        usage = (await llm_harness.extract(ModelThatCountsNothing(), "Name: Mill")).usage
        assert (usage["prompt_tokens"], usage["completion_tokens"], usage["cached_tokens"], usage["cost"]) == (
            None,
            None,
            None,
            None,
        )

    async def test_shows_its_progress_and_leaves_nothing_behind(self, llm_harness: LlmHarness):
        await llm_harness.extract(ModelThatReadsLabels(), "Name: Mill")
        assert llm_harness.context.told == sorted(llm_harness.context.told)
        assert (llm_harness.context.told[0], llm_harness.context.told[-1]) == ((0, 2), (2, 2))
        assert llm_harness.left_behind() == []

    async def test_is_done_for_a_long_document_when_the_rule_says_so(self, llm_harness: LlmHarness):
        llm_harness.terms = SHORT
        model = ModelThatReadsLabels()
        extracted = await llm_harness.extract(model, "Name: Mill", *[FILLER] * 4, strategy="direct-json")
        assert (extracted.strategy, model.calls) == ("direct-json", 1)

    async def test_asks_whom_the_rule_names(self, llm_harness: LlmHarness):
        model = ModelThatReadsLabels()
        options = {"server": "near", "model": "large", "temperature": 0, "colour": "red"}
        extracted = await llm_harness.extract(model, "Name: Mill", options=options)
        assert model.questions[0].which == ModelChoice(server="near", model="large", temperature=0.0)
        assert extracted.usage["server"] == "near"


class TestSize:
    async def test_a_document_over_the_threshold_is_asked_about_as_the_settings_say(self, llm_harness: LlmHarness):
        for strategy in ("chunked-summarize", "chunked-extract"):
            llm_harness.terms = replace(SHORT, chunk_strategy=strategy)
            assert (await llm_harness.extract(ModelThatReadsLabels(), "Name: Mill", *[FILLER] * 3)).strategy == strategy

    async def test_the_rule_counts_before_the_size(self, llm_harness: LlmHarness):
        extracted = await llm_harness.extract(ModelThatReadsLabels(), "Name: Mill", strategy="chunked-extract")
        assert extracted.strategy == "chunked-extract"

    @pytest.mark.parametrize("strategy", [None, "direct-json", "chunked-summarize", "chunked-extract"])
    async def test_too_many_chunks_are_a_failure_that_names_the_settings(
        self, llm_harness: LlmHarness, strategy: str | None
    ):
        llm_harness.terms = SHORT
        with pytest.raises(DocumentHasTooManyChunks) as caught:
            await llm_harness.extract(ModelThatIsNotToBeAsked(), *[FILLER] * 9, strategy=strategy)
        assert str(caught.value).startswith("paper.pdf is longer than the limit of 5 chunks of 200 characters")
        assert "ETL_POSTPROCESS_MAX_CHUNKS" in caught.value.hint
        assert "ETL_POSTPROCESS_CHUNK_SIZE_CHARS" in caught.value.hint
        assert caught.value.code == "DOCUMENT_HAS_TOO_MANY_CHUNKS"
        assert caught.value.retryable is False

    async def test_a_rule_may_ask_for_smaller_chunks_and_never_for_larger_ones(self, llm_harness: LlmHarness):
        llm_harness.terms = replace(SHORT, chunk_characters=400)
        for size, calls in ((200, 4), (400, 2), (10_000, 2)):
            model = ModelThatReadsLabels()
            options, llm_harness.context = {"chunk_size_chars": size}, RecordingContext(folder=f"tries/{size}/")
            await llm_harness.extract(
                model, *["Name: Mill\n" + FILLER] * 4, strategy="chunked-extract", options=options
            )
            assert model.calls == calls

    async def test_small_chunks_do_not_keep_a_short_document_from_being_asked_about_whole(
        self, llm_harness: LlmHarness
    ):
        llm_harness.terms = LlmPostProcessorConfig(threshold_characters=3000, chunk_characters=1000, max_chunks=5)
        options = {"chunk_size_chars": 200}
        extracted = await llm_harness.extract(ModelThatReadsLabels(), "Name: Mill", *[FILLER] * 15, options=options)
        assert extracted.strategy == "direct-json"

    async def test_a_document_without_a_word_costs_nothing(self, llm_harness: LlmHarness):
        for pages in ([], ["", " \n"]):
            with pytest.raises(DocumentHasNoText, match=r"paper\.pdf"):
                await llm_harness.extract(ModelThatIsNotToBeAsked(), *pages)

    async def test_a_damaged_file_of_pages_is_an_error_with_a_name(self, llm_harness: LlmHarness):
        await llm_harness.blobs.put("damaged", b'{"number": "one"}\n')
        reading = Reading(markdown_key="m", pages_key="damaged", provider_task_id="t", page_count=1)
        post_processor = llm_harness.post_processor(ModelThatIsNotToBeAsked())
        with pytest.raises(DocumentUnreadable, match="a file of pages"):
            await post_processor.extract("paper.pdf", reading, ExtractionRule(json_schema=SCHEMA), llm_harness.context)


class TestExtract:
    async def test_asks_about_every_chunk_and_merges(self, llm_harness: LlmHarness):
        llm_harness.terms = replace(SHORT, chunk_strategy="chunked-extract")
        model = ModelThatReadsLabels()
        extracted = await llm_harness.extract(model, "Name: Mill\n" + FILLER, FILLER, "City: Ulm\n" + FILLER)
        assert extracted.value == {"Name": "Mill", "City": "Ulm"}
        assert (model.calls, extracted.usage["calls"], extracted.notes) == (3, 3, {})
        assert sorted("pages 3 to 3" in outside_of(question) for question in model.questions) == [False, False, True]
        assert all("required" not in (question.schema or {"required": 1}) for question in model.questions)

    async def test_keeps_conflicting_values_of_chunks(self, llm_harness: LlmHarness):
        llm_harness.terms = replace(SHORT, chunk_strategy="chunked-extract")
        extracted = await llm_harness.extract(
            ModelThatReadsLabels(), "Name: Mill\n" + FILLER, "Name: Weir\n" + FILLER, "Name: MILL\n" + FILLER
        )
        assert extracted.value == {"Name": "Mill"}
        values = [{"value": "Mill", "pages": [1, 1]}, {"value": "Weir", "pages": [2, 2]}]
        assert extracted.notes == {"conflicts": [{"pointer": "/Name", "values": values}]}

    async def test_puts_rows_in_the_order_of_the_document(self, llm_harness: LlmHarness):
        llm_harness.terms = replace(SHORT, chunk_strategy="chunked-extract", concurrency=2)
        pages = [f"- row {at}\n- common\n{FILLER}" for at in range(4)]
        extracted = await llm_harness.extract(ModelThatDoes(rows_of), *pages, schema=ROWS)
        assert extracted.value["rows"] == ["row 0", "common", "row 1", "row 2", "row 3"]
        assert extracted.notes == {"repeats": {"/rows": 3}}

    async def test_is_judged_by_the_whole_schema_at_the_end_and_mended_once(self, llm_harness: LlmHarness):
        llm_harness.terms = replace(SHORT, chunk_strategy="chunked-extract")

        def answer(question: ChatRequest) -> Any:
            at_hand = data_of(question, "JSON")
            return {**json.loads(at_hand), "Name": "unnamed"} if at_hand else {"City": "Ulm"}

        model = ModelThatDoes(answer)
        extracted = await llm_harness.extract(model, *[FILLER + "City: Ulm"] * 3)
        assert extracted.value == {"Name": "unnamed", "City": "Ulm"}
        assert (model.calls, extracted.usage["repairs"]) == (4, 1)
        assert '"Name\\" is a required property' in data_of(model.questions[-1], "PROBLEMS")

    @pytest.mark.parametrize(("rounds", "calls"), [(2, 4), (0, 3)])
    async def test_fails_with_the_problems_when_that_did_not_help(
        self, llm_harness: LlmHarness, rounds: int, calls: int
    ):
        llm_harness.terms = replace(SHORT, chunk_strategy="chunked-extract", repair_rounds=rounds)
        model = ModelThatDoes(lambda question: {"City": "Ulm"})
        with pytest.raises(ResultNotValid, match=f'after {min(rounds, 1)} repairs: /: "Name" is a required property'):
            await llm_harness.extract(model, *[FILLER + "City: Ulm"] * 3)
        assert model.calls == calls

    async def test_does_not_ask_a_model_to_mend_what_no_model_takes_in(self, llm_harness: LlmHarness):
        llm_harness.terms = replace(SHORT, chunk_strategy="chunked-extract")
        model = ModelThatDoes(lambda question: {"City": "x" * 600_000})
        with pytest.raises(ResultNotValid, match="after 0 repairs"):
            await llm_harness.extract(model, *[FILLER] * 3)
        assert model.calls == 3

    async def test_asks_no_more_at_once_than_it_may(self, llm_harness: LlmHarness):
        llm_harness.terms = replace(SHORT, chunk_strategy="chunked-extract", concurrency=2)
        model = ModelThatWaitsForTwo(at=1)
        async with asyncio.timeout(30):
            await llm_harness.extract(model, *[f"Name: Mill\nCity: {at}\n{FILLER}" for at in range(5)])
        assert (model.calls, model.most_at_once) == (5, 2)

    async def test_shows_its_progress(self, llm_harness: LlmHarness):
        llm_harness.terms = replace(SHORT, chunk_strategy="chunked-extract")
        await llm_harness.extract(ModelThatReadsLabels(), *["Name: Mill\n" + FILLER] * 3)
        assert {done for done, _ in llm_harness.context.told} == {0, 1, 2, 3, 4, 5}
        assert {of for _, of in llm_harness.context.told} == {5}


class TestSummarize:
    async def test_summarizes_every_chunk_and_asks_about_the_summaries(self, llm_harness: LlmHarness):
        llm_harness.terms = SHORT

        def answer(question: ChatRequest) -> Any:
            text = data_of(question)
            if question.schema is None:
                return f"<think>hm</think> Name: {labelled(text)['Name']}"
            return {"Name": " and ".join(value for line in text.splitlines() for value in labelled(line).values())}

        model = ModelThatDoes(answer)
        extracted = await llm_harness.extract(model, *[f"Name: {name}\n{FILLER}" for name in ("A", "B", "C")])
        assert extracted.value == {"Name": "A and B and C"}
        assert extracted.strategy == "chunked-summarize"
        *first, last = model.questions
        assert [question.schema for question in first] == [None, None, None]
        assert last.schema == SCHEMA
        notes = "".join(f"<!-- pages {at} to {at} -->\n\nName: {name}\n\n" for at, name in enumerate("ABC", 1))
        assert data_of(last) == notes

    async def test_asks_again_if_an_answer_is_only_reasoning(self, llm_harness: LlmHarness):
        model = ModelThatSays("<think>hm</think>", "Name: Mill", '{"Name": "Mill"}')
        extracted = await llm_harness.extract(model, "Name: Mill", strategy="chunked-summarize")
        assert (extracted.value, model.calls, extracted.usage["repairs"]) == ({"Name": "Mill"}, 3, 1)

    async def test_fails_if_every_answer_is_only_reasoning(self, llm_harness: LlmHarness):
        model = ModelThatSays("<think>hm</think>")
        with pytest.raises(ResultNotValid, match="after 2 repairs: /: the answer contains only reasoning"):
            await llm_harness.extract(model, "Name: Mill", strategy="chunked-summarize")
        assert model.calls == 3

    async def test_summaries_that_sum_nothing_up_are_a_failure_and_not_sent_in_one_piece(self, llm_harness: LlmHarness):
        llm_harness.terms = SHORT
        model = ModelThatSays("word " * 500)
        with pytest.raises(PromptTooLong, match=r"\d+ characters, over 3000"):
            await llm_harness.extract(model, *["Name: Mill\n" + FILLER] * 3)
        assert [question.schema for question in model.questions] == [None, None, None]

    async def test_asks_for_what_fits_together(self, llm_harness: LlmHarness):
        llm_harness.terms = replace(SHORT, threshold_characters=1800)
        model = ModelThatReadsLabels()
        await llm_harness.extract(model, *["Name: Mill\n" + FILLER] * 3, strategy="chunked-summarize")
        assert "at most 600 characters" in outside_of(model.questions[0])

    async def test_sums_up_even_one_chunk_when_the_rule_says_so(self, llm_harness: LlmHarness):
        model = ModelThatReadsLabels()
        extracted = await llm_harness.extract(model, "Name: Mill", strategy="chunked-summarize")
        assert (extracted.value, model.calls) == ({"Name": "Mill"}, 2)
        assert (llm_harness.context.told[0], llm_harness.context.told[-1]) == ((0, 3), (3, 3))


class TestIdentity:
    async def test_is_the_model_the_words_and_the_cut(self, llm_harness: LlmHarness):
        post_processor = llm_harness.post_processor(ModelThatReadsLabels())
        rules = [
            ExtractionRule(),
            ExtractionRule(options={"model": "large"}),
            ExtractionRule(options={"temperature": 1}),
            ExtractionRule(strategy="direct-json"),
            ExtractionRule(options={"chunk_size_chars": 500}),
        ]
        seen = [json.dumps(post_processor.identity(rule)) for rule in rules]
        assert len(set(seen)) == len(rules)
        assert post_processor.identity(ExtractionRule())["prompts"] == 1

    async def test_changes_with_the_settings_that_matter(self, llm_harness: LlmHarness):
        model = ModelThatReadsLabels()
        before = llm_harness.post_processor(model)
        llm_harness.terms = replace(llm_harness.terms, threshold_characters=1, chunk_characters=300)
        after = llm_harness.post_processor(model)
        for strategy, is_same in ((None, False), ("chunked-extract", False), ("direct-json", True)):
            rule = ExtractionRule(strategy=strategy)
            assert (before.identity(rule) == after.identity(rule)) is is_same
        llm_harness.terms = replace(llm_harness.terms, repair_rounds=0, max_chunks=1, concurrency=1)
        assert llm_harness.post_processor(model).identity(ExtractionRule()) == after.identity(ExtractionRule())

    async def test_is_refused_without_a_model(self, llm_harness: LlmHarness):
        with pytest.raises(ModelNotConfigured):
            llm_harness.post_processor(ModelThatReadsLabels()).identity(ExtractionRule(options={"server": "far"}))


class TestRules:
    async def test_need_a_schema(self, llm_harness: LlmHarness):
        missing: list[Any] = [None, {}]
        for schema in missing:
            with pytest.raises(ModelRuleUnusable, match="no json_schema"):
                await llm_harness.extract(ModelThatIsNotToBeAsked(), "Name: Mill", schema=schema)

    async def test_with_an_unknown_strategy_are_refused(self, llm_harness: LlmHarness):
        with pytest.raises(ModelRuleUnusable, match="postprocess_strategy 'guess'"):
            await llm_harness.extract(ModelThatIsNotToBeAsked(), "Name: Mill", strategy="guess")

    async def test_with_an_unknown_server_are_refused_before_anything_is_read(self, llm_harness: LlmHarness):
        with pytest.raises(ModelNotConfigured, match="far"):
            await llm_harness.extract(ModelThatIsNotToBeAsked(), "Name: Mill", options={"server": "far"})
        assert llm_harness.context.told == []

    async def test_with_an_option_of_a_wrong_type_are_refused(self, llm_harness: LlmHarness):
        with pytest.raises(ModelRuleUnusable, match=r"options\.temperature"):
            await llm_harness.extract(ModelThatSays(""), "Name: Mill", options={"temperature": "hot"})

    async def test_with_a_schema_that_is_too_much_are_refused(self, llm_harness: LlmHarness):
        deep: dict[str, Any] = {}
        for _ in range(50_000):
            deep = {"not": deep}
        for schema in (deep, {"type": "object", "description": "x" * 100_000}):
            with pytest.raises(ModelRuleUnusable):
                await llm_harness.extract(ModelThatIsNotToBeAsked(), "Name: Mill", schema=schema)
