"""Bells: a commit in one process wakes the waiters of the others within milliseconds.

A `Notifier` says in every other process what was woken in this one. `run_notifier` joins a notifier and the wake-ups
of a process, beside all work: no transaction waits for it. What was woken goes out together, a hundred times a second
at most, and what is heard only rings here, so no echo goes round. It is lossy by design: when the bell is away its
rings are dropped, and every waiter finds its work a second later by itself.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from typing import Protocol

from penstock.kernel.patience import PATIENCE
from penstock.kernel.wakeups import Calls, Wakeups

log = logging.getLogger(__name__)

GAP_SECONDS = 0.01  # a busy process commits hundreds of times a second; one ring tells as much as many


class Notifier(Protocol):
    """Something that all processes of a cluster hear."""

    async def ring(self, channels: Collection[str]) -> None:
        """Say that these were woken here."""
        ...

    def hear(self) -> AsyncIterator[str]:
        """The channels that were woken in other processes, as they come. Ends or raises when the bell goes away."""
        ...

    async def close(self) -> None:
        """Give its connections back."""
        ...


async def run_notifier(wakeups: Wakeups, bell: Notifier) -> None:
    """Join the wake-ups of this process to those of all others, until cancelled."""
    with wakeups.calls() as calls:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_ring_out(wakeups, calls, bell))
            tasks.create_task(_ring_in(wakeups, bell))


async def _ring_out(wakeups: Wakeups, calls: Calls, bell: Notifier) -> None:
    failures = 0
    while True:
        channels = await calls.take()
        try:
            await bell.ring(channels)
            failures = 0
        except Exception as error:  # noqa: BLE001  (whatever it is, the house goes on without its bell)
            failures += 1
            log.warning("other processes are not woken for now: %s", error)
        await wakeups.clock.sleep(PATIENCE.wait_seconds(failures) if failures else GAP_SECONDS)


async def _ring_in(wakeups: Wakeups, bell: Notifier) -> None:
    failures = 0
    while True:
        try:
            async for channel in bell.hear():
                failures = 0
                wakeups.wake_here(channel)
        except Exception as error:  # noqa: BLE001  (whatever it is, the house goes on without its bell)
            log.warning("wake-ups of other processes are not heard for now: %s", error)
        failures += 1
        await wakeups.clock.sleep(PATIENCE.wait_seconds(failures))
