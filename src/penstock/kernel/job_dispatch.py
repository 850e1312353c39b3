"""Dispatching waiting jobs to an external queue, in the transaction that makes them wait.

Workers that poll the job table need no dispatch. When ARQ hands out the jobs, the queue writes a `JobsWaiting` message
to the outbox, and a sink pushes those jobs to Redis.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.kernel.db import Tx
from penstock.kernel.message import Message

DISPATCH_BATCH = 500  # jobs per message: about 50 kB


@dataclass(frozen=True, kw_only=True)
class WaitingJob:
    """What a dispatcher needs to know about a waiting job."""

    id: str
    attempt: int  # attempts started so far
    module: str
    priority: int
    due_at: datetime


@dataclass(frozen=True, kw_only=True)
class JobsWaiting(Message):
    """These jobs wait now: [id, attempt, module, priority, due time] each."""

    jobs: list[list[Any]]

    @classmethod
    def of(cls, waiting: Iterable[WaitingJob]) -> "JobsWaiting":
        """Encode jobs as plain JSON values."""
        return cls(jobs=[[job.id, job.attempt, job.module, job.priority, job.due_at.isoformat()] for job in waiting])

    def waiting(self) -> list[WaitingJob]:
        """Decode the jobs."""
        return [
            WaitingJob(id=id_, attempt=attempt, module=module, priority=priority, due_at=datetime.fromisoformat(due_at))
            for id_, attempt, module, priority, due_at in self.jobs
        ]


DispatchJobs = Callable[[Tx, Iterable[WaitingJob]], None]


def no_dispatch(_tx: Tx, _waiting: Iterable[WaitingJob]) -> None:
    """Do nothing: workers poll the job table, and its leases wake them."""


def dispatch_by_outbox(tx: Tx, waiting: Iterable[WaitingJob]) -> None:
    """Send the jobs through the outbox, in messages of bounded size."""
    jobs = list(waiting)
    for start in range(0, len(jobs), DISPATCH_BATCH):
        tx.send(JobsWaiting.of(jobs[start : start + DISPATCH_BATCH]))
