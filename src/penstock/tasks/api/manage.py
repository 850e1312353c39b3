"""Managing tasks: making, editing, moving, deleting and restoring them, one by one and many at once."""

from collections.abc import Sequence
from typing import Annotated, Any, cast

from fastapi import Depends, Request
from pydantic import AliasChoices, BaseModel, Field

from penstock.access.domain import Scope
from penstock.access.door import CallerHere, open_to
from penstock.kernel.http.envelope import Said, Say, SayHere
from penstock.tasks import edit
from penstock.tasks.api.fields import (
    Files,
    KnownId,
    Name,
    NewId,
    Prompt,
    Rank,
    Result,
    ResultSchema,
    StatusWord,
    Tags,
    Text,
)
from penstock.tasks.api.params import MOST_IDS, ProjectHere, QueueId, TaskId, TaskIds, ToolsHere, When, new_router
from penstock.tasks.api.views import moment, shown_failures, shown_task, shown_tasks
from penstock.tasks.domain import MIDDLE, Status, Task, rank_of
from penstock.tasks.edit import Done, Edits, Place, Plan

router = new_router()

ADMIN = open_to(Scope.ADMIN, bound=True)
IN_PROJECT = "/projects/{project_id}/tasks"
IN_QUEUE = "/projects/{project_id}/queues/{queue_id}/tasks"


async def _in_project(project_id: ProjectHere) -> Place:
    return Place(project_id=project_id)


async def _in_queue(project_id: ProjectHere, queue_id: QueueId) -> Place:
    return Place(project_id=project_id, queue_id=queue_id)


ProjectPlace = Annotated[Place, Depends(_in_project)]
QueuePlace = Annotated[Place, Depends(_in_queue)]


class TaskAsked(BaseModel):
    """A task to be made. What is null is as good as absent."""

    task_id: NewId | None = Field(default=None, validation_alias=AliasChoices("taskId", "task_id", "id"))
    name: Name
    prompt: Prompt
    status: StatusWord | None = None
    spec_file: Files = []
    tags: Tags = []
    priority: Rank = rank_of(MIDDLE)
    expires_at: When | None = None
    report: Text | None = None
    result_schema: ResultSchema | None = None

    def plan(self, path: str = "") -> Plan:
        """The same in our words."""
        return Plan(**{**dict(self), "status": self.status or Status.PENDING}, path=path)


class TasksAsked(BaseModel):
    """Tasks to be made, all or none."""

    tasks: Annotated[list[TaskAsked], Field(min_length=1, max_length=MOST_IDS)]

    def plans(self) -> list[Plan]:
        """The same in our words."""
        return [task.plan(f"tasks[{number}].") for number, task in enumerate(self.tasks)]


class TaskEdit(BaseModel):
    """What is to change in a task; what is absent stays. The defaults are never used: only what was sent counts."""

    name: Name = ""
    prompt: Prompt = ""
    status: StatusWord = Status.PENDING
    spec_file: Files = []
    tags: Tags = []
    priority: Rank = rank_of(MIDDLE)
    expires_at: When | None = None
    report: Text | None = None
    result: Result = None
    result_schema: ResultSchema | None = None

    def edits(self) -> Edits:
        """The same in our words."""
        return cast("Edits", {name: getattr(self, name) for name in self.model_fields_set})


class Target(BaseModel):
    """Where a task is to go; null is beside all queues."""

    queue_id: KnownId | None = Field(validation_alias=AliasChoices("queueId", "queue_id"))


class MoveAsked(Target):
    """A move of one task; it says where from when several queues have a task of that id."""

    from_queue_id: KnownId | None = Field(default=None, validation_alias=AliasChoices("fromQueueId", "from_queue_id"))


class MovesAsked(MoveAsked):
    """A move of many tasks."""

    task_ids: TaskIds = Field(validation_alias=AliasChoices("taskIds", "task_ids"))


class DeletionsAsked(BaseModel):
    """Tasks to be deleted, all in one queue or wherever they are."""

    task_ids: TaskIds = Field(validation_alias=AliasChoices("taskIds", "task_ids"))
    queue_id: KnownId | None = Field(default=None, validation_alias=AliasChoices("queueId", "queue_id"))


@router.post(IN_PROJECT, summary="Make a task that is in no queue", status_code=201, **ADMIN)
async def create_task(
    place: ProjectPlace, body: TaskAsked, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    (made,) = await edit.create(tools, caller, place, [body.plan()])
    return _said_made(say, place, made)


@router.post(IN_QUEUE, summary="Make a task in a queue", status_code=201, **ADMIN)
async def create_queue_task(
    place: QueuePlace, body: TaskAsked, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    (made,) = await edit.create(tools, caller, place, [body.plan()])
    return _said_made(say, place, made)


@router.post(f"{IN_PROJECT}/batch", summary="Make tasks that are in no queue, all or none", status_code=201, **ADMIN)
async def create_tasks(
    place: ProjectPlace, body: TasksAsked, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return _said_all_made(say, place, await edit.create(tools, caller, place, body.plans()))


@router.post(f"{IN_QUEUE}/batch", summary="Make tasks in a queue, all or none", status_code=201, **ADMIN)
async def create_queue_tasks(
    place: QueuePlace, body: TasksAsked, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return _said_all_made(say, place, await edit.create(tools, caller, place, body.plans()))


@router.put(f"{IN_PROJECT}/{{task_id}}", summary="Edit a task of a project", **ADMIN)
async def edit_task(
    place: ProjectPlace, task_id: TaskId, body: TaskEdit, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return _said_edited(say, place, await edit.edit(tools, caller, place, task_id, body.edits()))


@router.put(f"{IN_QUEUE}/{{task_id}}", summary="Edit a task of a queue", **ADMIN)
async def edit_queue_task(
    place: QueuePlace, task_id: TaskId, body: TaskEdit, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return _said_edited(say, place, await edit.edit(tools, caller, place, task_id, body.edits()))


@router.delete(f"{IN_PROJECT}/{{task_id}}", summary="Delete a task of a project; its history stays", **ADMIN)
async def delete_task(
    place: ProjectPlace, task_id: TaskId, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return _said_deleted(say, place, (await edit.delete(tools, caller, place, [task_id])).only())


@router.delete(f"{IN_QUEUE}/{{task_id}}", summary="Delete a task of a queue; its history stays", **ADMIN)
async def delete_queue_task(
    place: QueuePlace, task_id: TaskId, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return _said_deleted(say, place, (await edit.delete(tools, caller, place, [task_id])).only())


@router.post(f"{IN_PROJECT}/delete/batch", summary="Delete tasks; their history stays", **ADMIN)
async def delete_tasks(
    place: ProjectPlace,
    body: DeletionsAsked,
    caller: CallerHere,
    tools: ToolsHere,
    request: Request,
    say: SayHere,
) -> Said[dict[str, Any]]:
    here = Place(project_id=place.project_id, queue_id=body.queue_id)
    done = await edit.delete(tools, caller, here, body.task_ids)
    count = len(done.tasks)
    return say(_counted("deleted_count", done, request), f"{count} tasks were deleted.", f"已删除 {count} 个任务。")


@router.post(f"{IN_PROJECT}/move/batch", summary="Move tasks into a queue, or out of all queues", **ADMIN)
async def move_tasks(
    place: ProjectPlace, body: MovesAsked, caller: CallerHere, tools: ToolsHere, request: Request, say: SayHere
) -> Said[dict[str, Any]]:
    here = Place(project_id=place.project_id, queue_id=body.from_queue_id)
    done = await edit.move(tools, caller, here, body.task_ids, to=body.queue_id)
    count = len(done.tasks)
    return say(_counted("moved_count", done, request), f"{count} tasks were moved.", f"已移动 {count} 个任务。")


@router.post(f"{IN_PROJECT}/{{task_id}}/move", summary="Move a task into a queue, or out of all queues", **ADMIN)
async def move_task(
    place: ProjectPlace, task_id: TaskId, body: MoveAsked, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    here = Place(project_id=place.project_id, queue_id=body.from_queue_id)
    return _said_moved(say, place, (await edit.move(tools, caller, here, [task_id], to=body.queue_id)).only())


@router.post(f"{IN_QUEUE}/{{task_id}}/move", summary="Move a task of a queue elsewhere", **ADMIN)
async def move_queue_task(
    place: QueuePlace, task_id: TaskId, body: Target, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return _said_moved(say, place, (await edit.move(tools, caller, place, [task_id], to=body.queue_id)).only())


@router.post(f"{IN_PROJECT}/{{task_id}}/restore", summary="Undo the deletion of a task of a project", **ADMIN)
async def restore_task(
    place: ProjectPlace, task_id: TaskId, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return _said_restored(say, place, await edit.restore(tools, caller, place, task_id))


@router.post(f"{IN_QUEUE}/{{task_id}}/restore", summary="Undo the deletion of a task of a queue", **ADMIN)
async def restore_queue_task(
    place: QueuePlace, task_id: TaskId, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return _said_restored(say, place, await edit.restore(tools, caller, place, task_id))


def _said_made(say: Say, place: Place, made: Task) -> Said[dict[str, Any]]:
    return say(shown_task(made, project_id=place.project_id), "The task was made.", "任务已创建。")


def _said_all_made(say: Say, place: Place, made: Sequence[Task]) -> Said[dict[str, Any]]:
    data = {"tasks": shown_tasks(made, project_id=place.project_id), "created_count": len(made)}
    return say(data, f"{len(made)} tasks were made.", f"已创建 {len(made)} 个任务。")


def _said_edited(say: Say, place: Place, edited: Task) -> Said[dict[str, Any]]:
    return say(shown_task(edited, project_id=place.project_id), "The task is as you asked.", "任务已更新。")


def _said_deleted(say: Say, place: Place, gone: Task) -> Said[dict[str, Any]]:
    known = {"task_id": gone.task_id, "id": gone.task_id, "queue_id": gone.queue_id or None}
    data = {**known, "project_id": place.project_id, "deleted": True, "deleted_at": moment(gone.deleted_at)}
    return say(data, "The task was deleted.", "任务已删除。")


def _said_moved(say: Say, place: Place, moved: Task) -> Said[dict[str, Any]]:
    return say(shown_task(moved, project_id=place.project_id), "The task was moved.", "任务已移动。")


def _said_restored(say: Say, place: Place, restored: Task) -> Said[dict[str, Any]]:
    return say(shown_task(restored, project_id=place.project_id), "The task was restored.", "任务已恢复。")


def _counted(name: str, done: Done, request: Request) -> dict[str, Any]:
    return {name: len(done.tasks), **shown_failures(done.failed, request)}
