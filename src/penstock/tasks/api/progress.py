"""Progress routes: add a message or log line to a task, and set its status.

Existing clients send the ids of project, queue and task in the body, or in the path in this order. The third form,
under `/projects`, also reaches tasks without a queue.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import Depends
from pydantic import Field, StringConstraints

from penstock.access.domain import Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.kernel.errors import PenstockError
from penstock.kernel.http.envelope import Said, SayHere
from penstock.tasks import progress
from penstock.tasks.api.fields import (
    MAX_CONTENT_LENGTH,
    KnownId,
    NullAsAbsent,
    Result,
    RoleWord,
    StatusWord,
    Text,
    Token,
)
from penstock.tasks.api.params import (
    MAX_ID_LENGTH,
    DepsHere,
    HolderHere,
    PathProjectId,
    ProjectHere,
    QueueId,
    TaskId,
    new_router,
    refuse_other_project_push,
)
from penstock.tasks.api.views import format_time
from penstock.tasks.deps import Deps
from penstock.tasks.domain import Holder
from penstock.tasks.progress import StatusChange, StatusUpdate, TaskPath

router = new_router()

IN_QUEUE = "/tasks/{project_id}/{queue_id}/{task_id}"
IN_PROJECT = "/projects/{project_id}/tasks/{task_id}"
GIVEN = frozenset({"report", "result"})
TrimmedContent = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_CONTENT_LENGTH)]


class TaskUpdate(NullAsAbsent):
    """An update of a task; the lease token may be given here or in X-Lease-Token."""

    lease_token: Token | None = None

    def sender(self, holder: Holder) -> Holder:
        """The holder with the lease token of the body, if there is one."""
        return replace(holder, token=self.lease_token or holder.token)


class MessageSaid(TaskUpdate):
    """A message to add."""

    role: RoleWord
    content: TrimmedContent
    session_id: Annotated[str, Field(max_length=MAX_ID_LENGTH)] | None = None


class LineSaid(TaskUpdate):
    """A log line to add."""

    content: TrimmedContent


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


class AddressedUpdate(NullAsAbsent):
    """The ids of a task of a queue, as part of the body."""

    project_id: KnownId
    queue_id: KnownId
    task_id: KnownId

    @property
    def path(self) -> TaskPath:
        """The ids as a path."""
        return TaskPath(project_id=self.project_id, queue_id=self.queue_id, task_id=self.task_id)


class AddressedMessage(MessageSaid, AddressedUpdate):
    """A message to add, and to which task."""


class AddressedLine(LineSaid, AddressedUpdate):
    """A log line to add, and to which task."""


class AddressedStatus(StatusSaid, AddressedUpdate):
    """The status of a task, and of which one."""


async def _in_queue(project_id: PathProjectId, queue_id: QueueId, task_id: TaskId) -> TaskPath:
    return TaskPath(project_id=project_id, queue_id=queue_id, task_id=task_id)


async def _in_project(project_id: ProjectHere, task_id: TaskId) -> TaskPath:
    return TaskPath(project_id=project_id, task_id=task_id)


QueueTaskPath = Annotated[TaskPath, Depends(_in_queue)]
ProjectTaskPath = Annotated[TaskPath, Depends(_in_project)]
WRITE = requires(Scope.WRITE, bound=True)


@router.post("/tasks/message", summary="Add a message to a task named in the body", **WRITE)
async def add_addressed_message(
    body: AddressedMessage, caller: CurrentCaller, holder: HolderHere, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    await refuse_other_project_push(deps, caller, body.project_id)
    return say(await _add_message(deps, body.path, holder, body), "Message added.", "消息已添加。")


@router.post("/tasks/log", summary="Add a log line to a task named in the body", **WRITE)
async def add_addressed_log(
    body: AddressedLine, caller: CurrentCaller, holder: HolderHere, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    await refuse_other_project_push(deps, caller, body.project_id)
    return say(await _add_log_line(deps, body.path, holder, body), "Log line added.", "日志已添加。")


@router.patch("/tasks/status", summary="Set the status of a task named in the body", **WRITE)
async def set_addressed_status(
    body: AddressedStatus, caller: CurrentCaller, holder: HolderHere, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    await refuse_other_project_push(deps, caller, body.project_id)
    return say(await _set_status(deps, body.path, holder, body), "Status updated.", "状态已更新。")


@router.post(f"{IN_QUEUE}/message", summary="Add a message to a task", **WRITE)
async def add_message(
    path: QueueTaskPath, body: MessageSaid, caller: CurrentCaller, holder: HolderHere, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    await refuse_other_project_push(deps, caller, path.project_id)
    return say(await _add_message(deps, path, holder, body), "Message added.", "消息已添加。")


@router.post(f"{IN_PROJECT}/message", summary="Add a message to a task of a project", **WRITE)
async def add_project_message(
    path: ProjectTaskPath, body: MessageSaid, holder: HolderHere, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return say(await _add_message(deps, path, holder, body), "Message added.", "消息已添加。")


@router.post(f"{IN_QUEUE}/log", summary="Add a log line to a task", **WRITE)
async def add_log(
    path: QueueTaskPath, body: LineSaid, caller: CurrentCaller, holder: HolderHere, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    await refuse_other_project_push(deps, caller, path.project_id)
    return say(await _add_log_line(deps, path, holder, body), "Log line added.", "日志已添加。")


@router.post(f"{IN_PROJECT}/log", summary="Add a log line to a task of a project", **WRITE)
async def add_project_log(
    path: ProjectTaskPath, body: LineSaid, holder: HolderHere, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return say(await _add_log_line(deps, path, holder, body), "Log line added.", "日志已添加。")


@router.patch(f"{IN_QUEUE}/status", summary="Set the status of a task", **WRITE)
async def set_status(
    path: QueueTaskPath, body: StatusSaid, caller: CurrentCaller, holder: HolderHere, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    await refuse_other_project_push(deps, caller, path.project_id)
    return say(await _set_status(deps, path, holder, body), "Status updated.", "状态已更新。")


@router.patch(f"{IN_PROJECT}/status", summary="Set the status of a task of a project", **WRITE)
async def set_project_status(
    path: ProjectTaskPath, body: StatusSaid, holder: HolderHere, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return say(await _set_status(deps, path, holder, body), "Status updated.", "状态已更新。")


async def _add_message(deps: Deps, path: TaskPath, holder: Holder, body: MessageSaid) -> dict[str, Any]:
    sender = body.sender(holder)
    async with deps.db.tx(actor=sender.name) as tx:
        message = await progress.add_message(
            tx, deps, path, sender, role=body.role, content=body.content, session_id=body.session_id
        )
    return {
        "message_id": message.number,
        "role": message.role,
        "content": message.content,
        "session_id": message.session_id,
        "created_at": format_time(message.created_at),
    }


async def _add_log_line(deps: Deps, path: TaskPath, holder: Holder, body: LineSaid) -> dict[str, Any]:
    sender = body.sender(holder)
    async with deps.db.tx(actor=sender.name) as tx:
        line = await progress.add_log_line(tx, deps, path, sender, body.content)
    return {"log_id": line.number, "content": line.content, "created_at": format_time(line.created_at)}


async def _set_status(deps: Deps, path: TaskPath, holder: Holder, body: StatusSaid) -> dict[str, Any]:
    update = StatusUpdate(path=path, holder=body.sender(holder), status=body.status, fields=body.fields)
    key = ("status", path.project_id)
    change: StatusChange | PenstockError = await deps.coalescer.submit(key, update, partial(_set_statuses, deps))
    if isinstance(change, PenstockError):
        raise change
    return {
        "task_id": change.task.task_id,
        "status": change.task.status.upper(),
        "previous_status": change.previous.upper(),
        "updated_at": format_time(change.task.updated_at),
    }


async def _set_statuses(deps: Deps, updates: Sequence[StatusUpdate]) -> Sequence[StatusChange | PenstockError]:
    """Set the status of tasks of one project. Concurrent updates are coalesced into one transaction."""
    project_id = updates[0].path.project_id
    results: dict[int, StatusChange | PenstockError] = {}
    for numbers in progress.split_into_rounds(updates):
        async with deps.db.tx(actor="push") as tx:
            changes = await progress.set_statuses(tx, deps, project_id, [updates[number] for number in numbers])
        results |= zip(numbers, changes, strict=True)
    return [results[number] for number in range(len(updates))]
