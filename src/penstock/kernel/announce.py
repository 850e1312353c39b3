"""Announcing that jobs wait, in the transaction that makes them wait.

Workers that look at the ledger themselves need nobody to tell them. When something else hands jobs out, such as ARQ,
the ledger says by the outbox what waits: `JobsWaiting`, which a carrier takes there.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.kernel.db import Tx
from penstock.kernel.message import Message

ANNOUNCED_AT_ONCE = 500  # jobs in one message: some 50 kB


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A job that waits, by what is needed to give it its turn."""

    id: str
    attempt: int  # how many attempts were begun
    room: str
    priority: int
    due_at: datetime


@dataclass(frozen=True, kw_only=True)
class JobsWaiting(Message):
    """These jobs wait now: [id, attempt, room, priority, due time] each."""

    jobs: list[list[Any]]

    @classmethod
    def of(cls, waiting: Iterable[Waiting]) -> "JobsWaiting":
        """In plain JSON values."""
        return cls(jobs=[[job.id, job.attempt, job.room, job.priority, job.due_at.isoformat()] for job in waiting])

    def waiting(self) -> list[Waiting]:
        """What it says, as values again."""
        return [
            Waiting(id=id_, attempt=attempt, room=room, priority=priority, due_at=datetime.fromisoformat(due_at))
            for id_, attempt, room, priority, due_at in self.jobs
        ]


Announce = Callable[[Tx, Iterable[Waiting]], None]


def announce_nothing(_tx: Tx, _waiting: Iterable[Waiting]) -> None:
    """The workers look at the ledger themselves, and its leases wake them."""


def announce_by_message(tx: Tx, waiting: Iterable[Waiting]) -> None:
    """Say it by the outbox, in messages of a bounded size."""
    jobs = list(waiting)
    for start in range(0, len(jobs), ANNOUNCED_AT_ONCE):
        tx.send(JobsWaiting.of(jobs[start : start + ANNOUNCED_AT_ONCE]))
