"""Looking at tasks: lists, one task with all that was said of it, and whether any has changed."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends
from pydantic import BeforeValidator

from penstock.access.domain import Scope
from penstock.access.door import open_to
from penstock.kernel.db import Tx
from penstock.kernel.http.envelope import PageAsked, Paged, PageHere, Said, SayHere
from penstock.tasks.api.params import ProjectHere, QueueId, Search, TaskId, ToolsHere, When, new_router
from penstock.tasks.api.views import shown_check, shown_log_line, shown_message, shown_task, shown_tasks
from penstock.tasks.domain import SHOWN, Counts, Project, Queue, Status, Task
from penstock.tasks.lifecycle import find_task
from penstock.tasks.store import projects, queues, task_messages, tasks
from penstock.tasks.store.tasks import Listing, Where

router = new_router()


def _word(given: Any) -> Any:
    """A word in any case; a blank one is none."""
    return given.strip().lower() or None if isinstance(given, str) else given


StatusWanted = Annotated[Status | None, BeforeValidator(_word)]
PullStateWanted = Annotated[Literal["unpulled", "pulled", "pulled_not_pushed"] | None, BeforeValidator(_word)]
QueueWanted = Annotated[Literal["any"] | None, BeforeValidator(_word)]


@dataclass(frozen=True, kw_only=True)
class TasksAsked:
    """Which tasks a list is to have."""

    status: Status | None
    pull_state: str | None
    search: str

    def listing(self, where: Where) -> Listing:
        """The same in our words."""
        states = [state for state, shown in SHOWN.items() if shown == self.pull_state]
        return Listing(where=where, status=self.status, states=states, search=self.search)

    def kept_total(self, counts: Counts | None) -> int | None:
        """How many there are, where that is known without counting."""
        if counts is None or self.search or self.pull_state:
            return None
        return counts.total if self.status is None else counts.of(self.status)


async def _tasks_asked(
    status: StatusWanted = None, pull_state: PullStateWanted = None, search: Search = ""
) -> TasksAsked:
    return TasksAsked(status=status, pull_state=pull_state, search=search)


TasksHere = Annotated[TasksAsked, Depends(_tasks_asked)]


@router.get(
    "/projects/{project_id}/tasks", summary="Tasks beside all queues, or all", **open_to(Scope.READ, bound=True)
)
async def list_project_tasks(
    project_id: ProjectHere,
    tools: ToolsHere,
    say: SayHere,
    wanted: TasksHere,
    asked: PageHere,
    queue: QueueWanted = None,
) -> Said[Paged[dict[str, Any]]]:
    async with tools.db.read() as tx:
        project = await projects.get_project(tx, project_id)
        where = Where(project_pk=project.id, queue_pk=None if queue == "any" else "")
        counts = project.counts if queue == "any" else None  # beside the queues nobody counts
        found, total = await _page(tx, wanted.listing(where), asked, kept=wanted.kept_total(counts))
    return say.page(shown_tasks(found, project_id=project_id), asked, total=total)


@router.get("/projects/{project_id}/tasks/check", summary="Has a task changed?", **open_to(Scope.READ, bound=True))
async def check_project_tasks(
    project_id: ProjectHere, tools: ToolsHere, say: SayHere, since: When
) -> Said[dict[str, Any]]:
    async with tools.db.read() as tx:
        project = await projects.get_project(tx, project_id)
    return say(shown_check(project.active_at, since=since, now=tx.now), "Checked.", "已检查。")


@router.get("/projects/{project_id}/tasks/{task_id}", summary="One task", **open_to(Scope.READ, bound=True))
async def get_project_task(
    project_id: ProjectHere, task_id: TaskId, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    async with tools.db.read() as tx:
        project = await projects.get_project(tx, project_id)
        whole = await _whole_task(tx, project, task_id)
    return say(whole, "Found.", "已找到。")


@router.get(
    "/projects/{project_id}/queues/{queue_id}/tasks", summary="Tasks of a queue", **open_to(Scope.READ, bound=True)
)
async def list_queue_tasks(
    project_id: ProjectHere, queue_id: QueueId, tools: ToolsHere, say: SayHere, wanted: TasksHere, asked: PageHere
) -> Said[Paged[dict[str, Any]]]:
    async with tools.db.read() as tx:
        project, queue = await _place(tx, project_id, queue_id)
        where = Where(project_pk=project.id, queue_pk=queue.id)
        found, total = await _page(tx, wanted.listing(where), asked, kept=wanted.kept_total(queue.counts))
    return say.page(shown_tasks(found, project_id=project_id), asked, total=total)


@router.get(
    "/projects/{project_id}/queues/{queue_id}/tasks/check",
    summary="Has a task of a queue changed?",
    **open_to(Scope.READ, bound=True),
)
async def check_queue_tasks(
    project_id: ProjectHere, queue_id: QueueId, tools: ToolsHere, say: SayHere, since: When
) -> Said[dict[str, Any]]:
    async with tools.db.read() as tx:
        _, queue = await _place(tx, project_id, queue_id)
    return say(shown_check(queue.active_at, since=since, now=tx.now), "Checked.", "已检查。")


@router.get(
    "/projects/{project_id}/queues/{queue_id}/tasks/{task_id}",
    summary="One task of a queue",
    **open_to(Scope.READ, bound=True),
)
async def get_queue_task(
    project_id: ProjectHere, queue_id: QueueId, task_id: TaskId, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    async with tools.db.read() as tx:
        project, queue = await _place(tx, project_id, queue_id)
        whole = await _whole_task(tx, project, task_id, queue)
    return say(whole, "Found.", "已找到。")


async def _place(tx: Tx, project_id: str, queue_id: str) -> tuple[Project, Queue]:
    project = await projects.get_project(tx, project_id)
    return project, await queues.get_queue(tx, project.id, queue_id, project_id=project_id)


async def _page(tx: Tx, listing: Listing, asked: PageAsked, *, kept: int | None) -> tuple[list[Task], int]:
    found = await tasks.list_tasks(tx, listing, offset=asked.offset, limit=asked.size)
    return found, await tasks.count_tasks(tx, listing) if kept is None else kept


async def _whole_task(tx: Tx, project: Project, task_id: str, queue: Queue | None = None) -> dict[str, Any]:
    found = await find_task(tx, project, task_id, queue)
    said, logged = await talk.list_messages(tx, found.id), await talk.list_log(tx, found.id)
    return shown_task(found, project_id=project.project_id) | {
        "messages": [shown_message(message) for message in said],
        "logs": [shown_log_line(line) for line in logged],
    }
