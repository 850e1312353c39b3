"""Durable jobs: enqueued in the transaction that needs them, run under a lease, settled once.

This is the ledger of jobs. `enqueue` is a row in the caller's transaction: no job without its reason, no reason
without its job. `workers.py` runs them. What a handler gives back is a `Settle`: it runs in the very transaction that
marks the job done, so the result, the next job of a chain and the mark are kept together or not at all.

Whatever makes a job wait also announces it (`announce.py`). What waits can be looked through in `backlog.py`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    CheckConstraint,
    Column,
    Float,
    Index,
    Integer,
    Row,
    String,
    Table,
    delete,
    literal,
    literal_column,
    select,
    tuple_,
    update,
)

from penstock.kernel.announce import Announce, Waiting, announce_nothing
from penstock.kernel.bulk import among, insert_new, insert_rows
from penstock.kernel.columns import Id, Json, UtcTime
from penstock.kernel.db import Tx, metadata
from penstock.kernel.errors import NotFound, Unavailable
from penstock.kernel.hot import LeasedRow
from penstock.kernel.lease_sql import LeaseWords, lease_columns, lease_indexes, lease_rules
from penstock.kernel.leases import LeaseLost, Leases
from penstock.kernel.machine import Machine
from penstock.kernel.plain import Plain
from penstock.kernel.transitions import move, record


class JobState(StrEnum):
    """Where a job is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


JOB = Machine(
    "job",
    {
        "claim": ({JobState.WAITING}, JobState.RUNNING),
        "finish": ({JobState.RUNNING}, JobState.DONE),
        "retry": ({JobState.RUNNING}, JobState.WAITING),
        "put_off": ({JobState.RUNNING}, JobState.WAITING),
        "hand_back": ({JobState.RUNNING}, JobState.WAITING),
        "expire": ({JobState.RUNNING}, JobState.WAITING),
        "fail": ({JobState.RUNNING}, JobState.FAILED),
        "give_up": ({JobState.WAITING}, JobState.FAILED),
        "cancel": ({JobState.WAITING}, JobState.CANCELLED),
        "revive": ({JobState.FAILED, JobState.CANCELLED}, JobState.WAITING),
    },
    start=JobState.WAITING,
    words={
        JobState.WAITING: "Due now or later; the next free worker takes it in its turn.",
        JobState.RUNNING: "A worker holds it under a lease that it renews while it works.",
        JobState.DONE: "Its work was settled, once.",
        JobState.FAILED: "It cannot succeed, or was tried often enough. A person can revive it.",
        JobState.CANCELLED: "Taken back before it started.",
    },
)
WORDS = LeaseWords(state="state", waiting=JobState.WAITING, held=JobState.RUNNING)

job = Table(
    "job",
    metadata,
    Column("id", Id, primary_key=True),
    Column("kind", String, nullable=False),
    Column("payload", Json, nullable=False),
    Column("state", String, nullable=False, server_default=JobState.WAITING),
    *lease_columns(),  # partition_key is the room; lease_count is the number of attempts begun
    Column("most_attempts", Integer, nullable=False),
    Column("timeout_seconds", Float, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("created_by", String, nullable=False),
    Column("finished_at", UtcTime),
    Column("error_code", String),
    Column("error", String),
    CheckConstraint("state IN ('waiting', 'running', 'done', 'failed', 'cancelled')", name="state"),
    CheckConstraint("most_attempts >= 1", name="most_attempts"),
    *lease_rules(WORDS),
)
lease_indexes(job, WORDS)
# Constants, not parameters, here and in the statements below: only so can a planner see that the index will do.
_failed = job.c.state == literal_column("'failed'")
_over = job.c.state.in_([literal_column(f"'{state}'") for state in ("done", "failed", "cancelled")])
Index("ix_job_over", job.c.state, job.c.finished_at, job.c.id, postgresql_where=_over, sqlite_where=_over)

COLUMNS = (
    "id", "kind", "payload", "partition_key", "priority", "scheduled_at", "deferred", "most_attempts",
    "timeout_seconds", "created_at", "created_by",
)  # fmt: skip
ERROR_LENGTH = 2000


class WorkerLost(Unavailable):
    """The job's worker fell silent in every attempt; it may be what kills its workers."""

    code = "WORKER_LOST"
    message = "Its worker fell silent in each of its attempts."
    message_zh = "每次尝试中执行它的工作进程都失去了响应。"
    hint = "Look at the workers' logs; then revive the job."
    hint_zh = "请查看工作进程的日志，然后重新启用该任务。"
    retryable = False


class JobNotFound(NotFound):
    """There is no job by that id."""

    code = "JOB_ROW_NOT_FOUND"
    message = "There is no job {id} in the ledger."
    message_zh = "账本中没有任务 {id}。"


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """A job to be done. A given `id` makes it unique: enqueued twice, it is there once."""

    kind: str
    payload: Plain = field(default_factory=dict)
    room: str = ""
    id: str | None = None
    priority: int = 5
    delay_seconds: float = 0
    most_attempts: int = 5
    timeout_seconds: float = 600


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job as the ledger has it."""

    id: str
    kind: str
    payload: Plain
    state: JobState
    room: str
    priority: int
    attempts: int
    most_attempts: int
    timeout_seconds: float
    created_at: datetime
    created_by: str
    scheduled_at: datetime
    finished_at: datetime | None
    worker: str | None
    token: str | None
    error_code: str | None
    error: str | None

    @classmethod
    def from_row(cls, row: Row[Any] | LeasedRow) -> "Job":
        """Read a row of the table."""
        return cls(
            id=row.id,
            kind=row.kind,
            payload=row.payload,
            state=JobState(row.state),
            room=row.partition_key,
            priority=row.priority,
            attempts=row.lease_count,
            most_attempts=row.most_attempts,
            timeout_seconds=row.timeout_seconds,
            created_at=row.created_at,
            created_by=row.created_by,
            scheduled_at=row.scheduled_at,
            finished_at=row.finished_at,
            worker=row.lease_owner,
            token=row.lease_token,
            error_code=row.error_code,
            error=row.error,
        )


class Queue:
    """The ledger's verbs. One object per process, since it keeps the leases' hints."""

    def __init__(self, *, announce: Announce = announce_nothing) -> None:
        self.leases = Leases(job, WORDS)
        self._announce = announce

    async def enqueue(self, tx: Tx, *jobs: NewJob) -> list[str]:
        """Add jobs to the ledger with this transaction; returns the ids of those that were not there before."""
        rows = [_new_row(tx, new) for new in jobs]
        for room, priority, due_at in {row[3:6] for row in rows}:
            self.leases.note_new(tx, partition=room, priority=priority, due_at=due_at)
        if all(new.id is None for new in jobs):  # ids made here are new; nothing to compare, which is much quicker
            await insert_rows(tx, job, COLUMNS, rows)
        else:
            rows = list({row[0]: row for row in reversed(rows)}.values())[::-1]  # of two with one id the first counts
            added = await insert_new(tx, job, COLUMNS, rows)
            rows = [row for row in rows if row[0] in added]
        self._announce(tx, map(_new_waiting, rows))
        return [row[0] for row in rows]

    async def claim(self, tx: Tx, *, owner: str, seconds: float, limit: int, room: str = "") -> list[Job]:
        """Hold up to `limit` jobs of a room that are due."""
        rows = await self.leases.claim(tx, owner=owner, seconds=seconds, limit=limit, partition=room)
        return await self._claimed(tx, rows)

    async def claim_ids(self, tx: Tx, ids: Sequence[str], *, owner: str, seconds: float, room: str = "") -> list[Job]:
        """Hold those of these jobs of a room that wait, are due and may be handed out."""
        rows = await self.leases.claim_these(tx, ids, owner=owner, seconds=seconds, partition=room)
        return await self._claimed(tx, rows)

    async def finish(self, tx: Tx, held: Job) -> None:
        """Mark a held job done, or `LeaseLost` when it is no longer held."""
        well = {"finished_at": tx.now, "error_code": None, "error": None}  # an earlier attempt may have left its error
        await self.leases.settle(tx, [held.id], _token(held), state=JobState.DONE, **well)
        await record(tx, JOB.name, [held.id], JobState.RUNNING, JobState.DONE, "finish")

    async def retry(self, tx: Tx, held: Job, *, wait_seconds: float, code: str, error: str) -> None:
        """Try again later; what went wrong stays readable on the row."""
        again = _waiting_again(held, attempt=held.attempts, due_at=tx.now + timedelta(seconds=wait_seconds))
        if not await self._wait_again(tx, held, "retry", again, error_code=code, error=error[:ERROR_LENGTH]):
            raise LeaseLost(ids=held.id)

    async def put_off(self, tx: Tx, held: Job, *, wait_seconds: float, code: str, error: str) -> None:
        """Try again later what failed because a part of our own house is away; it costs no attempt."""
        again = _waiting_again(held, attempt=held.attempts - 1, due_at=tx.now + timedelta(seconds=wait_seconds))
        if not await self._wait_again(tx, held, "put_off", again, error_code=code, error=error[:ERROR_LENGTH]):
            raise LeaseLost(ids=held.id)

    async def fail(self, tx: Tx, held: Job, *, code: str, error: str) -> None:
        """End a held job as failed."""
        why = {"error_code": code, "error": error[:ERROR_LENGTH], "finished_at": tx.now}
        await self.leases.settle(tx, [held.id], _token(held), state=JobState.FAILED, **why)
        await record(tx, JOB.name, [held.id], JobState.RUNNING, JobState.FAILED, "fail")

    async def hand_back(self, tx: Tx, held: Job, *, wait_seconds: float = 0) -> None:
        """Give a job back that was not tried to its end, as on a graceful stop; it costs no attempt."""
        again = _waiting_again(held, attempt=held.attempts - 1, due_at=tx.now + timedelta(seconds=wait_seconds))
        await self._wait_again(tx, held, "hand_back", again)

    async def rescue(self, tx: Tx) -> list[str]:
        """Let jobs wait again whose worker fell silent; those out of attempts fail. Returns the ids."""
        jobs = [Job.from_row(row) for row in await self.leases.expire(tx)]
        ids = [late.id for late in jobs]
        await record(tx, JOB.name, ids, JobState.RUNNING, JobState.WAITING, "expire")
        lost = await self._give_up_on(tx, ids) if ids else ()
        again = (late for late in jobs if late.id not in lost)
        self._announce(tx, (_waiting_again(late, attempt=late.attempts, due_at=tx.now) for late in again))
        return ids

    async def cancel(self, tx: Tx, job_id: str) -> None:
        """Take a job back before it starts; `WrongState` (or `MovedAlready`) when it has started or is over."""
        found = await get_job(tx, job_id)
        await move(tx, job, JOB, job_id, state=found.state, verb="cancel", finished_at=tx.now)

    async def revive(self, tx: Tx, job_id: str) -> None:
        """Give a failed or cancelled job a new life, with its attempts counted from nothing."""
        found = await get_job(tx, job_id)
        fresh = {"lease_count": 0, "scheduled_at": tx.now, "deferred": False, "finished_at": None}
        fresh |= {"error_code": None, "error": None}
        await move(tx, job, JOB, job_id, state=found.state, verb="revive", **fresh)
        self.leases.note_back(tx)
        self._announce(tx, [_waiting_again(found, attempt=0, due_at=tx.now)])

    async def _claimed(self, tx: Tx, rows: Sequence[LeasedRow]) -> list[Job]:
        await record(tx, JOB.name, [row.id for row in rows], JobState.WAITING, JobState.RUNNING, "claim")
        return [Job.from_row(row) for row in rows]

    async def _wait_again(self, tx: Tx, held: Job, verb: str, again: Waiting, **values: object) -> bool:
        """Let a held job wait again; returns whether it was still held."""
        uncounted = held.attempts - again.attempt
        token, due_at = _token(held), again.due_at
        if not await self.leases.release(tx, [held.id], token, due_at=due_at, uncounted=uncounted, **values):
            return False
        await record(tx, JOB.name, [held.id], JobState.RUNNING, JobState.WAITING, verb)
        self._announce(tx, [again])
        return True

    async def _give_up_on(self, tx: Tx, ids: Sequence[str]) -> Collection[str]:
        why = {"error_code": WorkerLost.code, "error": str(WorkerLost()), "finished_at": tx.now}
        spent = update(job).where(job.c.id.in_(ids), job.c.state == "waiting", job.c.lease_count >= job.c.most_attempts)
        lost = await tx.conn.scalars(spent.values(state=JobState.FAILED, **why).returning(job.c.id))
        given_up = set(lost.all())
        await record(tx, JOB.name, given_up, JobState.WAITING, JobState.FAILED, "give_up")
        return given_up


async def get_job(tx: Tx, job_id: str) -> Job:
    """A job by its id, or `JobNotFound`."""
    row = (await tx.conn.execute(select(job).where(job.c.id == job_id))).one_or_none()
    if row is None:
        raise JobNotFound(id=job_id)
    return Job.from_row(row)


async def list_jobs(tx: Tx, ids: Collection[str]) -> list[Job]:
    """Those of these jobs that the ledger knows, as one picture of them."""
    return [Job.from_row(row) for row in await tx.conn.execute(select(job).where(among(tx, job.c.id, ids)))]


async def list_failed_jobs(tx: Tx, *, older_than: Job | None = None, limit: int = 100) -> list[Job]:
    """The jobs that failed, latest first; the next page begins after the last job of this one."""
    place = tuple_(job.c.finished_at, job.c.id)
    newest = select(job).where(_over, _failed).order_by(job.c.finished_at.desc(), job.c.id.desc())
    if older_than is not None:
        newest = newest.where(place < tuple_(literal(older_than.finished_at, UtcTime), literal(older_than.id, Id)))
    return [Job.from_row(row) for row in await tx.conn.execute(newest.limit(limit))]


async def delete_over(tx: Tx, *, before: datetime, limit: int = 10_000) -> int:
    """Forget jobs that were over before then; returns how many."""
    old = (_over, job.c.finished_at < before)
    some = select(job.c.id).where(*old).limit(limit)
    # Asked again in the DELETE: a job that someone revives meanwhile stays.
    return (await tx.conn.execute(delete(job).where(job.c.id.in_(some), *old))).rowcount


def _new_row(tx: Tx, new: NewJob) -> tuple[Any, ...]:
    deferred = new.delay_seconds > 0
    due_at = tx.now + timedelta(seconds=new.delay_seconds) if deferred else tx.now
    return (
        new.id or tx.new_id("job"), new.kind, new.payload, new.room, new.priority, due_at, deferred,
        new.most_attempts, new.timeout_seconds, tx.now, tx.actor,
    )  # fmt: skip


def _new_waiting(row: tuple[Any, ...]) -> Waiting:
    return Waiting(id=row[0], attempt=0, room=row[3], priority=row[4], due_at=row[5])


def _waiting_again(known: Job, *, attempt: int, due_at: datetime) -> Waiting:
    return Waiting(id=known.id, attempt=attempt, room=known.room, priority=known.priority, due_at=due_at)


def _token(held: Job) -> str:
    if held.token is None:
        raise LeaseLost(ids=held.id)
    return held.token
