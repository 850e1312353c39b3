"""Routes of queue operations: reset, reset-error and re-run of a queue, and re-run of tasks."""

from typing import Any

from fastapi import Request
from pydantic import BaseModel, Field

from penstock.access.domain import Scope
from penstock.access.door import CallerHere, open_to
from penstock.kernel.http.envelope import Said, SayHere
from penstock.tasks import queue_operations
from penstock.tasks.api.params import Name, ProjectHere, QueueId, TaskId, TaskIds, ToolsHere, new_router
from penstock.tasks.api.views import moment, shown_failures, shown_task
from penstock.tasks.domain import Operation
from penstock.tasks.queue_operations import Operated

router = new_router()


class RunAgainAsked(BaseModel):
    """Tasks to be done over, all in one queue or wherever they are."""

    task_ids: TaskIds = Field(alias="taskIds")
    queue_id: Name | None = Field(default=None, alias="queueId")


@router.post(
    "/projects/{project_id}/queues/{queue_id}/reset",
    summary="Start a queue over: every task is pending, with nothing reported",
    **open_to(Scope.ADMIN, bound=True),
)
async def reset_queue(
    project_id: ProjectHere, queue_id: QueueId, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    done = await operate.operate(tools, caller, project_id, queue_id, Operation.RESET)
    return say(_shown(done), f"{done.affected} tasks were reset.", f"已重置 {done.affected} 个任务。")


@router.post(
    "/projects/{project_id}/queues/{queue_id}/reset-error",
    summary="Reset the tasks of a queue that are in error",
    **open_to(Scope.ADMIN, bound=True),
)
async def reset_queue_errors(
    project_id: ProjectHere, queue_id: QueueId, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    done = await operate.operate(tools, caller, project_id, queue_id, Operation.RESET_ERROR)
    return say(_shown(done), f"{done.affected} tasks were reset.", f"已重置 {done.affected} 个任务。")


@router.post(
    "/projects/{project_id}/queues/{queue_id}/re-run",
    summary="Run every task of a queue again; what was reported stays",
    **open_to(Scope.ADMIN, bound=True),
)
async def rerun_queue(
    project_id: ProjectHere, queue_id: QueueId, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    done = await operate.operate(tools, caller, project_id, queue_id, Operation.RE_RUN)
    return say(_shown(done), f"{done.affected} tasks run again.", f"已重新运行 {done.affected} 个任务。")


@router.post(
    "/projects/{project_id}/tasks/re-run/batch",
    summary="Run tasks again",
    **open_to(Scope.ADMIN, bound=True),
)
async def rerun_tasks(
    project_id: ProjectHere,
    body: RunAgainAsked,
    caller: CallerHere,
    tools: ToolsHere,
    request: Request,
    say: SayHere,
) -> Said[dict[str, Any]]:
    done = await operate.run_several_again(tools, caller, project_id, body.task_ids, queue_id=body.queue_id)
    data = {"operation": Operation.RE_RUN, "affected_count": done.affected, **shown_failures(done.failed, request)}
    return say(data, f"{done.affected} tasks run again.", f"已重新运行 {done.affected} 个任务。")


@router.post(
    "/projects/{project_id}/queues/{queue_id}/tasks/{task_id}/re-run",
    summary="Run a task of a queue again",
    **open_to(Scope.ADMIN, bound=True),
)
async def rerun_queue_task(
    project_id: ProjectHere, queue_id: QueueId, task_id: TaskId, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    task = await operate.run_again(tools, caller, project_id, task_id, queue_id=queue_id)
    return say(shown_task(task, project_id=project_id), "The task runs again.", "任务已重新运行。")


@router.post(
    "/projects/{project_id}/tasks/{task_id}/re-run",
    summary="Run a task of a project again",
    **open_to(Scope.ADMIN, bound=True),
)
async def rerun_task(
    project_id: ProjectHere, task_id: TaskId, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    task = await operate.run_again(tools, caller, project_id, task_id)
    return say(shown_task(task, project_id=project_id), "The task runs again.", "任务已重新运行。")


def _shown(done: Operated) -> dict[str, Any]:
    return {
        "queue_id": done.queue.queue_id,
        "operation": done.operation,
        "affected_count": done.affected,
        "last_reset_at": moment(done.queue.last_reset_at),
        "last_operation_by": done.queue.last_operation_by,
    }
