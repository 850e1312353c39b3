"""Maintenance: periodic tasks, run once in the cluster, that rescue expired leases and bound the retention of data.

Jobs, messages, state transitions and run state are deleted when they are past their retention.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from penstock.kernel import idempotency, outbox, queue, transitions
from penstock.kernel.db import Db, Tx
from penstock.kernel.queue import JobQueue
from penstock.kernel.relay import Relay
from penstock.kernel.scheduler import PeriodicTask

RESCUE_SECONDS = 1  # how late at most an expired lease is found
CLEANUP_SECONDS = 60
ACTOR = "timekeeper"  # stored in state transitions and the audit log, so the word stays


class DeleteOld(Protocol):
    """Deletes the oldest rows of a table, a bounded number at a time; returns how many."""

    async def __call__(self, tx: Tx, *, before: datetime) -> int:
        """Delete some rows that finished before then."""
        ...


class Sweepable(Protocol):
    """A store whose entries expire."""

    async def sweep(self) -> int:
        """Delete a bounded number of expired entries; returns how many."""
        ...


class Maintenance:
    """Rescues jobs and messages with expired leases, and deletes old history."""

    def __init__(self, db: Db, *, jobs: JobQueue, relay: Relay, history: timedelta, dead_letters: timedelta) -> None:
        self._db = db
        self._jobs = jobs
        self._relay = relay
        self._history = history
        self._dead_letters = dead_letters

    def periodic_tasks(self, runs: Sweepable, limits: Sweepable) -> list[PeriodicTask]:
        """The tasks to register with a scheduler."""
        jobs, messages, soon = self._jobs.leases.has_expired, self._relay.leases.has_expired, RESCUE_SECONDS
        return [
            PeriodicTask(name="rescue-jobs", every_seconds=soon, run=self.rescue_jobs, needed=jobs),
            PeriodicTask(name="rescue-messages", every_seconds=soon, run=self.rescue_messages, needed=messages),
            PeriodicTask(name="forget-history", every_seconds=CLEANUP_SECONDS, run=self.delete_history),
            PeriodicTask(
                name="sweep-run-state", every_seconds=CLEANUP_SECONDS, run=partial(repeat_until_zero, runs.sweep)
            ),
            PeriodicTask(
                name="sweep-limits", every_seconds=CLEANUP_SECONDS, run=partial(repeat_until_zero, limits.sweep)
            ),
        ]

    async def rescue_jobs(self) -> None:
        """Make the jobs of workers that died available again: their leases expired."""
        async with self._db.tx(actor=ACTOR) as tx:
            await self._jobs.rescue(tx)

    async def rescue_messages(self) -> None:
        """Requeue messages whose lease expired."""
        async with self._db.tx(actor=ACTOR) as tx:
            await self._relay.rescue(tx)

    async def delete_history(self) -> None:
        """Delete finished jobs, messages, state transitions and Idempotency-Keys past their retention."""
        now = self._db.clock.now()
        for delete in (queue.delete_finished_jobs, outbox.delete_sent, transitions.delete_transitions):
            await repeat_until_zero(partial(self._delete_some, delete, now - self._history))
        await repeat_until_zero(partial(self._delete_some, outbox.delete_dead, now - self._dead_letters))
        await repeat_until_zero(partial(self._delete_some, idempotency.delete_keys, now - idempotency.RETENTION))

    async def _delete_some(self, delete: DeleteOld, before: datetime) -> int:
        async with self._db.tx(actor=ACTOR) as tx:
            return await delete(tx, before=before)


async def repeat_until_zero(delete_some: Callable[[], Awaitable[int]]) -> None:
    """Delete in bounded batches, each in its own transaction, until nothing is left."""
    while await delete_some():
        pass
