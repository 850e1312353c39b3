"""What `wakeups.py` promises."""

import asyncio

import pytest

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.wakeups import Listener, Wakeups


async def let_others_run() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def wakeups(clock: ManualClock) -> Wakeups:
    return Wakeups(clock)


def start_waiting(listener: Listener, seconds: float = 1) -> asyncio.Task[None]:
    return asyncio.create_task(listener.wait(seconds=seconds))


async def test_a_waiter_wakes_at_the_first_notification(wakeups: Wakeups):
    waiter = start_waiting(wakeups.listen(["jobs"]))
    await let_others_run()
    assert not waiter.done()
    wakeups.wake("jobs")
    await waiter


async def test_a_waiter_that_is_not_notified_wakes_when_its_time_is_over(wakeups: Wakeups, clock: ManualClock):
    waiter = start_waiting(wakeups.listen(["jobs"]), seconds=1)
    await let_others_run()
    clock.advance(seconds=0.9)
    await let_others_run()
    assert not waiter.done()
    clock.advance(seconds=0.1)
    await waiter


async def test_a_notification_between_two_waits_ends_the_next_wait_at_once(wakeups: Wakeups):
    listener = wakeups.listen(["jobs"])
    wakeups.wake("jobs")
    await listener.wait(seconds=1)


async def test_many_notifications_count_as_one(wakeups: Wakeups):
    listener = wakeups.listen(["jobs"])
    for _ in range(3):
        wakeups.wake("jobs")
    await listener.wait(seconds=1)
    second = start_waiting(listener)
    await let_others_run()
    assert not second.done()
    second.cancel()


async def test_every_listener_on_a_channel_is_woken_and_no_other(wakeups: Wakeups):
    waiters = [start_waiting(wakeups.listen(channels)) for channels in (["jobs"], ["jobs", "mail"], ["mail"])]
    await let_others_run()
    wakeups.wake("jobs")
    await let_others_run()
    assert [waiter.done() for waiter in waiters] == [True, True, False]
    wakeups.wake("mail")
    await waiters[2]


async def test_a_removed_listener_is_not_woken(wakeups: Wakeups):
    listener = wakeups.listen(["jobs", "mail"])
    wakeups.unlisten(listener)
    waiter = start_waiting(listener)
    await let_others_run()
    wakeups.wake("jobs")
    wakeups.wake("mail")
    await let_others_run()
    assert not waiter.done()
    waiter.cancel()


async def test_removing_one_listener_leaves_the_others(wakeups: Wakeups):
    gone, stays = wakeups.listen(["jobs"]), wakeups.listen(["jobs"])
    wakeups.unlisten(gone)
    wakeups.unlisten(gone)
    wakeups.wake("jobs")
    await stays.wait(seconds=1)


def test_waking_a_channel_without_listeners_is_harmless(wakeups: Wakeups):
    wakeups.wake("jobs")


def test_channels_that_nobody_listens_to_any_more_leave_nothing_behind(wakeups: Wakeups):
    for number in range(100):
        wakeups.unlisten(wakeups.listen([f"task {number}"]))
    assert not wakeups._listeners  # it would grow with every task that anyone ever watched


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("rung", [False, True], ids=["silent", "rung"])
async def test_a_waiter_that_is_stopped_stops_at_whatever_moment(wakeups: Wakeups, steps: int, rung: bool):
    listener = wakeups.listen(["jobs"])
    waiter = start_waiting(listener)
    await let_others_run()
    if rung:
        listener.notify()
    for _ in range(steps):
        await asyncio.sleep(0)
    was_under_way = waiter.cancel()
    await asyncio.wait([waiter])
    assert waiter.cancelled() == was_under_way


async def test_a_stopped_waiter_leaves_no_task_behind(wakeups: Wakeups):
    before = asyncio.all_tasks()
    waiter = start_waiting(wakeups.listen(["jobs"]))
    await let_others_run()
    waiter.cancel()
    await asyncio.wait([waiter])
    await let_others_run()
    assert asyncio.all_tasks() == before


async def wake_and_roll_back(db: Db) -> None:
    async with db.tx() as tx:
        tx.wake("jobs")
        raise RuntimeError("changed its mind")


async def test_a_commit_wakes_and_a_rollback_does_not(db: Db):
    waiter = start_waiting(db.wakeups.listen(["jobs"]))
    await let_others_run()
    with pytest.raises(RuntimeError, match="changed its mind"):
        await wake_and_roll_back(db)
    await let_others_run()
    assert not waiter.done()
    async with db.tx() as tx:
        tx.wake("jobs")
        await let_others_run()
        assert not waiter.done()
    await waiter


async def test_a_callback_has_run_when_wake_returns(clock: ManualClock):
    wakeups, done = Wakeups(clock), []
    with wakeups.on_wake("keys", lambda: done.append("forgotten")):
        wakeups.wake("keys")
        assert done == ["forgotten"]
    wakeups.wake("keys")
    assert done == ["forgotten"]
