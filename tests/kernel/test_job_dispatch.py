"""Every operation that makes a job wait dispatches it in the same transaction."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db, Tx
from penstock.kernel.job_dispatch import DISPATCH_BATCH, JobsWaiting, WaitingJob, dispatch_by_outbox
from penstock.kernel.queue import Job, JobQueue, NewJob
from tests.conftest import rolled_back

PAYLOAD = {"n": 4, "text": "private", "flag": True, "part": {"n": 5}}  # its integers go along, and nothing else


@pytest.fixture
def queue() -> JobQueue:
    return JobQueue(dispatch=dispatch_by_outbox)


def said(tx: Tx) -> list[WaitingJob]:
    """The jobs dispatched in this transaction since the last call."""
    found = [job for message, _ in tx.sent if isinstance(message, JobsWaiting) for job in message.waiting()]
    tx.sent.clear()
    return found


@asynccontextmanager
async def holding(db: Db, queue: JobQueue) -> AsyncIterator[tuple[Tx, Job]]:
    """A transaction in which a job is held in its first attempt."""
    async with rolled_back(db) as tx:
        await queue.enqueue(tx, NewJob(kind="k", id="a", module="etl", priority=2, payload=PAYLOAD))
        [held] = await queue.claim(tx, owner="w", seconds=60, limit=1, module="etl")
        tx.sent.clear()
        yield tx, held


def waiting(clock: ManualClock, *, attempt: int, wait_seconds: float = 0) -> list[WaitingJob]:
    due_at = clock.now() + timedelta(seconds=wait_seconds)
    return [WaitingJob(id="a", attempt=attempt, module="etl", priority=2, due_at=due_at, kind="k", numbers={"n": 4})]


async def test_new_jobs_are_dispatched_and_those_that_were_there_are_not(db: Db, queue: JobQueue, clock: ManualClock):
    async with rolled_back(db) as tx:
        await queue.enqueue(tx, NewJob(kind="k", id="a", module="etl", priority=2, payload=PAYLOAD, delay_seconds=9))
        assert said(tx) == waiting(clock, attempt=0, wait_seconds=9)
        await queue.enqueue(tx, NewJob(kind="k", id="a"), NewJob(kind="k", id="b"))
        assert [job.id for job in said(tx)] == ["b"]
        [made] = await queue.enqueue(tx, NewJob(kind="k"))
        assert [job.id for job in said(tx)] == [made]


async def test_many_jobs_are_dispatched_in_messages_of_a_bounded_size(db: Db, queue: JobQueue):
    async with rolled_back(db) as tx:
        ids = await queue.enqueue(tx, *(NewJob(kind="k") for _ in range(2 * DISPATCH_BATCH + 1)))
        sizes = [len(message.jobs) for message, _ in tx.sent if isinstance(message, JobsWaiting)]
        assert sizes == [DISPATCH_BATCH, DISPATCH_BATCH, 1]
        assert [job.id for job in said(tx)] == ids


async def test_a_retry_is_dispatched_with_its_attempts_and_its_time(db: Db, queue: JobQueue, clock: ManualClock):
    async with holding(db, queue) as (tx, held):
        await queue.retry(tx, held, wait_seconds=5, code="X", error="x")
        assert said(tx) == waiting(clock, attempt=1, wait_seconds=5)


async def test_what_is_put_off_or_handed_back_is_dispatched_as_if_never_begun(
    db: Db, queue: JobQueue, clock: ManualClock
):
    async with holding(db, queue) as (tx, held):
        await queue.put_off(tx, held, wait_seconds=10, code="X", error="x")
        assert said(tx) == waiting(clock, attempt=0, wait_seconds=10)
    async with holding(db, queue) as (tx, held):
        await queue.release(tx, held)
        assert said(tx) == waiting(clock, attempt=0)
        await queue.release(tx, held)
        assert said(tx) == []  # it was no longer held


async def test_a_rescued_job_is_dispatched_and_one_that_is_given_up_is_not(db: Db, queue: JobQueue, clock: ManualClock):
    async with db.tx() as tx:
        await queue.enqueue(tx, NewJob(kind="k", id="a", module="etl", priority=2, payload=PAYLOAD))
        await queue.enqueue(tx, NewJob(kind="k", id="last", module="etl", max_attempts=1))
        await queue.claim(tx, owner="w", seconds=60, limit=2, module="etl")
    clock.advance(seconds=60)
    async with rolled_back(db) as tx:
        assert sorted(await queue.rescue(tx)) == ["a", "last"]
        assert said(tx) == waiting(clock, attempt=1)


async def test_a_revived_job_is_dispatched_with_its_attempts_reset(db: Db, queue: JobQueue, clock: ManualClock):
    async with holding(db, queue) as (tx, held):
        await queue.fail(tx, held, code="X", error="x")
        assert said(tx) == []
        await queue.revive(tx, "a")
        assert said(tx) == waiting(clock, attempt=0)


async def test_without_a_dispatcher_nothing_is_sent(db: Db):
    queue = JobQueue()
    async with db.tx() as tx:
        await queue.enqueue(tx, NewJob(kind="k", id="a"))
        [held] = await queue.claim(tx, owner="w", seconds=60, limit=1)
        await queue.release(tx, held)
        assert tx.sent == []


async def test_a_message_of_an_earlier_version_is_read(clock: ManualClock):
    [job] = JobsWaiting(jobs=[["a", 1, "etl", 5, clock.now().isoformat()]]).waiting()
    assert job == WaitingJob(id="a", attempt=1, module="etl", priority=5, due_at=clock.now())
