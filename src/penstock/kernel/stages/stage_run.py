"""One attempt of a stage: throttled progress, the cancel check and the stall watch, for work on any leased row.

Every report counts as a sign of life. Work without one is stopped after a while, so that a long document does not fail
for being long. Updates of run state are limited to a few per second.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Generic, NoReturn, TypeVar

from penstock.kernel.db import Tx
from penstock.kernel.errors import PenstockError
from penstock.kernel.leases import LeaseLost
from penstock.kernel.stages.run_handle import RunHandle

State = TypeVar("State")
T = TypeVar("T")

UPDATE_INTERVAL = timedelta(seconds=0.25)  # faster progress is reported together
HEARTBEAT = timedelta(seconds=10)  # the longest time without an update while the work reports anything
STOP_SECONDS = 5  # for cancelled work to stop


class StageRun(Generic[State]):
    """What the work of one attempt needs of its stage. `is_lost` is set when the lease is found lost.

    `advance` computes the state that shows so many steps done; `lost` and `stalled` make the errors of the module.
    """

    def __init__(
        self,
        handle: RunHandle[State],
        *,
        advance: Callable[[State, int, int], State],
        lost: Callable[[], PenstockError],
        stalled: Callable[[], PenstockError],
        stall_seconds: float,
    ) -> None:
        self.is_lost = False
        self._handle = handle
        self._db = handle.lease.db
        self._advance = advance
        self._lost = lost
        self._stalled = stalled
        self._stall_time = timedelta(seconds=stall_seconds)
        self._alive_at = self._updated_at = self._db.clock.now()

    @property
    def state(self) -> State:
        """The state as it is in run state, or will be with the next update."""
        return self._handle.state

    def tx(self) -> AbstractAsyncContextManager[Tx]:
        """A short transaction. Do not wait for the outside world in it."""
        return self._handle.lease.tx()

    def read(self) -> AbstractAsyncContextManager[Tx]:
        """A short read."""
        return self._handle.lease.read()

    async def progress(self, done: int, of: int) -> None:
        """Report how many steps are done. Raises the module's error if the lease is lost; do not catch it."""
        if self._alive() - self._updated_at >= UPDATE_INTERVAL:  # the end of the stage reports the rest
            await self.update(self._advance(self.state, done, of))

    async def update(self, state: State) -> None:
        """Update run state now."""
        self._updated_at = self._alive()
        try:
            await self._handle.move(state)
        except LeaseLost as error:
            self._stop(error)

    def note(self, state: State) -> None:
        """Report this with the next update."""
        self._alive()
        self._handle.state = state

    async def heartbeat(self) -> None:
        """Update run state if nothing did for a while: some work takes long and has no progress to report."""
        if self._alive() - self._updated_at >= HEARTBEAT:
            await self.update(self.state)

    async def check(self) -> None:
        """Cancel check: raise if the lease is lost. Call it before writing what others see."""
        await self.heartbeat()
        try:
            await self._handle.lease.check()
        except LeaseLost as error:
            self._stop(error)

    async def check_in(self, tx: Tx) -> None:
        """The same check in a short transaction, before it writes."""
        try:
            await self._handle.lease.check_in(tx)
        except LeaseLost as error:
            self._stop(error)

    async def watched(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work; raise the module's error and cancel it if it reports nothing for the stall time."""
        working = asyncio.create_task(work)
        watching = asyncio.create_task(self._wait_for_silence())
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise self._stalled()
        finally:
            watching.cancel()
            working.cancel()
            done, _ = await asyncio.wait({working, watching}, timeout=STOP_SECONDS)
            for task in done:
                if not task.cancelled():
                    task.exception()  # retrieve it, or asyncio logs that it was never retrieved

    async def _wait_for_silence(self) -> None:
        clock = self._db.clock
        while (left := (self._alive_at + self._stall_time - clock.now()).total_seconds()) > 0:
            await clock.sleep(left)

    def _alive(self) -> datetime:
        self._alive_at = self._db.clock.now()
        return self._alive_at

    def _stop(self, error: LeaseLost) -> NoReturn:
        """Set a flag too, since the work may wrap the error."""
        self.is_lost = True
        raise self._lost() from error
