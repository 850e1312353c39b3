"""Dispatching waiting jobs to an external queue, in the transaction that makes them wait.

Workers that poll the job table need no dispatch. When ARQ hands out the jobs, the queue writes a `JobsWaiting` message
to the outbox, and a sink pushes those jobs to Redis. A module may name kinds of its jobs that other programs know as
functions of that queue (`ArqFunction`).
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from penstock.kernel.db import Tx
from penstock.kernel.json_object import JsonObject
from penstock.kernel.message import Message

DISPATCH_BATCH = 500  # jobs per message: about 75 kB


@dataclass(frozen=True, kw_only=True)
class WaitingJob:
    """What a dispatcher needs to know about a waiting job."""

    id: str
    attempt: int  # attempts started so far
    module: str
    priority: int
    due_at: datetime
    kind: str = ""
    numbers: Mapping[str, int] = field(default_factory=dict)  # the integers of its payload: ids, no content


def numbers_of(payload: JsonObject) -> dict[str, int]:
    """The integers of a payload. Nothing else of it leaves the database."""
    return {name: value for name, value in payload.items() if type(value) is int}


@dataclass(frozen=True, kw_only=True)
class JobsWaiting(Message):
    """These jobs wait now: [id, attempt, module, priority, due time, kind, numbers] each.

    Messages of earlier versions lack the last two.
    """

    jobs: list[list[Any]]

    @classmethod
    def of(cls, waiting: Iterable[WaitingJob]) -> "JobsWaiting":
        """Encode jobs as plain JSON values."""
        return cls(
            jobs=[
                [job.id, job.attempt, job.module, job.priority, job.due_at.isoformat(), job.kind, dict(job.numbers)]
                for job in waiting
            ]
        )

    def waiting(self) -> list[WaitingJob]:
        """Decode the jobs."""
        named = (dict(zip(WaitingJob.__dataclass_fields__, job, strict=False)) for job in self.jobs)
        return [WaitingJob(**one | {"due_at": datetime.fromisoformat(one["due_at"])}) for one in named]


@dataclass(frozen=True, kw_only=True)
class ArqFunction:
    """A kind of jobs as other programs know it: a function of the ARQ queue of its module.

    `arguments` are the numbers of the payload that are its positional arguments. `start` is called when another program
    enqueues the function by name; it returns the id of the job that does the work, or raises a `PenstockError`.
    """

    arguments: Sequence[str]
    start: Callable[..., Awaitable[str]]


class QueuePositions(Protocol):
    """Where waiting jobs stand in the queue, at a cost that does not grow with the queue."""

    async def find_position(self, module: str, job_id: str) -> int | None:
        """1 for the job that is next; None if the job does not wait or is far back."""
        ...


DispatchJobs = Callable[[Tx, Iterable[WaitingJob]], None]


def dispatch_by_outbox(tx: Tx, waiting: Iterable[WaitingJob]) -> None:
    """Send the jobs through the outbox, in messages of bounded size."""
    jobs = list(waiting)
    for start in range(0, len(jobs), DISPATCH_BATCH):
        tx.send(JobsWaiting.of(jobs[start : start + DISPATCH_BATCH]))
