"""What `leases.py` promises, shown on the job table, on both databases."""

from datetime import timedelta

import pytest

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.leases import EPOCH, FULL_SCAN_SECONDS, LeaseLost, Leases, LookbackWindow
from penstock.kernel.partitions import cool, pause, resume, set_ceiling
from penstock.kernel.queue import LEASE_STATES, JobQueue, NewJob, job


@pytest.fixture
def queue() -> JobQueue:
    return JobQueue()


async def add(db: Db, queue: JobQueue, *jobs: NewJob) -> list[str]:
    async with db.tx() as tx:
        return await queue.enqueue(tx, *jobs)


async def claim(db: Db, leases: Leases, limit: int = 10, partition: str = "", seconds: float = 60):
    async with db.tx() as tx:
        return await leases.claim(tx, owner="me", seconds=seconds, limit=limit, partition=partition)


async def test_rows_are_handed_out_by_priority_then_due_time_then_id(db: Db, queue: JobQueue, clock: ManualClock):
    await add(db, queue, NewJob(kind="k", id="b"), NewJob(kind="k", id="a"))
    clock.advance(seconds=1)
    await add(db, queue, NewJob(kind="k", id="late"), NewJob(kind="k", id="urgent", priority=1))
    rows = await claim(db, queue.leases)
    assert [row.id for row in rows] == ["urgent", "a", "b", "late"]


async def test_a_claimed_row_carries_owner_token_end_and_count(db: Db, queue: JobQueue, clock: ManualClock):
    await add(db, queue, NewJob(kind="k", id="a"))
    [row] = await claim(db, queue.leases, seconds=60)
    assert (row.lease_owner, row.lease_count) == ("me", 1)
    assert row.lease_token
    assert row.leased_until == clock.now() + timedelta(seconds=60)


async def test_a_held_row_is_not_handed_out_again(db: Db, queue: JobQueue):
    await add(db, queue, NewJob(kind="k"))
    assert len(await claim(db, queue.leases)) == 1
    assert await claim(db, queue.leases) == []


async def test_a_row_is_not_handed_out_before_it_is_due(db: Db, queue: JobQueue, clock: ManualClock):
    await add(db, queue, NewJob(kind="k", id="later", delay_seconds=30))
    assert await claim(db, queue.leases) == []
    clock.advance(seconds=29.9)
    assert await claim(db, queue.leases) == []
    clock.advance(seconds=0.1)
    assert [row.id for row in await claim(db, queue.leases)] == ["later"]


async def test_another_process_notices_a_deferred_row_within_a_second_of_its_time(
    db: Db, queue: JobQueue, clock: ManualClock
):
    elsewhere = Leases(job, LEASE_STATES)
    await claim(db, elsewhere)
    await add(db, queue, NewJob(kind="k", id="later", delay_seconds=5))
    clock.advance(seconds=5)
    assert [row.id for row in await claim(db, elsewhere)] == ["later"]


async def test_a_million_deferred_rows_would_not_stand_before_a_due_one(db: Db, queue: JobQueue):
    later = [NewJob(kind="k", priority=1, delay_seconds=600) for _ in range(50)]
    await add(db, queue, *later, NewJob(kind="k", id="now", priority=9))
    assert [row.id for row in await claim(db, queue.leases)] == ["now"]


async def test_settling_needs_the_token(db: Db, queue: JobQueue):
    await add(db, queue, NewJob(kind="k", id="a"))
    [row] = await claim(db, queue.leases)
    with pytest.raises(LeaseLost, match="a"):
        async with db.tx() as tx:
            await queue.leases.settle(tx, ["a"], "someone else's", state="done")
    async with db.tx() as tx:
        await queue.leases.settle(tx, ["a"], row.lease_token, state="done")


async def test_settling_twice_is_refused(db: Db, queue: JobQueue):
    await add(db, queue, NewJob(kind="k", id="a"))
    [row] = await claim(db, queue.leases)
    async with db.tx() as tx:
        await queue.leases.settle(tx, ["a"], row.lease_token, state="done")
    with pytest.raises(LeaseLost):
        async with db.tx() as tx:
            await queue.leases.settle(tx, ["a"], row.lease_token, state="failed")


async def test_a_batch_is_settled_whole_or_not_at_all(db: Db, queue: JobQueue):
    await add(db, queue, NewJob(kind="k", id="a"), NewJob(kind="k", id="b"))
    rows = await claim(db, queue.leases)
    token = rows[0].lease_token
    with pytest.raises(LeaseLost, match="stranger"):
        async with db.tx() as tx:
            await queue.leases.settle(tx, ["a", "stranger"], token, state="done")
    async with db.tx() as tx:
        assert await queue.leases.renew(tx, ["a", "b"], token, seconds=60) == {"a", "b"}


async def test_a_lapsed_lease_goes_back_and_its_late_holder_is_refused(db: Db, queue: JobQueue, clock: ManualClock):
    await add(db, queue, NewJob(kind="k", id="a"))
    [first] = await claim(db, queue.leases, seconds=60)
    clock.advance(seconds=61)
    async with db.tx() as tx:
        assert [row.id for row in await queue.leases.expire(tx)] == ["a"]
    [second] = await claim(db, queue.leases)
    assert second.lease_count == 2
    with pytest.raises(LeaseLost):
        async with db.tx() as tx:
            await queue.leases.settle(tx, ["a"], first.lease_token, state="done")
    async with db.tx() as tx:
        await queue.leases.settle(tx, ["a"], second.lease_token, state="done")


async def test_a_renewed_lease_does_not_lapse(db: Db, queue: JobQueue, clock: ManualClock):
    await add(db, queue, NewJob(kind="k", id="a"))
    [row] = await claim(db, queue.leases, seconds=60)
    clock.advance(seconds=59)
    async with db.tx() as tx:
        assert await queue.leases.renew(tx, ["a"], row.lease_token, seconds=60) == {"a"}
    clock.advance(seconds=59)
    async with db.tx() as tx:
        assert await queue.leases.expire(tx) == []


async def test_a_lost_lease_cannot_be_renewed_or_released(db: Db, queue: JobQueue, clock: ManualClock):
    await add(db, queue, NewJob(kind="k", id="a"))
    [row] = await claim(db, queue.leases, seconds=60)
    clock.advance(seconds=61)
    async with db.tx() as tx:
        await queue.leases.expire(tx)
        assert await queue.leases.renew(tx, ["a"], row.lease_token, seconds=60) == set()
        assert await queue.leases.release(tx, ["a"], row.lease_token) == set()


async def test_a_released_row_waits_again_at_once_or_later(db: Db, queue: JobQueue, clock: ManualClock):
    await add(db, queue, NewJob(kind="k", id="a"))
    [row] = await claim(db, queue.leases)
    async with db.tx() as tx:
        await queue.leases.release(tx, ["a"], row.lease_token)
    [row] = await claim(db, queue.leases)
    async with db.tx() as tx:
        await queue.leases.release(tx, ["a"], row.lease_token, due_at=tx.now + timedelta(seconds=10))
    assert await claim(db, queue.leases) == []
    clock.advance(seconds=10)
    assert len(await claim(db, queue.leases)) == 1


async def test_partitions_do_not_see_each_other(db: Db, queue: JobQueue):
    await add(db, queue, NewJob(kind="k", id="a", module="one"), NewJob(kind="k", id="b", module="two"))
    assert [row.id for row in await claim(db, queue.leases, partition="two")] == ["b"]


async def test_a_partition_hands_out_no_more_than_its_ceiling(db: Db, queue: JobQueue):
    await add(db, queue, *(NewJob(kind="k", module="one") for _ in range(5)))
    async with db.tx() as tx:
        await set_ceiling(tx, "job", "one", 3)
    rows = await claim(db, queue.leases, limit=2, partition="one")
    assert len(rows) == 2
    assert len(await claim(db, queue.leases, partition="one")) == 1
    assert await claim(db, queue.leases, partition="one") == []
    async with db.tx() as tx:
        await queue.leases.settle(tx, [rows[0].id], rows[0].lease_token, state="done")
    assert len(await claim(db, queue.leases, partition="one")) == 1


async def test_a_paused_partition_hands_out_nothing_until_it_is_resumed(db: Db, queue: JobQueue):
    await add(db, queue, NewJob(kind="k", module="one"))
    async with db.tx() as tx:
        await pause(tx, "job", "one")
    assert await claim(db, queue.leases, partition="one") == []
    async with db.tx() as tx:
        await resume(tx, "job", "one")
    assert len(await claim(db, queue.leases, partition="one")) == 1


async def test_a_cooling_partition_opens_by_itself(db: Db, queue: JobQueue, clock: ManualClock):
    await add(db, queue, NewJob(kind="k", module="one"))
    async with db.tx() as tx:
        await cool(tx, "job", "one", until=tx.now + timedelta(seconds=30))
    assert await claim(db, queue.leases, partition="one") == []
    clock.advance(seconds=30)
    assert len(await claim(db, queue.leases, partition="one")) == 1


async def test_an_urgent_row_from_elsewhere_is_found_although_the_cursor_is_past_it(
    db: Db, queue: JobQueue, clock: ManualClock
):
    elsewhere = JobQueue()
    await add(db, queue, *(NewJob(kind="k") for _ in range(20)))
    assert len(await claim(db, queue.leases, limit=5)) == 5
    await add(db, elsewhere, NewJob(kind="k", id="urgent", priority=1))
    clock.advance(seconds=1)
    assert (await claim(db, queue.leases, limit=5))[0].id == "urgent"


async def test_a_row_before_the_cursor_is_not_overlooked_when_nothing_lies_after_it(db: Db, queue: JobQueue):
    elsewhere = JobQueue()
    await add(db, queue, *(NewJob(kind="k") for _ in range(5)))
    assert len(await claim(db, queue.leases, limit=5)) == 5
    await add(db, elsewhere, NewJob(kind="k", id="urgent", priority=1))
    assert [row.id for row in await claim(db, queue.leases, limit=5)] == ["urgent"]


async def test_a_poll_finds_what_is_due_in_its_partitions_and_what_comes_due(
    db: Db, queue: JobQueue, clock: ManualClock
):
    assert not await queue.leases.may_have_due(db, ["here", "there"])
    await add(db, JobQueue(), NewJob(kind="k", module="elsewhere"), NewJob(kind="k", module="here", delay_seconds=2.4))
    clock.advance(seconds=1)
    assert not await queue.leases.may_have_due(db, ["here", "there"])
    clock.advance(seconds=1)
    assert not await queue.leases.may_have_due(db, ["here", "there"])
    assert queue.leases.seconds_until_poll(clock.now()) == pytest.approx(0.4)
    clock.advance(seconds=0.4)
    assert await queue.leases.may_have_due(db, ["here", "there"])
    assert len(await claim(db, queue.leases, partition="here")) == 1


async def test_what_is_deferred_during_a_poll_is_not_overlooked(db: Db, queue: JobQueue, clock: ManualClock):
    async with db.tx() as tx:
        await queue.enqueue(tx, NewJob(kind="k", delay_seconds=0.3))
        assert not await queue.leases.may_have_due(db, [""])  # it cannot see it yet
    assert queue.leases.seconds_until_poll(clock.now()) == pytest.approx(0.3)


async def test_a_clock_that_is_put_back_does_not_keep_deferred_rows_waiting(
    db: Db, queue: JobQueue, clock: ManualClock
):
    clock.advance(seconds=3600)
    assert await claim(db, queue.leases) == []
    clock.advance(seconds=-3600)
    await add(db, JobQueue(), NewJob(kind="k", id="a", delay_seconds=10))
    clock.advance(seconds=10)
    assert [row.id for row in await claim(db, queue.leases)] == ["a"]


def test_everything_is_scanned_once_a_minute_also_when_the_clock_was_put_back(clock: ManualClock):
    lookback, begun = LookbackWindow(), clock.now()
    lookback.scanned(begun)
    earlier = begun - timedelta(days=1)
    lookback.scanned(earlier)
    assert lookback.since(earlier + timedelta(seconds=FULL_SCAN_SECONDS - 1)) > EPOCH
    assert lookback.since(earlier + timedelta(seconds=FULL_SCAN_SECONDS)) == EPOCH
