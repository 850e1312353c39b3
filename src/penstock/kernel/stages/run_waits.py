"""Waiting for the end of runs: requests that are answered when a run has ended, or after a while.

The commit that ends a run wakes those that wait for it, in other processes through the notifier. Notifications may be
lost, so one poll per process and second looks at all the runs that are waited for. A waiting request holds neither a
transaction nor a timer of its own beyond its limit.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.kernel.errors import PenstockError
from penstock.kernel.runstate import RunState
from penstock.kernel.stages.run_handle import end_channel, skip_outage
from penstock.kernel.wakeups import Listener, Wakeups

log = logging.getLogger(__name__)

MAX_WAITS = 1000  # in one process; what exceeds it does not wait
POLL_SECONDS = 1.0


class RunWaits:
    """The requests of one process that wait for the end of runs."""

    def __init__(self, runs: RunState, wakeups: Wakeups) -> None:
        self._runs = runs
        self._wakeups = wakeups
        self._keys: Counter[str] = Counter()
        self._polling: asyncio.Task[None] | None = None

    @contextmanager
    def listening(self, key: str) -> Iterator[Listener | None]:
        """A listener that is notified when the run ends; None if too many wait already.

        Read the run inside the block, before and after a wait: a notification says only that it is worth a look.
        """
        if self._keys.total() >= MAX_WAITS:
            yield None
            return
        listener = self._wakeups.listen([end_channel(key)])
        self._keys[key] += 1
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll())
        try:
            yield listener
        finally:
            self._wakeups.unlisten(listener)
            self._keys[key] -= 1
            self._keys += Counter()  # drops the keys that nobody waits for

    async def _poll(self) -> None:
        """Wake those whose run has ended, once a second while anyone waits."""
        while self._keys:
            await self._wakeups.clock.sleep(POLL_SECONDS)
            try:
                found = await self._runs.get_many(list(self._keys)) if self._keys else ()
            except PenstockError as error:
                skip_outage(error)
                continue
            for snapshot in found:
                if snapshot.final:
                    self._wakeups.wake_local(end_channel(snapshot.key))
