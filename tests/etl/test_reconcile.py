"""Lost run state and lost jobs are restored, and no task stays running forever."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import delete, literal, select, update

from penstock.adapters.redis.client import RedisUnavailable
from penstock.documents.ocr.provider import Reading, Source, StageContext
from penstock.etl import artifacts, reconcile, run_state, stage_cache, worker
from penstock.etl.domain import Phase, Status
from penstock.etl.store.tables import etl_task
from penstock.kernel.blobs import BlobsUnavailable
from penstock.kernel.columns import UtcTime
from penstock.kernel.errors import Unavailable
from penstock.kernel.leases import EPOCH
from penstock.kernel.queue import JobState, job
from penstock.kernel.runstate import RunSnapshot, RunState, SqlRunState
from penstock.kernel.stages import reconciler
from tests.etl.harness import EtlHarness, on_both_profiles
from tests.fakes.ocr import EchoOcr, OcrThatFails, OcrThatWaits

# Run state in rows: without Redis, on both databases.
in_rows = pytest.mark.parametrize("profile", ["sqlite", "postgres"], indirect=True)


class RunsWithAnOutage:
    """Run state that can be unavailable."""

    def __init__(self, inner: RunState) -> None:
        self._inner, self.in_rows = inner, inner.in_rows
        self.get, self.get_many, self.list_by_status = inner.get, inner.get_many, inner.list_by_status
        self.now = False

    async def put(self, entry: RunSnapshot) -> None:
        if self.now:
            raise RedisUnavailable(reason="gone")
        await self._inner.put(entry)

    async def put_held(self, snapshot: RunSnapshot) -> None:
        if self.now:
            raise RedisUnavailable(reason="gone")
        await self._inner.put_held(snapshot)


async def lose_jobs(harness: EtlHarness) -> None:
    async with harness.db.tx() as tx:
        await tx.conn.execute(delete(job))


async def finish_ocr(harness: EtlHarness) -> None:
    held = await harness.claim()
    settle = await harness.do(held)
    assert settle is not None
    await harness.settle(held, settle)


@on_both_profiles
class TestRunStateThatIsLost:
    async def test_a_waiting_task_is_shown_again(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.deliver()
        await harness.lose_run_state(task)
        await harness.reconcile()
        assert (await harness.shown(task)).task.status is Status.PENDING
        await harness.work()
        assert (await harness.row(task)).status is Status.COMPLETED

    async def test_a_task_between_the_stages_is_shown_there_and_goes_on(self, harness: EtlHarness):
        task = await harness.submit()
        await finish_ocr(harness)
        await harness.deliver()
        await harness.lose_run_state(task)
        await harness.reconcile()
        assert (await harness.shown(task)).details.phase is Phase.POSTPROCESS
        await harness.work()
        assert (await harness.row(task)).status is Status.COMPLETED
        assert harness.ocr.calls == 1

    async def test_a_running_worker_brings_it_back_by_itself(self, harness: EtlHarness):
        ocr = OcrThatWaits(harness.deps.blobs, before_page=2)
        harness.set(provider=ocr)
        task = await harness.submit()
        working = asyncio.create_task(harness.do(await harness.claim()))
        await ocr.waits.wait()
        await harness.deliver()
        await harness.lose_run_state(task)
        await harness.reconcile()
        assert (await harness.shown(task)).task.status is Status.PENDING
        harness.clock.advance(seconds=1)
        ocr.go_on.set()
        await working
        assert (await harness.shown(task)).task.status is Status.LLM_PROCESSING

    async def test_a_retried_task_whose_new_run_was_never_shown_is_shown(self, harness: EtlHarness):
        task = await harness.submit()
        await run_state.show(harness.deps, replace(task, status=Status.FAILED))
        async with harness.db.tx() as tx:
            await tx.conn.execute(update(etl_task).values(run=2))
            await tx.conn.execute(update(job).values(id=f"etl:{task.id}:2:ocr"))
        await harness.reconcile()
        assert (await harness.shown(task)).task.run == 2


class TestJobsThatAreLost:
    @on_both_profiles
    async def test_a_task_without_a_job_gets_one(self, harness: EtlHarness):
        task = await harness.submit()
        await lose_jobs(harness)
        await harness.reconcile()
        assert (await harness.job(task, "ocr")).state is JobState.WAITING
        await harness.work()
        assert (await harness.row(task)).status is Status.COMPLETED

    async def test_it_resumes_from_the_latest_artifact(self, harness: EtlHarness):
        task = await harness.submit()
        await finish_ocr(harness)
        await lose_jobs(harness)
        await harness.lose_run_state(task)
        await harness.reconcile()
        await harness.work()
        assert (await harness.row(task)).status is Status.COMPLETED
        assert harness.ocr.calls == 1

    @on_both_profiles
    async def test_a_job_that_was_cancelled_behind_our_back_is_revived(self, harness: EtlHarness):
        task = await harness.submit()
        async with harness.db.tx() as tx:
            await harness.deps.queue.cancel(tx, f"etl:{task.id}:1:ocr")
        await harness.reconcile()
        await harness.work()
        assert (await harness.row(task)).status is Status.COMPLETED

    async def test_a_task_with_a_job_gets_no_second_one(self, harness: EtlHarness):
        task = await harness.submit()
        for _ in range(3):
            await harness.reconcile()
        assert await harness.count(job) == 1
        await finish_ocr(harness)
        await harness.reconcile()
        assert await harness.count(job) == 2
        assert (await harness.row(task)).status is Status.PENDING


@on_both_profiles
class TestWhatCannotBeUnderstood:
    async def test_an_artifact_that_cannot_be_decoded_counts_as_missing(self, harness: EtlHarness):
        task = await harness.submit()
        await lose_jobs(harness)
        await harness.deps.blobs.put(artifacts.reading_key(task), b"{")
        await harness.reconcile()
        await harness.work()
        assert (await harness.row(task)).status is Status.COMPLETED

    async def test_run_state_that_cannot_be_decoded_counts_as_missing(self, harness: EtlHarness):
        task, other = await harness.submit("a.txt"), await harness.submit("b.txt")
        await harness.deliver()
        await harness.lose_run_state(task)
        await harness.lose_run_state(other)
        odd = RunSnapshot(
            key=run_state.key(harness.deps, task.id), run=1, order=0, status="pending", fields={"id": "x"}
        )
        await harness.deps.runs.put(odd)
        await harness.reconcile()
        assert (await harness.shown(other)).task.id == other.id
        assert await harness.status(task) is Status.PENDING
        await harness.work()
        assert (await harness.row(task)).status is Status.COMPLETED

    @pytest.mark.parametrize("most", [1, 10])
    async def test_one_bad_task_does_not_stop_the_others(
        self, harness: EtlHarness, monkeypatch: pytest.MonkeyPatch, most: int
    ):
        monkeypatch.setattr(reconciler, "MAX_FAILURES", most)
        bad, good = await harness.submit("a.txt"), await harness.submit("b.txt")
        await lose_jobs(harness)
        get = harness.deps.blobs.get

        async def refuse(key: str, *args: Any) -> bytes:
            if key == artifacts.reading_key(bad):
                raise BlobsUnavailable(reason="it answered 403")
            return await get(key, *args)

        monkeypatch.setattr(harness.deps.blobs, "get", refuse)
        walker = worker.build_reconciler(harness.deps)
        for _ in range(2):
            await walker.run()
        assert (await harness.job(good, "ocr")).state is JobState.WAITING


@on_both_profiles
class TestStale:
    async def test_a_task_whose_workers_die_each_time_fails_as_stale(self, harness: EtlHarness):
        task = await harness.submit()
        for _ in range(3):
            await harness.claim()
            await harness.rescue()
        assert (await harness.job(task, "ocr")).error_code == "WORKER_LOST"
        await harness.reconcile()
        row = await harness.row(task)
        assert (row.status, row.metadata["error_stage"]) == (Status.FAILED, "stale")
        assert row.metadata["error_code"] == "WORKER_LOST"
        assert await harness.status(task) is Status.FAILED

    async def test_a_run_that_nobody_moves_is_reclaimed(self, harness: EtlHarness):
        ocr = OcrThatWaits(harness.deps.blobs, before_page=2)
        harness.set(provider=ocr)
        task = await harness.submit()
        held = await harness.claim()
        stuck = asyncio.create_task(harness.do(held))
        await ocr.waits.wait()
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)
        for seconds in (601, 28):
            harness.clock.advance(seconds=seconds)
            await harness.reconcile()
            assert (await harness.row(task)).status is Status.PENDING
        harness.clock.advance(seconds=2)
        await harness.reconcile()
        row = await harness.row(task)
        assert (row.status, row.metadata["error_stage"]) == (Status.FAILED, "stale")
        assert row.metadata["error_code"] == "TASK_STALE"
        assert await harness.status(task) is Status.FAILED

    async def test_a_walk_may_take_longer_than_it_is_watched(
        self, harness: EtlHarness, monkeypatch: pytest.MonkeyPatch
    ):
        """With one entry per turn, each task is seen every third turn only, here every hour and a half."""
        tasks = [await harness.submit(f"{number}.txt") for number in range(2)]
        for _ in tasks:
            held = await harness.claim()
            row = next(task for task in tasks if task.id == held.payload["task_id"])
            await harness.context(held, row)
        monkeypatch.setattr(reconciler, "PAGE", 1)
        walker = worker.build_reconciler(harness.deps)
        for _ in range(6):
            harness.clock.advance(seconds=1800)
            await walker.run()
        assert {(await harness.row(task)).metadata.get("error_stage") for task in tasks} == {"stale"}

    async def test_a_stale_task_keeps_what_ocr_made(self, harness: EtlHarness):
        task = await harness.submit()
        await finish_ocr(harness)
        await harness.claim()
        for seconds in (631, 20):
            harness.clock.advance(seconds=seconds)
            await harness.reconcile()
        row = await harness.row(task)
        assert row.status is Status.FAILED
        assert row.metadata["artifact_mineru_markdown_key"].endswith("/mineru.md")

    async def test_a_worker_that_could_not_show_itself_for_long_is_not_given_up(self, harness: EtlHarness):
        seen: list[Status] = []

        class ReaderInAnOutage(EchoOcr):
            async def before_page(self, number: int) -> None:
                """Run state is unavailable during all pages, and the reconciler runs before the worker reports."""
                away.now = number < 3
                harness.clock.advance(seconds=400)
                if number == 3:
                    await harness.reconcile()
                    seen.append((await harness.row(task)).status)

        away = RunsWithAnOutage(harness.deps.runs)
        harness.deps = replace(harness.deps, runs=away)
        harness.set(provider=ReaderInAnOutage(harness.deps.blobs))
        task = await harness.submit()
        await harness.work()
        assert seen == [Status.PENDING]
        assert (await harness.row(task)).status is Status.COMPLETED

    async def test_a_worker_is_not_given_up_over_steps_that_are_each_long(
        self, harness: EtlHarness, monkeypatch: pytest.MonkeyPatch
    ):
        """Hashing and fetching a large document take long, without pages to report."""
        digest = stage_cache._digest

        async def slow_digest(*arguments: Any) -> str:
            harness.clock.advance(seconds=400)
            return await digest(*arguments)

        class SlowOcr(EchoOcr):
            async def read(self, source: Source, context: StageContext) -> Reading:
                for seconds in (400, 25):
                    harness.clock.advance(seconds=seconds)
                    await harness.reconcile()
                return await super().read(source, context)

        monkeypatch.setattr(stage_cache, "_digest", slow_digest)
        harness.set(provider=SlowOcr(harness.deps.blobs))
        task = await harness.submit()
        await harness.work()
        assert (await harness.row(task)).status is Status.COMPLETED

    async def test_a_task_that_waits_is_not_stale(self, harness: EtlHarness):
        harness.set(provider=OcrThatFails(harness.deps.blobs, Unavailable(reason="later"), times=1))
        task = await harness.submit()
        await harness.work()
        harness.clock.advance(seconds=10_000)
        await harness.reconcile()
        assert (await harness.row(task)).status is Status.PENDING
        await harness.work()
        assert (await harness.row(task)).status is Status.COMPLETED


@on_both_profiles
class TestEndsThatWereNotTold:
    async def test_run_state_of_a_task_that_is_over_learns_the_end(self, harness: EtlHarness):
        task = await harness.submit()
        await finish_ocr(harness)
        held = await harness.claim()
        settle = await harness.do(held)
        assert settle is not None
        await harness.settle(held, settle)
        assert (await harness.shown(task)).task.status is Status.LLM_PROCESSING
        await worker.build_reconciler(harness.deps).run()
        assert (await harness.shown(task)).task.status is Status.COMPLETED

    async def test_run_state_of_a_task_that_is_gone_is_hidden(self, harness: EtlHarness):
        task = await harness.submit()
        async with harness.db.tx() as tx:
            await tx.conn.execute(delete(etl_task))
        await worker.build_reconciler(harness.deps).run()
        assert await run_state.find(harness.deps, task.id) is None


@on_both_profiles
async def test_a_turn_looks_at_one_page_and_the_next_turn_goes_on(harness: EtlHarness, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reconciler, "PAGE", 2)
    tasks = [await harness.submit(f"{number}.txt") for number in range(5)]
    await lose_jobs(harness)
    walker = worker.build_reconciler(harness.deps)
    counts = []
    for _ in range(4):
        await walker.run()
        counts.append(await harness.count(job))
    assert counts == [2, 4, 5, 5]
    await harness.work()
    assert {(await harness.row(task)).status for task in tasks} == {Status.COMPLETED}


class TestWhenATurnIsNeeded:
    async def is_needed(self, harness: EtlHarness) -> bool:
        moments = literal(EPOCH, UtcTime), literal(harness.clock.now(), UtcTime)
        async with harness.db.read() as tx:
            return bool(await tx.conn.scalar(select(reconcile.is_any_active(*moments))))

    @in_rows
    async def test_it_is_as_long_as_a_task_is_under_way(self, harness: EtlHarness):
        assert not await self.is_needed(harness)
        task = await harness.submit()
        assert await self.is_needed(harness)
        await harness.work()
        assert (await harness.row(task)).status is Status.COMPLETED
        assert not await self.is_needed(harness)

    @in_rows
    async def test_it_is_for_an_entry_that_runs_while_its_row_is_over(self, harness: EtlHarness):
        runs = SqlRunState(harness.db, live_seconds=60, final_seconds=60)
        for status in reconcile.RUNNING:
            await runs.put(RunSnapshot(key=f"etl:{status}", run=1, order=1, status=status))
            assert await self.is_needed(harness), status
            harness.clock.advance(seconds=60)
            assert not await self.is_needed(harness), status

    @pytest.mark.parametrize(("profile", "is_asked"), [("sqlite", True), ("scale", False)], indirect=["profile"])
    async def test_where_run_state_is_in_redis_a_turn_is_always_taken(self, harness: EtlHarness, is_asked: bool):
        [turn] = [task for task in worker.periodic_tasks(harness.deps) if task.name == "reconcile-etl"]
        assert (turn.needed is not None) == is_asked
