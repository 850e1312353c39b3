"""Status of tasks: from run state, from rows where run state has nothing, and only of the caller's own tasks."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from penstock.access.domain import Caller
from penstock.adapters.redis.client import RedisUnavailable
from penstock.etl import cancel, runs, task_status
from penstock.etl.domain import EtlTask, Status
from penstock.etl.errors import ArtifactNotReady, EtlTaskNotFound
from penstock.etl.submit import NewTask, submit
from penstock.etl.task_status import TaskQuery
from penstock.kernel.runstate import RunEntry, RunState
from tests.etl.harness import ANNA, BERT, ROOT, EtlHarness, on_both_profiles
from tests.fakes.ocr import OcrThatWaits
from tests.plans import recorded


class RunStateAway:
    """Run state that is unavailable."""

    in_rows = False

    async def put(self, entry: RunEntry) -> None:
        raise RedisUnavailable(reason="gone")

    async def get(self, key: str) -> RunEntry | None:
        raise RedisUnavailable(reason="gone")

    async def get_many(self, keys: object) -> list[RunEntry]:
        raise RedisUnavailable(reason="gone")

    async def list_by_status(self, status: str, *, after: str = "", limit: int = 100) -> list[RunEntry]:
        raise RedisUnavailable(reason="gone")


class RunStateThatLeaves:
    """Run state that becomes unavailable."""

    def __init__(self, real: RunState) -> None:
        self.in_rows = real.in_rows
        self._now = real

    def leave(self) -> None:
        self._now = RunStateAway()

    async def put(self, entry: RunEntry) -> None:
        await self._now.put(entry)

    async def get(self, key: str) -> RunEntry | None:
        return await self._now.get(key)

    async def get_many(self, keys: Sequence[str]) -> Sequence[RunEntry]:
        return await self._now.get_many(keys)

    async def list_by_status(self, status: str, *, after: str = "", limit: int = 100) -> Sequence[RunEntry]:
        return await self._now.list_by_status(status, after=after, limit=limit)


async def names(harness: EtlHarness, wanted: TaskQuery | None = None, *, by: Caller = ANNA) -> list[str]:
    return [task.filename for task in await task_status.list_tasks(harness.deps, by, wanted or TaskQuery())]


class TestOne:
    @on_both_profiles
    async def test_run_state_is_asked_and_the_row_once_by_its_number(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.do(await harness.claim())
        with recorded(harness.db, "etl_task") as said:
            assert (await task_status.get_task(harness.deps, ANNA, task.id)).status is Status.LLM_PROCESSING
        assert len(said) == 1

    @on_both_profiles
    @pytest.mark.parametrize("status", [Status.MINERU_PARSING, Status.COMPLETED])
    async def test_run_state_of_another_databases_task_is_not_shown(self, harness: EtlHarness, status: Status):
        task = await harness.submit()
        later = task.created_at + timedelta(seconds=1)
        for run, strange in enumerate((replace(task, user_id=6), replace(task, created_at=later)), 2):
            other = replace(strange, filename="secret.pdf", run=run, status=status)
            await harness.deps.runs.put(runs.entry_of(harness.deps, runs.Standing.of(other)))
            assert (await task_status.get_task(harness.deps, ANNA, task.id)).filename == "a.txt"
            assert await names(harness) == ["a.txt"]
            with pytest.raises(EtlTaskNotFound):
                await task_status.get_task(harness.deps, BERT, task.id)

    async def test_a_row_that_is_over_is_believed_before_run_state_has_heard_of_it(self, harness: EtlHarness):
        task = await harness.submit()
        before = await harness.deps.runs.get(f"etl:task:{task.id}")
        assert before is not None
        await harness.work()
        await harness.lose_run_state(task)
        await harness.deps.runs.put(before)
        assert (await task_status.get_task(harness.deps, ANNA, task.id)).status is Status.COMPLETED

    async def test_the_row_answers_where_run_state_knows_nothing(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.work()
        await harness.lose_run_state(task)
        found = await task_status.get_task(harness.deps, ANNA, task.id)
        assert (found.status, found.result) == (Status.COMPLETED, (await harness.row(task)).result)

    @on_both_profiles
    async def test_a_final_task_looks_the_same_from_both(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.work()
        shown = await task_status.get_task(harness.deps, ANNA, task.id)
        assert shown == await harness.row(task)

    @on_both_profiles
    async def test_the_row_is_used_after_run_state_expires(self, harness: EtlHarness):
        task = await harness.submit()
        harness.clock.advance(seconds=86401)
        assert await harness.deps.runs.get(f"etl:task:{task.id}") is None
        assert (await task_status.get_task(harness.deps, ANNA, task.id)).status is Status.PENDING

    async def test_the_row_answers_while_run_state_is_away(self, harness: EtlHarness):
        task = await harness.submit()
        harness.deps = replace(harness.deps, runs=RunStateAway())
        assert (await task_status.get_task(harness.deps, ANNA, task.id)).id == task.id
        assert [one.id for one in await task_status.list_tasks(harness.deps, ANNA, TaskQuery())] == [task.id]
        assert (await cancel.cancel_task(harness.deps, ANNA, task.id)).status is Status.CANCELLED
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
            await task_status.get_task(harness.deps, ANNA, 4711)

    async def test_somebody_elses_task_is_not_found_from_either_place(self, harness: EtlHarness):
        task = await harness.submit()
        with pytest.raises(EtlTaskNotFound):
            await task_status.get_task(harness.deps, BERT, task.id)
        await harness.lose_run_state(task)
        with pytest.raises(EtlTaskNotFound):
            await task_status.get_task(harness.deps, BERT, task.id)
        assert (await task_status.get_task(harness.deps, ROOT, task.id)).id == task.id


class TestLists:
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
        found = {task.id: task for task in await task_status.list_tasks(harness.deps, ANNA, TaskQuery())}
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
        await cancel.cancel_task(harness.deps, ANNA, failing.id)
        assert await names(harness, TaskQuery(status=Status.LLM_PROCESSING)) == ["read.txt"]
        assert await names(harness, TaskQuery(status=Status.MINERU_PARSING)) == []
        assert await names(harness, TaskQuery(status=Status.PENDING, limit=2)) == ["waiting-2.txt", "waiting-1.txt"]
        assert await names(harness, TaskQuery(status=Status.PENDING, limit=2, offset=2)) == ["waiting-0.txt"]
        assert await names(harness, TaskQuery(status=Status.CANCELLED)) == ["cancelled.txt"]

    async def test_a_long_queue_is_walked_through_in_pages(self, harness: EtlHarness, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(task_status, "PAGE", 2)
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
        await submit(harness.deps, ANNA, NewTask(project_id=4, filename="b.txt", s3_key=key))
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
        found = await task_status.list_by_ids(harness.deps, ANNA, [mine.id, other.id, 4711])
        assert [(task.id, task.status) for task in found] == [(mine.id, Status.LLM_PROCESSING)]
        assert await task_status.list_by_ids(harness.deps, ANNA, []) == []


class TestArtifacts:
    @on_both_profiles
    async def test_artifacts_exist_once_their_stage_is_done(self, harness: EtlHarness):
        task = await harness.submit()

        async def key(what: task_status.ArtifactName) -> str:
            return await task_status.artifact_key(harness.deps, ANNA, task.id, what)

        early: tuple[task_status.ArtifactName, ...] = ("markdown", "pages")
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
                await task_status.artifact_key(harness.deps, BERT, task.id, what)
