"""Cancel and abort tasks.

`cancel_task` cancels a pending task together with its job in one transaction: of a cancel and a claim exactly one wins,
so either a worker has claimed the job or no worker ever gets it. `abort_task` (`force`) also ends a running task: the
row becomes final and the lease of its job is revoked, so its worker stops at the next progress update, and everything
it still tries to settle is refused. Cancelling a task that waits for a review withdraws the review; the task has ended,
so its status stays.
"""

from dataclasses import replace

from penstock.access import audit
from penstock.access.domain import Caller
from penstock.etl import lifecycle, review_requests, run_state
from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask, Phase, ReviewStatus, Status
from penstock.etl.errors import EtlTaskAlreadyEnded, EtlTaskRunning
from penstock.etl.run_state import TaskRun
from penstock.etl.store import tasks
from penstock.kernel.db import Tx
from penstock.kernel.queue import JobState


async def cancel_task(tx: Tx, deps: Deps, caller: Caller, task_id: int, run: TaskRun | None) -> EtlTask:
    """Cancel a task that no worker has claimed; `EtlTaskRunning` if one has, or `run`, its run state, says so.

    Between two attempts a job waits, but the task has been started: run state shows that.
    """
    row = await lifecycle.get_owned_task(tx, caller, task_id)
    if row.review_status is ReviewStatus.WAITING:
        return await _withdraw_review(tx, caller, row)
    _refuse_ended(row)
    status = run.task.status if run is not None and run.is_same_run(row) else row.status
    if status is Status.PENDING and await _has_finished_first_stage(tx, row):  # after run state was read, or lost
        status = Status.LLM_PROCESSING
    if status is not Status.PENDING:
        raise EtlTaskRunning(task_id=task_id, status=status.value)
    revoked = await lifecycle.revoke_jobs(tx, deps, row)
    if any(job.state is JobState.RUNNING for job in revoked):
        claimed = Status.MINERU_PARSING if row.first_phase is Phase.OCR else Status.LLM_PROCESSING
        raise EtlTaskRunning(task_id=task_id, status=claimed.value)  # rolls back: the worker keeps its job
    return await _end(tx, deps, caller, row, "cancel")


async def abort_task(tx: Tx, deps: Deps, caller: Caller, task_id: int, run: TaskRun | None) -> EtlTask:
    """Cancel a task in any active status; its worker stops at its next step and cannot settle anything."""
    row = await lifecycle.get_owned_task(tx, caller, task_id)
    if row.review_status is ReviewStatus.WAITING:
        return await _withdraw_review(tx, caller, row)
    _refuse_ended(row)
    await lifecycle.revoke_jobs(tx, deps, row)
    if run is not None and run.is_same_run(row):  # keep the OCR artifacts for a retry
        row = replace(row, progress=run.task.progress, metadata={**row.metadata, **run.task.metadata})
    return await _end(tx, deps, caller, row, "abort")


def _refuse_ended(row: EtlTask) -> None:
    if row.is_final:
        raise EtlTaskAlreadyEnded(task_id=row.id, status=row.status.value)


async def _withdraw_review(tx: Tx, caller: Caller, row: EtlTask) -> EtlTask:
    """Withdraw the review of a task that has ended; its status and result stay."""
    locked = await tasks.claim_task(tx, row.id)
    if locked is None or locked.review_status is not ReviewStatus.WAITING:  # answered, retried or deleted in between
        raise EtlTaskAlreadyEnded(task_id=row.id, status=row.status.value if locked is None else locked.status.value)
    after = replace(review_requests.withdraw(tx, locked), updated_at=tx.now)
    await tasks.move_task(tx, locked, after)
    await audit.record(tx, caller, "etl.cancel_review", f"etl:{row.id}")
    return after


async def _has_finished_first_stage(tx: Tx, row: EtlTask) -> bool:
    first = (await lifecycle.list_jobs(tx, [row])).get(run_state.job_id(row, row.first_phase))
    return first is not None and first.state is JobState.DONE


async def _end(tx: Tx, deps: Deps, caller: Caller, row: EtlTask, verb: str) -> EtlTask:
    ended = await lifecycle.end_run(tx, deps, row, verb)
    if ended is None:  # a worker ended it first
        now = await tasks.find_task(tx, row.id)
        raise EtlTaskAlreadyEnded(task_id=row.id, status=now.status.value if now is not None else run_state.REMOVED)
    await audit.record(tx, caller, f"etl.{verb}", f"etl:{row.id}")
    return ended
