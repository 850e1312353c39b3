"""Claiming by id: exactly those rows that wait, are due and may be handed out."""

import asyncio

import pytest

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.partitions import cool, pause, set_ceiling
from penstock.kernel.queue import Job, JobQueue, JobState, NewJob, get_job
from penstock.kernel.transitions import list_transitions
from tests.conftest import open_db


@pytest.fixture
def queue() -> JobQueue:
    return JobQueue()


async def add(db: Db, queue: JobQueue, *jobs: NewJob) -> None:
    async with db.tx() as tx:
        await queue.enqueue(tx, *jobs)


async def claim(db: Db, queue: JobQueue, *ids: str, owner: str = "w", module: str = "") -> list[Job]:
    async with db.tx(actor=owner) as tx:
        return await queue.claim_ids(tx, ids, owner=owner, seconds=60, module=module)


async def test_a_claim_by_id_is_a_claim_like_any_other(db: Db, queue: JobQueue):
    await add(db, queue, NewJob(kind="k", id="a"), NewJob(kind="k", id="b"))
    [held] = await claim(db, queue, "b")
    assert (held.id, held.state, held.worker, held.attempts) == ("b", JobState.RUNNING, "w", 1)
    async with db.tx() as tx:
        await queue.finish(tx, held)
        assert [step.trigger for step in await list_transitions(tx, "job", "b")] == ["claim", "finish"]
        assert (await get_job(tx, "a")).state is JobState.WAITING


async def test_rows_that_are_held_over_unknown_or_of_another_module_are_left(db: Db, queue: JobQueue):
    await add(db, queue, *(NewJob(kind="k", id=name) for name in ("held", "over", "free")))
    await add(db, queue, NewJob(kind="k", id="elsewhere", module="etl"))
    await claim(db, queue, "held")
    async with db.tx() as tx:
        await queue.cancel(tx, "over")
    assert [job.id for job in await claim(db, queue, "held", "over", "nobody", "elsewhere", "free", "free")] == ["free"]
    assert await claim(db, queue) == []


async def test_the_due_time_decides_whether_or_not_the_row_was_promoted(db: Db, queue: JobQueue, clock: ManualClock):
    await add(db, queue, NewJob(kind="k", id="a", delay_seconds=60))
    assert await claim(db, queue, "a") == []
    clock.advance(seconds=60)
    [held] = await claim(db, queue, "a")
    async with db.tx() as tx:
        await queue.release(tx, held)
        assert len(await queue.claim(tx, owner="w", seconds=60, limit=1)) == 1  # it is not deferred any more


async def test_a_paused_or_cooling_module_hands_nothing_out(db: Db, queue: JobQueue, clock: ManualClock):
    await add(db, queue, NewJob(kind="k", id="a", module="paused"), NewJob(kind="k", id="b", module="cooling"))
    async with db.tx() as tx:
        await pause(tx, "job", "paused")
        await cool(tx, "job", "cooling", until=clock.now().replace(minute=1))
        restricted = [await queue.leases.is_restricted(tx, module) for module in ("paused", "cooling", "")]
    assert restricted == [True, True, False]
    assert await claim(db, queue, "a", module="paused") == []
    assert await claim(db, queue, "b", module="cooling") == []
    clock.advance(seconds=60)
    assert len(await claim(db, queue, "b", module="cooling")) == 1


async def test_rivals_keep_to_a_modules_ceiling_together_and_take_its_first_rows(
    db: Db, db_url: str, queue: JobQueue, clock: ManualClock
):
    names = [f"job {number}" for number in range(6)]
    await add(db, queue, *(NewJob(kind="k", id=name, module="narrow") for name in names))
    async with db.tx() as tx:
        await set_ceiling(tx, "job", "narrow", 3)
    others = [open_db(db_url, clock) for _ in range(3)]
    rivals = zip([db, *others], (names[:2], names[2:4], names[4:], names), strict=True)
    held = await asyncio.gather(*(claim(one, JobQueue(), *ids, module="narrow") for one, ids in rivals))
    assert sum(map(len, held)) == 3
    for other in others:
        await other.close()


async def test_rivals_for_one_row_do_not_both_get_it(db: Db, db_url: str, clock: ManualClock):
    await add(db, JobQueue(), NewJob(kind="k", id="a"))
    others = [open_db(db_url, clock) for _ in range(3)]
    held = await asyncio.gather(*(claim(one, JobQueue(), "a", owner=str(one)) for one in [db, *others]))
    assert sum(map(len, held)) == 1
    for other in others:
        await other.close()
