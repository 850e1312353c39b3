"""Queue routes: list, search, create, rename and delete queues, and poll for changes."""

from typing import Any, cast

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from penstock.access.domain import Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.kernel.http.envelope import LongPageHere, Paged, Said, SayHere
from penstock.tasks import manage_projects, remove
from penstock.tasks.api.fields import Meta, Name, NewId, without_defaults
from penstock.tasks.api.params import DepsHere, ProjectHere, QueueId, Search, When, new_router
from penstock.tasks.api.views import check_view, queue_view
from penstock.tasks.errors import BadTask
from penstock.tasks.manage_projects import NewQueue, QueueChanges
from penstock.tasks.store import projects, queues

router = new_router()


class QueueAsked(BaseModel):
    """A queue to create."""

    queue_id: NewId = Field(validation_alias=AliasChoices("queue_id", "queueId", "id"))
    name: Name
    meta: Meta | None = None


class QueueEdit(BaseModel):
    """Fields of a queue to change."""

    model_config = ConfigDict(json_schema_extra=without_defaults)

    name: Name = ""  # the defaults are unused: only fields that were sent count
    meta: Meta | None = None

    def changes(self) -> QueueChanges:
        """The request as the verb takes it."""
        if not self.model_fields_set:
            raise BadTask(field="name", reason="name or meta is required", reason_zh="需要 name 或 meta。")
        return cast("QueueChanges", self.model_dump(exclude_unset=True))


@router.get(
    "/projects/{project_id}/queues", summary="Queues, most recently active first", **requires(Scope.READ, bound=True)
)
async def list_queues(
    project_id: ProjectHere, deps: DepsHere, say: SayHere, page: LongPageHere, search: Search = ""
) -> Said[Paged[dict[str, Any]]]:
    async with deps.db.read() as tx:
        project = await projects.get_project(tx, project_id)
        found = await queues.list_queues(tx, project.id, search=search, offset=page.offset, limit=page.size)
        total = await queues.count_queues(tx, project.id, search=search) if search else project.queue_count
    return say.page([queue_view(queue, project_id=project_id) for queue in found], page, total=total)


@router.post(
    "/projects/{project_id}/queues", status_code=201, summary="Create a queue", **requires(Scope.ADMIN, bound=True)
)
async def create_queue(
    project_id: ProjectHere, body: QueueAsked, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    async with deps.db.tx(actor=caller.name) as tx:
        created = await manage_projects.create_queue(tx, caller, project_id, NewQueue(**body.model_dump()))
    return say(queue_view(created, project_id=project_id), "Queue created.", "队列已创建。")


@router.get("/projects/{project_id}/queues/check", summary="Has a queue changed?", **requires(Scope.READ, bound=True))
async def check_queues(
    project_id: ProjectHere, deps: DepsHere, say: SayHere, since: When | None = None
) -> Said[dict[str, Any]]:
    async with deps.db.read() as tx:
        project = await projects.get_project(tx, project_id)
        last = await queues.find_last_change(tx, project.id)
    return say(check_view(last, count=project.queue_count, since=since, now=tx.now), "Checked.", "已检查。")


@router.get("/projects/{project_id}/queues/{queue_id}", summary="One queue", **requires(Scope.READ, bound=True))
async def get_queue(project_id: ProjectHere, queue_id: QueueId, deps: DepsHere, say: SayHere) -> Said[dict[str, Any]]:
    async with deps.db.read() as tx:
        project = await projects.get_project(tx, project_id)
        found = await queues.get_queue(tx, project.id, queue_id, project_id=project_id)
    return say(queue_view(found, project_id=project_id), "Found.", "已找到。")


@router.put("/projects/{project_id}/queues/{queue_id}", summary="Change a queue", **requires(Scope.ADMIN, bound=True))
async def change_queue(
    project_id: ProjectHere, queue_id: QueueId, body: QueueEdit, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    changes = body.changes()
    async with deps.db.tx(actor=caller.name) as tx:
        changed = await manage_projects.change_queue(tx, caller, project_id, queue_id, changes)
    return say(queue_view(changed, project_id=project_id), "Queue updated.", "队列已修改。")


@router.delete(
    "/projects/{project_id}/queues/{queue_id}",
    summary="Delete a queue with its tasks",
    **requires(Scope.ADMIN, bound=True),
)
async def delete_queue(
    project_id: ProjectHere, queue_id: QueueId, caller: CurrentCaller, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    async with deps.db.tx(actor=caller.name) as tx:
        await remove.delete_queue(tx, deps, caller, project_id, queue_id)
    data = {"project_id": project_id, "queue_id": queue_id, "deleted": True}
    return say(data, "Queue deleted.", "队列已删除。")
