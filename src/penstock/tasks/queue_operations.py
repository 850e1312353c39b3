"""Queue operations: reset, reset-error and re-run of a queue, and re-run of single tasks.

Each task becomes pending and last written by the server; unless the settings say otherwise, its pull is revoked and it
is offered again. A reset clears the report, a re-run and a reset-error keep it.

An operation on up to `Config.operation_limit` tasks is one transaction, inside the request. A longer one is recorded as
a `QueueOperation` with the number of tasks, which the queue's counters know, and a job applies it in batches. A batch
and the progress of the operation are one transaction, so a killed worker repeats nothing. Tasks that were created,
edited or pulled after the request are newer than the operation and are left as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from penstock.access import audit
from penstock.access.domain import Caller
from penstock.kernel.db import Tx
from penstock.kernel.errors import Conflict, Gone, NotFound, PenstockError
from penstock.kernel.queue import Job, JobState, NewJob, list_jobs
from penstock.tasks.deps import Config, Deps
from penstock.tasks.domain import (
    BatchResult,
    ChangeKind,
    Operation,
    OperationKind,
    OperationStatus,
    PullState,
    QueueOperation,
    Status,
    Task,
    TaskQueue,
)
from penstock.tasks.errors import MAX_LISTED_IDS, OperationNotFound, OperationRunning, TaskArchived
from penstock.tasks.lifecycle import (
    UnitOfWork,
    by_task_id,
    claim_task,
    count_ended_pulls,
    deleted_as_missing,
    open_unit_of_work,
    resolve_task,
)
from penstock.tasks.metrics import TaskMetrics
from penstock.tasks.store import feed, operations, projects, queues, tasks
from penstock.tasks.store.tasks import QueueScope

BATCH_SIZE = 2_000  # tasks in memory at once
AUDIT_ACTIONS = {
    Operation.RESET: "tasks.reset",
    Operation.RESET_ERROR: "tasks.reset_error",
    Operation.RE_RUN: "tasks.rerun",
}
RERUN_TASKS_ACTION = "tasks.rerun_tasks"  # not counted by the alert on queue operations
PULLED = (PullState.HELD, PullState.CLOSED)
RETURNED = (ChangeKind.RELEASED, ChangeKind.TIMED_OUT)
MODULE = "tasks"
OPERATE_JOB = "tasks.operate"
JOB_SECONDS = 7 * 86400.0  # each batch is short; the whole may be a million tasks
BACKGROUND_BATCH_SIZE = 500  # tasks per transaction: the project is locked for less than half a second


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
    affected: int  # for a started operation, how many it will change
    started: QueueOperation | None = None  # set if it continues in the background


@dataclass(frozen=True, kw_only=True)
class OperationProgress:
    """An operation, and its job while it runs."""

    operation: QueueOperation
    job: Job | None

    @property
    def status(self) -> OperationStatus:
        """Its status; failed if its job is."""
        return self.operation.status if self.error is None else OperationStatus.FAILED

    @property
    def error(self) -> tuple[str, str] | None:
        """Code and message of the error that its job failed with."""
        if self.job is None or self.job.state is not JobState.FAILED:
            return None
        return self.job.error_code or "", self.job.error or ""


async def run_operation(
    tx: Tx, deps: Deps, caller: Caller, project_id: str, queue_id: str, operation: Operation
) -> OperationResult:
    """Reset or re-run the tasks of a queue, or those in error. The queue records its last reset and operation."""
    options = ResetOptions.of(operation, deps.config)
    uow = await open_unit_of_work(tx, project_id)
    queue = await uow.get_queue(queue_id)
    await _refuse_during_another(tx, queue, operation)
    operated = replace(queue, last_reset_at=tx.now, last_operation=operation, last_operation_by=caller.name)
    uow.put_queue(replace(operated, updated_at=tx.now))
    affected = queue.counts.total if options.only is None else queue.counts.of(options.only)
    started = None
    if affected > deps.config.operation_limit:
        started = await _start(tx, deps, uow, queue, operation, total=affected, by=caller.name)
    else:
        affected = await _apply_to_queue(uow, deps.metrics, queue.id, options, by=caller.name)
    await _close(uow, deps.metrics, by=caller.name)
    detail = {"queue": queue_id, "affected": affected}
    await audit.record(tx, caller, AUDIT_ACTIONS[operation], f"project:{project_id}", **detail)
    tx.after_commit.append(partial(deps.metrics.count_operation, operation))
    return OperationResult(queue=operated, operation=operation, affected=affected, started=started)


async def get_progress(tx: Tx, project_id: str, operation_id: str) -> OperationProgress:
    """An operation of a project. Raises `OperationNotFound`."""
    project = await projects.get_project(tx, project_id)
    found = await operations.get_operation(tx, operation_id)
    if found.project_pk != project.id:
        raise OperationNotFound(operation_id=operation_id)
    [progress] = await _with_jobs(tx, [found])
    return progress


async def list_operations(tx: Tx, project_id: str, *, before: str | None, limit: int) -> list[OperationProgress]:
    """The operations of a project that were started before the one with this id, newest first."""
    project = await projects.get_project(tx, project_id)
    return await _with_jobs(tx, await operations.list_operations(tx, project.id, before=before, limit=limit))


async def _with_jobs(tx: Tx, found: Sequence[QueueOperation]) -> list[OperationProgress]:
    running = [job_id(one) for one in found if one.status is OperationStatus.RUNNING]
    jobs = {job.id: job for job in await list_jobs(tx, running)} if running else {}
    return [OperationProgress(operation=one, job=jobs.get(job_id(one))) for one in found]


async def run_batch(tx: Tx, deps: Deps, operation_id: str, *, limit: int = BACKGROUND_BATCH_SIZE) -> int:
    """Apply the next batch of an operation, and record its progress; returns how many tasks it visited, 0 at the end.

    The project is locked, so two workers cannot apply the same batch, and the second one continues after the first.
    """
    known = await operations.get_operation(tx, operation_id)
    project = await projects.claim_project_by_pk(tx, known.project_pk)
    before = await operations.get_operation(tx, operation_id)
    if before.status is not OperationStatus.RUNNING:
        return 0
    queue = None if project is None else await queues.find_queue(tx, project.id, before.queue_id)
    if project is None or queue is None or queue.id != before.queue_pk:
        await operations.move_operation(tx, before, _ended(before, OperationStatus.CANCELLED, now=tx.now))
        return 0
    options = ResetOptions.of(Operation(before.kind.value), deps.config)
    where = QueueScope(project_pk=project.id, queue_pk=queue.id)
    also = tasks.in_status(options.only)
    batch = await tasks.claim_page(tx, where, after=before.cursor, limit=limit, also=also)
    if not batch:
        await operations.move_operation(tx, before, _ended(before, OperationStatus.COMPLETED, now=tx.now))
        return 0
    uow = UnitOfWork(tx, project)
    newer = await _list_newer(tx, before, batch)
    for task in batch:
        if task.id not in newer:
            kept_pull = task.pulled_at is not None and task.pulled_at > before.created_at
            applied = replace(options, clears_pulls=options.clears_pulls and not kept_pull)
            uow.record(task, applied.applied(task, by=before.by, now=tx.now), options.kind)
    done, affected = before.done + len(batch), before.affected + len(uow.changes)
    after = replace(before, done=done, total=max(before.total, done), affected=affected, cursor=batch[-1].id)
    await operations.move_operation(tx, before, after)
    await _close(uow, deps.metrics, by=before.by)
    return len(batch)


async def _list_newer(tx: Tx, operation: QueueOperation, batch: Sequence[Task]) -> set[str]:
    """The primary keys of those tasks that someone created, wrote or took over after the operation was requested.

    A task whose pull began before the request is reset even if its holder has written since. A release or an expired
    lease is no work of anybody's, so a task that was only returned is reset too.
    """
    changed = [task for task in batch if task.version > operation.version]
    unpulled = [task.version for task in changed if task.pulled_at is None]
    kinds = await feed.list_kinds(tx, operation.project_pk, unpulled) if unpulled else {}
    return {task.id for task in changed if _is_newer(operation, task, kinds.get(task.version))}


def _is_newer(operation: QueueOperation, task: Task, last: ChangeKind | None) -> bool:
    if task.created_at > operation.created_at:
        return True
    if task.pulled_at is not None:
        return task.pulled_at > operation.created_at
    return last not in RETURNED


async def _refuse_during_another(tx: Tx, queue: TaskQueue, operation: Operation) -> None:
    """Refuse an operation while another kind of operation on the queue runs: their results would mix."""
    for running in await operations.list_open(tx, queue.id):
        if running.kind.value != operation.value:
            raise OperationRunning(
                operation_id=running.id,
                kind=running.kind.value,
                queue_id=queue.queue_id,
                done=running.done,
                total=running.total,
            )


async def _start(
    tx: Tx, deps: Deps, uow: UnitOfWork, queue: TaskQueue, operation: Operation, *, total: int, by: str
) -> QueueOperation:
    """Record an operation, and enqueue its job."""
    started = QueueOperation(
        id=tx.new_id("operation"),
        project_pk=uow.project.id,
        project_id=uow.project.project_id,
        queue_pk=queue.id,
        queue_id=queue.queue_id,
        kind=OperationKind(operation.value),
        by=by,
        total=total,
        version=uow.project.version,
        created_at=tx.now,
        updated_at=tx.now,
    )
    await operations.insert_operation(tx, started)
    payload = {"operation_id": started.id, "by": by}
    job = NewJob(id=job_id(started), kind=OPERATE_JOB, payload=payload, module=MODULE, timeout_seconds=JOB_SECONDS)
    await deps.queue.enqueue(tx, job)
    return started


def _ended(operation: QueueOperation, status: OperationStatus, *, now: datetime) -> QueueOperation:
    return replace(operation, status=status, ended_at=now)


async def rerun_task(
    tx: Tx, deps: Deps, caller: Caller, project_id: str, task_id: str, *, queue_id: str | None = None
) -> Task:
    """Re-run a single task, failed or not; revokes only its own pull."""
    options = ResetOptions.of(Operation.RE_RUN, deps.config)
    uow = await open_unit_of_work(tx, project_id)
    with deleted_as_missing():
        task = _refuse_archived(await claim_task(uow, task_id, queue_id))
    after = options.applied(task, by=caller.name, now=tx.now)
    uow.record(task, after, options.kind)
    await _close(uow, deps.metrics, by=caller.name)
    detail = {"queue": task.queue_id, "affected": 1, "tasks": [task_id]}
    await audit.record(tx, caller, RERUN_TASKS_ACTION, f"project:{project_id}", **detail)
    return replace(after, version=uow.project.version)


async def rerun_tasks(
    tx: Tx, deps: Deps, caller: Caller, project_id: str, task_ids: Sequence[str], *, queue_id: str | None = None
) -> BatchResult[Task]:
    """Re-run several tasks with one request; an error of one task does not stop the others."""
    options = ResetOptions.of(Operation.RE_RUN, deps.config)
    uow = await open_unit_of_work(tx, project_id)
    found, failed = await _claim_tasks(uow, task_ids, queue_id)
    for task in found:
        uow.record(task, options.applied(task, by=caller.name, now=tx.now), options.kind)
    await _close(uow, deps.metrics, by=caller.name)
    detail = {"queue": queue_id, "affected": len(found), "tasks": [task.task_id for task in found[:MAX_LISTED_IDS]]}
    await audit.record(tx, caller, RERUN_TASKS_ACTION, f"project:{project_id}", **detail)
    return BatchResult(done=found, failed=failed)


def job_id(operation: QueueOperation) -> str:
    """The id of the job of an operation."""
    return f"{OPERATE_JOB}:{operation.id}"


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
            with deleted_as_missing():
                task = resolve_task(candidates[task_id], uow.project.project_id, task_id, queue)
            found.append(_refuse_archived(task))
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
