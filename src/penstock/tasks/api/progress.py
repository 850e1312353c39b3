"""Progress routes: add a message or log line to a task, and set its status.

Each exists twice: under project, queue and task, for older clients, and under project and task.
"""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import Depends
from pydantic import Field, StringConstraints

from penstock.access.domain import Scope
from penstock.access.guard import requires
from penstock.kernel.http.envelope import Said, SayHere
from penstock.tasks import progress
from penstock.tasks.api.fields import MAX_CONTENT_LENGTH, NullAsAbsent, Result, RoleWord, StatusWord, Text, Token
from penstock.tasks.api.params import MAX_ID_LENGTH, DepsHere, HolderHere, ProjectHere, QueueId, TaskId, new_router
from penstock.tasks.api.views import format_time
from penstock.tasks.domain import Holder
from penstock.tasks.progress import TaskPath

router = new_router()

IN_QUEUE = "/tasks/{project_id}/{queue_id}/{task_id}"
IN_PROJECT = "/projects/{project_id}/tasks/{task_id}"
GIVEN = frozenset({"report", "result"})
RequiredContent = Annotated[str, StringConstraints(min_length=1, max_length=MAX_CONTENT_LENGTH)]


class TaskUpdate(NullAsAbsent):
    """An update of a task; the lease token may be given here or in X-Lease-Token."""

    lease_token: Token | None = None

    def sender(self, holder: Holder) -> Holder:
        """The holder with the lease token of the body, if there is one."""
        return replace(holder, token=self.lease_token or holder.token)


class MessageSaid(TaskUpdate):
    """A message to add."""

    role: RoleWord
    content: RequiredContent
    session_id: Annotated[str, Field(max_length=MAX_ID_LENGTH)] | None = None


class LineSaid(TaskUpdate):
    """A log line to add."""

    content: RequiredContent


class StatusSaid(TaskUpdate):
    """The status of a task, with its report and result."""

    status: StatusWord
    report: Text = ""
    result: Result = None

    @property
    def fields(self) -> dict[str, Any]:
        """The other fields that were sent."""
        given = {name: getattr(self, name) for name in self.model_fields_set & GIVEN}
        return given | ({"report": self.report or None} if "report" in given else {})


async def _in_queue(project_id: ProjectHere, queue_id: QueueId, task_id: TaskId) -> TaskPath:
    return TaskPath(project_id=project_id, queue_id=queue_id, task_id=task_id)


async def _in_project(project_id: ProjectHere, task_id: TaskId) -> TaskPath:
    return TaskPath(project_id=project_id, task_id=task_id)


QueueTaskPath = Annotated[TaskPath, Depends(_in_queue)]
ProjectTaskPath = Annotated[TaskPath, Depends(_in_project)]
WRITE = requires(Scope.WRITE, bound=True)


@router.post(f"{IN_QUEUE}/message", summary="Add a message to a task", **WRITE)
async def add_message(
    path: QueueTaskPath, body: MessageSaid, holder: HolderHere, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return say(await _add_message(deps, path, holder, body), "Message added.", "消息已添加。")


@router.post(f"{IN_PROJECT}/message", summary="Add a message to a task of a project", **WRITE)
async def add_project_message(
    path: ProjectTaskPath, body: MessageSaid, holder: HolderHere, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return say(await _add_message(deps, path, holder, body), "Message added.", "消息已添加。")


@router.post(f"{IN_QUEUE}/log", summary="Add a log line to a task", **WRITE)
async def add_log(
    path: QueueTaskPath, body: LineSaid, holder: HolderHere, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return say(await _add_log_line(deps, path, holder, body), "Log line added.", "日志已添加。")


@router.post(f"{IN_PROJECT}/log", summary="Add a log line to a task of a project", **WRITE)
async def add_project_log(
    path: ProjectTaskPath, body: LineSaid, holder: HolderHere, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return say(await _add_log_line(deps, path, holder, body), "Log line added.", "日志已添加。")


@router.patch(f"{IN_QUEUE}/status", summary="Set the status of a task", **WRITE)
async def set_status(
    path: QueueTaskPath, body: StatusSaid, holder: HolderHere, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return say(await _set_status(deps, path, holder, body), "Status updated.", "状态已更新。")


@router.patch(f"{IN_PROJECT}/status", summary="Set the status of a task of a project", **WRITE)
async def set_project_status(
    path: ProjectTaskPath, body: StatusSaid, holder: HolderHere, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return say(await _set_status(deps, path, holder, body), "Status updated.", "状态已更新。")


async def _add_message(deps: DepsHere, path: TaskPath, holder: Holder, body: MessageSaid) -> dict[str, Any]:
    message = await progress.add_message(
        deps, path, body.sender(holder), role=body.role, content=body.content, session_id=body.session_id
    )
    created_at = format_time(message.created_at)
    return {"message_id": message.number, "role": message.role, "content": message.content, "created_at": created_at}


async def _add_log_line(deps: DepsHere, path: TaskPath, holder: Holder, body: LineSaid) -> dict[str, Any]:
    line = await progress.add_log_line(deps, path, body.sender(holder), body.content)
    return {"log_id": line.number, "content": line.content, "created_at": format_time(line.created_at)}


async def _set_status(deps: DepsHere, path: TaskPath, holder: Holder, body: StatusSaid) -> dict[str, Any]:
    change = await progress.set_status(deps, path, body.sender(holder), body.status, body.fields)
    return {
        "task_id": change.task.task_id,
        "status": change.task.status.upper(),
        "previous_status": change.previous.upper(),
        "updated_at": format_time(change.task.updated_at),
    }
