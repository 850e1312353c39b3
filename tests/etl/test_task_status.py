"""Status of tasks: from run state, from rows where run state has nothing, and only of the caller's own tasks."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from penstock.access.domain import Caller
from penstock.adapters.redis.client import RedisUnavailable
from penstock.etl import run_state
from penstock.etl.api import actions, status
from penstock.etl.api.actions import TaskQuery
from penstock.etl.domain import REVIEW, EtlTask, Phase, ReviewStatus, Status
from penstock.etl.errors import ArtifactNotReady, EtlTaskNotFound
from penstock.etl.run_state import TaskRun
from penstock.etl.store import tasks
from penstock.etl.submit import NewTask
from penstock.kernel.errors import Invalid
from penstock.kernel.runstate import RunSnapshot, RunState
from tests.etl.harness import ANNA, BERT, ROOT, EtlHarness, on_both_profiles, on_scale
from tests.fakes.ocr import OcrThatFails, OcrThatWaits, PostProcessorThatFails
from tests.plans import recorded


class RunStateAway:
    """Run state that is unavailable."""

    in_rows = False

    async def put(self, entry: RunSnapshot) -> None:
        raise RedisUnavailable(reason="gone")

    async def put_held(self, snapshot: RunSnapshot) -> None:
        raise RedisUnavailable(reason="gone")

    async def get(self, key: str) -> RunSnapshot | None:
        raise RedisUnavailable(reason="gone")

    async def get_many(self, keys: object) -> list[RunSnapshot]:
        raise RedisUnavailable(reason="gone")

    async def list_by_status(self, status: str, *, after: str = "", limit: int = 100) -> list[RunSnapshot]:
        raise RedisUnavailable(reason="gone")


class RunStateThatLeaves:
    """Run state that becomes unavailable."""

    def __init__(self, real: RunState) -> None:
        self.in_rows = real.in_rows
        self._now = real

    def leave(self) -> None:
        self._now = RunStateAway()

    async def put(self, entry: RunSnapshot) -> None:
        await self._now.put(entry)

    async def put_held(self, snapshot: RunSnapshot) -> None:
        await self._now.put_held(snapshot)

    async def get(self, key: str) -> RunSnapshot | None:
        return await self._now.get(key)

    async def get_many(self, keys: Sequence[str]) -> Sequence[RunSnapshot]:
        return await self._now.get_many(keys)

    async def list_by_status(self, status: str, *, after: str = "", limit: int = 100) -> Sequence[RunSnapshot]:
        return await self._now.list_by_status(status, after=after, limit=limit)


async def names(harness: EtlHarness, wanted: TaskQuery | None = None, *, by: Caller = ANNA) -> list[str]:
    found, _ = await actions.list_tasks(harness.deps, by, wanted or TaskQuery())
    return [task.filename for task in found]


class TestOne:
    async def test_run_state_is_asked_and_the_row_once_by_its_number(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.do(await harness.claim())
        with recorded(harness.db, "etl_task") as said:
            assert (await status.get_status(harness.deps, ANNA, task.id)).status is Status.LLM_PROCESSING
        assert len(said) == 1

    @on_scale
    async def test_nothing_is_asked_of_the_database_where_redis_answers(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.deliver()
        for expected in (Status.PENDING, Status.LLM_PROCESSING, Status.COMPLETED):
            with recorded(harness.db, "") as said:
                shown = await status.wait_for_end(harness.deps, ANNA, task.id, seconds=0)
                await status.find_position(harness.deps, shown)
                with pytest.raises(EtlTaskNotFound):
                    await status.get_status(harness.deps, BERT, task.id)
            assert (shown.status, said) == (expected, [])
            if expected is Status.PENDING:
                job = await harness.claim()
                await harness.settle(job, await harness.do(job))
            await harness.work() if expected is Status.LLM_PROCESSING else None

    @on_scale
    async def test_the_row_tells_of_a_review_that_was_answered_after_the_end(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.work()
        row = await harness.row(task)
        waiting, answered = ({**row.metadata, REVIEW: {"state": state}} for state in ("waiting", "answered"))
        await harness.lose_run_state(task)
        await run_state.show(harness.deps, replace(row, metadata=waiting))
        async with harness.db.tx() as tx:
            await tasks.move_task(tx, row, replace(row, metadata=answered))
        shown = await status.get_status(harness.deps, ANNA, task.id)
        assert shown.review_status is ReviewStatus.ANSWERED

    @on_both_profiles
    @pytest.mark.parametrize("shown", [Status.MINERU_PARSING, Status.COMPLETED])
    async def test_run_state_of_another_databases_task_is_not_shown(self, harness: EtlHarness, shown: Status):
        task = await harness.submit()
        later = task.created_at + timedelta(seconds=1)
        for run, strange in enumerate((replace(task, user_id=6), replace(task, created_at=later)), 2):
            other = replace(strange, filename="secret.pdf", run=run, status=shown)
            key = run_state.key(harness.deps, other.id)
            await harness.deps.runs.put(run_state.encode(key, TaskRun.of(other), database="another"))
            assert (await status.get_status(harness.deps, ANNA, task.id)).filename == "a.txt"
            assert await names(harness) == ["a.txt"]
            with pytest.raises(EtlTaskNotFound):
                await status.get_status(harness.deps, BERT, task.id)

    async def test_a_row_that_is_over_is_believed_before_run_state_has_heard_of_it(self, harness: EtlHarness):
        task = await harness.submit()
        before = await harness.deps.runs.get(f"etl:task:{task.id}")
        assert before is not None
        await harness.work()
        await harness.lose_run_state(task)
        await harness.deps.runs.put(before)
        assert (await status.get_status(harness.deps, ANNA, task.id)).status is Status.COMPLETED

    async def test_the_row_answers_where_run_state_knows_nothing(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.work()
        await harness.lose_run_state(task)
        found = await status.get_status(harness.deps, ANNA, task.id)
        assert (found.status, found.result) == (Status.COMPLETED, (await harness.row(task)).result)

    @on_both_profiles
    async def test_a_final_task_looks_the_same_from_both(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.work()
        shown = await status.get_status(harness.deps, ANNA, task.id)
        assert shown == await harness.row(task)

    @on_both_profiles
    async def test_the_row_is_used_after_run_state_expires(self, harness: EtlHarness):
        task = await harness.submit()
        harness.clock.advance(seconds=86401)
        assert await harness.deps.runs.get(f"etl:task:{task.id}") is None
        assert (await status.get_status(harness.deps, ANNA, task.id)).status is Status.PENDING

    async def test_the_row_answers_while_run_state_is_away(self, harness: EtlHarness):
        task = await harness.submit()
        harness.deps = replace(harness.deps, runs=RunStateAway())
        assert (await status.get_status(harness.deps, ANNA, task.id)).id == task.id
        assert await names(harness) == ["a.txt"]
        assert (await actions.cancel_task(harness.deps, ANNA, task.id)).status is Status.CANCELLED
        assert (await harness.submit("b.txt")).status is Status.PENDING

    async def test_work_goes_on_while_run_state_is_away(self, harness: EtlHarness):
        ocr = OcrThatWaits(harness.deps.blobs, before_page=2)
        harness.set(provider=ocr)
        task = await harness.submit()
        state = RunStateThatLeaves(harness.deps.runs)
        harness.deps = replace(harness.deps, runs=state)
        job = await harness.claim()
        working = asyncio.create_task(harness.do(job))
        await ocr.waits.wait()
        state.leave()
        harness.clock.advance(seconds=1)
        ocr.go_on.set()
        assert await working is not None
        assert (await harness.row(task)).status is Status.PENDING

    async def test_an_unknown_task_is_not_found(self, harness: EtlHarness):
        with pytest.raises(EtlTaskNotFound, match="Task not found"):
            await status.get_status(harness.deps, ANNA, 4711)

    async def test_somebody_elses_task_is_not_found_from_either_place(self, harness: EtlHarness):
        task = await harness.submit()
        with pytest.raises(EtlTaskNotFound):
            await status.get_status(harness.deps, BERT, task.id)
        await harness.lose_run_state(task)
        with pytest.raises(EtlTaskNotFound):
            await status.get_status(harness.deps, BERT, task.id)
        assert (await status.get_status(harness.deps, ROOT, task.id)).id == task.id


class TestAFailedRun:
    @on_both_profiles
    @pytest.mark.parametrize("stage", ["mineru", "postprocess"])
    async def test_stays_in_the_phase_that_failed_and_names_the_stage(self, harness: EtlHarness, stage: str):
        error = Invalid(reason="no")
        if stage == "mineru":
            harness.set(provider=OcrThatFails(harness.deps.blobs, error, times=1))
        else:
            harness.set(post_processor=PostProcessorThatFails(error, times=1))
        task = await harness.submit()
        await harness.work()
        found = await harness.deps.runs.get(f"etl:task:{task.id}")
        assert found is not None
        phase = "ocr" if stage == "mineru" else "postprocess"
        assert (found.status, found.fields["phase"], found.fields["error_stage"]) == ("failed", phase, stage)
        if harness.link is not None:
            shown = await harness.link.execute("HMGET", f"etl:task:{task.id}", "phase", "error_stage", "error_code")
            assert shown == [phase.encode(), stage.encode(), error.code.encode()]

    async def test_whose_worker_was_lost_stays_in_the_phase_of_its_artifacts(self, harness: EtlHarness):
        task = await harness.submit()
        stale = replace(task, status=Status.FAILED, error="lost", metadata={**task.metadata, "error_stage": "stale"})
        assert TaskRun.of(stale).details.phase is Phase.OCR
        read = {**stale.metadata, "artifact_mineru_markdown_key": "users/5/x.md"}
        assert TaskRun.of(replace(stale, metadata=read)).details.phase is Phase.POSTPROCESS


class TestLists:
    @on_both_profiles
    async def test_the_total_counts_what_matches_on_all_pages(self, harness: EtlHarness):
        for number in range(5):
            await harness.submit(f"{number}.txt")
        await harness.submit("other.txt", by=BERT)
        await harness.do(await harness.claim())

        async def total(**query: Any) -> int:
            return (await actions.list_tasks(harness.deps, ANNA, TaskQuery(limit=2, **query)))[1]

        assert [await total(), await total(offset=4), await total(project_id=4)] == [5, 5, 0]
        assert [await total(status=Status.PENDING), await total(status=Status.LLM_PROCESSING)] == [4, 1]
        assert await total(status=Status.COMPLETED) == 0
        assert (await actions.list_tasks(harness.deps, ROOT, TaskQuery(limit=1)))[1] == 6

    async def test_counting_stops_at_a_limit(self, harness: EtlHarness, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(actions, "MAX_TOTAL", 2)
        for number in range(5):
            await harness.submit(f"{number}.txt")
        assert (await actions.list_tasks(harness.deps, ANNA, TaskQuery()))[1] == 3

    @on_both_profiles
    async def test_the_newest_come_first_and_pages_follow_each_other(self, harness: EtlHarness):
        for number in range(5):
            await harness.submit(f"{number}.txt")
        assert await names(harness, TaskQuery(limit=2)) == ["4.txt", "3.txt"]
        assert await names(harness, TaskQuery(limit=2, offset=2)) == ["2.txt", "1.txt"]
        assert await names(harness, TaskQuery(limit=2, offset=4)) == ["0.txt"]

    @on_both_profiles
    async def test_run_state_is_laid_over_what_is_under_way(self, harness: EtlHarness):
        done = await harness.submit("done.txt")
        await harness.work()
        read = await harness.submit("read.txt")
        await harness.do(await harness.claim())
        waiting = await harness.submit("waiting.txt")
        found = {task.id: task for task in (await actions.list_tasks(harness.deps, ANNA, TaskQuery()))[0]}
        assert [found[one.id].status for one in (done, read, waiting)] == [
            Status.COMPLETED, Status.LLM_PROCESSING, Status.PENDING,
        ]  # fmt: skip
        assert found[read.id].progress == 80
        assert "artifact_mineru_markdown_key" in found[read.id].metadata

    @on_both_profiles
    async def test_a_list_by_status_also_knows_what_only_run_state_knows(self, harness: EtlHarness):
        await harness.submit("read.txt")
        await harness.do(await harness.claim())
        for number in range(3):
            await harness.submit(f"waiting-{number}.txt")
        failing = await harness.submit("cancelled.txt")
        await actions.cancel_task(harness.deps, ANNA, failing.id)
        assert await names(harness, TaskQuery(status=Status.LLM_PROCESSING)) == ["read.txt"]
        assert await names(harness, TaskQuery(status=Status.MINERU_PARSING)) == []
        assert await names(harness, TaskQuery(status=Status.PENDING, limit=2)) == ["waiting-2.txt", "waiting-1.txt"]
        assert await names(harness, TaskQuery(status=Status.PENDING, limit=2, offset=2)) == ["waiting-0.txt"]
        assert await names(harness, TaskQuery(status=Status.CANCELLED)) == ["cancelled.txt"]

    async def test_a_long_queue_is_walked_through_in_pages(self, harness: EtlHarness, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(actions, "PAGE", 2)
        await harness.submit("first.txt")
        await harness.do(await harness.claim())
        for number in range(5):
            await harness.submit(f"{number}.txt")
        assert await names(harness, TaskQuery(status=Status.LLM_PROCESSING)) == ["first.txt"]
        assert await names(harness, TaskQuery(status=Status.PENDING, limit=3, offset=3)) == ["1.txt", "0.txt"]

    @on_both_profiles
    async def test_lists_are_by_project_and_by_owner(self, harness: EtlHarness):
        await harness.submit("a.txt")
        key = await harness.put("b.txt")
        await actions.submit_task(harness.deps, ANNA, NewTask(project_id=4, filename="b.txt", s3_key=key))
        await harness.submit("c.txt", by=BERT)
        assert await names(harness) == ["b.txt", "a.txt"]
        assert await names(harness, TaskQuery(project_id=3)) == ["a.txt"]
        assert await names(harness, TaskQuery(project_id=3, status=Status.PENDING)) == ["a.txt"]
        assert await names(harness, by=BERT) == ["c.txt"]
        assert await names(harness, by=ROOT) == ["c.txt", "b.txt", "a.txt"]
        assert await names(harness, TaskQuery(project_id=3), by=ROOT) == ["c.txt", "a.txt"]

    @on_both_profiles
    async def test_of_named_tasks_those_come_that_the_caller_may_see(self, harness: EtlHarness):
        mine, other = await harness.submit("a.txt"), await harness.submit("b.txt", by=BERT)
        await harness.do(await harness.claim())
        found = await actions.list_by_ids(harness.deps, ANNA, [mine.id, other.id, 4711])
        assert [(task.id, task.status) for task in found] == [(mine.id, Status.LLM_PROCESSING)]
        assert await actions.list_by_ids(harness.deps, ANNA, []) == []


class TestArtifacts:
    @on_both_profiles
    async def test_artifacts_exist_once_their_stage_is_done(self, harness: EtlHarness):
        task = await harness.submit()

        async def key(what: actions.ArtifactName) -> str:
            return await actions.artifact_key(harness.deps, ANNA, task.id, what)

        early: tuple[actions.ArtifactName, ...] = ("markdown", "pages")
        for what in early:
            with pytest.raises(ArtifactNotReady, match="pending"):
                await key(what)
        await harness.do(await harness.claim())
        for what in early:
            assert b"third page" in await harness.deps.blobs.get(await key(what))
        with pytest.raises(ArtifactNotReady, match="llm_processing"):
            await key("result")
        await harness.rescue()
        await harness.work()
        assert b"markdown_s3_key" in await harness.deps.blobs.get(await key("result"))
        assert b"/filename" in await harness.deps.blobs.get(await key("grounding"))

    async def test_artifacts_of_another_user_are_not_found(self, harness: EtlHarness):
        task: EtlTask = await harness.submit()
        await harness.work()
        for what in ("result", "markdown", "pages", "grounding"):
            with pytest.raises(EtlTaskNotFound):
                await actions.artifact_key(harness.deps, BERT, task.id, what)
