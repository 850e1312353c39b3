"""The job queue: jobs are enqueued in the caller's transaction, run under a lease and settled once.

`enqueue` inserts a row in the caller's transaction, so a job exists if and only if the change that needs it commits.
`workers.py` runs jobs. A handler returns a `Settle`, which runs in the transaction that marks the job done, so what a
settle writes is written exactly once: the result, the next job of a chain and the guarded state change commit together
or not at all. The work itself runs at least once: it runs twice if a worker dies after the work and before the settle.

Every state change after `enqueue` is recorded. No job is lost: it leaves `waiting` only under a lease, and a lease ends
in a settle or expires. Every operation that makes a job wait also dispatches it (`job_dispatch.py`). `backlog.py` lists
the waiting jobs, `job_search.py` those that run or have ended.
"""

from collections.abc import Collection, Iterable, Sequence
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
    func,
    literal,
    literal_column,
    select,
    update,
)

from penstock.kernel.columns import Id, Json, UtcTime
from penstock.kernel.db import Tx, metadata
from penstock.kernel.dialect.bulk import insert_new, insert_rows
from penstock.kernel.dialect.compiled_statement import LeasedRow
from penstock.kernel.dialect.sql import any_of
from penstock.kernel.errors import NotFound, Unavailable
from penstock.kernel.job_dispatch import DispatchJobs, WaitingJob, numbers_of
from penstock.kernel.json_object import JsonObject
from penstock.kernel.lease_sql import LeaseStates, lease_columns, lease_constraints, lease_indexes
from penstock.kernel.leases import LeaseLost, Leases
from penstock.kernel.machine import Machine
from penstock.kernel.transitions import move, record


class JobState(StrEnum):
    """The states of a job; `JOB` describes each."""

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
        "release": ({JobState.RUNNING}, JobState.WAITING),
        "expire": ({JobState.RUNNING}, JobState.WAITING),
        "fail": ({JobState.RUNNING}, JobState.FAILED),
        "give_up": ({JobState.WAITING}, JobState.FAILED),
        "cancel": ({JobState.WAITING}, JobState.CANCELLED),
        "revoke": ({JobState.WAITING, JobState.RUNNING}, JobState.CANCELLED),
        "revive": ({JobState.FAILED, JobState.CANCELLED}, JobState.WAITING),
    },
    start=JobState.WAITING,
    words={
        JobState.WAITING: "Due now or later; the next free worker claims it.",
        JobState.RUNNING: "A worker holds the job under a lease that it renews while the job runs.",
        JobState.DONE: "Its result was committed.",
        JobState.FAILED: "The error is final, or the attempts are used up. An operator can revive the job.",
        JobState.CANCELLED: "Cancelled before it started, or revoked: its worker lost the lease and cannot settle it.",
    },
)
LEASE_STATES = LeaseStates(column="state", waiting=JobState.WAITING, held=JobState.RUNNING)

job = Table(
    "job",
    metadata,
    Column("id", Id, primary_key=True),
    Column("kind", String, nullable=False),
    Column("payload", Json, nullable=False),
    Column("state", String, nullable=False, server_default=JobState.WAITING),
    *lease_columns(),  # partition_key is the module; lease_count is the number of attempts started
    Column("most_attempts", Integer, nullable=False),
    Column("timeout_seconds", Float, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("created_by", String, nullable=False),
    Column("finished_at", UtcTime),
    Column("error_code", String),
    Column("error", String),
    CheckConstraint("state IN ('waiting', 'running', 'done', 'failed', 'cancelled')", name="state"),
    CheckConstraint("most_attempts >= 1", name="most_attempts"),
    *lease_constraints(LEASE_STATES),
)
lease_indexes(job, LEASE_STATES)
# Constants, not parameters, here and in the statements below: the planner then matches the partial index.
_failed = job.c.state == literal_column("'failed'")
FINISHED = job.c.state.in_([literal_column(f"'{state}'") for state in ("done", "failed", "cancelled")])
Index("ix_job_over", job.c.state, job.c.finished_at, job.c.id, postgresql_where=FINISHED, sqlite_where=FINISHED)

COLUMNS = (
    "id", "kind", "payload", "partition_key", "priority", "scheduled_at", "deferred", "most_attempts",
    "timeout_seconds", "created_at", "created_by",
)  # fmt: skip
MAX_ERROR_LENGTH = 2000


class WorkerLost(Unavailable):
    """The lease of a job expired in every attempt; the job may be what kills its workers."""

    code = "WORKER_LOST"
    message = "The worker stopped responding in every attempt."
    message_zh = "每次尝试中执行它的工作进程都失去了响应。"
    hint = "Check the workers' logs, then revive the job."
    hint_zh = "请查看工作进程的日志，然后重新启用该任务。"
    retryable = False


class JobNotFound(NotFound):
    """No job has that id."""

    code = "JOB_ROW_NOT_FOUND"
    message = "Job {id} not found."
    message_zh = "未找到任务 {id}。"


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """A job to enqueue, with its attempt limit, timeout and delay. A given `id` exists once, however often enqueued."""

    kind: str
    payload: JsonObject = field(default_factory=dict)
    module: str = ""
    id: str | None = None
    priority: int = 5
    delay_seconds: float = 0
    max_attempts: int = 5
    timeout_seconds: float = 600


@dataclass(frozen=True, kw_only=True)
class Job:
    """A row of the job table."""

    id: str
    kind: str
    payload: JsonObject
    state: JobState
    module: str
    priority: int
    attempts: int
    max_attempts: int
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
        """A job from its row."""
        return cls(
            id=row.id,
            kind=row.kind,
            payload=row.payload,
            state=JobState(row.state),
            module=row.partition_key,
            priority=row.priority,
            attempts=row.lease_count,
            max_attempts=row.most_attempts,
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


def no_dispatch(_tx: Tx, _waiting: Iterable[WaitingJob]) -> None:
    """Do nothing: workers poll the job table, and its leases wake them."""


class JobQueue:
    """The operations on jobs. One object per process, since its leases keep hints in memory."""

    def __init__(self, *, dispatch: DispatchJobs = no_dispatch) -> None:
        self.leases = Leases(job, LEASE_STATES)
        self._dispatch = dispatch

    async def enqueue(self, tx: Tx, *jobs: NewJob) -> list[str]:
        """Insert jobs in this transaction; returns the ids of those that are new."""
        rows = [_new_row(tx, new) for new in jobs]
        for module, priority, due_at in {row[3:6] for row in rows}:
            self.leases.note_inserted(tx, partition=module, priority=priority, due_at=due_at)
        if all(new.id is None for new in jobs):  # generated ids cannot conflict, and a plain insert is much faster
            await insert_rows(tx, job, COLUMNS, rows)
        else:
            rows = list({row[0]: row for row in reversed(rows)}.values())[::-1]  # the first of each id
            added = await insert_new(tx, job, COLUMNS, rows)
            rows = [row for row in rows if row[0] in added]
        self._dispatch(tx, map(_new_waiting, rows))
        return [row[0] for row in rows]

    async def claim(self, tx: Tx, *, owner: str, seconds: float, limit: int, module: str = "") -> list[Job]:
        """Claim up to `limit` due jobs of a module."""
        rows = await self.leases.claim(tx, owner=owner, seconds=seconds, limit=limit, partition=module)
        return await self._claimed(tx, rows)

    async def claim_ids(self, tx: Tx, ids: Sequence[str], *, owner: str, seconds: float, module: str = "") -> list[Job]:
        """Claim those of these jobs that wait in the module, are due and may be claimed."""
        rows = await self.leases.claim_ids(tx, ids, owner=owner, seconds=seconds, partition=module)
        return await self._claimed(tx, rows)

    async def finish(self, tx: Tx, held: Job) -> None:
        """Mark a held job done; raises `LeaseLost` when it is no longer held."""
        values = {"finished_at": tx.now, "error_code": None, "error": None}  # clears the error of an earlier attempt
        await self.leases.settle(tx, [held.id], _token(held), state=JobState.DONE, **values)
        await record(tx, JOB.name, [held.id], JobState.RUNNING, JobState.DONE, "finish")

    async def retry(self, tx: Tx, held: Job, *, wait_seconds: float, code: str, error: str) -> None:
        """Retry later; the error stays readable on the row."""
        again = _waiting_again(held, attempt=held.attempts, due_at=tx.now + timedelta(seconds=wait_seconds))
        if not await self._wait_again(tx, held, "retry", again, error_code=code, error=error[:MAX_ERROR_LENGTH]):
            raise LeaseLost(ids=held.id)

    async def put_off(self, tx: Tx, held: Job, *, wait_seconds: float, code: str, error: str) -> None:
        """Reschedule after an outage of a dependency, without using up an attempt."""
        again = _waiting_again(held, attempt=held.attempts - 1, due_at=tx.now + timedelta(seconds=wait_seconds))
        if not await self._wait_again(tx, held, "put_off", again, error_code=code, error=error[:MAX_ERROR_LENGTH]):
            raise LeaseLost(ids=held.id)

    async def fail(self, tx: Tx, held: Job, *, code: str, error: str) -> None:
        """Mark a held job failed."""
        why = {"error_code": code, "error": error[:MAX_ERROR_LENGTH], "finished_at": tx.now}
        await self.leases.settle(tx, [held.id], _token(held), state=JobState.FAILED, **why)
        await record(tx, JOB.name, [held.id], JobState.RUNNING, JobState.FAILED, "fail")

    async def release(self, tx: Tx, held: Job, *, wait_seconds: float = 0) -> None:
        """Return an unfinished job, as on a shutdown, without using up an attempt."""
        again = _waiting_again(held, attempt=held.attempts - 1, due_at=tx.now + timedelta(seconds=wait_seconds))
        await self._wait_again(tx, held, "release", again)

    async def rescue(self, tx: Tx) -> list[str]:
        """Make jobs with expired leases available again, or fail them after their last attempt; returns the ids."""
        jobs = [Job.from_row(row) for row in await self.leases.expire(tx)]
        ids = [late.id for late in jobs]
        await record(tx, JOB.name, ids, JobState.RUNNING, JobState.WAITING, "expire")
        failed = await self._fail_exhausted(tx, ids) if ids else ()
        requeued = (late for late in jobs if late.id not in failed)
        self._dispatch(tx, (_waiting_again(late, attempt=late.attempts, due_at=tx.now) for late in requeued))
        return ids

    async def cancel(self, tx: Tx, job_id: str) -> None:
        """Cancel a job before it starts; raises `WrongState` or `MovedAlready` when it has started or finished."""
        found = await get_job(tx, job_id)
        await move(tx, job, JOB, job_id, state=found.state, verb="cancel", finished_at=tx.now, scheduled_at=tx.now)

    async def revoke(self, tx: Tx, ids: Collection[str]) -> list[Job]:
        """Cancel those of these jobs that wait or run; returns them as they were.

        The token of a running job is cleared, so its worker can neither renew, report progress nor settle. It stops
        when its lease would have ended, at the latest: `scheduled_at` says when.
        """
        live = job.c.state.in_([JobState.WAITING, JobState.RUNNING])
        locked = select(job).where(any_of(job.c.id, ids), live).order_by(job.c.id).with_for_update()
        jobs = [Job.from_row(row) for row in await tx.conn.execute(locked)]
        if not jobs:
            return []
        values = {"state": JobState.CANCELLED, "finished_at": tx.now, "lease_token": None, "leased_until": None}
        stopped_by = func.coalesce(job.c.leased_until, literal(tx.now, UtcTime))
        these = update(job).where(any_of(job.c.id, [one.id for one in jobs]), live)
        await tx.conn.execute(these.values(**values, scheduled_at=stopped_by))
        for state in (JobState.WAITING, JobState.RUNNING):
            revoked = [one.id for one in jobs if one.state is state]
            await record(tx, JOB.name, revoked, state, JobState.CANCELLED, "revoke")
        return jobs

    async def revive(self, tx: Tx, job_id: str) -> None:
        """Requeue a failed or cancelled job and reset its attempts."""
        found = await get_job(tx, job_id)
        await move(tx, job, JOB, job_id, state=found.state, verb="revive", **_revived(tx))
        self.leases.note_requeued(tx)
        self._dispatch(tx, [_waiting_again(found, attempt=0, due_at=tx.now)])

    async def revive_all(self, tx: Tx, failed: Sequence[Job]) -> list[str]:
        """Requeue those of these jobs that are still failed and reset their attempts; returns their ids."""
        these = update(job).where(any_of(job.c.id, [one.id for one in failed]), _failed)
        revive = these.values(state=JobState.WAITING, **_revived(tx)).returning(job.c.id)
        revived = set((await tx.conn.scalars(revive)).all()) if failed else set()
        if revived:
            await record(tx, JOB.name, revived, JobState.FAILED, JobState.WAITING, "revive")
            self.leases.note_requeued(tx)
        again = [one for one in failed if one.id in revived]
        self._dispatch(tx, (_waiting_again(one, attempt=0, due_at=tx.now) for one in again))
        return [one.id for one in again]

    async def _claimed(self, tx: Tx, rows: Sequence[LeasedRow]) -> list[Job]:
        await record(tx, JOB.name, [row.id for row in rows], JobState.WAITING, JobState.RUNNING, "claim")
        return [Job.from_row(row) for row in rows]

    async def _wait_again(self, tx: Tx, held: Job, verb: str, again: WaitingJob, **values: object) -> bool:
        """Make a held job wait again; returns whether it was still held."""
        uncounted = held.attempts - again.attempt
        token, due_at = _token(held), again.due_at
        if not await self.leases.release(tx, [held.id], token, due_at=due_at, uncounted=uncounted, **values):
            return False
        await record(tx, JOB.name, [held.id], JobState.RUNNING, JobState.WAITING, verb)
        self._dispatch(tx, [again])
        return True

    async def _fail_exhausted(self, tx: Tx, ids: Sequence[str]) -> Collection[str]:
        why = {"error_code": WorkerLost.code, "error": str(WorkerLost()), "finished_at": tx.now}
        exhausted = (job.c.id.in_(ids), job.c.state == "waiting", job.c.lease_count >= job.c.most_attempts)
        failing = update(job).where(*exhausted).values(state=JobState.FAILED, **why).returning(job.c.id)
        failed = set((await tx.conn.scalars(failing)).all())
        await record(tx, JOB.name, failed, JobState.WAITING, JobState.FAILED, "give_up")
        return failed


async def get_job(tx: Tx, job_id: str) -> Job:
    """A job by its id; raises `JobNotFound`."""
    row = (await tx.conn.execute(select(job).where(job.c.id == job_id))).one_or_none()
    if row is None:
        raise JobNotFound(id=job_id)
    return Job.from_row(row)


async def list_jobs(tx: Tx, ids: Collection[str]) -> list[Job]:
    """Those of these jobs that exist, read in one statement."""
    return [Job.from_row(row) for row in await tx.conn.execute(select(job).where(any_of(job.c.id, ids)))]


async def delete_finished_jobs(tx: Tx, *, before: datetime, limit: int = 10_000) -> int:
    """Delete jobs that finished before then; returns how many."""
    old = (FINISHED, job.c.finished_at < before)
    some = select(job.c.id).where(*old).limit(limit)
    # Checked again in the DELETE: a job that is revived in between stays.
    return (await tx.conn.execute(delete(job).where(job.c.id.in_(some), *old))).rowcount


def _new_row(tx: Tx, new: NewJob) -> tuple[Any, ...]:
    deferred = new.delay_seconds > 0
    due_at = tx.now + timedelta(seconds=new.delay_seconds) if deferred else tx.now
    return (
        new.id or tx.new_id("job"), new.kind, new.payload, new.module, new.priority, due_at, deferred,
        new.max_attempts, new.timeout_seconds, tx.now, tx.actor,
    )  # fmt: skip


def _new_waiting(row: tuple[Any, ...]) -> WaitingJob:
    return WaitingJob(
        id=row[0], attempt=0, module=row[3], priority=row[4], due_at=row[5], kind=row[1], numbers=numbers_of(row[2])
    )


def _waiting_again(known: Job, *, attempt: int, due_at: datetime) -> WaitingJob:
    return WaitingJob(
        id=known.id,
        attempt=attempt,
        module=known.module,
        priority=known.priority,
        due_at=due_at,
        kind=known.kind,
        numbers=numbers_of(known.payload),
    )


def _revived(tx: Tx) -> dict[str, Any]:
    """The columns of a job that is to run as if it were new."""
    fresh = {"lease_count": 0, "scheduled_at": tx.now, "deferred": False, "finished_at": None}
    return fresh | {"error_code": None, "error": None}


def _token(held: Job) -> str:
    if held.token is None:
        raise LeaseLost(ids=held.id)
    return held.token
