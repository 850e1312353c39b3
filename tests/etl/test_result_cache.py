"""Cache of post-processing results: the same pages under the same rule are processed once, if that costs money."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from penstock.access.domain import Caller
from penstock.adapters.postprocessors import FieldsPostProcessor, SkipPostProcessor
from penstock.documents.postprocessor import ExtractionRule, PostProcessor
from penstock.etl import artifacts
from penstock.etl.api import actions
from penstock.etl.domain import EtlTask, Mode, Rule, RuleBody, Stage, Status, Strategy
from penstock.etl.retry import RetryOptions
from penstock.etl.store import rules, tasks
from penstock.etl.store.tables import etl_memory
from penstock.kernel.errors import Invalid
from tests.etl.harness import ANNA, BERT, EtlHarness, on_both_profiles
from tests.fakes.ocr import PostProcessorThatCosts, PostProcessorThatFails

SAME = "one page\fand another"
BODY = RuleBody(
    name="pages",
    json_schema={"type": "object", "properties": {"pages": {"type": "integer"}}},
    system_prompt="Count.",
    postprocess_mode=Mode.FIELDS,
    postprocess_strategy=Strategy.DIRECT_JSON,
    options={"model": "a"},
)


@pytest.fixture
def post_processor(harness: EtlHarness) -> PostProcessorThatCosts:
    """The post-processor."""
    costly = PostProcessorThatCosts()
    harness.set(post_processor=costly)
    return costly


async def rule_of(harness: EtlHarness, **changes: Any) -> Rule:
    """A rule of Anna's with these changes."""
    async with harness.db.tx() as tx:
        return await rules.insert_rule(tx, replace(BODY, **changes), user_id=5)


async def extracted(harness: EtlHarness, name: str = "a.txt", *, by: Caller = ANNA, **more: Any) -> EtlTask:
    """Submit a task of the same document, run it, and return its row."""
    task = await harness.submit(name, by=by, text=SAME, **more)
    await harness.work()
    return await harness.row(task)


def hit_of(task: EtlTask) -> bool:
    """Whether the result was a cache hit."""
    hit: bool = task.metadata["cache"]["postprocess"]["hit"]
    return hit


@on_both_profiles
async def test_the_same_pages_under_the_same_rule_cost_nothing_again(
    harness: EtlHarness, post_processor: PostProcessorThatCosts
):
    first = await extracted(harness)
    second = await extracted(harness, "b.txt")
    assert (second.status, post_processor.calls) == (Status.COMPLETED, 1)
    known = first.metadata["cache"]["postprocess"]
    assert known == {"hit": False, "task_id": None, "key": known["key"]}
    assert second.metadata["cache"]["postprocess"] == {**known, "hit": True, "task_id": first.id}
    assert first.result is not None
    assert second.result is not None
    assert first.result["usage"] == {"model": "large", "cost": 0.25}
    assert second.result["usage"] == {"cached": True}
    same = ("strategy", "output_size")
    assert [second.result[name] for name in same] == [first.result[name] for name in same]


@on_both_profiles
async def test_the_result_its_places_and_its_notes_are_the_tasks_own(
    harness: EtlHarness, post_processor: PostProcessorThatCosts
):
    first = await extracted(harness)
    second = await extracted(harness, "b.txt")
    await artifacts.drop(harness.deps.blobs, artifacts.folder_of(first))
    for key in (artifacts.result_key(second), artifacts.public_key_of(second)):
        assert msgspec.json.decode(await harness.deps.blobs.get(key)) == {"pages": 2}
    paper = await artifacts.find_result(harness.deps.blobs, second)
    assert paper is not None
    assert (paper.run, paper.citations[0].pointer, paper.notes) == (1, "/pages", {"rounds": 1})
    assert post_processor.calls == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"json_schema": {"type": "object"}},
        {"system_prompt": "Count twice."},
        {"postprocess_strategy": Strategy.CHUNKED_EXTRACT},
        {"options": {"model": "b"}},
    ],
    ids=lambda changes: next(iter(changes)),
)
async def test_whatever_else_a_rule_asks_for_is_made(
    harness: EtlHarness, post_processor: PostProcessorThatCosts, changes: dict[str, Any]
):
    one, other = await rule_of(harness), await rule_of(harness, **changes)
    await extracted(harness, rule_id=one.id)
    assert not hit_of(await extracted(harness, "b.txt", rule_id=other.id))
    assert post_processor.calls == 2


async def test_two_rules_that_ask_for_the_same_share_what_is_made(
    harness: EtlHarness, post_processor: PostProcessorThatCosts
):
    one, other = await rule_of(harness), await rule_of(harness, name="another name", description="of the same")
    await extracted(harness, rule_id=one.id)
    assert hit_of(await extracted(harness, "b.txt", rule_id=other.id))
    assert post_processor.calls == 1


@on_both_profiles
async def test_numbers_of_any_length_may_stand_in_a_schema(harness: EtlHarness, post_processor: PostProcessorThatCosts):
    schema = {"type": "object", "properties": {"pages": {"type": "integer", "maximum": 10**30}}}
    rule = await rule_of(harness, json_schema=schema)
    assert (await extracted(harness, rule_id=rule.id)).status is Status.COMPLETED
    assert hit_of(await extracted(harness, "b.txt", rule_id=rule.id))


async def test_another_model_is_asked(harness: EtlHarness, post_processor: PostProcessorThatCosts):
    await extracted(harness)
    post_processor.model = "small"
    assert not hit_of(await extracted(harness, "b.txt"))


async def test_other_pages_are_shaped(harness: EtlHarness, post_processor: PostProcessorThatCosts):
    await extracted(harness)
    task = await harness.submit("b.txt", text="another page")
    await harness.work()
    assert not hit_of(await harness.row(task))


async def test_somebody_elses_results_are_not_found(harness: EtlHarness, post_processor: PostProcessorThatCosts):
    await extracted(harness)
    assert not hit_of(await extracted(harness, by=BERT))
    assert post_processor.calls == 2


async def test_force_makes_it_anew_and_remembers_it(harness: EtlHarness, post_processor: PostProcessorThatCosts):
    await extracted(harness)
    forced = await extracted(harness, "b.txt", force=True)
    assert not hit_of(forced)
    third = await extracted(harness, "c.txt")
    assert third.metadata["cache"]["postprocess"]["task_id"] == forced.id
    assert post_processor.calls == 2


async def test_a_completed_task_is_shaped_again_by_force_and_its_earlier_result_is_not_found(
    harness: EtlHarness, post_processor: PostProcessorThatCosts
):
    first = await extracted(harness)
    again = await actions.retry_task(
        harness.deps, ANNA, first.id, RetryOptions(from_stage=Stage.POSTPROCESS, force=True)
    )
    assert again.metadata["cache"] == {"ocr": first.metadata["cache"]["ocr"]}
    assert not hit_of(await extracted(harness, "b.txt", force=True))
    assert post_processor.calls == 3
    assert (await harness.row(first)).status is Status.COMPLETED


async def test_a_failure_is_not_remembered_and_its_retry_may_take_what_another_made(harness: EtlHarness):
    harness.set(post_processor=PostProcessorThatFails(Invalid(reason="no"), times=1))
    failed = await extracted(harness)
    assert failed.status is Status.FAILED
    async with harness.db.read() as tx:
        stages = (await tx.conn.scalars(etl_memory.select().with_only_columns(etl_memory.c.stage))).all()
    assert stages == ["ocr"]
    costly = PostProcessorThatCosts()
    harness.set(post_processor=costly)
    other = await extracted(harness, "b.txt")
    await actions.retry_task(harness.deps, ANNA, failed.id, RetryOptions())
    await harness.work()
    row = await harness.row(failed)
    assert row.metadata["cache"]["postprocess"]["task_id"] == other.id
    assert costly.calls == 1


@pytest.mark.parametrize("gone", ["result_key", "grounding_key"])
async def test_a_result_that_is_gone_is_made_again(
    harness: EtlHarness, post_processor: PostProcessorThatCosts, gone: str
):
    first = await extracted(harness)
    await harness.deps.blobs.delete(getattr(artifacts, gone)(first))
    second = await extracted(harness, "b.txt")
    assert (second.status, hit_of(second)) == (Status.COMPLETED, False)


async def test_a_result_of_a_run_before_is_not_looked_at(harness: EtlHarness, post_processor: PostProcessorThatCosts):
    first = await extracted(harness)
    await actions.retry_task(harness.deps, ANNA, first.id, RetryOptions(from_stage=Stage.POSTPROCESS, force=True))
    await harness.claim()  # it is under way, and its earlier result is there still
    async with harness.db.read() as tx:
        known = await tasks.find_cached_stage(tx, 5, first.metadata["cache"]["postprocess"]["key"])
    assert known is not None
    assert (known.task_id, known.run) == (first.id, 1)
    assert await harness.deps.blobs.get(artifacts.result_key(first))
    assert not hit_of(await extracted(harness, "b.txt"))
    assert post_processor.calls == 2


async def test_what_costs_nothing_has_no_key(harness: EtlHarness):
    task = await extracted(harness)
    assert list(task.metadata["cache"]) == ["ocr"]
    fields = FieldsPostProcessor(harness.deps.blobs, harness.deps.sandbox, harness.deps.scratch)
    post_processors: list[PostProcessor] = [SkipPostProcessor(), fields]
    assert [post_processor.identity(ExtractionRule()) for post_processor in post_processors] == [None, None]
