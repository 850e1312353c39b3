"""The notifier: a commit in one process wakes waiters in the others within milliseconds.

`run_notifier` connects the wake-ups of this process to a `Notifier` (PostgreSQL LISTEN/NOTIFY or Redis pub/sub), in
the background: no transaction waits for it. Channels are sent in batches, at most a hundred times a second, and a
received channel wakes local listeners only, so nothing echoes. Delivery is lossy by design: while the notifier is
down its notifications are dropped, and waiters find their work by polling within a second.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from typing import Protocol

from penstock.kernel.retry import OUTAGE_BACKOFF
from penstock.kernel.wakeups import PendingNotifications, Wakeups

log = logging.getLogger(__name__)

BATCH_SECONDS = 0.01  # a busy process commits hundreds of times a second; one notification serves many commits


class Notifier(Protocol):
    """Pub/sub between the processes of a cluster."""

    async def notify(self, channels: Collection[str]) -> None:
        """Tell the other processes that these channels were woken here."""
        ...

    def listen(self) -> AsyncIterator[str]:
        """The channels woken in other processes, as they arrive. Ends or raises when the connection is lost."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


async def run_notifier(wakeups: Wakeups, notifier: Notifier) -> None:
    """Forward wake-ups between this process and all others, until cancelled."""
    with wakeups.pending_notifications() as pending:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_send(wakeups, pending, notifier))
            tasks.create_task(_receive(wakeups, notifier))


async def _send(wakeups: Wakeups, pending: PendingNotifications, notifier: Notifier) -> None:
    failures = 0
    while True:
        channels = await pending.take()
        try:
            await notifier.notify(channels)
            failures = 0
        except Exception as error:  # noqa: BLE001  (the process works without its notifier, whatever fails)
            failures += 1
            log.warning("notifier: cannot wake other processes: %s", error)
        await wakeups.clock.sleep(OUTAGE_BACKOFF.wait_seconds(failures) if failures else BATCH_SECONDS)


async def _receive(wakeups: Wakeups, notifier: Notifier) -> None:
    failures = 0
    while True:
        try:
            async for channel in notifier.listen():
                failures = 0
                wakeups.wake_local(channel)
        except Exception as error:  # noqa: BLE001  (the process works without its notifier, whatever fails)
            log.warning("notifier: cannot receive wake-ups of other processes: %s", error)
        failures += 1
        await wakeups.clock.sleep(OUTAGE_BACKOFF.wait_seconds(failures))
