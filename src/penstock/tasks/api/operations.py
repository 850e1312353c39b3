"""Routes of queue operations: reset, reset-error and re-run of a queue, re-run of tasks, and operations under way.

An operation on many tasks is answered at once, with the number of tasks that it will change and an `operation_id`.
"""

from typing import Annotated, Any

from fastapi import Path, Query, Request
from pydantic import BaseModel, Field

from penstock.access.domain import Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.kernel.http.envelope import Said, Say, SayHere
from penstock.tasks import queue_operations
from penstock.tasks.api.params import NO_CONTROLS, DepsHere, Name, ProjectHere, QueueId, TaskId, TaskIds, new_router
from penstock.tasks.api.views import failures_view, format_time, task_view
from penstock.tasks.domain import Operation, OperationStatus
from penstock.tasks.queue_operations import OperationProgress, OperationResult

router = new_router()

MAX_OPERATION_ID = 64
OperationId = Annotated[str, Path(min_length=1, max_length=MAX_OPERATION_ID, pattern=NO_CONTROLS)]
Before = Annotated[
    str | None, Query(min_length=1, max_length=MAX_OPERATION_ID, description="The `next` of the previous page.")
]
Limit = Annotated[int, Query(ge=1, le=100)]


class RunAgainAsked(BaseModel):
    """Tasks to re-run, in one queue or anywhere in the project."""

    task_ids: TaskIds = Field(alias="taskIds")
    queue_id: Name | None = Field(default=None, alias="queueId")


@router.post(
    "/projects/{project_id}/queues/{queue_id}/reset",
    summary="Reset a queue: every task is pending, without report and result",
    **requires(Scope.ADMIN, bound=True),
)
async def reset_queue(
    project_id: ProjectHere, queue_id: QueueId, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    async with deps.db.tx(actor=caller.name) as tx:
        result = await queue_operations.run_operation(tx, deps, caller, project_id, queue_id, Operation.RESET)
    return _say_result(say, result)


@router.post(
    "/projects/{project_id}/queues/{queue_id}/reset-error",
    summary="Reset the failed tasks of a queue",
    **requires(Scope.ADMIN, bound=True),
)
async def reset_queue_errors(
    project_id: ProjectHere, queue_id: QueueId, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    async with deps.db.tx(actor=caller.name) as tx:
        result = await queue_operations.run_operation(tx, deps, caller, project_id, queue_id, Operation.RESET_ERROR)
    return _say_result(say, result)


@router.post(
    "/projects/{project_id}/queues/{queue_id}/re-run",
    summary="Re-run every task of a queue, keeping reports and results",
    **requires(Scope.ADMIN, bound=True),
)
async def rerun_queue(
    project_id: ProjectHere, queue_id: QueueId, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    async with deps.db.tx(actor=caller.name) as tx:
        result = await queue_operations.run_operation(tx, deps, caller, project_id, queue_id, Operation.RE_RUN)
    return _say_result(say, result)


@router.post(
    "/projects/{project_id}/tasks/re-run/batch",
    summary="Re-run tasks",
    **requires(Scope.ADMIN, bound=True),
)
async def rerun_tasks(
    project_id: ProjectHere,
    body: RunAgainAsked,
    caller: CurrentCaller,
    deps: DepsHere,
    request: Request,
    say: SayHere,
) -> Said[dict[str, Any]]:
    async with deps.db.tx(actor=caller.name) as tx:
        result = await queue_operations.rerun_tasks(tx, deps, caller, project_id, body.task_ids, queue_id=body.queue_id)
    count = len(result.done)
    data = {"operation": Operation.RE_RUN, "affected_count": count, **failures_view(result.failed, request)}
    return say(data, f"{count} tasks re-run.", f"已重新运行 {count} 个任务。")


@router.post(
    "/projects/{project_id}/queues/{queue_id}/tasks/{task_id}/re-run",
    summary="Re-run a task of a queue",
    **requires(Scope.ADMIN, bound=True),
)
async def rerun_queue_task(
    project_id: ProjectHere, queue_id: QueueId, task_id: TaskId, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    async with deps.db.tx(actor=caller.name) as tx:
        task = await queue_operations.rerun_task(tx, deps, caller, project_id, task_id, queue_id=queue_id)
    data = task_view(task, project_id=project_id) | {"rerun_at": format_time(task.updated_at)}
    return say(data, "Task re-run.", "任务已重新运行。")


@router.post(
    "/projects/{project_id}/tasks/{task_id}/re-run",
    summary="Re-run a task of a project",
    **requires(Scope.ADMIN, bound=True),
)
async def rerun_task(
    project_id: ProjectHere, task_id: TaskId, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    async with deps.db.tx(actor=caller.name) as tx:
        task = await queue_operations.rerun_task(tx, deps, caller, project_id, task_id)
    data = task_view(task, project_id=project_id) | {"rerun_at": format_time(task.updated_at)}
    return say(data, "Task re-run.", "任务已重新运行。")


@router.get(
    "/projects/{project_id}/operations",
    summary="Operations that run, or ran, in the background, newest first",
    **requires(Scope.READ, bound=True),
)
async def list_operations(
    project_id: ProjectHere, deps: DepsHere, say: SayHere, before: Before = None, limit: Limit = 20
) -> Said[dict[str, Any]]:
    """`next` is the `before` of the next page; null at the end."""
    async with deps.db.read() as tx:
        found = await queue_operations.list_operations(tx, project_id, before=before, limit=limit + 1)
    page = found[:limit]
    data = {
        "operations": [_progress_view(one) for one in page],
        "next": page[-1].operation.id if len(found) > limit else None,
    }
    return say(data, f"{len(page)} operations.", f"{len(page)} 个操作。")


@router.get(
    "/projects/{project_id}/operations/{operation_id}",
    summary="Progress of an operation",
    **requires(Scope.READ, bound=True),
)
async def get_operation(
    project_id: ProjectHere, operation_id: OperationId, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    """`done` of `total` tasks were visited, and `affected` of them changed. `failed` has an error, and continues when
    its job is retried."""
    async with deps.db.read() as tx:
        found = await queue_operations.get_progress(tx, project_id, operation_id)
    return say(_progress_view(found), "Found.", "已找到。")


def _say_result(say: Say, result: OperationResult) -> Said[dict[str, Any]]:
    count, again = result.affected, result.operation is Operation.RE_RUN
    if result.started is not None:
        english = f"{'Re-run' if again else 'Reset'} of {count} tasks started."
        return say(_operation_view(result), english, f"已开始{'重新运行' if again else '重置'} {count} 个任务。")
    english = f"{count} tasks {'re-run' if again else 'reset'}."
    return say(_operation_view(result), english, f"已{'重新运行' if again else '重置'} {count} 个任务。")


def _resets_nothing(result: OperationResult) -> bool:
    return result.operation is Operation.RESET_ERROR and not result.affected


def _progress_view(progress: OperationProgress) -> dict[str, Any]:
    one, error = progress.operation, progress.error
    return {
        "operation_id": one.id,
        "operation": one.kind,
        "project_id": one.project_id,
        "queue_id": one.queue_id or None,
        "status": progress.status,
        "total": one.total,
        "done": one.done,
        "affected_count": one.affected,
        "error": None if error is None else {"code": error[0], "message": error[1]},
        "by": one.by,
        "created_at": format_time(one.created_at),
        "updated_at": format_time(one.updated_at),
        "ended_at": format_time(one.ended_at),
    }


def _operation_view(result: OperationResult) -> dict[str, Any]:
    """With the count and the time under the names that existing clients know; a reset of no failed task has no time."""
    started, count, at = result.started, result.affected, format_time(result.queue.last_reset_at)
    if result.operation is Operation.RE_RUN:
        known = {"rerun_tasks_count": count, "rerun_at": at}
    else:
        known = {"reset_tasks_count": count} | ({} if _resets_nothing(result) else {"reset_at": at})
    return known | {
        "operation_id": None if started is None else started.id,
        "operation_status": OperationStatus.COMPLETED if started is None else started.status,
        "queue_id": result.queue.queue_id,
        "operation": result.operation,
        "affected_count": result.affected,
        "last_reset_at": format_time(result.queue.last_reset_at),
        "last_operation_by": result.queue.last_operation_by,
    }
