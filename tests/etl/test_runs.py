"""Run state of a run only moves forward, and only by the worker that holds the lease."""

from dataclasses import replace

import pytest

from penstock.documents.ocr.provider import Reading, StageContext
from penstock.documents.postprocessor import ExtractionResult, ExtractionRule
from penstock.etl import run_state
from penstock.etl.domain import Phase, Status
from penstock.etl.errors import RunCancelled
from penstock.etl.run_state import TaskRun, job_id
from penstock.kernel.leases import LeaseLost
from penstock.kernel.runstate import RunMovedOn, RunSnapshot
from tests.etl.harness import EtlHarness, on_both_profiles
from tests.fakes.ocr import EchoPostProcessor

POINTERS = ("artifact_mineru_markdown_key", "provider_task_id", "page_count", "pages_done", "ocr", "cache")


@pytest.mark.parametrize("profile", ["scale"], indirect=True)
async def test_other_programs_can_read_the_hash_of_a_running_task(harness: EtlHarness):
    ocr, task, working = await harness.paused(before_page=2)
    assert harness.link is not None
    found = {
        name.decode(): value.decode()
        for name, value in (await harness.link.execute("HGETALL", f"etl:task:{task.id}")).items()
    }
    said = {"status": "mineru_parsing", "phase": "ocr", "progress": "0", "attempt_ocr": "1"}
    assert found.items() >= {**said, "arq_job_id_ocr": f"etl:{task.id}:1:ocr", "user_id": "5"}.items()
    assert found["updated_at"]
    assert "error_code" not in found
    ocr.go_on.set()
    await working
    await harness.work()
    shown = await harness.link.execute("HMGET", f"etl:task:{task.id}", "status", "phase", "progress")
    assert shown == [b"completed", b"finalize", b"100"]
    assert await harness.link.execute("HGET", f"etl:task:{task.id}", "artifact_mineru_markdown_key")


@on_both_profiles
class TestOrder:
    async def test_within_a_run_no_status_gives_way_to_an_earlier_one(self, harness: EtlHarness):
        task = await harness.submit()
        for _ in range(2):  # the two stages
            held = await harness.claim()
            await harness.settle(held, await harness.do(held))
            await run_state.show(harness.deps, task)
            assert (await harness.shown(task)).task.status is Status.LLM_PROCESSING
        await harness.deliver()
        assert (await harness.shown(task)).task.status is Status.COMPLETED
        await run_state.show(harness.deps, task)
        assert (await harness.shown(task)).task.status is Status.COMPLETED

    async def test_an_earlier_worker_cannot_move_a_run(self, harness: EtlHarness):
        task = await harness.submit()
        first = await harness.context(await harness.claim(), task)
        await harness.rescue()
        second = await harness.context(await harness.claim(), task)
        harness.clock.advance(seconds=1)
        await second.progress(5, 10)
        shown = await harness.shown(task)
        with pytest.raises(RunCancelled):
            await first.progress(9, 10)
        assert first.is_lost
        assert not second.is_lost
        assert await harness.shown(task) == shown
        assert (shown.task.progress, shown.details.attempt_ocr) == (40, 2)

    async def test_a_late_worker_that_wrote_once_more_does_not_move_a_run_back(self, harness: EtlHarness):
        task = await harness.submit()
        former = await harness.claim()
        await harness.rescue()
        holder = await harness.context(await harness.claim(), task)
        late = await harness.context(former, task)
        harness.clock.advance(seconds=1)
        await late.progress(8, 10)
        shown = (await harness.shown(task)).task
        await holder.progress(2, 10)
        after = (await harness.shown(task)).task
        assert (after.progress, after.metadata["pages_done"]) == (shown.progress, 8)
        harness.clock.advance(seconds=1)
        with pytest.raises(RunCancelled):
            await late.progress(9, 10)

    async def test_an_entry_of_an_older_version_is_taken_over(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.lose_run_state(task)
        running = replace(task, status=Status.MINERU_PARSING, progress=30)
        older = run_state.encode(
            run_state.key(harness.deps, task.id), TaskRun.of(running, phase=Phase.OCR), database=""
        )
        turns = {"turn": 3, "step": 2}  # once part of the order
        order = (1 << 60) + (3 << 32) + 2
        await harness.deps.runs.put(replace(older, order=order, fields={**older.fields, **turns}))
        context = await harness.context(await harness.claim(), task)
        assert (await harness.shown(task)).task.progress == 30
        harness.clock.advance(seconds=1)
        await context.progress(5, 10)
        assert (await harness.shown(task)).task.progress == 40
        await run_state.show(harness.deps, replace(task, status=Status.FAILED))
        assert (await harness.shown(task)).task.status is Status.FAILED

    async def test_putting_the_same_twice_is_harmless(self, harness: EtlHarness):
        task = await harness.submit()
        for _ in range(2):
            await run_state.show(harness.deps, task)
        context = await harness.context(await harness.claim(), task)
        await run_state.show(harness.deps, task)
        assert (await harness.shown(task)).task.status is Status.MINERU_PARSING
        over = replace(task, status=Status.FAILED, error="x")
        for _ in range(2):
            await run_state.show(harness.deps, over)
        harness.clock.advance(seconds=1)
        with pytest.raises(RunMovedOn):
            await context.progress(1, 2)
        assert (await harness.shown(task)).task.error == "x"

    async def test_a_run_that_is_over_cannot_be_taken_over(self, harness: EtlHarness):
        task = await harness.submit()
        held = await harness.claim()
        await run_state.show(harness.deps, replace(task, status=Status.CANCELLED))
        with pytest.raises(RunMovedOn):
            await harness.context(held, task)
        async with harness.db.tx() as tx:
            await harness.deps.queue.revoke(tx, [held.id])
        with pytest.raises(LeaseLost):
            await harness.context(held, task)

    async def test_a_run_does_not_go_on_from_another_databases_task(self, harness: EtlHarness):
        task = await harness.submit()
        other = replace(task, user_id=6, status=Status.MINERU_PARSING, progress=70, metadata={"provider_task_id": "x"})
        await harness.lose_run_state(task)
        await harness.deps.runs.put(
            run_state.encode(run_state.key(harness.deps, task.id), TaskRun.of(other), database="")
        )
        opened = await harness.context(await harness.claim(), task)
        assert (opened.task.progress, opened.task.metadata.get("provider_task_id")) == (0, None)

    async def test_a_worker_that_finds_ocr_done_does_not_turn_back(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.do(await harness.claim())
        await harness.rescue()
        again = await harness.context(await harness.claim(), task)
        assert again.task.status is Status.LLM_PROCESSING
        assert again.task.progress == 80


@on_both_profiles
class TestWhatWasRead:
    @pytest.mark.parametrize("lost", [False, True])
    async def test_is_shown_when_post_processing_begins_and_put_again_only_where_it_was_lost(
        self, harness: EtlHarness, lost: bool
    ):
        seen: list[RunSnapshot | None] = []

        class PostProcessorThatLooks(EchoPostProcessor):
            async def extract(
                self, filename: str, reading: Reading, rule: ExtractionRule, context: StageContext
            ) -> ExtractionResult:
                seen.append(await harness.deps.runs.get(f"etl:task:{task.id}"))
                return await super().extract(filename, reading, rule, context)

        harness.set(post_processor=PostProcessorThatLooks())
        task = await harness.submit()
        job = await harness.claim()
        await harness.settle(job, await harness.do(job))
        before = await harness.deps.runs.get(f"etl:task:{task.id}")
        assert before is not None
        if lost:
            await harness.lose_run_state(task)
        await harness.work()
        [shown] = seen
        assert shown is not None
        pointers, known = shown.fields["metadata"], before.fields["metadata"]
        assert {name: pointers[name] for name in POINTERS} == {name: known[name] for name in POINTERS}
        # One update by the worker that takes over, and one more where everything was lost.
        assert (shown.fields["progress"], shown.order) == (80, 2 if lost else before.order + 1)


class TestPlace:
    @on_both_profiles
    async def test_keys_begin_with_what_is_set(self, harness: EtlHarness):
        harness.set(key_prefix="mine:")
        task = await harness.submit()
        assert await harness.deps.runs.get(f"mine:task:{task.id}") is not None
        assert await harness.deps.runs.get(f"etl:task:{task.id}") is None
        await harness.work()
        entry = await harness.deps.runs.get(f"mine:task:{task.id}")
        assert entry is not None
        assert entry.final

    @on_both_profiles
    async def test_an_entry_holds_all_that_a_status_answer_needs(self, harness: EtlHarness):
        task = await harness.submit()
        entry = await harness.deps.runs.get(f"etl:task:{task.id}")
        assert entry is not None
        assert {
            "status", "phase", "progress", "attempt_ocr", "attempt_postprocess", "arq_job_id_ocr",
            "arq_job_id_postprocess", "artifact_mineru_markdown_key", "provider_task_id", "error_code",
            "error_message", "updated_at", "created_at", "user_id", "project_id", "filename", "rule_id", "metadata",
        } <= set(entry.fields)  # fmt: skip

    async def test_jobs_are_named_by_task_run_and_stage(self, harness: EtlHarness):
        task = await harness.submit()
        assert job_id(task, Phase.OCR) == f"etl:{task.id}:1:ocr"
        assert job_id(replace(task, run=3), Phase.POSTPROCESS) == f"etl:{task.id}:3:postprocess"


@on_both_profiles
async def test_pages_that_are_passed_once_more_are_not_told_of_as_fewer(harness: EtlHarness):
    task = await harness.submit()
    for pages in ((1, 2, 3), (1,)):
        context = await harness.context(await harness.claim(), task)
        for done in pages:
            harness.clock.advance(seconds=1)
            await context.progress(done, 9)
        await harness.rescue()
    assert (await harness.shown(task)).task.metadata["pages_done"] == 3
