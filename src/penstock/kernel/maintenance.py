"""Maintenance: the periodic_tasks that keep the kernel's own tables in order, each done once in the cluster."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from penstock.kernel import outbox, queue, transitions
from penstock.kernel.db import Db, Tx
from penstock.kernel.outbox import Relay
from penstock.kernel.queue import Queue
from penstock.kernel.scheduler import PeriodicTask

RESCUE_SECONDS = 1  # how late at most a lapsed lease is found
TIDY_SECONDS = 60
ACTOR = "timekeeper"


class Forget(Protocol):
    """Deletes the oldest rows of a table, a bounded number at a time; returns how many."""

    async def __call__(self, tx: Tx, *, before: datetime) -> int:
        """Delete some that were over before then."""
        ...


class Sweeps(Protocol):
    """Keeps things for a time, and forgets a bounded number of those whose time is over; returns how many."""

    async def sweep(self) -> int:
        """Forget some."""
        ...


class Maintenance:
    """What has to be done every so often."""

    def __init__(self, db: Db, *, jobs: Queue, relay: Relay, history: timedelta, dead_letters: timedelta) -> None:
        self._db = db
        self._jobs = jobs
        self._relay = relay
        self._history = history
        self._dead_letters = dead_letters

    def periodic_tasks(self, runs: Sweeps, limits: Sweeps) -> list[PeriodicTask]:
        """The periodic_tasks, for a timekeeper."""
        jobs, messages, soon = self._jobs.leases.lapsed, self._relay.leases.lapsed, RESCUE_SECONDS
        return [
            PeriodicTask(name="rescue-jobs", every_seconds=soon, run=self.rescue_jobs, needed=jobs),
            PeriodicTask(name="rescue-messages", every_seconds=soon, run=self.rescue_messages, needed=messages),
            PeriodicTask(name="forget-history", every_seconds=TIDY_SECONDS, run=self.forget_history),
            PeriodicTask(name="sweep-run-state", every_seconds=TIDY_SECONDS, run=partial(until_none, runs.sweep)),
            PeriodicTask(name="sweep-limits", every_seconds=TIDY_SECONDS, run=partial(until_none, limits.sweep)),
        ]

    async def rescue_jobs(self) -> None:
        """Let jobs wait again whose worker fell silent."""
        async with self._db.tx(actor=ACTOR) as tx:
            await self._jobs.rescue(tx)

    async def rescue_messages(self) -> None:
        """Let messages wait again whose relay fell silent."""
        async with self._db.tx(actor=ACTOR) as tx:
            await self._relay.rescue(tx)

    async def forget_history(self) -> None:
        """Delete finished jobs, delivered messages and recorded moves that are older than the history is kept."""
        before = self._db.clock.now() - self._history
        for forget in (queue.delete_over, outbox.delete_sent, transitions.delete_transitions):
            await until_none(partial(self._forget_some, forget, before))
        await until_none(partial(self._forget_some, outbox.delete_dead, self._db.clock.now() - self._dead_letters))

    async def _forget_some(self, forget: Forget, before: datetime) -> int:
        async with self._db.tx(actor=ACTOR) as tx:
            return await forget(tx, before=before)


async def until_none(delete_some: Callable[[], Awaitable[int]]) -> None:
    """Delete in bounded bites, a transaction each, until nothing is left to delete."""
    while await delete_some():
        pass
