"""What `run_notifier` promises, whatever the bell: together, without echo, bounded, and never in anyone's way."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import pytest

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.notifier import BATCH_SECONDS, Notifier, run_notifier
from penstock.kernel.wakeups import MAX_PENDING_CHANNELS, Wakeups
from tests.fakes.blocking_handler import wait_until


class BellWithinReach:
    """Remembers what was rung, and lets the test ring from outside."""

    def __init__(self) -> None:
        self.rung: list[set[str]] = []
        self.outside: asyncio.Queue[str] = asyncio.Queue()

    async def notify(self, channels: Collection[str]) -> None:
        self.rung.append(set(channels))

    async def listen(self) -> AsyncIterator[str]:
        while True:
            yield await self.outside.get()

    async def close(self) -> None:
        pass


class BellThatBreaks(BellWithinReach):
    """Fails as long as it is told to."""

    broken = True
    tries = 0

    async def notify(self, channels: Collection[str]) -> None:
        self.tries += 1
        if self.broken:
            raise OSError("the clapper fell off")
        await super().notify(channels)

    async def listen(self) -> AsyncIterator[str]:
        self.tries += 1
        if self.broken:
            raise OSError("deaf")
        async for channel in super().listen():
            yield channel


class BellThatHangs(BellWithinReach):
    """Never gets a ring out."""

    async def notify(self, channels: Collection[str]) -> None:
        await asyncio.Event().wait()


@pytest.fixture
def wakeups(clock: ManualClock) -> Wakeups:
    return Wakeups(clock)


@asynccontextmanager
async def carried(wakeups: Wakeups, bell: Notifier) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(run_notifier(wakeups, bell))
    await asyncio.sleep(0)
    try:
        yield task
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_what_is_woken_here_is_rung_outside(wakeups: Wakeups):
    bell = BellWithinReach()
    async with carried(wakeups, bell):
        wakeups.wake("jobs")
        await wait_until(lambda: bell.rung == [{"jobs"}])


async def test_what_is_woken_in_a_short_while_is_rung_together_and_once(wakeups: Wakeups, clock: ManualClock):
    bell = BellWithinReach()
    async with carried(wakeups, bell):
        wakeups.wake("jobs")
        await wait_until(lambda: len(bell.rung) == 1)
        for channel in ("jobs", "mail") * 50:
            wakeups.wake(channel)
            await asyncio.sleep(0)
        assert len(bell.rung) == 1
        clock.advance(seconds=BATCH_SECONDS)
        await wait_until(lambda: bell.rung == [{"jobs"}, {"jobs", "mail"}])


async def test_what_is_heard_wakes_here_and_is_not_rung_again(wakeups: Wakeups):
    bell, ear = BellWithinReach(), wakeups.listen(["jobs"])
    async with carried(wakeups, bell):
        bell.outside.put_nowait("jobs")
        await ear.wait(seconds=1)
        wakeups.wake("mail")
        await wait_until(lambda: bool(bell.rung))
        assert bell.rung == [{"mail"}]


async def test_a_broken_bell_is_tried_again_by_and_by_and_then_works(wakeups: Wakeups, clock: ManualClock):
    bell, ear = BellThatBreaks(), wakeups.listen(["jobs"])
    async with carried(wakeups, bell):

        def tried_often() -> bool:
            wakeups.wake("jobs")
            clock.advance(seconds=1)
            return bell.tries > 10

        await wait_until(tried_often)
        bell.broken = False

        def rings_again() -> bool:
            wakeups.wake("jobs")
            clock.advance(seconds=5)
            return bool(bell.rung)

        await wait_until(rings_again)
        ear._notified.clear()
        bell.outside.put_nowait("jobs")

        def heard_again() -> bool:
            clock.advance(seconds=5)
            return ear._notified.is_set()

        await wait_until(heard_again)


async def test_channels_do_not_pile_up_while_the_bell_hangs(wakeups: Wakeups):
    async with carried(wakeups, BellThatHangs()):
        for number in range(2 * MAX_PENDING_CHANNELS):
            wakeups.wake(f"task {number}")
            await asyncio.sleep(0)
        assert wakeups._pending is not None
        assert len(wakeups._pending._channels) == MAX_PENDING_CHANNELS


async def test_a_bell_that_hangs_holds_no_transaction_up(db: Db):
    async with carried(db.wakeups, BellThatHangs()):
        async with asyncio.timeout(5):
            for _ in range(3):
                async with db.tx() as tx:
                    tx.wake("jobs")


def test_without_a_bell_nothing_is_collected(wakeups: Wakeups):
    wakeups.wake("jobs")
    assert wakeups._pending is None


async def test_when_nobody_carries_any_more_nothing_is_collected(wakeups: Wakeups):
    async with carried(wakeups, BellWithinReach()):
        assert wakeups._pending is not None
    assert wakeups._pending is None
