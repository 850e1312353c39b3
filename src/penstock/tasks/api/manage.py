"""Routes to manage tasks (scope admin): create, edit, move, delete and restore tasks, one by one or in a batch."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, cast

from fastapi import Depends, Request
from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from penstock.access.domain import Caller, Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.access.idempotent import IdempotentHere
from penstock.kernel.db import Tx
from penstock.kernel.http.envelope import Said, Say, SayHere
from penstock.kernel.idempotency import create_once
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
    without_defaults,
)
from penstock.tasks.api.params import MAX_IDS, DepsHere, ProjectHere, QueueId, TaskId, TaskIds, When, new_router
from penstock.tasks.api.views import failures_view, format_time, task_view, task_views
from penstock.tasks.deps import Deps
from penstock.tasks.domain import UNSET_RANK, BatchResult, Status, Task
from penstock.tasks.edit import QueuePath, TaskEdits, TaskMove, TaskSpec

router = new_router()

ADMIN = requires(Scope.ADMIN, bound=True)
IN_PROJECT = "/projects/{project_id}/tasks"
IN_QUEUE = "/projects/{project_id}/queues/{queue_id}/tasks"


async def _in_project(project_id: ProjectHere) -> QueuePath:
    return QueuePath(project_id=project_id)


async def _in_queue(project_id: ProjectHere, queue_id: QueueId) -> QueuePath:
    return QueuePath(project_id=project_id, queue_id=queue_id)


ProjectPathHere = Annotated[QueuePath, Depends(_in_project)]
QueuePathHere = Annotated[QueuePath, Depends(_in_queue)]


class TaskAsked(BaseModel):
    """A task to create. Null fields are treated as absent."""

    model_config = ConfigDict(json_schema_extra=without_defaults)

    task_id: NewId | None = Field(default=None, validation_alias=AliasChoices("taskId", "task_id", "id"))
    name: Name
    prompt: Prompt
    status: StatusWord | None = None
    spec_file: Files = []
    tags: Tags = []
    priority: Rank = UNSET_RANK
    expires_at: When | None = None
    report: Text | None = None
    result_schema: ResultSchema | None = None

    def new_task(self, path: str = "") -> TaskSpec:
        """The request as the verb takes it."""
        return TaskSpec(**{**dict(self), "status": self.status or Status.PENDING}, path=path)


class TasksAsked(BaseModel):
    """Tasks to create, all or none."""

    tasks: Annotated[list[TaskAsked], Field(min_length=1, max_length=MAX_IDS)]

    def new_tasks(self) -> list[TaskSpec]:
        """The request as the verb takes it."""
        return [task.new_task(f"tasks[{number}].") for number, task in enumerate(self.tasks)]


class TaskEdit(BaseModel):
    """Fields of a task to change. The defaults are unused: only fields that were sent count."""

    model_config = ConfigDict(json_schema_extra=without_defaults)

    name: Name = ""
    prompt: Prompt = ""
    status: StatusWord = Status.PENDING
    spec_file: Files = []
    tags: Tags = []
    priority: Rank = UNSET_RANK
    expires_at: When | None = None
    report: Text | None = None
    result: Result = None
    result_schema: ResultSchema | None = None

    def edits(self) -> TaskEdits:
        """The request as the verb takes it."""
        return cast("TaskEdits", {name: getattr(self, name) for name in self.model_fields_set})


class Target(BaseModel):
    """The target queue of a move; null moves the task out of its queue."""

    queue_id: KnownId | None = Field(validation_alias=AliasChoices("queueId", "queue_id"))


class MoveAsked(Target):
    """A move of one task, with its current queue if several queues have a task with that id."""

    from_queue_id: KnownId | None = Field(default=None, validation_alias=AliasChoices("fromQueueId", "from_queue_id"))


class MovesAsked(MoveAsked):
    """A move of many tasks."""

    task_ids: TaskIds = Field(validation_alias=AliasChoices("taskIds", "task_ids"))


class DeletionsAsked(BaseModel):
    """Tasks to delete, in one queue or anywhere in the project."""

    task_ids: TaskIds = Field(validation_alias=AliasChoices("taskIds", "task_ids"))
    queue_id: KnownId | None = Field(default=None, validation_alias=AliasChoices("queueId", "queue_id"))


@router.post(IN_PROJECT, summary="Create a task without a queue", status_code=201, **ADMIN)
async def create_task(
    path: ProjectPathHere, body: TaskAsked, caller: CurrentCaller, deps: DepsHere, say: SayHere, request: IdempotentHere
) -> Said[dict[str, Any]]:
    async with deps.db.tx(actor=caller.name) as tx:
        data = await create_once(tx, request, partial(_create_one, tx, deps, caller, path, body.new_task()))
    return say(data, "Task created.", "任务已创建。")


@router.post(IN_QUEUE, summary="Create a task in a queue", status_code=201, **ADMIN)
async def create_queue_task(
    path: QueuePathHere, body: TaskAsked, caller: CurrentCaller, deps: DepsHere, say: SayHere, request: IdempotentHere
) -> Said[dict[str, Any]]:
    async with deps.db.tx(actor=caller.name) as tx:
        data = await create_once(tx, request, partial(_create_one, tx, deps, caller, path, body.new_task()))
    return say(data, "Task created.", "任务已创建。")


@router.post(f"{IN_PROJECT}/batch", summary="Create tasks without a queue, all or none", status_code=201, **ADMIN)
async def create_tasks(
    path: ProjectPathHere,
    body: TasksAsked,
    caller: CurrentCaller,
    deps: DepsHere,
    say: SayHere,
    request: IdempotentHere,
) -> Said[dict[str, Any]]:
    async with deps.db.tx(actor=caller.name) as tx:
        data = await create_once(tx, request, partial(_create_many, tx, deps, caller, path, body.new_tasks()))
    return _tasks_created(say, data)


@router.post(f"{IN_QUEUE}/batch", summary="Create tasks in a queue, all or none", status_code=201, **ADMIN)
async def create_queue_tasks(
    path: QueuePathHere, body: TasksAsked, caller: CurrentCaller, deps: DepsHere, say: SayHere, request: IdempotentHere
) -> Said[dict[str, Any]]:
    async with deps.db.tx(actor=caller.name) as tx:
        data = await create_once(tx, request, partial(_create_many, tx, deps, caller, path, body.new_tasks()))
    return _tasks_created(say, data)


@router.put(f"{IN_PROJECT}/{{task_id}}", summary="Edit a task of a project", **ADMIN)
async def edit_task(
    path: ProjectPathHere, task_id: TaskId, body: TaskEdit, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    async with deps.db.tx(actor=caller.name) as tx:
        edited = await edit.edit(tx, deps, caller, path, task_id, body.edits())
    return _task_edited(say, path, edited)


@router.put(f"{IN_QUEUE}/{{task_id}}", summary="Edit a task of a queue", **ADMIN)
async def edit_queue_task(
    path: QueuePathHere, task_id: TaskId, body: TaskEdit, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    async with deps.db.tx(actor=caller.name) as tx:
        edited = await edit.edit(tx, deps, caller, path, task_id, body.edits())
    return _task_edited(say, path, edited)


@router.delete(f"{IN_PROJECT}/{{task_id}}", summary="Delete a task of a project; its history stays", **ADMIN)
async def delete_task(
    path: ProjectPathHere, task_id: TaskId, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    async with deps.db.tx(actor=caller.name) as tx:
        result = await edit.delete(tx, deps, caller, path, [task_id])
    return _task_deleted(say, path, result.one())


@router.delete(f"{IN_QUEUE}/{{task_id}}", summary="Delete a task of a queue; its history stays", **ADMIN)
async def delete_queue_task(
    path: QueuePathHere, task_id: TaskId, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    async with deps.db.tx(actor=caller.name) as tx:
        result = await edit.delete(tx, deps, caller, path, [task_id])
    return _task_deleted(say, path, result.one())


@router.post(f"{IN_PROJECT}/delete/batch", summary="Delete tasks; their history stays", **ADMIN)
async def delete_tasks(
    path: ProjectPathHere,
    body: DeletionsAsked,
    caller: CurrentCaller,
    deps: DepsHere,
    request: Request,
    say: SayHere,
) -> Said[dict[str, Any]]:
    here = QueuePath(project_id=path.project_id, queue_id=body.queue_id)
    async with deps.db.tx(actor=caller.name) as tx:
        result = await edit.delete(tx, deps, caller, here, body.task_ids)
    count = len(result.done)
    return say(_batch_response("deleted_count", result, request), f"{count} tasks deleted.", f"已删除 {count} 个任务。")


@router.post(f"{IN_PROJECT}/move/batch", summary="Move tasks into a queue, or out of their queue", **ADMIN)
async def move_tasks(
    path: ProjectPathHere, body: MovesAsked, caller: CurrentCaller, deps: DepsHere, request: Request, say: SayHere
) -> Said[dict[str, Any]]:
    here = QueuePath(project_id=path.project_id, queue_id=body.from_queue_id)
    async with deps.db.tx(actor=caller.name) as tx:
        result = await edit.move(tx, deps, caller, here, body.task_ids, to=body.queue_id)
    count = len(result.done)
    return say(_batch_response("moved_count", result, request), f"{count} tasks moved.", f"已移动 {count} 个任务。")


@router.post(f"{IN_PROJECT}/{{task_id}}/move", summary="Move a task into a queue, or out of its queue", **ADMIN)
async def move_task(
    path: ProjectPathHere, task_id: TaskId, body: MoveAsked, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    here = QueuePath(project_id=path.project_id, queue_id=body.from_queue_id)
    async with deps.db.tx(actor=caller.name) as tx:
        result = await edit.move(tx, deps, caller, here, [task_id], to=body.queue_id)
    return _task_moved(say, path, result.one())


@router.post(
    f"{IN_QUEUE}/{{task_id}}/move", summary="Move a task of a queue into another, or out of its queue", **ADMIN
)
async def move_queue_task(
    path: QueuePathHere, task_id: TaskId, body: Target, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    async with deps.db.tx(actor=caller.name) as tx:
        result = await edit.move(tx, deps, caller, path, [task_id], to=body.queue_id)
    return _task_moved(say, path, result.one())


@router.post(f"{IN_PROJECT}/{{task_id}}/restore", summary="Undo the deletion of a task of a project", **ADMIN)
async def restore_task(
    path: ProjectPathHere, task_id: TaskId, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    async with deps.db.tx(actor=caller.name) as tx:
        restored = await edit.restore(tx, deps, caller, path, task_id)
    return _task_restored(say, path, restored)


@router.post(f"{IN_QUEUE}/{{task_id}}/restore", summary="Undo the deletion of a task of a queue", **ADMIN)
async def restore_queue_task(
    path: QueuePathHere, task_id: TaskId, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    async with deps.db.tx(actor=caller.name) as tx:
        restored = await edit.restore(tx, deps, caller, path, task_id)
    return _task_restored(say, path, restored)


async def _create_one(tx: Tx, deps: Deps, caller: Caller, path: QueuePath, new: TaskSpec) -> dict[str, Any]:
    (created,) = await edit.create(tx, deps, caller, path, [new])
    return task_view(created, project_id=path.project_id)


async def _create_many(tx: Tx, deps: Deps, caller: Caller, path: QueuePath, new: Sequence[TaskSpec]) -> dict[str, Any]:
    created = await edit.create(tx, deps, caller, path, new)
    return {"tasks": task_views(created, project_id=path.project_id), "created_count": len(created)}


def _tasks_created(say: Say, data: dict[str, Any]) -> Said[dict[str, Any]]:
    count = data["created_count"]
    return say(data, f"{count} tasks created.", f"已创建 {count} 个任务。")


def _task_edited(say: Say, path: QueuePath, edited: Task) -> Said[dict[str, Any]]:
    return say(task_view(edited, project_id=path.project_id), "Task updated.", "任务已更新。")


def _task_deleted(say: Say, path: QueuePath, deleted: Task) -> Said[dict[str, Any]]:
    ids = {"task_id": deleted.task_id, "id": deleted.task_id, "queue_id": deleted.queue_id or None}
    data = {**ids, "project_id": path.project_id, "deleted": True, "deleted_at": format_time(deleted.deleted_at)}
    return say(data, "Task deleted.", "任务已删除。")


def _task_moved(say: Say, path: QueuePath, moved: TaskMove) -> Said[dict[str, Any]]:
    data = task_view(moved.task, project_id=path.project_id) | {
        "from": _place(moved.from_queue_id),
        "to": _place(moved.task.queue_id),
        "moved_at": format_time(moved.task.updated_at),
    }
    return say(data, "Task moved.", "任务已移动。")


def _place(queue_id: str) -> str:
    return f"queue:{queue_id}" if queue_id else "project"


def _task_restored(say: Say, path: QueuePath, restored: Task) -> Said[dict[str, Any]]:
    return say(task_view(restored, project_id=path.project_id), "Task restored.", "任务已恢复。")


def _batch_response(name: str, result: BatchResult[Task] | BatchResult[TaskMove], request: Request) -> dict[str, Any]:
    return {name: len(result.done), **failures_view(result.failed, request)}
