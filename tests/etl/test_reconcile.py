"""Whatever was lost is found again, and nothing stays running for ever."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import delete, literal, select, update

from penstock.adapters.redis.link import RedisAway
from penstock.documents.ocr.provider import Desk, Reading, Source
from penstock.etl import memory, papers, reconcile, runs
from penstock.etl.domain import Phase, Status
from penstock.etl.store.tables import etl_task
from penstock.kernel.blobs import BlobsUnavailable
from penstock.kernel.columns import UtcTime
from penstock.kernel.errors import Unavailable
from penstock.kernel.leases import EPOCH
from penstock.kernel.queue import JobState, job
from penstock.kernel.runstate import RunEntry, RunState, SqlRunState
from tests.etl.workshop import Workshop
from tests.fakes.ocr import EchoOcr, OcrThatFails, OcrThatWaits


class RunsWithAnOutage:
    """Run state that can be away."""

    def __init__(self, inner: RunState) -> None:
        self._inner, self.in_rows = inner, inner.in_rows
        self.get, self.get_many, self.list_by_status = inner.get, inner.get_many, inner.list_by_status
        self.now = False

    async def put(self, entry: RunEntry) -> None:
        if self.now:
            raise RedisAway(reason="gone")
        await self._inner.put(entry)


async def lose_jobs(shop: Workshop) -> None:
    async with shop.db.tx() as tx:
        await tx.conn.execute(delete(job))


async def finish_ocr(shop: Workshop) -> None:
    held = await shop.claim()
    settle = await shop.do(held)
    assert settle is not None
    await shop.settle(held, settle)


class TestRunStateThatIsLost:
    async def test_a_waiting_task_is_shown_again(self, shop: Workshop):
        task = await shop.submit()
        await shop.deliver()
        await shop.lose_run_state(task)
        await shop.reconcile()
        assert (await shop.shown(task)).task.status is Status.PENDING
        await shop.work()
        assert (await shop.row(task)).status is Status.COMPLETED

    async def test_a_task_between_the_stages_is_shown_there_and_goes_on(self, shop: Workshop):
        task = await shop.submit()
        await finish_ocr(shop)
        await shop.deliver()
        await shop.lose_run_state(task)
        await shop.reconcile()
        assert (await shop.shown(task)).course.phase is Phase.POSTPROCESS
        await shop.work()
        assert (await shop.row(task)).status is Status.COMPLETED
        assert shop.ocr.calls == 1

    async def test_a_running_worker_brings_it_back_by_itself(self, shop: Workshop):
        ocr = OcrThatWaits(shop.tools.blobs, before_page=2)
        shop.set(provider=ocr)
        task = await shop.submit()
        working = asyncio.create_task(shop.do(await shop.claim()))
        await ocr.waits.wait()
        await shop.deliver()
        await shop.lose_run_state(task)
        await shop.reconcile()
        assert (await shop.shown(task)).task.status is Status.PENDING
        shop.clock.advance(seconds=1)
        ocr.go_on.set()
        await working
        assert (await shop.shown(task)).task.status is Status.LLM_PROCESSING

    async def test_a_retried_task_whose_new_run_was_never_shown_is_shown(self, shop: Workshop):
        task = await shop.submit()
        await runs.show(shop.tools, replace(task, status=Status.FAILED))
        async with shop.db.tx() as tx:
            await tx.conn.execute(update(etl_task).values(run=2))
            await tx.conn.execute(update(job).values(id=f"etl:{task.id}:2:ocr"))
        await shop.reconcile()
        assert (await shop.shown(task)).task.run == 2


class TestJobsThatAreLost:
    async def test_a_task_without_a_job_gets_one(self, shop: Workshop):
        task = await shop.submit()
        await lose_jobs(shop)
        await shop.reconcile()
        assert (await shop.job(task, "ocr")).state is JobState.WAITING
        await shop.work()
        assert (await shop.row(task)).status is Status.COMPLETED

    async def test_it_goes_on_from_the_furthest_paper(self, shop: Workshop):
        task = await shop.submit()
        await finish_ocr(shop)
        await lose_jobs(shop)
        await shop.lose_run_state(task)
        await shop.reconcile()
        await shop.work()
        assert (await shop.row(task)).status is Status.COMPLETED
        assert shop.ocr.calls == 1

    async def test_a_job_that_was_cancelled_behind_our_back_is_revived(self, shop: Workshop):
        task = await shop.submit()
        async with shop.db.tx() as tx:
            await shop.tools.queue.cancel(tx, f"etl:{task.id}:1:ocr")
        await shop.reconcile()
        await shop.work()
        assert (await shop.row(task)).status is Status.COMPLETED

    async def test_a_task_with_a_job_gets_no_second_one(self, shop: Workshop):
        task = await shop.submit()
        for _ in range(3):
            await shop.reconcile()
        assert await shop.count(job) == 1
        await finish_ocr(shop)
        await shop.reconcile()
        assert await shop.count(job) == 2
        assert (await shop.row(task)).status is Status.PENDING


class TestWhatCannotBeUnderstood:
    async def test_a_paper_that_cannot_be_read_is_none(self, shop: Workshop):
        task = await shop.submit()
        await lose_jobs(shop)
        await shop.tools.blobs.put(papers.reading_key(task), b"{")
        await shop.reconcile()
        await shop.work()
        assert (await shop.row(task)).status is Status.COMPLETED

    async def test_run_state_that_cannot_be_read_is_none(self, shop: Workshop):
        task, other = await shop.submit("a.txt"), await shop.submit("b.txt")
        await shop.deliver()
        await shop.lose_run_state(task)
        await shop.lose_run_state(other)
        odd = RunEntry(key=runs.key(shop.tools, task.id), run=1, order=0, status="pending", fields={"id": "x"})
        await shop.tools.runs.put(odd)
        await shop.reconcile()
        assert (await shop.shown(other)).task.id == other.id
        assert await shop.status(task) is Status.PENDING
        await shop.work()
        assert (await shop.row(task)).status is Status.COMPLETED

    @pytest.mark.parametrize("most", [1, 10])
    async def test_one_bad_task_does_not_stop_the_others(
        self, shop: Workshop, monkeypatch: pytest.MonkeyPatch, most: int
    ):
        monkeypatch.setattr(reconcile, "MOST_FAILURES", most)
        bad, good = await shop.submit("a.txt"), await shop.submit("b.txt")
        await lose_jobs(shop)
        get = shop.tools.blobs.get

        async def refuse(key: str, *args: Any) -> bytes:
            if key == papers.reading_key(bad):
                raise BlobsUnavailable(reason="it answered 403")
            return await get(key, *args)

        monkeypatch.setattr(shop.tools.blobs, "get", refuse)
        walker = reconcile.Reconciler(shop.tools)
        for _ in range(2):
            await walker.run()
        assert (await shop.job(good, "ocr")).state is JobState.WAITING


class TestStale:
    async def test_a_task_whose_workers_die_each_time_fails_as_stale(self, shop: Workshop):
        task = await shop.submit()
        for _ in range(3):
            await shop.claim()
            await shop.rescue()
        assert (await shop.job(task, "ocr")).error_code == "WORKER_LOST"
        await shop.reconcile()
        row = await shop.row(task)
        assert (row.status, row.metadata["error_stage"]) == (Status.FAILED, "stale")
        assert row.metadata["error_code"] == "WORKER_LOST"
        assert await shop.status(task) is Status.FAILED

    async def test_a_run_that_nobody_moves_is_reclaimed(self, shop: Workshop):
        ocr = OcrThatWaits(shop.tools.blobs, before_page=2)
        shop.set(provider=ocr)
        task = await shop.submit()
        held = await shop.claim()
        stuck = asyncio.create_task(shop.do(held))
        await ocr.waits.wait()
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)
        for seconds in (601, 28):
            shop.clock.advance(seconds=seconds)
            await shop.reconcile()
            assert (await shop.row(task)).status is Status.PENDING
        shop.clock.advance(seconds=2)
        await shop.reconcile()
        row = await shop.row(task)
        assert (row.status, row.metadata["error_stage"]) == (Status.FAILED, "stale")
        assert row.metadata["error_code"] == "TASK_STALE"
        assert await shop.status(task) is Status.FAILED

    async def test_a_walk_may_take_longer_than_it_is_watched(self, shop: Workshop, monkeypatch: pytest.MonkeyPatch):
        """With one entry a turn, each of these is met at every third turn only, which here is every hour and a half."""
        tasks = [await shop.submit(f"{number}.txt") for number in range(2)]
        for _ in tasks:
            held = await shop.claim()
            row = next(task for task in tasks if task.id == held.payload["task_id"])
            await runs.Trail.open(shop.tools, row, Phase.OCR, attempt=1)
        monkeypatch.setattr(reconcile, "PAGE", 1)
        walker = reconcile.Reconciler(shop.tools)
        for _ in range(6):
            shop.clock.advance(seconds=1800)
            await walker.run()
        assert {(await shop.row(task)).metadata.get("error_stage") for task in tasks} == {"stale"}

    async def test_a_stale_task_keeps_what_ocr_made(self, shop: Workshop):
        task = await shop.submit()
        await finish_ocr(shop)
        await shop.claim()
        for seconds in (631, 20):
            shop.clock.advance(seconds=seconds)
            await shop.reconcile()
        row = await shop.row(task)
        assert row.status is Status.FAILED
        assert row.metadata["artifact_mineru_markdown_key"].endswith("/mineru.md")

    async def test_a_worker_that_could_not_show_itself_for_long_is_not_given_up(self, shop: Workshop):
        seen: list[Status] = []

        class ReaderInAnOutage(EchoOcr):
            async def look_at(self, number: int) -> None:
                """Run state is away from the first page to the last, and is looked at before the worker is back."""
                away.now = number < 3
                shop.clock.advance(seconds=400)
                if number == 3:
                    await shop.reconcile()
                    seen.append((await shop.row(task)).status)

        away = RunsWithAnOutage(shop.tools.runs)
        shop.tools = replace(shop.tools, runs=away)
        shop.set(provider=ReaderInAnOutage(shop.tools.blobs))
        task = await shop.submit()
        await shop.work()
        assert seen == [Status.PENDING]
        assert (await shop.row(task)).status is Status.COMPLETED

    async def test_a_worker_is_not_given_up_over_steps_that_are_each_long(
        self, shop: Workshop, monkeypatch: pytest.MonkeyPatch
    ):
        """To hash a large document and to fetch it takes long; neither has pages to tell of."""
        digest = memory._digest

        async def slow_digest(*arguments: Any) -> str:
            shop.clock.advance(seconds=400)
            return await digest(*arguments)

        class SlowOcr(EchoOcr):
            async def read(self, source: Source, desk: Desk) -> Reading:
                for seconds in (400, 25):
                    shop.clock.advance(seconds=seconds)
                    await shop.reconcile()
                return await super().read(source, desk)

        monkeypatch.setattr(memory, "_digest", slow_digest)
        shop.set(provider=SlowOcr(shop.tools.blobs))
        task = await shop.submit()
        await shop.work()
        assert (await shop.row(task)).status is Status.COMPLETED

    async def test_a_task_that_waits_is_not_stale(self, shop: Workshop):
        shop.set(provider=OcrThatFails(shop.tools.blobs, Unavailable(reason="later"), times=1))
        task = await shop.submit()
        await shop.work()
        shop.clock.advance(seconds=10_000)
        await shop.reconcile()
        assert (await shop.row(task)).status is Status.PENDING
        await shop.work()
        assert (await shop.row(task)).status is Status.COMPLETED


class TestEndsThatWereNotTold:
    async def test_run_state_of_a_task_that_is_over_learns_the_end(self, shop: Workshop):
        task = await shop.submit()
        await finish_ocr(shop)
        held = await shop.claim()
        settle = await shop.do(held)
        assert settle is not None
        await shop.settle(held, settle)
        assert (await shop.shown(task)).task.status is Status.LLM_PROCESSING
        await reconcile.Reconciler(shop.tools).run()
        assert (await shop.shown(task)).task.status is Status.COMPLETED

    async def test_run_state_of_a_task_that_is_gone_is_hidden(self, shop: Workshop):
        task = await shop.submit()
        async with shop.db.tx() as tx:
            await tx.conn.execute(delete(etl_task))
        await reconcile.Reconciler(shop.tools).run()
        assert await runs.find(shop.tools, task.id) is None


async def test_a_turn_looks_at_one_page_and_the_next_turn_goes_on(shop: Workshop, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reconcile, "PAGE", 2)
    tasks = [await shop.submit(f"{number}.txt") for number in range(5)]
    await lose_jobs(shop)
    walker = reconcile.Reconciler(shop.tools)
    counts = []
    for _ in range(4):
        await walker.run()
        counts.append(await shop.count(job))
    assert counts == [2, 4, 5, 5]
    await shop.work()
    assert {(await shop.row(task)).status for task in tasks} == {Status.COMPLETED}


class TestWhenATurnIsNeeded:
    async def is_needed(self, shop: Workshop) -> bool:
        moments = literal(EPOCH, UtcTime), literal(shop.clock.now(), UtcTime)
        async with shop.db.read() as tx:
            return bool(await tx.conn.scalar(select(reconcile.is_any_under_way(*moments))))

    async def test_it_is_as_long_as_a_task_is_under_way(self, shop: Workshop):
        assert not await self.is_needed(shop)
        task = await shop.submit()
        assert await self.is_needed(shop)
        await shop.work()
        assert (await shop.row(task)).status is Status.COMPLETED
        assert not await self.is_needed(shop)

    @pytest.mark.parametrize("status", reconcile.RUNNING)
    async def test_it_is_for_an_entry_that_runs_while_its_row_is_over(self, shop: Workshop, status: Status):
        runs = SqlRunState(shop.db, live_seconds=60, final_seconds=60)
        await runs.put(RunEntry(key="etl:7", run=1, order=1, status=status))
        assert await self.is_needed(shop)
        shop.clock.advance(seconds=60)
        assert not await self.is_needed(shop)

    @pytest.mark.parametrize(("grounds", "is_asked"), [("sqlite", True), ("scale", False)], indirect=["grounds"])
    async def test_where_run_state_is_in_redis_a_turn_is_always_taken(self, shop: Workshop, is_asked: bool):
        assert (reconcile.Reconciler(shop.tools).needed is not None) == is_asked
