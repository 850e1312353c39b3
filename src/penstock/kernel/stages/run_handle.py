"""The handle on a run: how the holder of a lease writes run state.

The holder takes the run over when its attempt starts; from then on the updates of a former holder are refused. A holder
whose update is refused asks the database whether it still holds the lease. If it does, a former holder wrote once more
after it had lost the lease, or run state was lost: the holder takes over again. If it does not, `LeaseLost` is raised.
"""

import logging
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from penstock.kernel.db import Db, Tx
from penstock.kernel.errors import PenstockError
from penstock.kernel.leases import LeaseLost, Leases
from penstock.kernel.runstate import RunMovedOn, RunSnapshot, RunState

log = logging.getLogger(__name__)

FINAL_ORDER = 3 << 60  # of the snapshot that ends a run: later than any that a holder writes, of older versions too
TAKEOVER_ATTEMPTS = 5  # against another holder that starts at the same moment

State = TypeVar("State")


@dataclass(frozen=True, kw_only=True)
class HeldLease:
    """A lease that this process claimed: the row, and the token that alone decides who owns the work on it."""

    db: Db
    leases: Leases
    row_id: str
    token: str

    def tx(self) -> AbstractAsyncContextManager[Tx]:
        """A short transaction. Do not wait for the outside world in it."""
        return self.db.tx()

    def read(self) -> AbstractAsyncContextManager[Tx]:
        """A short read."""
        return self.db.read()

    async def check(self) -> None:
        """Raise `LeaseLost` if the lease has expired, was revoked or is settled."""
        async with self.db.read() as tx:
            await self.check_in(tx)

    async def check_in(self, tx: Tx) -> None:
        """The same check in a transaction that writes on behalf of the holder."""
        if not await self.leases.is_held(tx, self.row_id, self.token):
            raise LeaseLost(ids=self.row_id)


class RunCodec(Protocol[State]):
    """How a module stores the state of a run."""

    @property
    def key(self) -> str:
        """The run state key."""
        ...

    @property
    def run(self) -> int:
        """The number of the run."""
        ...

    def encode(self, state: State) -> RunSnapshot:
        """The snapshot of a state; the handle sets its order and token."""
        ...

    def resume(self, found: RunSnapshot | None) -> State:
        """The state at the start of an attempt, given what run state holds of this key."""
        ...

    def merge(self, state: State, found: RunSnapshot) -> State:
        """A state that is not behind what a former holder of the same run wrote meanwhile."""
        ...


class RunHandle(Generic[State]):
    """Run state of one run, written by the holder of a lease."""

    def __init__(self, runs: RunState, lease: HeldLease, codec: RunCodec[State], state: State, *, order: int) -> None:
        self.lease = lease
        self.state = state  # as run state has it, or will have it with the next move
        self._runs = runs
        self._codec = codec
        self._order = order

    @classmethod
    async def take_over(cls, runs: RunState, lease: HeldLease, codec: RunCodec[State]) -> "RunHandle[State]":
        """Start an attempt. `LeaseLost` if the lease is lost; `RunMovedOn` if run state cannot be taken over."""
        handle = cls(runs, lease, codec, codec.resume(None), order=0)
        for _ in range(TAKEOVER_ATTEMPTS):
            found = await runs.get(codec.key)
            handle.state = codec.resume(found)
            with suppress(RunMovedOn):
                await handle._put_after(found)
                return handle
            await lease.check()
        raise RunMovedOn(key=codec.key, run=codec.run, order=handle._order)

    async def move(self, state: State) -> None:
        """Update run state with progress. `LeaseLost` if the lease is lost.

        While run state is unavailable, the work continues.
        """
        self.state = state
        self._order += 1
        try:
            await self._runs.put_held(self._snapshot())
        except RunMovedOn:
            await self._take_back()
        except PenstockError as error:
            skip_outage(error)

    async def _take_back(self) -> None:
        for _ in range(TAKEOVER_ATTEMPTS):
            await self.lease.check()
            found = await self._runs.get(self._codec.key)
            if found is not None and found.run == self._codec.run and not found.final:
                self.state = self._codec.merge(self.state, found)
            with suppress(RunMovedOn):
                await self._put_after(found)
                return
        raise RunMovedOn(key=self._codec.key, run=self._codec.run, order=self._order)

    async def _put_after(self, found: RunSnapshot | None) -> None:
        """Take over: put a snapshot that follows the one found, whoever wrote that."""
        earlier = found.order if found is not None and found.run == self._codec.run and not found.final else 0
        self._order = max(self._order, earlier) + 1
        await self._runs.put(self._snapshot())

    def _snapshot(self) -> RunSnapshot:
        return replace(self._codec.encode(self.state), order=self._order, token=self.lease.token)


def end_channel(key: str) -> str:
    """The wake-up channel of the end of a run."""
    return f"ended:{key}"


def skip_outage(error: PenstockError) -> None:
    """Ignore that run state is unavailable; raise anything else."""
    if not error.internal_outage:
        raise error
    log.warning("continuing without run state: %s", error)
