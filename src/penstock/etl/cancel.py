"""Cancel and abort tasks.

`cancel_task` cancels a pending task together with its job in one transaction, so either a worker has claimed the job or
no worker ever gets it. `abort_task` also ends a running task: its worker stops at the next progress update, and
everything it still tries to settle is rejected: a late worker overwrites nothing.
"""

from dataclasses import replace

from penstock.access.domain import Caller
from penstock.etl import lifecycle, runs
from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask, Phase, Status
from penstock.etl.errors import EtlTaskAlreadyEnded, EtlTaskRunning
from penstock.etl.runs import Standing
from penstock.etl.store import tasks
from penstock.kernel.db import Tx
from penstock.kernel.queue import JobState


async def cancel_task(deps: Deps, caller: Caller, task_id: int) -> EtlTask:
    """Cancel a task that no worker has claimed; `EtlTaskRunning` if one has."""
    shown = await runs.look(deps, task_id)  # a task between two attempts has a waiting job, but it has been started
    async with deps.db.tx(actor=caller.name) as tx:
        row = await _get_active(tx, caller, task_id)
        status = shown.task.status if shown is not None and _is_same_run(shown, row) else row.status
        if status is Status.PENDING and await _has_finished_first_stage(tx, row):  # after run state was read, or lost
            status = Status.LLM_PROCESSING
        if status is not Status.PENDING:
            raise EtlTaskRunning(task_id=task_id, status=status.value)
        if await lifecycle.cancel_jobs(deps, tx, row):
            claimed = Status.MINERU_PARSING if row.first_phase is Phase.OCR else Status.LLM_PROCESSING
            raise EtlTaskRunning(task_id=task_id, status=claimed.value)
        cancelled = await _end(deps, row, "cancel", tx)
    await runs.show_soon(deps, cancelled)
    return cancelled


async def abort_task(deps: Deps, caller: Caller, task_id: int) -> EtlTask:
    """Cancel a task in any active status; its worker stops at its next step and cannot settle anything."""
    shown = await runs.look(deps, task_id)
    async with deps.db.tx(actor=caller.name) as tx:
        row = await _get_active(tx, caller, task_id)
        await lifecycle.cancel_jobs(deps, tx, row)
        if shown is not None and _is_same_run(shown, row):  # keep the OCR artifacts for a retry
            row = replace(row, progress=shown.task.progress, metadata={**row.metadata, **shown.task.metadata})
        aborted = await _end(deps, row, "abort", tx)
    await runs.show_soon(deps, aborted)
    return aborted


async def _get_active(tx: Tx, caller: Caller, task_id: int) -> EtlTask:
    row = await lifecycle.get_owned_task(tx, caller, task_id)
    if row.is_final:
        raise EtlTaskAlreadyEnded(task_id=task_id, status=row.status.value)
    return row


async def _has_finished_first_stage(tx: Tx, row: EtlTask) -> bool:
    first = (await lifecycle.list_jobs(tx, [row])).get(runs.job_id(row, row.first_phase))
    return first is not None and first.state is JobState.DONE


async def _end(deps: Deps, row: EtlTask, verb: str, tx: Tx) -> EtlTask:
    ended = await lifecycle.end_run(deps, row, verb, tx)
    if ended is None:  # a worker ended it first
        now = await tasks.find_task(tx, row.id)
        raise EtlTaskAlreadyEnded(task_id=row.id, status=now.status.value if now is not None else runs.REMOVED)
    return ended


def _is_same_run(shown: Standing, row: EtlTask) -> bool:
    return shown.task.is_same_task(row) and shown.task.run == row.run
