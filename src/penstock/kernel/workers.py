"""Workers: claim due jobs from the ledger, as many as there are free slots, and give them to the runner.

Killed at any point, they lose nothing: what they held waits again when its lease runs out.
"""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import Unpack

from penstock.kernel.db import Db
from penstock.kernel.leases import LOOK_AGAIN_SECONDS
from penstock.kernel.patience import look_for_ever
from penstock.kernel.queue import Job, Queue
from penstock.kernel.runner import JobHandler, Runner, RunnerOptions, Settle
from penstock.kernel.steady import to_its_end

__all__ = ["JobHandler", "Settle", "Workers"]  # what a room needs to write a handler and to run it


class Workers:
    """The slots of one process."""

    def __init__(
        self,
        db: Db,
        queue: Queue,
        handlers: Mapping[str, JobHandler],
        *,
        owner: str,
        rooms: Sequence[str] = ("",),
        slots: int = 4,
        **options: Unpack[RunnerOptions],
    ) -> None:
        self.owner = owner
        self._db = db
        self._queue = queue
        self._rooms = tuple(rooms)
        self._turns = cycle(rooms)
        self._slots = slots
        self._runner = Runner(db, queue, handlers, owner=owner, **options)
        self._ear = db.wakeups.listen([queue.leases.channel])

    async def run(self) -> None:
        """Work until cancelled; then let running jobs end within the grace, and hand the others back."""
        try:
            async with self._runner.keeping():
                await look_for_ever(self._db.clock, self.start_some, self._rest, away="no jobs can be claimed for now")
        finally:
            self._db.wakeups.forget(self._ear)

    async def _rest(self, found: int) -> None:
        if len(self._runner.running) >= self._slots:
            await self._ear.wait(seconds=LOOK_AGAIN_SECONDS)  # the end of a job rings; nobody claims meanwhile
        elif not found:
            await self._ear.wait(seconds=self._queue.leases.seconds_to_look(self._db.clock.now()))

    async def run_until_empty(self) -> int:
        """Work off what is due now, one after another; returns how many jobs were taken up. For tests and tools."""
        taken = 0
        while started := await self.start_some():
            taken += started
            await asyncio.gather(*self._runner.running)
        return taken

    async def start_some(self) -> int:
        """Fill the free slots with due jobs, the rooms in turn; returns how many were started."""
        if not self._runner.handlers or len(self._runner.running) >= self._slots:
            return 0
        if not await self._queue.leases.may_find(self._db, self._rooms):
            return 0
        started = 0
        for room in islice(self._turns, len(self._rooms)):
            free = self._slots - len(self._runner.running)
            if free < 1:
                break
            started += await to_its_end(self._claim_and_start(room, free))
        next(self._turns)  # another room begins the next time
        return started

    async def _claim_and_start(self, room: str, most: int) -> int:
        """What is claimed is started in the same breath, so that a stop finds it running and hands it back."""
        async with self._db.tx(actor=self.owner) as tx:
            seconds = self._runner.lease_seconds
            jobs = await self._queue.claim(tx, owner=self.owner, seconds=seconds, limit=most, room=room)
        for held in jobs:
            self._start(held)
        return len(jobs)

    def _start(self, held: Job) -> None:
        self._runner.start(held).add_done_callback(lambda _: self._ear.ring())
