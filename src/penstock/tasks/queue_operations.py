"""Queue operations: reset, reset-error and re-run of a queue, and re-run of single tasks.

Each task becomes pending and last written by the server; unless the settings say otherwise, its pull is revoked and it
is offered again. A reset clears the report, a re-run and a reset-error keep it. An operation is atomic at any queue
length: a long queue is processed in batches to bound memory, but in one transaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from penstock.access import audit
from penstock.access.domain import Caller
from penstock.kernel.errors import Conflict, Gone, NotFound, PenstockError
from penstock.tasks.deps import Config, Deps
from penstock.tasks.domain import BatchResult, ChangeKind, Operation, PullState, Status, Task, TaskQueue
from penstock.tasks.errors import MAX_LISTED_IDS, TaskArchived
from penstock.tasks.lifecycle import (
    UnitOfWork,
    by_task_id,
    claim_task,
    count_ended_pulls,
    open_unit_of_work,
    resolve_task,
)
from penstock.tasks.metrics import TaskMetrics
from penstock.tasks.store import tasks
from penstock.tasks.store.tasks import QueueScope

BATCH_SIZE = 2_000  # tasks in memory at once
AUDIT_ACTIONS = {
    Operation.RESET: "tasks.reset",
    Operation.RESET_ERROR: "tasks.reset_error",
    Operation.RE_RUN: "tasks.rerun",
}
RERUN_TASKS_ACTION = "tasks.rerun_tasks"  # not counted by the alert on queue operations
PULLED = (PullState.HELD, PullState.CLOSED)


@dataclass(frozen=True, kw_only=True)
class ResetOptions:
    """What an operation does to each task."""

    kind: ChangeKind = ChangeKind.RESET
    only: Status | None = None  # skip tasks in another status
    clears_results: bool = False  # drop report and result
    clears_pulls: bool

    @classmethod
    def of(cls, operation: Operation, config: Config) -> "ResetOptions":
        """The options of an operation under these settings."""
        if operation is Operation.RE_RUN:
            return cls(kind=ChangeKind.RERUN, clears_pulls=config.rerun_clears_pulls)
        if operation is Operation.RESET_ERROR:
            return cls(only=Status.ERROR, clears_pulls=config.reset_clears_pulls)
        return cls(clears_results=True, clears_pulls=config.reset_clears_pulls)

    def applied(self, task: Task, *, by: str, now: datetime) -> Task:
        """The task after the operation. If pulls are not cleared, a held or closed task keeps its pull."""
        pending = replace(task.with_status(Status.PENDING, now=now), error_reason=None)
        pending = pending.written_by_server(by=by, now=now)
        if self.clears_results:
            pending = replace(pending, report=None, result=None)
        if self.clears_pulls or task.state not in PULLED:
            return pending.reoffered(now=now)
        # A release must not bring back the status the task had when it was pulled.
        return replace(pending, status_at_pull=Status.PENDING) if task.is_held else pending


@dataclass(frozen=True, kw_only=True)
class OperationResult:
    """The queue after an operation, and how many tasks it changed."""

    queue: TaskQueue
    operation: Operation
    affected: int


async def run_operation(
    deps: Deps, caller: Caller, project_id: str, queue_id: str, operation: Operation
) -> OperationResult:
    """Reset or re-run the tasks of a queue, or those in error. The queue records its last reset and operation."""
    options = ResetOptions.of(operation, deps.config)
    async with deps.db.tx(actor=caller.name) as tx:
        uow = await open_unit_of_work(tx, project_id)
        queue = await uow.get_queue(queue_id)
        reset_at = tx.now if options.kind is ChangeKind.RESET else queue.last_reset_at
        operated = replace(queue, last_reset_at=reset_at, last_operation=operation, last_operation_by=caller.name)
        uow.put_queue(replace(operated, updated_at=tx.now))
        affected = await _apply_to_queue(uow, deps.metrics, queue.id, options, by=caller.name)
        await _close(uow, deps.metrics, by=caller.name)
        detail = {"queue": queue_id, "affected": affected}
        await audit.record(tx, caller, AUDIT_ACTIONS[operation], f"project:{project_id}", **detail)
    deps.metrics.count_operation(operation)
    return OperationResult(queue=operated, operation=operation, affected=affected)


async def rerun_task(deps: Deps, caller: Caller, project_id: str, task_id: str, *, queue_id: str | None = None) -> Task:
    """Re-run a single task, failed or not; revokes only its own pull."""
    options = ResetOptions.of(Operation.RE_RUN, deps.config)
    async with deps.db.tx(actor=caller.name) as tx:
        uow = await open_unit_of_work(tx, project_id)
        task = _refuse_archived(await claim_task(uow, task_id, queue_id))
        after = options.applied(task, by=caller.name, now=tx.now)
        uow.record(task, after, options.kind)
        await _close(uow, deps.metrics, by=caller.name)
        detail = {"queue": task.queue_id, "affected": 1, "tasks": [task_id]}
        await audit.record(tx, caller, RERUN_TASKS_ACTION, f"project:{project_id}", **detail)
    return replace(after, version=uow.project.version)


async def rerun_tasks(
    deps: Deps, caller: Caller, project_id: str, task_ids: Sequence[str], *, queue_id: str | None = None
) -> BatchResult[Task]:
    """Re-run several tasks with one request; an error of one task does not stop the others."""
    options = ResetOptions.of(Operation.RE_RUN, deps.config)
    async with deps.db.tx(actor=caller.name) as tx:
        uow = await open_unit_of_work(tx, project_id)
        found, failed = await _claim_tasks(uow, task_ids, queue_id)
        for task in found:
            uow.record(task, options.applied(task, by=caller.name, now=tx.now), options.kind)
        await _close(uow, deps.metrics, by=caller.name)
        detail = {"queue": queue_id, "affected": len(found), "tasks": [task.task_id for task in found[:MAX_LISTED_IDS]]}
        await audit.record(tx, caller, RERUN_TASKS_ACTION, f"project:{project_id}", **detail)
    return BatchResult(done=found, failed=failed)


async def _apply_to_queue(
    uow: UnitOfWork, metrics: TaskMetrics, queue_pk: str, options: ResetOptions, *, by: str
) -> int:
    """Apply an operation to the tasks of a queue in batches; returns how many."""
    where = QueueScope(project_pk=uow.project.id, queue_pk=queue_pk)
    also = tasks.in_status(options.only)
    affected, after = 0, ""
    while batch := await tasks.claim_page(uow.tx, where, after=after, limit=BATCH_SIZE, also=also):
        for task in batch:
            uow.record(task, options.applied(task, by=by, now=uow.tx.now), options.kind)
        count_ended_pulls(uow, metrics)
        await uow.flush(by=by)
        affected, after = affected + len(batch), batch[-1].id
    return affected


async def _claim_tasks(
    uow: UnitOfWork, task_ids: Sequence[str], queue_id: str | None
) -> tuple[list[Task], list[tuple[str, PenstockError]]]:
    """Lock the tasks with these ids; returns them, and the error for each other id."""
    queue = None if queue_id is None else await uow.get_queue(queue_id)
    candidates = by_task_id(await tasks.claim_by_task_id(uow.tx, uow.project.id, task_ids))
    found: list[Task] = []
    failed: list[tuple[str, PenstockError]] = []
    for task_id in dict.fromkeys(task_ids):
        try:
            found.append(_refuse_archived(resolve_task(candidates[task_id], uow.project.project_id, task_id, queue)))
        except (NotFound, Gone, Conflict) as error:
            failed.append((task_id, error))
    return found, failed


def _refuse_archived(task: Task) -> Task:
    if task.archived_at is not None:
        raise TaskArchived(task_id=task.task_id)
    return task


async def _close(uow: UnitOfWork, metrics: TaskMetrics, *, by: str) -> None:
    """Write all changes, with an event if there are any."""
    if uow.written or uow.changes:
        uow.announce()
    count_ended_pulls(uow, metrics)
    await uow.close(by=by)
