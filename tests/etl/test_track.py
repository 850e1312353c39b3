"""What callers see: run state first, rows where it knows nothing, and nothing of anybody else's."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from penstock.access.domain import Caller
from penstock.adapters.redis.link import RedisAway
from penstock.etl import runs, steer, track
from penstock.etl.domain import EtlTask, Status
from penstock.etl.errors import EtlTaskNotFound, NotThereYet
from penstock.etl.submit import NewTask, submit
from penstock.etl.track import Wanted
from penstock.kernel.runstate import RunEntry, RunState
from tests.etl.workshop import ANNA, BERT, ROOT, Workshop
from tests.fakes.ocr import OcrThatWaits
from tests.plans import recorded


class RunStateAway:
    """Does not answer."""

    in_rows = False

    async def put(self, entry: RunEntry) -> None:
        raise RedisAway(reason="gone")

    async def get(self, key: str) -> RunEntry | None:
        raise RedisAway(reason="gone")

    async def get_many(self, keys: object) -> list[RunEntry]:
        raise RedisAway(reason="gone")

    async def list_by_status(self, status: str, *, after: str = "", limit: int = 100) -> list[RunEntry]:
        raise RedisAway(reason="gone")


class RunStateThatLeaves:
    """Answers until it is gone."""

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


async def names(shop: Workshop, wanted: Wanted | None = None, *, by: Caller = ANNA) -> list[str]:
    return [task.filename for task in await track.list_tasks(shop.tools, by, wanted or Wanted())]


class TestOne:
    async def test_run_state_is_asked_and_the_row_once_by_its_number(self, shop: Workshop):
        task = await shop.submit()
        await shop.do(await shop.claim())
        with recorded(shop.db, "etl_task") as said:
            assert (await track.get_task(shop.tools, ANNA, task.id)).status is Status.LLM_PROCESSING
        assert len(said) == 1

    @pytest.mark.parametrize("status", [Status.MINERU_PARSING, Status.COMPLETED])
    async def test_run_state_of_another_databases_task_is_not_shown(self, shop: Workshop, status: Status):
        task = await shop.submit()
        later = task.created_at + timedelta(seconds=1)
        for run, strange in enumerate((replace(task, user_id=6), replace(task, created_at=later)), 2):
            other = replace(strange, filename="secret.pdf", run=run, status=status)
            await shop.tools.runs.put(runs.entry_of(shop.tools, runs.Standing.of(other)))
            assert (await track.get_task(shop.tools, ANNA, task.id)).filename == "a.txt"
            assert await names(shop) == ["a.txt"]
            with pytest.raises(EtlTaskNotFound):
                await track.get_task(shop.tools, BERT, task.id)

    async def test_a_row_that_is_over_is_believed_before_run_state_has_heard_of_it(self, shop: Workshop):
        task = await shop.submit()
        before = await shop.tools.runs.get(f"etl:task:{task.id}")
        assert before is not None
        await shop.work()
        await shop.lose_run_state(task)
        await shop.tools.runs.put(before)
        assert (await track.get_task(shop.tools, ANNA, task.id)).status is Status.COMPLETED

    async def test_the_row_answers_where_run_state_knows_nothing(self, shop: Workshop):
        task = await shop.submit()
        await shop.work()
        await shop.lose_run_state(task)
        found = await track.get_task(shop.tools, ANNA, task.id)
        assert (found.status, found.result) == (Status.COMPLETED, (await shop.row(task)).result)

    async def test_a_final_task_looks_the_same_from_both(self, shop: Workshop):
        task = await shop.submit()
        await shop.work()
        shown = await track.get_task(shop.tools, ANNA, task.id)
        assert shown == await shop.row(task)

    async def test_run_state_is_kept_for_a_time_and_then_the_row_has_to_do(self, shop: Workshop):
        task = await shop.submit()
        shop.clock.advance(seconds=86401)
        assert await shop.tools.runs.get(f"etl:task:{task.id}") is None
        assert (await track.get_task(shop.tools, ANNA, task.id)).status is Status.PENDING

    async def test_the_row_answers_while_run_state_is_away(self, shop: Workshop):
        task = await shop.submit()
        shop.tools = replace(shop.tools, runs=RunStateAway())
        assert (await track.get_task(shop.tools, ANNA, task.id)).id == task.id
        assert [one.id for one in await track.list_tasks(shop.tools, ANNA, Wanted())] == [task.id]
        assert (await steer.cancel(shop.tools, ANNA, task.id)).status is Status.CANCELLED
        assert (await shop.submit("b.txt")).status is Status.PENDING

    async def test_work_goes_on_while_run_state_is_away(self, shop: Workshop):
        ocr = OcrThatWaits(shop.tools.blobs, before_page=2)
        shop.set(provider=ocr)
        task = await shop.submit()
        state = RunStateThatLeaves(shop.tools.runs)
        shop.tools = replace(shop.tools, runs=state)
        job = await shop.claim()
        working = asyncio.create_task(shop.do(job))
        await ocr.waits.wait()
        state.leave()
        shop.clock.advance(seconds=1)
        ocr.go_on.set()
        assert await working is not None
        assert (await shop.row(task)).status is Status.PENDING

    async def test_an_unknown_task_is_not_found(self, shop: Workshop):
        with pytest.raises(EtlTaskNotFound, match="Task not found"):
            await track.get_task(shop.tools, ANNA, 4711)

    async def test_somebody_elses_task_is_not_found_from_either_place(self, shop: Workshop):
        task = await shop.submit()
        with pytest.raises(EtlTaskNotFound):
            await track.get_task(shop.tools, BERT, task.id)
        await shop.lose_run_state(task)
        with pytest.raises(EtlTaskNotFound):
            await track.get_task(shop.tools, BERT, task.id)
        assert (await track.get_task(shop.tools, ROOT, task.id)).id == task.id


class TestLists:
    async def test_the_newest_come_first_and_pages_follow_each_other(self, shop: Workshop):
        for number in range(5):
            await shop.submit(f"{number}.txt")
        assert await names(shop, Wanted(limit=2)) == ["4.txt", "3.txt"]
        assert await names(shop, Wanted(limit=2, offset=2)) == ["2.txt", "1.txt"]
        assert await names(shop, Wanted(limit=2, offset=4)) == ["0.txt"]

    async def test_run_state_is_laid_over_what_is_under_way(self, shop: Workshop):
        done = await shop.submit("done.txt")
        await shop.work()
        read = await shop.submit("read.txt")
        await shop.do(await shop.claim())
        waiting = await shop.submit("waiting.txt")
        found = {task.id: task for task in await track.list_tasks(shop.tools, ANNA, Wanted())}
        assert [found[one.id].status for one in (done, read, waiting)] == [
            Status.COMPLETED, Status.LLM_PROCESSING, Status.PENDING,
        ]  # fmt: skip
        assert found[read.id].progress == 80
        assert "artifact_mineru_markdown_key" in found[read.id].metadata

    async def test_a_list_by_status_also_knows_what_only_run_state_knows(self, shop: Workshop):
        await shop.submit("read.txt")
        await shop.do(await shop.claim())
        for number in range(3):
            await shop.submit(f"waiting-{number}.txt")
        failing = await shop.submit("cancelled.txt")
        await steer.cancel(shop.tools, ANNA, failing.id)
        assert await names(shop, Wanted(status=Status.LLM_PROCESSING)) == ["read.txt"]
        assert await names(shop, Wanted(status=Status.MINERU_PARSING)) == []
        assert await names(shop, Wanted(status=Status.PENDING, limit=2)) == ["waiting-2.txt", "waiting-1.txt"]
        assert await names(shop, Wanted(status=Status.PENDING, limit=2, offset=2)) == ["waiting-0.txt"]
        assert await names(shop, Wanted(status=Status.CANCELLED)) == ["cancelled.txt"]

    async def test_a_long_queue_is_walked_through_in_pages(self, shop: Workshop, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(track, "PAGE", 2)
        await shop.submit("first.txt")
        await shop.do(await shop.claim())
        for number in range(5):
            await shop.submit(f"{number}.txt")
        assert await names(shop, Wanted(status=Status.LLM_PROCESSING)) == ["first.txt"]
        assert await names(shop, Wanted(status=Status.PENDING, limit=3, offset=3)) == ["1.txt", "0.txt"]

    async def test_lists_are_by_project_and_by_owner(self, shop: Workshop):
        await shop.submit("a.txt")
        key = await shop.put("b.txt")
        await submit(shop.tools, ANNA, NewTask(project_id=4, filename="b.txt", s3_key=key))
        await shop.submit("c.txt", by=BERT)
        assert await names(shop) == ["b.txt", "a.txt"]
        assert await names(shop, Wanted(project_id=3)) == ["a.txt"]
        assert await names(shop, Wanted(project_id=3, status=Status.PENDING)) == ["a.txt"]
        assert await names(shop, by=BERT) == ["c.txt"]
        assert await names(shop, by=ROOT) == ["c.txt", "b.txt", "a.txt"]
        assert await names(shop, Wanted(project_id=3), by=ROOT) == ["c.txt", "a.txt"]

    async def test_of_named_tasks_those_come_that_the_caller_may_see(self, shop: Workshop):
        mine, other = await shop.submit("a.txt"), await shop.submit("b.txt", by=BERT)
        await shop.do(await shop.claim())
        found = await track.list_these(shop.tools, ANNA, [mine.id, other.id, 4711])
        assert [(task.id, task.status) for task in found] == [(mine.id, Status.LLM_PROCESSING)]
        assert await track.list_these(shop.tools, ANNA, []) == []


class TestPapers:
    async def test_papers_are_there_when_they_are_made(self, shop: Workshop):
        task = await shop.submit()

        async def key(what: track.Paper) -> str:
            return await track.key_of(shop.tools, ANNA, task.id, what)

        early: tuple[track.Paper, ...] = ("markdown", "pages")
        for what in early:
            with pytest.raises(NotThereYet, match="pending"):
                await key(what)
        await shop.do(await shop.claim())
        for what in early:
            assert b"third page" in await shop.tools.blobs.get(await key(what))
        with pytest.raises(NotThereYet, match="llm_processing"):
            await key("result")
        await shop.rescue()
        await shop.work()
        assert b"markdown_s3_key" in await shop.tools.blobs.get(await key("result"))
        assert b"/filename" in await shop.tools.blobs.get(await key("grounding"))

    async def test_somebody_elses_papers_are_not_found(self, shop: Workshop):
        task: EtlTask = await shop.submit()
        await shop.work()
        for what in ("result", "markdown", "pages", "grounding"):
            with pytest.raises(EtlTaskNotFound):
                await track.key_of(shop.tools, BERT, task.id, what)
