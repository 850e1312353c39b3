"""What `workers.py` adds to the queue: slots, modules in turn, leases renewed, and a stop that loses nothing."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from penstock.kernel.clock import ManualClock
from penstock.kernel.database_errors import DatabaseUnavailable
from penstock.kernel.db import Db, Tx
from penstock.kernel.errors import Unavailable
from penstock.kernel.leases import POLL_SECONDS
from penstock.kernel.queue import Job, JobNotFound, JobQueue, JobState, NewJob, get_job
from penstock.kernel.transitions import list_transitions
from penstock.kernel.workers import JobHandler, Settle, Workers
from tests.fakes.blocking_handler import TIMEOUT_SECONDS, BlockingHandler, wait_until


async def add(db: Db, *jobs: NewJob) -> list[str]:
    async with db.tx() as tx:
        return await JobQueue().enqueue(tx, *jobs)


async def get(db: Db, job_id: str) -> Job:
    async with db.read() as tx:
        return await get_job(tx, job_id)


async def life(db: Db, job_id: str) -> list[str]:
    async with db.read() as tx:
        return [step.trigger for step in await list_transitions(tx, "job", job_id)]


def workers(db: Db, handler: JobHandler, **options: Any) -> Workers:
    return Workers(db, JobQueue(), {"k": handler}, **{"owner": "w", "grace_seconds": 0, **options})


@asynccontextmanager
async def working(these: Workers) -> AsyncIterator[asyncio.Task[None]]:
    """Workers that run during the block and are stopped in good order at its end."""
    task = asyncio.create_task(these.run())
    try:
        yield task
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


class TestSlots:
    async def test_no_more_jobs_run_at_once_than_there_are_slots(self, db: Db):
        gate = BlockingHandler()
        ids = await add(db, *(NewJob(kind="k") for _ in range(7)))
        async with working(workers(db, gate, slots=3)):
            await wait_until(lambda: len(gate.entered) == 3)
            gate.opened.set()
            await wait_until(lambda: len(gate.left) == 7)
        assert gate.most_inside == 3
        assert sorted(gate.left) == ids

    async def test_a_free_slot_is_filled_while_the_others_are_busy(self, db: Db):
        gate, quick = BlockingHandler(), []

        async def pick(job: Job) -> None:
            await (gate(job) if job.payload["slow"] else asyncio.sleep(0))
            quick.append(job.id)

        await add(db, NewJob(kind="k", payload={"slow": True}))
        await add(db, *(NewJob(kind="k", payload={"slow": False}) for _ in range(5)))
        async with working(workers(db, pick, slots=2)):
            await wait_until(lambda: len(quick) == 5)
            assert gate.left == []

    async def test_while_all_slots_are_busy_nothing_is_polled(self, db: Db, clock: ManualClock):
        gate, looks = BlockingHandler(), Counter[str]()

        class Watched(Workers):
            async def claim_and_start(self) -> int:
                looks["all"] += 1
                return await super().claim_and_start()

        await add(db, NewJob(kind="k"), NewJob(kind="k"))
        async with working(Watched(db, JobQueue(), {"k": gate}, owner="w", slots=1, grace_seconds=0)):
            await wait_until(lambda: len(gate.entered) == 1)
            clock.advance(seconds=POLL_SECONDS * 5)
            before = looks["all"]
            for _ in range(100):
                await asyncio.sleep(0)
            assert looks["all"] - before <= 2

    async def test_a_job_enqueued_here_starts_without_a_tick_of_the_clock(self, db: Db):
        gate = BlockingHandler()
        these = workers(db, gate)
        async with working(these):
            await add(db, NewJob(kind="k", id="a"))
            await wait_until(lambda: gate.entered == ["a"])

    async def test_a_job_enqueued_elsewhere_is_found_by_polling(self, db: Db, db_url, clock: ManualClock):
        elsewhere = Db.open(db_url, clock=clock, ids=db.ids)
        gate = BlockingHandler()
        async with working(workers(db, gate)):
            await add(elsewhere, NewJob(kind="k", id="a"))

            def found() -> bool:
                clock.advance(seconds=POLL_SECONDS)
                return gate.entered == ["a"]

            await wait_until(found)
        await elsewhere.close()

    async def test_modules_take_turns_so_that_a_long_queue_does_not_starve_a_short_one(self, db: Db):
        order: list[str] = []

        async def note(job: Job) -> None:
            order.append(job.module)

        await add(db, *(NewJob(kind="k", module="long") for _ in range(10)))
        await add(db, *(NewJob(kind="k", module="short") for _ in range(3)))
        await workers(db, note, slots=1, modules=("long", "short")).run_until_empty()
        assert order[:6] == ["long", "short"] * 3
        assert Counter(order) == {"long": 10, "short": 3}


class TestLeases:
    async def test_a_long_job_is_kept_by_renewals_however_long_it_takes(self, db: Db, clock: ManualClock):
        gate, queue = BlockingHandler(), JobQueue()
        await add(db, NewJob(kind="k", id="a"))
        async with working(workers(db, gate, lease_seconds=30)):
            await wait_until(lambda: gate.entered == ["a"])
            for _ in range(10):
                before = await lease_end(db, "a")
                clock.advance(seconds=10)
                await wait_until(partial(later_than, db, "a", before))
                async with db.tx() as tx:
                    assert await queue.rescue(tx) == []
            gate.opened.set()
            await wait_until(lambda: is_state(db, "a", JobState.DONE))
        assert (await get(db, "a")).attempts == 1

    async def test_a_lost_lease_stops_its_handler_and_leaves_the_next_holder_alone(
        self, db: Db, db_url: str, clock: ManualClock
    ):
        gate = BlockingHandler()
        await add(db, NewJob(kind="k", id="a"))
        async with working(workers(db, gate, lease_seconds=30)):
            await wait_until(lambda: gate.entered == ["a"])
            await take_over(db, db_url)
            clock.advance(seconds=10)
            await wait_until(lambda: gate.stopped == ["a"])
        held = await get(db, "a")
        assert (held.state, held.worker) == (JobState.RUNNING, "other")
        assert await life(db, "a") == ["claim", "expire", "claim"]

    async def test_a_handler_that_ignores_cancellation_leaves_nothing_in_the_lease_renewers_memory(
        self, db: Db, db_url: str, clock: ManualClock
    ):
        stopped, go_on = asyncio.Event(), asyncio.Event()

        async def stubborn(job: Job) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                stopped.set()
            await go_on.wait()

        await add(db, NewJob(kind="k", id="a"))
        these = workers(db, stubborn, lease_seconds=30)
        async with working(these):
            await wait_until(lambda: len(these._runner.running) == 1)
            await take_over(db, db_url)
            clock.advance(seconds=10)
            await stopped.wait()
            go_on.set()
            await wait_until(lambda: not these._runner.running)
            assert not these._runner._tasks._renewer._lost  # it would grow with every such job
        assert (await get(db, "a")).worker == "other"

    async def test_a_late_settle_is_refused_and_writes_nothing(self, db: Db, db_url: str):
        async def dawdle(job: Job) -> Settle:
            await take_over(db, db_url)

            async def settle(tx: Tx) -> None:
                await JobQueue().enqueue(tx, NewJob(kind="k", id="effect"))

            return settle

        await add(db, NewJob(kind="k", id="a"))
        await workers(db, dawdle).run_until_empty()
        assert (await get(db, "a")).worker == "other"
        with pytest.raises(JobNotFound):
            await get(db, "effect")

    async def test_a_late_failure_is_refused_too(self, db: Db, db_url: str):
        async def dawdle(job: Job) -> None:
            await take_over(db, db_url)
            raise ValueError("too late")

        await add(db, NewJob(kind="k", id="a"))
        await workers(db, dawdle).run_until_empty()
        held = await get(db, "a")
        assert (held.state, held.worker, held.error) == (JobState.RUNNING, "other", None)


class TestStop:
    async def test_running_jobs_may_end_within_the_grace(self, db: Db):
        gate = BlockingHandler()
        await add(db, NewJob(kind="k", id="a"))
        task = asyncio.create_task(workers(db, gate, grace_seconds=TIMEOUT_SECONDS).run())
        await wait_until(lambda: gate.entered == ["a"])
        task.cancel()
        gate.opened.set()
        await asyncio.wait([task])
        assert (await get(db, "a")).state is JobState.DONE

    async def test_jobs_that_do_not_end_in_time_are_handed_back_and_cost_no_attempt(self, db: Db):
        gate = BlockingHandler()
        await add(db, NewJob(kind="k", id="a", max_attempts=1), NewJob(kind="k", id="b", max_attempts=1))
        async with working(workers(db, gate, slots=2)):
            await wait_until(lambda: len(gate.entered) == 2)
        assert sorted(gate.stopped) == ["a", "b"]
        for job_id in ("a", "b"):
            job = await get(db, job_id)
            assert (job.state, job.attempts, job.token) == (JobState.WAITING, 0, None)
        gate.opened.set()
        assert await workers(db, gate).run_until_empty() == 2
        assert await life(db, "a") == ["claim", "release", "claim", "finish"]

    async def test_a_stop_does_not_wait_for_a_database_that_is_down(self, db: Db, monkeypatch):
        gate = BlockingHandler()
        await add(db, NewJob(kind="k", id="a"))
        async with working(workers(db, gate)) as task:
            await wait_until(lambda: gate.entered == ["a"])
            with monkeypatch.context() as patched:
                patched.setattr(db, "tx", refuses)
                task.cancel()
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    await asyncio.wait([task])
        assert (await get(db, "a")).state is JobState.RUNNING  # its lease runs out by itself


class SelfCancelled:
    async def __call__(self, job: Job) -> None:
        raise asyncio.CancelledError


class AwaitsWhatWasCancelled:
    async def __call__(self, job: Job) -> None:
        task = asyncio.create_task(asyncio.Event().wait())
        task.cancel()
        await task


class Exits:
    async def __call__(self, job: Job) -> None:
        raise SystemExit(3)


class Panic(BaseException):
    """What a panic in native code looks like."""


class Panics:
    async def __call__(self, job: Job) -> None:
        raise Panic("index out of bounds")


class FailsInAGroup:
    async def __call__(self, job: Job) -> None:
        raise ExceptionGroup("several", [ValueError("one"), OSError("two")])


class SaysNothing:
    async def __call__(self, job: Job) -> None:
        raise ValueError


class SaysTooMuch:
    async def __call__(self, job: Job) -> None:
        raise ValueError("x" * 100_000)


class TestOddHandlers:
    @pytest.mark.parametrize(
        "odd", [SelfCancelled, AwaitsWhatWasCancelled, Exits, Panics, FailsInAGroup, SaysNothing, SaysTooMuch]
    )
    async def test_an_odd_ending_is_a_failed_attempt_like_any_other(self, db: Db, odd: type, clock: ManualClock):
        await add(db, NewJob(kind="k", id="a", max_attempts=2))
        these = workers(db, odd())
        assert await these.run_until_empty() == 1
        job = await get(db, "a")
        assert (job.state, job.attempts, job.error_code) == (JobState.WAITING, 1, "INTERNAL")
        assert job.error
        assert len(job.error) <= 2000
        clock.advance(seconds=10)
        assert await these.run_until_empty() == 1
        assert (await get(db, "a")).state is JobState.FAILED

    async def test_a_bad_job_does_not_disturb_its_neighbours(self, db: Db):
        done: list[str] = []

        async def mixed(job: Job) -> None:
            if job.payload:
                raise Panic("no")
            done.append(job.id)

        await add(db, *(NewJob(kind="k", payload={"bad": 1} if number % 3 else {}) for number in range(9)))
        assert await workers(db, mixed, slots=3).run_until_empty() == 9
        assert len(done) == 3


class TestSettling:
    async def test_a_settle_that_raises_takes_the_mark_done_back_with_it(self, db: Db):
        async def handler(job: Job) -> Settle:
            async def settle(tx: Tx) -> None:
                await JobQueue().enqueue(tx, NewJob(kind="k", id="effect"))
                raise Unavailable(reason="not now")

            return settle

        await add(db, NewJob(kind="k", id="a"))
        await workers(db, handler).run_until_empty()
        job = await get(db, "a")
        assert (job.state, job.error) == (JobState.WAITING, "not now")
        assert await life(db, "a") == ["claim", "retry"]
        with pytest.raises(JobNotFound):
            await get(db, "effect")

    async def test_a_settle_is_tried_again_while_the_database_is_down(self, db: Db, clock: ManualClock):
        tries = 0

        async def handler(job: Job) -> Settle:
            async def settle(tx: Tx) -> None:
                nonlocal tries
                tries += 1
                if tries < 3:
                    raise DatabaseUnavailable(reason="gone fishing")

            return settle

        def three_tries() -> bool:
            clock.advance(seconds=1)
            return tries == 3

        await add(db, NewJob(kind="k", id="a"))
        async with working(workers(db, handler)):
            await wait_until(three_tries)
            await wait_until(lambda: is_state(db, "a", JobState.DONE))
        assert (await get(db, "a")).attempts == 1


def refuses(*, actor: str = "") -> AbstractAsyncContextManager[Tx]:
    raise DatabaseUnavailable(reason="gone fishing")


async def is_state(db: Db, job_id: str, state: JobState) -> bool:
    return (await get(db, job_id)).state is state


async def lease_end(db: Db, job_id: str) -> Any:
    table = JobQueue().leases.table
    async with db.read() as tx:
        return await tx.conn.scalar(table.select().with_only_columns(table.c.leased_until).where(table.c.id == job_id))


async def later_than(db: Db, job_id: str, moment: datetime) -> bool:
    return bool(await lease_end(db, job_id) > moment)


async def take_over(db: Db, db_url: str) -> None:
    """Another process, whose clock is ahead of ours, takes every job whose holder is silent in its eyes."""
    clock = ManualClock(db.clock.now() + timedelta(hours=1))
    elsewhere, queue = Db.open(db_url, clock=clock, ids=db.ids), JobQueue()
    async with elsewhere.tx() as tx:
        assert await queue.rescue(tx)
        assert await queue.claim(tx, owner="other", seconds=600, limit=1)
    await elsewhere.close()
