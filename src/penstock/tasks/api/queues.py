"""The queues of a project, and whether any has changed."""

from typing import Any, cast

from pydantic import AliasChoices, BaseModel, Field

from penstock.access.domain import Scope
from penstock.access.door import CallerHere, open_to
from penstock.kernel.http.envelope import Paged, PageHere, Said, SayHere
from penstock.tasks import manage_projects, remove
from penstock.tasks.api.fields import Meta, Name, NewId
from penstock.tasks.api.params import ProjectHere, QueueId, Search, ToolsHere, When, new_router
from penstock.tasks.api.views import shown_check, shown_queue
from penstock.tasks.manage_projects import NewQueue, QueueChanges
from penstock.tasks.errors import BadTask
from penstock.tasks.store import projects, queues

router = new_router()


class QueueAsked(BaseModel):
    """A queue to be made."""

    queue_id: NewId = Field(validation_alias=AliasChoices("queue_id", "queueId", "id"))
    name: Name
    meta: Meta | None = None


class QueueEdit(BaseModel):
    """What is to change about a queue; what is absent stays."""

    name: Name = ""  # the defaults are never used: only what was sent counts
    meta: Meta | None = None

    def changes(self) -> QueueChanges:
        """The same in our words."""
        if not self.model_fields_set:
            raise BadTask(field="name", reason="A name or a meta is needed.", reason_zh="需要 name 或 meta。")
        return cast("QueueChanges", self.model_dump(exclude_unset=True))


@router.get("/projects/{project_id}/queues", summary="Queues, the newest first", **open_to(Scope.READ, bound=True))
async def list_queues(
    project_id: ProjectHere, tools: ToolsHere, say: SayHere, asked: PageHere, search: Search = ""
) -> Said[Paged[dict[str, Any]]]:
    async with tools.db.read() as tx:
        project = await projects.get_project(tx, project_id)
        found = await queues.list_queues(tx, project.id, search=search, offset=asked.offset, limit=asked.size)
        total = await queues.count_queues(tx, project.id, search=search) if search else project.queue_count
    return say.page([shown_queue(queue, project_id=project_id) for queue in found], asked, total=total)


@router.post(
    "/projects/{project_id}/queues", status_code=201, summary="Make a queue", **open_to(Scope.ADMIN, bound=True)
)
async def create_queue(
    project_id: ProjectHere, body: QueueAsked, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    made = await arrange.create_queue(tools, caller, project_id, NewQueue(**body.model_dump()))
    return say(shown_queue(made, project_id=project_id), "The queue was made.", "队列已创建。")


@router.get("/projects/{project_id}/queues/check", summary="Has a queue changed?", **open_to(Scope.READ, bound=True))
async def check_queues(project_id: ProjectHere, tools: ToolsHere, say: SayHere, since: When) -> Said[dict[str, Any]]:
    async with tools.db.read() as tx:
        project = await projects.get_project(tx, project_id)
        last = await queues.last_change(tx, project.id)
    return say(shown_check(last, since=since, now=tx.now), "Checked.", "已检查。")


@router.get("/projects/{project_id}/queues/{queue_id}", summary="One queue", **open_to(Scope.READ, bound=True))
async def get_queue(project_id: ProjectHere, queue_id: QueueId, tools: ToolsHere, say: SayHere) -> Said[dict[str, Any]]:
    async with tools.db.read() as tx:
        project = await projects.get_project(tx, project_id)
        found = await queues.get_queue(tx, project.id, queue_id, project_id=project_id)
    return say(shown_queue(found, project_id=project_id), "Found.", "已找到。")


@router.put("/projects/{project_id}/queues/{queue_id}", summary="Change a queue", **open_to(Scope.ADMIN, bound=True))
async def change_queue(
    project_id: ProjectHere, queue_id: QueueId, body: QueueEdit, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    changed = await arrange.change_queue(tools, caller, project_id, queue_id, body.changes())
    return say(shown_queue(changed, project_id=project_id), "The queue was changed.", "队列已修改。")


@router.delete(
    "/projects/{project_id}/queues/{queue_id}",
    summary="Delete a queue with its tasks",
    **open_to(Scope.ADMIN, bound=True),
)
async def delete_queue(
    project_id: ProjectHere, queue_id: QueueId, caller: CallerHere, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    await remove.delete_queue(tools, caller, project_id, queue_id)
    data = {"project_id": project_id, "queue_id": queue_id, "deleted": True}
    return say(data, "The queue was deleted.", "队列已删除。")
