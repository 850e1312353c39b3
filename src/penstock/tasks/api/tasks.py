"""Task routes: list tasks by status, pull state and search, get one with its messages and log, and poll for changes."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends
from pydantic import BeforeValidator

from penstock.access.domain import Scope
from penstock.access.guard import requires
from penstock.kernel.db import Tx
from penstock.kernel.http.envelope import Paged, PageHere, PageParams, Said, SayHere
from penstock.tasks.api.params import DepsHere, ProjectHere, QueueId, Search, TaskId, When, new_router
from penstock.tasks.api.views import check_view, log_line_view, message_view, task_view, task_views
from penstock.tasks.domain import PULL_STATE_LABELS, Counts, Project, Status, Task, TaskQueue
from penstock.tasks.lifecycle import find_task
from penstock.tasks.store import projects, queues, task_messages, tasks
from penstock.tasks.store.tasks import QueueScope, TaskListFilter

router = new_router()


def _normalized(given: Any) -> Any:
    """Lower case; None if blank."""
    return given.strip().lower() or None if isinstance(given, str) else given


StatusFilter = Annotated[Status | None, BeforeValidator(_normalized)]
PullStateFilter = Annotated[Literal["unpulled", "pulled", "pulled_not_pushed"] | None, BeforeValidator(_normalized)]
QueueFilter = Annotated[Literal["any"] | None, BeforeValidator(_normalized)]


@dataclass(frozen=True, kw_only=True)
class TaskListQuery:
    """The filters of a task list."""

    status: Status | None
    pull_state: str | None
    search: str

    def list_filter(self, scope: QueueScope) -> TaskListFilter:
        """The request as the verb takes it."""
        states = [state for state, shown in PULL_STATE_LABELS.items() if shown == self.pull_state]
        return TaskListFilter(where=scope, status=self.status, states=states, search=self.search)

    def known_total(self, counts: Counts | None) -> int | None:
        """The total, if it is known from the counters."""
        if counts is None or self.search or self.pull_state:
            return None
        return counts.total if self.status is None else counts.of(self.status)


async def _list_query(
    status: StatusFilter = None, pull_state: PullStateFilter = None, search: Search = ""
) -> TaskListQuery:
    return TaskListQuery(status=status, pull_state=pull_state, search=search)


TaskListHere = Annotated[TaskListQuery, Depends(_list_query)]


@router.get(
    "/projects/{project_id}/tasks",
    summary="Tasks without a queue, or all tasks of a project",
    **requires(Scope.READ, bound=True),
)
async def list_project_tasks(
    project_id: ProjectHere,
    deps: DepsHere,
    say: SayHere,
    query: TaskListHere,
    page: PageHere,
    queue: QueueFilter = None,
) -> Said[Paged[dict[str, Any]]]:
    async with deps.db.read() as tx:
        project = await projects.get_project(tx, project_id)
        scope = QueueScope(project_pk=project.id, queue_pk=None if queue == "any" else "")
        counts = project.counts if queue == "any" else None  # tasks without a queue have no counter
        found, total = await _page(tx, query.list_filter(scope), page, total=query.known_total(counts))
    return say.page(task_views(found, project_id=project_id), page, total=total)


@router.get(
    "/projects/{project_id}/tasks/check",
    summary="Check whether a task of a project changed",
    **requires(Scope.READ, bound=True),
)
async def check_project_tasks(
    project_id: ProjectHere, deps: DepsHere, say: SayHere, since: When
) -> Said[dict[str, Any]]:
    async with deps.db.read() as tx:
        project = await projects.get_project(tx, project_id)
    return say(check_view(project.active_at, since=since, now=tx.now), "Checked.", "已检查。")


@router.get("/projects/{project_id}/tasks/{task_id}", summary="One task", **requires(Scope.READ, bound=True))
async def get_project_task(
    project_id: ProjectHere, task_id: TaskId, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    async with deps.db.read() as tx:
        project = await projects.get_project(tx, project_id)
        task = await _full_task(tx, project, task_id)
    return say(task, "Found.", "已找到。")


@router.get(
    "/projects/{project_id}/queues/{queue_id}/tasks", summary="Tasks of a queue", **requires(Scope.READ, bound=True)
)
async def list_queue_tasks(
    project_id: ProjectHere, queue_id: QueueId, deps: DepsHere, say: SayHere, query: TaskListHere, page: PageHere
) -> Said[Paged[dict[str, Any]]]:
    async with deps.db.read() as tx:
        project, queue = await _get_queue(tx, project_id, queue_id)
        scope = QueueScope(project_pk=project.id, queue_pk=queue.id)
        found, total = await _page(tx, query.list_filter(scope), page, total=query.known_total(queue.counts))
    return say.page(task_views(found, project_id=project_id), page, total=total)


@router.get(
    "/projects/{project_id}/queues/{queue_id}/tasks/check",
    summary="Check whether a task of a queue changed",
    **requires(Scope.READ, bound=True),
)
async def check_queue_tasks(
    project_id: ProjectHere, queue_id: QueueId, deps: DepsHere, say: SayHere, since: When
) -> Said[dict[str, Any]]:
    async with deps.db.read() as tx:
        _, queue = await _get_queue(tx, project_id, queue_id)
    return say(check_view(queue.active_at, since=since, now=tx.now), "Checked.", "已检查。")


@router.get(
    "/projects/{project_id}/queues/{queue_id}/tasks/{task_id}",
    summary="One task of a queue",
    **requires(Scope.READ, bound=True),
)
async def get_queue_task(
    project_id: ProjectHere, queue_id: QueueId, task_id: TaskId, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    async with deps.db.read() as tx:
        project, queue = await _get_queue(tx, project_id, queue_id)
        task = await _full_task(tx, project, task_id, queue)
    return say(task, "Found.", "已找到。")


async def _get_queue(tx: Tx, project_id: str, queue_id: str) -> tuple[Project, TaskQueue]:
    project = await projects.get_project(tx, project_id)
    return project, await queues.get_queue(tx, project.id, queue_id, project_id=project_id)


async def _page(tx: Tx, tasks_filter: TaskListFilter, page: PageParams, *, total: int | None) -> tuple[list[Task], int]:
    found = await tasks.list_tasks(tx, tasks_filter, offset=page.offset, limit=page.size)
    return found, await tasks.count_tasks(tx, tasks_filter) if total is None else total


async def _full_task(tx: Tx, project: Project, task_id: str, queue: TaskQueue | None = None) -> dict[str, Any]:
    found = await find_task(tx, project, task_id, queue)
    messages, lines = await task_messages.list_messages(tx, found.id), await task_messages.list_log(tx, found.id)
    return task_view(found, project_id=project.project_id) | {
        "messages": [message_view(message) for message in messages],
        "logs": [log_line_view(line) for line in lines],
    }
