"""Routes of queue operations: reset, reset-error and re-run of a queue, and re-run of tasks."""

from typing import Any

from fastapi import Request
from pydantic import BaseModel, Field

from penstock.access.domain import Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.kernel.http.envelope import Said, SayHere
from penstock.tasks import queue_operations
from penstock.tasks.api.params import DepsHere, Name, ProjectHere, QueueId, TaskId, TaskIds, new_router
from penstock.tasks.api.views import failures_view, format_time, task_view
from penstock.tasks.domain import Operation
from penstock.tasks.queue_operations import OperationResult

router = new_router()


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
    result = await queue_operations.run_operation(deps, caller, project_id, queue_id, Operation.RESET)
    return say(_operation_view(result), f"{result.affected} tasks reset.", f"已重置 {result.affected} 个任务。")


@router.post(
    "/projects/{project_id}/queues/{queue_id}/reset-error",
    summary="Reset the failed tasks of a queue",
    **requires(Scope.ADMIN, bound=True),
)
async def reset_queue_errors(
    project_id: ProjectHere, queue_id: QueueId, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    result = await queue_operations.run_operation(deps, caller, project_id, queue_id, Operation.RESET_ERROR)
    return say(_operation_view(result), f"{result.affected} tasks reset.", f"已重置 {result.affected} 个任务。")


@router.post(
    "/projects/{project_id}/queues/{queue_id}/re-run",
    summary="Re-run every task of a queue, keeping reports and results",
    **requires(Scope.ADMIN, bound=True),
)
async def rerun_queue(
    project_id: ProjectHere, queue_id: QueueId, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    result = await queue_operations.run_operation(deps, caller, project_id, queue_id, Operation.RE_RUN)
    return say(_operation_view(result), f"{result.affected} tasks re-run.", f"已重新运行 {result.affected} 个任务。")


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
    result = await queue_operations.rerun_tasks(deps, caller, project_id, body.task_ids, queue_id=body.queue_id)
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
    task = await queue_operations.rerun_task(deps, caller, project_id, task_id, queue_id=queue_id)
    return say(task_view(task, project_id=project_id), "Task re-run.", "任务已重新运行。")


@router.post(
    "/projects/{project_id}/tasks/{task_id}/re-run",
    summary="Re-run a task of a project",
    **requires(Scope.ADMIN, bound=True),
)
async def rerun_task(
    project_id: ProjectHere, task_id: TaskId, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    task = await queue_operations.rerun_task(deps, caller, project_id, task_id)
    return say(task_view(task, project_id=project_id), "Task re-run.", "任务已重新运行。")


def _operation_view(result: OperationResult) -> dict[str, Any]:
    return {
        "queue_id": result.queue.queue_id,
        "operation": result.operation,
        "affected_count": result.affected,
        "last_reset_at": format_time(result.queue.last_reset_at),
        "last_operation_by": result.queue.last_operation_by,
    }
