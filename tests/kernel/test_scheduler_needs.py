"""A periodic task that says when it is needed runs only then, and costs one query while it is not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from sqlalchemy import ColumnElement, delete, literal, select

from penstock.kernel.clock import ManualClock
from penstock.kernel.columns import UtcTime
from penstock.kernel.db import Db
from penstock.kernel.dialect.compiled_statement import any_rows
from penstock.kernel.errors import Invalid
from penstock.kernel.leases import EPOCH
from penstock.kernel.maintenance import Maintenance
from penstock.kernel.message import Message
from penstock.kernel.outbox import outbox
from penstock.kernel.queue import JobQueue, NewJob, job
from penstock.kernel.rate_limits import SqlRateLimits
from penstock.kernel.relay import LEASE_SECONDS, Relay
from penstock.kernel.runstate import SqlRunState
from penstock.kernel.scheduler import RETRY_SECONDS, PeriodicTask, Scheduler, list_periodic_tasks, request_run
from penstock.kernel.workers import Workers
from tests.plans import Recorded, explain, reads_a_whole_table, recorded, sorts

TABLES = r"(duty|job|outbox|run_state|limit_\w+|state_transitions)"
KEPT = timedelta(days=1)


class Rounds:
    """A periodic task that counts how often it was done, and is needed while jobs are there."""

    def __init__(self) -> None:
        self.ended = 0
        self.error: Exception | None = None

    async def __call__(self) -> None:
        if self.error is not None:
            raise self.error
        self.ended += 1


def are_jobs_there(_since: object, _now: object) -> ColumnElement[bool]:
    return any_rows(select(job.c.id))


def new_scheduler(db: Db, rounds: Rounds, *, owner: str = "one", every_seconds: float = 1) -> Scheduler:
    periodic_tasks = [PeriodicTask(name="sweep", every_seconds=every_seconds, run=rounds, needed=are_jobs_there)]
    return Scheduler(db, periodic_tasks, owner=owner)


async def enqueue(db: Db) -> None:
    async with db.tx() as tx:
        await JobQueue().enqueue(tx, NewJob(kind="k"))


async def finish_all(db: Db) -> None:
    async with db.tx() as tx:
        await tx.conn.execute(delete(job))


def writes(statements: Recorded) -> list[str]:
    return [statement for statement, _ in statements if not statement.startswith("SELECT")]


async def test_it_is_done_at_each_of_its_times_while_it_is_needed(db: Db, clock: ManualClock):
    rounds = Rounds()
    scheduler = new_scheduler(db, rounds)
    await scheduler.register()
    done = [await scheduler.tick()]
    await enqueue(db)
    for _ in range(3):
        clock.advance(seconds=1)
        done += [await scheduler.tick(), await scheduler.tick()]
    await finish_all(db)
    clock.advance(seconds=1)
    done.append(await scheduler.tick())
    assert done == [0, 1, 0, 1, 0, 1, 0, 0]


async def test_it_is_asked_at_its_own_times(db: Db, clock: ManualClock):
    rounds = Rounds()
    scheduler = new_scheduler(db, rounds, every_seconds=10)
    await scheduler.register()
    assert await scheduler.tick() == 0
    await enqueue(db)
    clock.advance(seconds=9)
    assert await scheduler.tick() == 0
    clock.advance(seconds=1)
    assert await scheduler.tick() == 1


async def test_it_is_asked_again_when_the_clock_was_put_back(db: Db, clock: ManualClock):
    rounds = Rounds()
    scheduler = new_scheduler(db, rounds)
    await scheduler.register()
    clock.advance(seconds=60)
    assert await scheduler.tick() == 0
    await enqueue(db)
    clock.advance(seconds=-30)
    assert await scheduler.tick() == 1


async def test_of_several_schedulers_one_does_it(db: Db, clock: ManualClock):
    rounds = Rounds()
    schedulers = [new_scheduler(db, rounds, owner=f"process-{number}") for number in range(4)]
    await schedulers[0].register()
    await enqueue(db)
    for turn in range(1, 4):
        await asyncio.gather(*(scheduler.tick() for scheduler in schedulers))
        assert rounds.ended == turn
        clock.advance(seconds=1)


async def test_after_a_failure_it_is_done_again_needed_or_not(db: Db, clock: ManualClock):
    rounds = Rounds()
    rounds.error = Invalid(reason="the folder is gone")
    scheduler = new_scheduler(db, rounds, every_seconds=60)
    await scheduler.register()
    await enqueue(db)
    assert await scheduler.tick() == 0
    await finish_all(db)
    rounds.error = None
    clock.advance(seconds=RETRY_SECONDS)
    assert await scheduler.tick() == 1
    assert [found.error for found in await list_periodic_tasks(db)] == [None]


async def test_what_a_process_left_behind_is_taken_up_needed_or_not(db: Db, clock: ManualClock):
    rounds = Rounds()
    await new_scheduler(db, rounds).register()
    await enqueue(db)
    dying = new_scheduler(db, rounds, owner="dying")
    for task in await dying._start_due():  # it is claimed, and its process is gone
        task.cancel()
    await finish_all(db)
    clock.advance(seconds=31)
    assert await new_scheduler(db, rounds, owner="other").tick() == 1


# The kernel's own periodic_tasks, with workers and a relay beside them.


class Runtime:
    """All of the kernel that does something by itself."""

    def __init__(self, db: Db) -> None:
        self.db = db
        self.queue = JobQueue()
        self.relay = Relay(db, {}, owner="relay")
        self.workers = Workers(db, self.queue, {"k": self.nothing}, owner="w", modules=["", "etl"])
        maintenance = Maintenance(db, jobs=self.queue, relay=self.relay, history=KEPT, dead_letters=KEPT)
        runs = SqlRunState(db, live_seconds=60, final_seconds=60)
        self.periodic_tasks = maintenance.periodic_tasks(runs, SqlRateLimits(db))
        self.scheduler = Scheduler(db, self.periodic_tasks, owner="one")

    async def nothing(self, _job: object) -> None:
        return None

    @asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        parts = [asyncio.create_task(part.run()) for part in (self.scheduler, self.workers, self.relay)]
        yield
        for part in parts:
            part.cancel()
        await asyncio.wait(parts)

    async def spend(self, clock: ManualClock, *, seconds: int) -> None:
        """Let time go by, slowly enough for all that is done meanwhile."""
        for _ in range(4 * seconds):
            clock.advance(seconds=0.25)
            await asyncio.sleep(0.02)

    async def needed(self) -> list[str]:
        """The periodic_tasks that say that they are needed, of those that do not always say so."""
        moments = literal(EPOCH, UtcTime), literal(self.db.clock.now(), UtcTime)
        async with self.db.read() as tx:
            asked = {
                known.name: select(known.needed(*moments)) for known in self.periodic_tasks if known.needed is not None
            }
            return [name for name, question in asked.items() if await tx.conn.scalar(question)]


@pytest.fixture
def runtime(db: Db) -> Runtime:
    return Runtime(db)


async def test_an_idle_runtime_reads_a_little_and_writes_nothing(runtime: Runtime, clock: ManualClock):
    async with runtime.living():
        await runtime.spend(clock, seconds=5)  # all periodic tasks are new, and done once
        with recorded(runtime.db, TABLES) as statements:
            await runtime.spend(clock, seconds=20)
    assert writes(statements) == []
    looks = set(map(str, statements))  # PostgreSQL's are noted once for each use of a connection
    assert 20 <= len(looks) <= 3 * 21


async def test_jobs_whose_worker_fell_silent_are_needed_to_be_rescued(runtime: Runtime, clock: ManualClock):
    async with runtime.db.tx() as tx:
        await runtime.queue.enqueue(tx, NewJob(kind="k"))
        await runtime.queue.claim(tx, owner="silent", seconds=60, limit=1)
    clock.advance(seconds=59)
    assert await runtime.needed() == []
    clock.advance(seconds=1)
    assert await runtime.needed() == ["rescue-jobs"]
    async with runtime.db.tx() as tx:
        assert len(await runtime.queue.rescue(tx)) == 1
    assert await runtime.needed() == []


class Said(Message):
    """Nobody listens to it."""


async def test_messages_whose_relay_fell_silent_are_needed_to_be_rescued(runtime: Runtime, clock: ManualClock):
    async with runtime.db.tx() as tx:
        tx.send(Said())
    async with runtime.db.tx() as tx:
        assert len(await runtime.relay.leases.claim(tx, owner="silent", seconds=LEASE_SECONDS, limit=1)) == 1
    clock.advance(seconds=LEASE_SECONDS - 1)
    assert await runtime.needed() == []
    clock.advance(seconds=1)
    assert await runtime.needed() == ["rescue-messages"]
    async with runtime.db.tx() as tx:
        await runtime.relay.rescue(tx)
    assert await runtime.needed() == []


async def test_leases_that_run_out_in_an_idle_runtime_are_found_within_a_second(runtime: Runtime, clock: ManualClock):
    await runtime.scheduler.register()
    async with runtime.db.tx() as tx:
        await runtime.queue.enqueue(tx, NewJob(kind="k"))
        [held] = await runtime.queue.claim(tx, owner="silent", seconds=90, limit=1)
    for _ in range(90):
        clock.advance(seconds=1)
        await runtime.scheduler.tick()
    async with runtime.db.read() as tx:
        row = (await tx.conn.execute(select(job).where(job.c.id == held.id))).one()
    assert row.state == "waiting"


async def test_more_lapsed_leases_than_one_turn_takes_are_all_rescued(
    runtime: Runtime, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    expire = runtime.queue.leases.expire
    monkeypatch.setattr(runtime.queue.leases, "expire", lambda tx: expire(tx, limit=2))
    await runtime.scheduler.register()
    async with runtime.db.tx() as tx:
        await runtime.queue.enqueue(tx, *(NewJob(kind="k") for _ in range(5)))
        await runtime.queue.claim(tx, owner="silent", seconds=60, limit=5)
    clock.advance(seconds=60)
    for _ in range(3):
        await runtime.scheduler.tick()
        clock.advance(seconds=1)
    async with runtime.db.read() as tx:
        states = (await tx.conn.scalars(select(job.c.state))).all()
    assert set(states) == {"waiting"}


async def test_the_query_for_due_tasks_is_served_by_indexes(runtime: Runtime):
    await runtime.scheduler.register()
    with recorded(runtime.db, "duty") as statements:
        await runtime.scheduler._list_due()
        await asyncio.sleep(0)  # PostgreSQL's driver tells of a statement after it
    [said] = statements
    steps = await explain(runtime.db, *said)
    assert [step for step in steps if sorts(step) or (reads_a_whole_table(step) and "VIRTUAL" not in step)] == []
    assert all(any(f"ix_{table}_held" in step for step in steps) for table in (job.name, outbox.name))


async def test_a_requested_task_runs_once_although_it_is_not_needed(db: Db, clock: ManualClock):
    rounds, often = Rounds(), Rounds()
    rarely = PeriodicTask(name="sweep", every_seconds=3600, run=rounds, needed=are_jobs_there)
    scheduler = Scheduler(db, [rarely, PeriodicTask(name="often", every_seconds=1, run=often)], owner="one")
    old = Scheduler(db, [PeriodicTask(name="often", every_seconds=1, run=often)], owner="old")  # knows no sweep
    await scheduler.register()
    assert await scheduler.tick() == 1  # the other one: there is nothing to sweep for an hour
    async with db.tx() as tx:
        await request_run(tx, "sweep")
    clock.advance(seconds=1)
    assert [await old.tick(), await scheduler.tick()] == [1, 1]
    assert (rounds.ended, often.ended) == (1, 2)
    clock.advance(seconds=3600)
    assert await scheduler.tick() == 1
    assert rounds.ended == 1
