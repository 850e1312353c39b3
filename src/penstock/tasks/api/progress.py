"""How one task goes: its messages, its log and its status, one at a time.

Each is there twice: by project, queue and task, as the older clients call it, and by project and task.
"""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import Depends
from pydantic import Field, StringConstraints

from penstock.access.domain import Scope
from penstock.access.door import open_to
from penstock.kernel.http.envelope import Said, SayHere
from penstock.tasks import progress
from penstock.tasks.api.fields import Result, StatusWord, Text
from penstock.tasks.api.params import LONGEST_ID, HolderHere, ProjectHere, QueueId, TaskId, ToolsHere, new_router
from penstock.tasks.api.views import moment
from penstock.tasks.api.telling import LONGEST_CONTENT, Part, RoleWord, Token
from penstock.tasks.domain import Holder
from penstock.tasks.progress import Spot

router = new_router()

IN_QUEUE = "/tasks/{project_id}/{queue_id}/{task_id}"
IN_PROJECT = "/projects/{project_id}/tasks/{task_id}"
GIVEN = frozenset({"report", "result"})
Content = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_CONTENT)]


class Telling(Part):
    """Something that is told of a task; the token may stand here or in X-Lease-Token."""

    lease_token: Token | None = None

    def teller(self, holder: Holder) -> Holder:
        """Who tells it."""
        return replace(holder, token=self.lease_token or holder.token)


class MessageSaid(Telling):
    """A message to be added."""

    role: RoleWord
    content: Content
    session_id: Annotated[str, Field(max_length=LONGEST_ID)] | None = None


class LineSaid(Telling):
    """A line to be added to the log."""

    content: Content


class StatusSaid(Telling):
    """The status a task is in now, and what came of it."""

    status: StatusWord
    report: Text = ""
    result: Result = None

    @property
    def fields(self) -> dict[str, Any]:
        """What was given beside the status."""
        given = {name: getattr(self, name) for name in self.model_fields_set & GIVEN}
        return given | ({"report": self.report or None} if "report" in given else {})


async def _in_queue(project_id: ProjectHere, queue_id: QueueId, task_id: TaskId) -> Spot:
    return Spot(project_id=project_id, queue_id=queue_id, task_id=task_id)


async def _in_project(project_id: ProjectHere, task_id: TaskId) -> Spot:
    return Spot(project_id=project_id, task_id=task_id)


SpotInQueue = Annotated[Spot, Depends(_in_queue)]
SpotInProject = Annotated[Spot, Depends(_in_project)]
WRITE = open_to(Scope.WRITE, bound=True)


@router.post(f"{IN_QUEUE}/message", summary="Add a message to a task", **WRITE)
async def add_message(
    spot: SpotInQueue, body: MessageSaid, holder: HolderHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return say(await _say(tools, spot, holder, body), "The message was added.", "消息已添加。")


@router.post(f"{IN_PROJECT}/message", summary="Add a message to a task of a project", **WRITE)
async def add_project_message(
    spot: SpotInProject, body: MessageSaid, holder: HolderHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return say(await _say(tools, spot, holder, body), "The message was added.", "消息已添加。")


@router.post(f"{IN_QUEUE}/log", summary="Add a line to a task's log", **WRITE)
async def add_log(
    spot: SpotInQueue, body: LineSaid, holder: HolderHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return say(await _log(tools, spot, holder, body), "The line was added.", "日志已添加。")


@router.post(f"{IN_PROJECT}/log", summary="Add a line to the log of a project's task", **WRITE)
async def add_project_log(
    spot: SpotInProject, body: LineSaid, holder: HolderHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return say(await _log(tools, spot, holder, body), "The line was added.", "日志已添加。")


@router.patch(f"{IN_QUEUE}/status", summary="Tell the status of a task", **WRITE)
async def set_status(
    spot: SpotInQueue, body: StatusSaid, holder: HolderHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return say(await _set_status(tools, spot, holder, body), "The status was taken.", "状态已更新。")


@router.patch(f"{IN_PROJECT}/status", summary="Tell the status of a project's task", **WRITE)
async def set_project_status(
    spot: SpotInProject, body: StatusSaid, holder: HolderHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return say(await _set_status(tools, spot, holder, body), "The status was taken.", "状态已更新。")


async def _say(tools: ToolsHere, spot: Spot, holder: Holder, body: MessageSaid) -> dict[str, Any]:
    said = await progress.say(
        tools, spot, body.teller(holder), role=body.role, content=body.content, session_id=body.session_id
    )
    made = moment(said.created_at)
    return {"message_id": said.number, "role": said.role, "content": said.content, "created_at": made}


async def _log(tools: ToolsHere, spot: Spot, holder: Holder, body: LineSaid) -> dict[str, Any]:
    line = await progress.log(tools, spot, body.teller(holder), body.content)
    return {"log_id": line.number, "content": line.content, "created_at": moment(line.created_at)}


async def _set_status(tools: ToolsHere, spot: Spot, holder: Holder, body: StatusSaid) -> dict[str, Any]:
    moved = await progress.set_status(tools, spot, body.teller(holder), body.status, body.fields)
    return {
        "task_id": moved.task.task_id,
        "status": moved.task.status.upper(),
        "previous_status": moved.previous.upper(),
        "updated_at": moment(moved.task.updated_at),
    }
