"""`run_notifier` with any notifier: batched, without echo, bounded, and never blocking."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import pytest

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.notifier import BATCH_SECONDS, Notifier, run_notifier
from penstock.kernel.wakeups import MAX_PENDING_CHANNELS, Wakeups
from tests.fakes.blocking_handler import wait_until


class RecordingNotifier:
    """Records what was sent, and lets the test send from outside."""

    def __init__(self) -> None:
        self.sent: list[set[str]] = []
        self.outside: asyncio.Queue[str] = asyncio.Queue()

    async def notify(self, channels: Collection[str]) -> None:
        self.sent.append(set(channels))

    async def listen(self) -> AsyncIterator[str]:
        while True:
            yield await self.outside.get()

    async def close(self) -> None:
        pass


class FailingNotifier(RecordingNotifier):
    """Fails while `broken` is set."""

    broken = True
    tries = 0

    async def notify(self, channels: Collection[str]) -> None:
        self.tries += 1
        if self.broken:
            raise OSError("connection lost")
        await super().notify(channels)

    async def listen(self) -> AsyncIterator[str]:
        self.tries += 1
        if self.broken:
            raise OSError("deaf")
        async for channel in super().listen():
            yield channel


class HangingNotifier(RecordingNotifier):
    """Never finishes a send."""

    async def notify(self, channels: Collection[str]) -> None:
        await asyncio.Event().wait()


@pytest.fixture
def wakeups(clock: ManualClock) -> Wakeups:
    return Wakeups(clock)


@asynccontextmanager
async def running(wakeups: Wakeups, notifier: Notifier) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(run_notifier(wakeups, notifier))
    await asyncio.sleep(0)
    try:
        yield task
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_what_is_woken_here_is_sent_outside(wakeups: Wakeups):
    notifier = RecordingNotifier()
    async with running(wakeups, notifier):
        wakeups.wake("jobs")
        await wait_until(lambda: notifier.sent == [{"jobs"}])


async def test_what_is_woken_in_a_short_while_is_sent_together_and_once(wakeups: Wakeups, clock: ManualClock):
    notifier = RecordingNotifier()
    async with running(wakeups, notifier):
        wakeups.wake("jobs")
        await wait_until(lambda: len(notifier.sent) == 1)
        for channel in ("jobs", "mail") * 50:
            wakeups.wake(channel)
            await asyncio.sleep(0)
        assert len(notifier.sent) == 1
        clock.advance(seconds=BATCH_SECONDS)
        await wait_until(lambda: notifier.sent == [{"jobs"}, {"jobs", "mail"}])


async def test_what_is_heard_wakes_here_and_is_not_rung_again(wakeups: Wakeups):
    notifier, waiter = RecordingNotifier(), wakeups.listen(["jobs"])
    async with running(wakeups, notifier):
        notifier.outside.put_nowait("jobs")
        await waiter.wait(seconds=1)
        wakeups.wake("mail")
        await wait_until(lambda: bool(notifier.sent))
        assert notifier.sent == [{"mail"}]


async def test_a_broken_notifier_is_retried_with_backoff_and_then_works(wakeups: Wakeups, clock: ManualClock):
    notifier, waiter = FailingNotifier(), wakeups.listen(["jobs"])
    async with running(wakeups, notifier):

        def tried_often() -> bool:
            wakeups.wake("jobs")
            clock.advance(seconds=1)
            return notifier.tries > 10

        await wait_until(tried_often)
        notifier.broken = False

        def rings_again() -> bool:
            wakeups.wake("jobs")
            clock.advance(seconds=5)
            return bool(notifier.sent)

        await wait_until(rings_again)
        waiter._notified.clear()
        notifier.outside.put_nowait("jobs")

        def heard_again() -> bool:
            clock.advance(seconds=5)
            return waiter._notified.is_set()

        await wait_until(heard_again)


async def test_channels_do_not_pile_up_while_the_notifier_hangs(wakeups: Wakeups):
    async with running(wakeups, HangingNotifier()):
        for number in range(2 * MAX_PENDING_CHANNELS):
            wakeups.wake(f"task {number}")
            await asyncio.sleep(0)
        assert wakeups._pending is not None
        assert len(wakeups._pending._channels) == MAX_PENDING_CHANNELS


async def test_a_notifier_that_hangs_holds_no_transaction_up(db: Db):
    async with running(db.wakeups, HangingNotifier()):
        async with asyncio.timeout(5):
            for _ in range(3):
                async with db.tx() as tx:
                    tx.wake("jobs")


def test_without_a_notifier_nothing_is_collected(wakeups: Wakeups):
    wakeups.wake("jobs")
    assert wakeups._pending is None


async def test_after_the_notifier_stops_nothing_is_collected(wakeups: Wakeups):
    async with running(wakeups, RecordingNotifier()):
        assert wakeups._pending is not None
    assert wakeups._pending is None
