"""The kernel keeps its own tables in order."""

from datetime import timedelta

import pytest
from sqlalchemy import func, select

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.limits import SqlLimits
from penstock.kernel.outbox import Relay
from penstock.kernel.queue import JobState, NewJob, Queue, get_job, job
from penstock.kernel.runstate import SqlRunState
from penstock.kernel.timekeeper import Timekeeper
from penstock.kernel.transitions import state_transitions
from penstock.kernel.upkeep import Upkeep, until_none
from penstock.kernel.workers import Workers


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def timekeeper(db: Db, queue: Queue) -> Timekeeper:
    upkeep = Upkeep(db, jobs=queue, relay=Relay(db, {}, owner="relay"), history=timedelta(days=1))
    runs = SqlRunState(db, live_seconds=60, final_seconds=60)
    return Timekeeper(db, upkeep.duties(runs, SqlLimits(db)), owner="timekeeper")


async def test_a_job_whose_worker_fell_silent_waits_again_within_a_second(
    db: Db, queue: Queue, timekeeper: Timekeeper, clock: ManualClock
):
    await timekeeper.enrol()
    async with db.tx() as tx:
        await queue.enqueue(tx, NewJob(kind="k", id="a"))
        await queue.claim(tx, owner="silent", seconds=60, limit=1)
    await timekeeper.tick()
    clock.advance(seconds=61)
    await timekeeper.tick()
    async with db.read() as tx:
        assert (await get_job(tx, "a")).state is JobState.WAITING


async def test_history_is_forgotten_after_its_time_and_not_before(
    db: Db, queue: Queue, timekeeper: Timekeeper, clock: ManualClock
):
    async def nothing(_job: object) -> None:
        return None

    await timekeeper.enrol()
    async with db.tx() as tx:
        await queue.enqueue(tx, *(NewJob(kind="k") for _ in range(3)))
    await Workers(db, queue, {"k": nothing}, owner="me").run_until_empty()
    for hours, jobs, moves in ((23, 3, 6), (2, 0, 0)):
        clock.advance(seconds=hours * 3600)
        await timekeeper.tick()
        async with db.read() as tx:
            assert await tx.conn.scalar(select(func.count()).select_from(job)) == jobs
            assert await tx.conn.scalar(select(func.count()).select_from(state_transitions)) == moves


async def test_deleting_goes_on_bite_by_bite_until_nothing_is_left():
    bites = [1000, 1000, 7, 0]

    async def delete_some() -> int:
        return bites.pop(0)

    await until_none(delete_some)
    assert bites == []
