"""Reconcile: every active task has a run state entry and a job, whatever was lost, and none stays running forever.

- A row without run state (a flushed Redis, an expired entry): missing run state is rebuilt from the row.
- A run without a job gets one: a missing job is enqueued, from the furthest artifact found. If its job has failed, the
  run fails too: its workers were killed on every attempt, and another one would be as well.
- A run is stale, and fails, if nobody has updated it for ETL_TASK_TIMEOUT and half a minute, not even while it was
  watched, and its job does not wait for a worker. Its lease is revoked.
- An entry that is still running although its row has ended is updated.

The kernel's reconciler walks through rows and snapshots; `worker.py` opens the transactions.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from sqlalchemy import ColumnElement, or_

from penstock.etl import lifecycle, run_state
from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask, Failure, Phase, Status
from penstock.etl.errors import StageStale
from penstock.etl.run_state import TaskRun
from penstock.etl.store import tasks
from penstock.kernel.db import Tx
from penstock.kernel.queue import Job, JobState
from penstock.kernel.runstate import RunSnapshot, is_any_with
from penstock.kernel.stages.reconciler import StaleWatch

RUNNING = (Status.PENDING, Status.MINERU_PARSING, Status.LLM_PROCESSING)
STAGE = "stale"


def is_any_active(_since: ColumnElement[datetime], now: ColumnElement[datetime]) -> ColumnElement[bool]:
    """A condition: there is an active row, or an entry of a running status."""
    return or_(tasks.is_any_active(), *(is_any_with(status, now) for status in RUNNING))


def jobs_of(task: EtlTask, jobs: Mapping[str, Job]) -> dict[Phase, Job]:
    """Those of these jobs that belong to a run, by phase."""
    return {phase: jobs[job_id] for phase in lifecycle.KINDS if (job_id := run_state.job_id(task, phase)) in jobs}


async def ensure_job(tx: Tx, deps: Deps, row: EtlTask, phase: Phase) -> Failure | None:
    """Enqueue the job of a phase for a run that has none; returns why the run must fail if its job has ended."""
    jobs = await lifecycle.list_jobs(tx, [row])
    if any(job.state in lifecycle.LIVE_JOBS for job in jobs.values()):
        return None
    job = jobs.get(run_state.job_id(row, phase))
    if job is not None and job.state is not JobState.CANCELLED:
        return lost_failure(job)
    if await tasks.claim_active(tx, row.id, run=row.run):
        if job is None:
            await deps.queue.enqueue(tx, lifecycle.stage_job(deps, row, phase))
        else:
            await deps.queue.revive(tx, job.id)
    return None


async def fail_lost(tx: Tx, deps: Deps, row: EtlTask, run: TaskRun | None, failure: Failure) -> None:
    """End a run whose worker is lost, and revoke its lease. What run state shows of it is kept for a retry."""
    if run is not None and run.is_same_run(row) and not run.task.is_final:
        row = replace(row, progress=run.task.progress, metadata={**row.metadata, **run.task.metadata})
    await lifecycle.revoke_jobs(tx, deps, row)
    await lifecycle.fail(tx, deps, row, failure)


def is_stale(watch: StaleWatch, snapshot: RunSnapshot, run: TaskRun, jobs: Mapping[str, Job], now: datetime) -> bool:
    """Whether a run makes no progress while its job is leased. Waiting for a worker or a retry is not stale."""
    if run.task.status is Status.PENDING:
        return False
    if any(job.state is JobState.WAITING for job in jobs_of(run.task, jobs).values()):
        watch.clear(snapshot.key)
        return False
    return watch.is_stale(snapshot, updated_at=run.task.updated_at, now=now)


def lost_failure(job: Job | None = None) -> Failure:
    """Why a run failed: the error of its job, or that its worker stopped responding."""
    error = StageStale()
    if job is not None and job.error:
        return Failure(code=job.error_code or error.code, message=job.error, stage=STAGE, hint=error.hint)
    return lifecycle.failure_from(error, STAGE)
