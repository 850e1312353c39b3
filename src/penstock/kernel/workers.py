"""Workers: claim due jobs, as many as there are free slots, and pass them to the runner.

A worker that is killed loses no job: its jobs are available again when their leases expire. Waiting workers are woken
by the commit that enqueues a job, and poll every second for jobs of other processes.
"""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import Unpack

from penstock.kernel.db import Db
from penstock.kernel.leases import POLL_SECONDS
from penstock.kernel.queue import JobQueue
from penstock.kernel.retry import poll_forever
from penstock.kernel.runner import JobHandler, Runner, RunnerOptions, Settle
from penstock.kernel.shielding import run_shielded

__all__ = ["JobHandler", "Settle", "Workers"]  # what a module needs to write and run a handler


class Workers:
    """The worker slots of one process."""

    def __init__(
        self,
        db: Db,
        queue: JobQueue,
        handlers: Mapping[str, JobHandler],
        *,
        owner: str,
        modules: Sequence[str] = ("",),
        slots: int = 4,
        **options: Unpack[RunnerOptions],
    ) -> None:
        self.owner = owner
        self._db = db
        self._queue = queue
        self._modules = tuple(modules)
        self._turns = cycle(modules)
        self._slots = slots
        self._runner = Runner(db, queue, handlers, owner=owner, **options)
        self._listener = db.wakeups.listen([queue.leases.channel])

    async def run(self) -> None:
        """Run jobs until cancelled; then wait for running jobs within the grace period and return the others."""
        try:
            async with self._runner.renewing_leases():
                await poll_forever(
                    self._db.clock, self.claim_and_start, self._wait, warning="workers: cannot claim jobs"
                )
        finally:
            self._db.wakeups.unlisten(self._listener)

    async def _wait(self, found: int) -> None:
        if len(self._runner.running) >= self._slots or not self._open_modules():
            await self._listener.wait(seconds=POLL_SECONDS)  # the end of a job notifies
        elif not found:
            await self._listener.wait(seconds=self._queue.leases.seconds_until_poll(self._db.clock.now()))

    async def run_until_empty(self) -> int:
        """Run all jobs that are due now; returns how many. For tests and tools."""
        total = 0
        while started := await self.claim_and_start():
            total += started
            await self.wait_for_running()
        return total

    async def wait_for_running(self) -> None:
        """Wait until the jobs that run now have ended."""
        await asyncio.gather(*self._runner.running)

    async def claim_and_start(self) -> int:
        """Fill the free slots with due jobs, from the modules in turn; returns how many were started."""
        if not self._runner.handlers or len(self._runner.running) >= self._slots:
            return 0
        if not (modules := self._open_modules()) or not await self._queue.leases.may_have_due(self._db, modules):
            return 0
        started = 0
        for module in islice(self._turns, len(self._modules)):
            free = self._slots - len(self._runner.running)
            if free < 1:
                break
            if module in modules:
                started += await run_shielded(self._claim_from(module, free))
        next(self._turns)  # the next call begins with another module
        return started

    def _open_modules(self) -> list[str]:
        paused, now = self._runner.paused_until, self._db.clock.now()
        return [module for module in self._modules if module not in paused or paused[module] <= now]

    async def _claim_from(self, module: str, limit: int) -> int:
        """Starts claimed jobs right after the commit, so that a stop finds them running and returns them."""
        async with self._db.tx(actor=self.owner) as tx:
            seconds = self._runner.lease_seconds
            jobs = await self._queue.claim(tx, owner=self.owner, seconds=seconds, limit=limit, module=module)
        for held in jobs:
            self._runner.start(held).add_done_callback(lambda _: self._listener.notify())
        return len(jobs)
