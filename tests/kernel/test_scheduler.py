"""Periodic tasks run once in the cluster, however many schedulers run, and continue when a process dies."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial

import pytest
from sqlalchemy import delete, select

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.errors import Invalid
from penstock.kernel.scheduler import (
    RETRY_SECONDS,
    NoSuchPeriodicTask,
    PeriodicTask,
    PeriodicTaskReport,
    Scheduler,
    list_periodic_tasks,
    periodic_task,
    request_run,
)

PATIENCE_SECONDS = 20
LEASE_SECONDS = 30


class Rounds:
    """A periodic task that counts, and waits at its gate if that is closed."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0
        self.stopped = 0
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    def has_ended(self, times: int) -> bool:
        return self.ended == times

    async def __call__(self) -> None:
        self.begun += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        if self.error is not None:
            raise self.error
        self.ended += 1


def new_scheduler(
    db: Db,
    owner: str = "one",
    *,
    every_seconds: float = 60,
    lease_seconds: float = LEASE_SECONDS,
    **periodic_tasks: Callable[[], Awaitable[None]],
) -> Scheduler:
    known = [PeriodicTask(name=name, every_seconds=every_seconds, run=run) for name, run in periodic_tasks.items()]
    return Scheduler(db, known, owner=owner, lease_seconds=lease_seconds)


@asynccontextmanager
async def running(*schedulers: Scheduler) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(scheduler.run()) for scheduler in schedulers]
    yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def until(condition: Callable[[], bool], clock: ManualClock | None = None, *, seconds: float = 1) -> None:
    """Let the others run, and time go by if there is a clock, until it holds."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            if clock is not None:
                clock.advance(seconds=seconds)
            await asyncio.sleep(0.001)


async def report(db: Db, name: str) -> PeriodicTaskReport:
    return next(found for found in await list_periodic_tasks(db) if found.name == name)


async def lease_end(db: Db) -> datetime | None:
    async with db.read() as tx:
        end: datetime | None = await tx.conn.scalar(select(periodic_task.c.leased_until))
        return end


async def until_resting(db: Db) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if await lease_end(db) is None:
                return
            await asyncio.sleep(0.001)


async def until_renewed(db: Db, end: datetime) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if await lease_end(db) != end:
                return
            await asyncio.sleep(0.001)


async def test_a_new_task_is_due_at_once_and_then_every_so_often(db: Db, clock: ManualClock):
    rounds = Rounds()
    scheduler = new_scheduler(db, every_seconds=60, sweep=rounds)
    await scheduler.register()
    assert [await scheduler.tick(), await scheduler.tick()] == [1, 0]
    clock.advance(seconds=59)
    assert await scheduler.tick() == 0
    clock.advance(seconds=1)
    assert await scheduler.tick() == 1
    assert rounds.ended == 2


async def test_registering_again_does_not_make_a_task_due_again(db: Db):
    rounds = Rounds()
    for owner in ("one", "two"):
        scheduler = new_scheduler(db, owner, sweep=rounds)
        await scheduler.register()
        await scheduler.tick()
    assert rounds.ended == 1


async def test_of_several_schedulers_one_does_a_task_each_time(db: Db, clock: ManualClock):
    rounds = Rounds()
    schedulers = [new_scheduler(db, f"process-{number}", sweep=rounds) for number in range(4)]
    for scheduler in schedulers:
        await scheduler.register()
    for turn in range(1, 6):
        await asyncio.gather(*(scheduler.tick() for scheduler in schedulers))
        assert rounds.ended == turn
        clock.advance(seconds=60)


async def test_schedulers_that_run_do_every_task_at_its_times(db: Db, clock: ManualClock):
    sweep, look = Rounds(), Rounds()
    # The clock runs a thousand times too fast for a database: a usual lease would be over before a periodic task ends.
    schedulers = [
        new_scheduler(db, f"process-{number}", lease_seconds=86400, sweep=sweep, look=look) for number in range(3)
    ]
    began_at = clock.now()
    async with running(*schedulers):
        await until(lambda: min(sweep.ended, look.ended) >= 4, clock)
    turns = (clock.now() - began_at) / timedelta(seconds=60) + 1
    assert max(sweep.begun, look.begun) <= turns


async def test_a_task_that_takes_long_stays_with_its_process(db: Db, clock: ManualClock):
    slow, other = Rounds(), Rounds()
    slow.gate.clear()
    async with running(new_scheduler(db, "one", sweep=slow)):
        await until(lambda: slow.begun == 1)
        second = new_scheduler(db, "two", sweep=other)
        for _ in range(12):
            end = await lease_end(db)
            assert end is not None
            clock.advance(seconds=LEASE_SECONDS / 3)
            await until_renewed(db, end)
            assert await second.tick() == 0
        slow.gate.set()
        await until(lambda: slow.ended == 1)
    assert (slow.begun, other.begun) == (1, 0)


async def test_the_task_of_a_process_that_died_goes_on_elsewhere_after_its_lease(db: Db, clock: ManualClock):
    lost, found = Rounds(), Rounds()
    lost.gate.clear()
    dying = new_scheduler(db, "dying", sweep=lost)
    await dying.register()
    task = asyncio.create_task(dying.tick())  # nobody renews: as if the process were gone
    await until(lambda: lost.begun == 1)
    other = new_scheduler(db, "other", sweep=found)
    clock.advance(seconds=LEASE_SECONDS - 1)
    assert await other.tick() == 0
    clock.advance(seconds=1)
    assert await other.tick() == 1
    lost.gate.set()
    await task  # back from the dead: its end is not taken
    assert (await report(db, "sweep")).finished_at == clock.now()
    assert await other.tick() == 0


async def test_a_scheduler_that_loses_a_task_stops_it_and_goes_on(db: Db, db_url: str, clock: ManualClock):
    stuck, fine = Rounds(), Rounds()
    stuck.gate.clear()
    async with running(new_scheduler(db, "one", sweep=stuck)) as [task]:
        await until(lambda: stuck.begun == 1)
        elsewhere = Db.open(db_url, clock=ManualClock(clock.now() + timedelta(hours=1)), ids=db.ids)
        assert await new_scheduler(elsewhere, "two", sweep=fine).tick() == 1
        await elsewhere.close()
        clock.advance(seconds=LEASE_SECONDS / 3)
        await until(lambda: stuck.stopped == 1)
        stuck.gate.set()
        await until(lambda: stuck.ended == 1, clock, seconds=60)
        assert not task.done()


async def test_a_task_that_fails_is_reported_and_tried_again_soon(db: Db, clock: ManualClock):
    rounds, fine = Rounds(), Rounds()
    rounds.error = Invalid(reason="the folder is gone")
    scheduler = new_scheduler(db, every_seconds=3600, sweep=rounds, look=fine)
    await scheduler.register()
    assert await scheduler.tick() == 1
    failed = await report(db, "sweep")
    assert failed.error is not None
    assert "the folder is gone" in failed.error
    assert failed.finished_at == clock.now()
    assert (await report(db, "look")).error is None
    rounds.error = None
    clock.advance(seconds=RETRY_SECONDS)
    assert await scheduler.tick() == 1
    assert (await report(db, "sweep")).error is None
    assert fine.ended == 1


async def test_a_task_that_only_another_version_knows_is_left_to_it(db: Db, clock: ManualClock):
    rounds = Rounds()
    new = new_scheduler(db, "new", sweep=Rounds(), gather=rounds)
    await new.register()
    old = new_scheduler(db, "old", sweep=Rounds())
    assert await old.tick() == 1
    left = await report(db, "gather")
    assert (left.state, left.due_at, left.finished_at, left.error) == ("resting", clock.now(), None, None)
    clock.advance(seconds=RETRY_SECONDS)
    assert await new.tick() == 1
    assert rounds.ended == 1


async def test_tasks_come_due_together_whenever_they_were_done(db: Db, clock: ManualClock):
    early, late = Rounds(), Rounds()
    scheduler = new_scheduler(db, early=early, late=late)
    await scheduler.register()
    late.gate.clear()
    clock.advance(seconds=7)
    task = asyncio.create_task(scheduler.tick())
    await until(lambda: early.ended == late.begun == 1)
    clock.advance(seconds=20)
    late.gate.set()
    await task
    clock.advance(seconds=32)
    assert await scheduler.tick() == 0
    clock.advance(seconds=1)
    assert await scheduler.tick() == 2


async def test_a_task_that_a_wrong_clock_put_off_is_called_back(db: Db, db_url: str, clock: ManualClock):
    scheduler = new_scheduler(db, every_seconds=60, sweep=Rounds(), look=Rounds())
    await scheduler.register()
    ahead = Db.open(db_url, clock=ManualClock(clock.now() + timedelta(days=1)), ids=db.ids)
    assert await new_scheduler(ahead, "ahead", every_seconds=60, sweep=Rounds(), look=Rounds()).tick() == 2
    await ahead.close()
    rounds = Rounds()
    async with running(new_scheduler(db, every_seconds=60, sweep=rounds)):
        await until(lambda: rounds.ended == 1)
        await until_resting(db)
    async with db.read() as tx:
        due = {row.id: row.scheduled_at for row in await tx.conn.execute(select(periodic_task))}
    assert due["sweep"] <= clock.now() + timedelta(seconds=60)
    assert due["look"] > clock.now() + timedelta(hours=23)  # not known there: how long it rests cannot be told


async def test_a_row_that_is_lost_is_there_again_within_a_minute(db: Db, clock: ManualClock):
    rounds = Rounds()
    async with running(new_scheduler(db, every_seconds=3600, lease_seconds=86400, sweep=rounds)):
        await until(lambda: rounds.ended == 1)
        await until_resting(db)
        async with db.tx() as tx:
            await tx.conn.execute(delete(periodic_task))
        began_at = clock.now()
        await until(lambda: rounds.ended == 2, clock)
        assert clock.now() - began_at < timedelta(seconds=600)


async def test_a_quick_task_is_done_at_each_of_its_times(db: Db, clock: ManualClock):
    rounds = Rounds()
    async with running(new_scheduler(db, every_seconds=0.5, lease_seconds=86400, sweep=rounds)):
        await until(lambda: rounds.ended == 1)
        for turn in range(2, 8):
            await until_resting(db)
            clock.advance(seconds=0.5)
            await until(partial(rounds.has_ended, turn))


async def test_every_task_is_listed_by_its_name(db: Db):
    scheduler = new_scheduler(db, sweep=Rounds(), look=Rounds())
    assert await list_periodic_tasks(db) == []
    await scheduler.register()
    assert [found.name for found in await list_periodic_tasks(db)] == ["look", "sweep"]


async def request(db: Db, name: str) -> PeriodicTaskReport:
    async with db.tx(actor="operator") as tx:
        return await request_run(tx, name)


async def test_a_requested_task_runs_before_its_time_and_then_at_its_own_times_again(db: Db, clock: ManualClock):
    rounds = Rounds()
    scheduler = new_scheduler(db, every_seconds=60, sweep=rounds)
    await scheduler.register()
    assert await scheduler.tick() == 1
    clock.advance(seconds=5)
    asked = await request(db, "sweep")
    assert (asked.due_at, asked.requested_at) == (clock.now(), clock.now())
    assert [await scheduler.tick(), await scheduler.tick()] == [1, 0]
    assert (await report(db, "sweep")).requested_at is None
    clock.advance(seconds=55)
    assert await scheduler.tick() == 1


async def test_a_request_for_a_running_task_leaves_it_as_it_is(db: Db):
    rounds = Rounds()
    rounds.gate.clear()
    scheduler = new_scheduler(db, sweep=rounds)
    await scheduler.register()
    tick = asyncio.create_task(scheduler.tick())
    await until(lambda: rounds.begun == 1)
    asked = await request(db, "sweep")
    assert (asked.state, asked.worker, asked.requested_at) == ("running", "one", None)
    rounds.gate.set()
    assert await tick == 1
    assert await scheduler.tick() == 0


async def test_a_request_for_an_unknown_task_is_refused(db: Db):
    with pytest.raises(NoSuchPeriodicTask, match="no periodic task sweep"):
        await request(db, "sweep")
