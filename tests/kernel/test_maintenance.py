"""The kernel keeps its own tables in order."""

from dataclasses import dataclass
from datetime import timedelta

import pytest
from sqlalchemy import func, select

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.maintenance import Maintenance, repeat_until_zero
from penstock.kernel.message import Message
from penstock.kernel.outbox import list_dead_letters
from penstock.kernel.queue import JobQueue, JobState, NewJob, get_job, job
from penstock.kernel.rate_limits import SqlRateLimits
from penstock.kernel.relay import UNKNOWN_AGE, Relay
from penstock.kernel.runstate import SqlRunState
from penstock.kernel.scheduler import Scheduler
from penstock.kernel.transitions import state_transitions
from penstock.kernel.workers import Workers


@pytest.fixture
def queue() -> JobQueue:
    return JobQueue()


@pytest.fixture
def scheduler(db: Db, queue: JobQueue) -> Scheduler:
    relay = Relay(db, {}, owner="relay")
    maintenance = Maintenance(db, jobs=queue, relay=relay, history=timedelta(days=1), dead_letters=timedelta(days=2))
    runs = SqlRunState(db, live_seconds=60, final_seconds=60)
    return Scheduler(db, maintenance.periodic_tasks(runs, SqlRateLimits(db)), owner="one")


async def test_a_job_whose_worker_stopped_responding_is_requeued_within_a_second(
    db: Db, queue: JobQueue, scheduler: Scheduler, clock: ManualClock
):
    await scheduler.register()
    async with db.tx() as tx:
        await queue.enqueue(tx, NewJob(kind="k", id="a"))
        await queue.claim(tx, owner="silent", seconds=60, limit=1)
    await scheduler.tick()
    clock.advance(seconds=61)
    await scheduler.tick()
    async with db.read() as tx:
        assert (await get_job(tx, "a")).state is JobState.WAITING


async def test_history_is_deleted_after_its_retention_and_not_before(
    db: Db, queue: JobQueue, scheduler: Scheduler, clock: ManualClock
):
    async def nothing(_job: object) -> None:
        return None

    await scheduler.register()
    async with db.tx() as tx:
        await queue.enqueue(tx, *(NewJob(kind="k") for _ in range(3)))
    await Workers(db, queue, {"k": nothing}, owner="me").run_until_empty()
    for hours, jobs, moves in ((23, 3, 6), (2, 0, 0)):
        clock.advance(seconds=hours * 3600)
        await scheduler.tick()
        async with db.read() as tx:
            assert await tx.conn.scalar(select(func.count()).select_from(job)) == jobs
            assert await tx.conn.scalar(select(func.count()).select_from(state_transitions)) == moves


@dataclass(frozen=True, kw_only=True)
class Unheard(Message):
    """Nobody listens to it."""


async def test_dead_letters_stay_longer_but_not_for_ever(db: Db, scheduler: Scheduler, clock: ManualClock):
    await scheduler.register()
    async with db.tx() as tx:
        tx.send(Unheard())
    clock.advance(seconds=UNKNOWN_AGE.total_seconds())
    await Relay(db, {}, owner="relay").deliver()
    for days, letters in ((1.5, 1), (1, 0)):
        clock.advance(seconds=days * 86400)
        await scheduler.tick()
        async with db.read() as tx:
            assert len(await list_dead_letters(tx)) == letters


async def test_deleting_goes_on_bite_by_bite_until_nothing_is_left():
    bites = [1000, 1000, 7, 0]

    async def delete_some() -> int:
        return bites.pop(0)

    await repeat_until_zero(delete_some)
    assert bites == []
