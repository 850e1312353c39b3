"""Task routes: list tasks by filters and search, get one with its messages and log, and poll for changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Depends, Query
from pydantic import BeforeValidator

from penstock.access.domain import Scope
from penstock.access.guard import requires
from penstock.kernel.db import Tx
from penstock.kernel.http.envelope import Paged, PageHere, Said, SayHere
from penstock.tasks.api.filters import PriorityFilter, TaskTagFilter, priority_ranks
from penstock.tasks.api.params import DepsHere, ProjectHere, QueueId, Search, TaskId, When, new_router
from penstock.tasks.api.stats_views import pull_view
from penstock.tasks.api.views import check_view, log_line_view, message_view, task_view, task_views
from penstock.tasks.domain import PULL_STATE_LABELS, Project, PullState, Side, Status, TaskQueue
from penstock.tasks.lifecycle import deleted_as_missing, find_task
from penstock.tasks.store import projects, pulls, queues, task_lists, task_messages
from penstock.tasks.store.task_lists import KnownTotals, TaskConditions, TaskListFilter
from penstock.tasks.store.task_messages import LogLine, TaskMessage
from penstock.tasks.store.tasks import QueueScope

router = new_router()
MAX_SHOWN_PULLS = 1000  # in the detail of a task, the first ones


def _normalized(given: Any) -> Any:
    """Lower case; None if blank."""
    return given.strip().lower() or None if isinstance(given, str) else given


StatusFilter = Annotated[Status | None, BeforeValidator(_normalized)]
PullStateFilter = Annotated[
    Literal["unpulled", "not_pulled", "pulled", "pulled_not_pushed"] | None, BeforeValidator(_normalized)
]
STATES = {shown: [one for one in PullState if PULL_STATE_LABELS[one] == shown] for shown in PULL_STATE_LABELS.values()}
STATES["not_pulled"] = STATES["unpulled"]
OLDER_STATES = STATES | {"pulled": [PullState.HELD, PullState.CLOSED]}  # `pulled_status` knew no third word
SourceFilter = Annotated[Side | None, BeforeValidator(_normalized)]
QueueFilter = Annotated[Literal["any"] | None, BeforeValidator(_normalized)]


@dataclass(frozen=True, kw_only=True)
class TaskListQuery:
    """The filters of a task list."""

    status: Status | None
    states: Sequence[PullState]
    search: str
    conditions: TaskConditions

    def list_filter(self, scope: QueueScope, now: datetime) -> TaskListFilter:
        """The request as the verb takes it."""
        also = self.conditions.columns(now)
        return TaskListFilter(where=scope, status=self.status, states=self.states, search=self.search, also=also)


async def _conditions(
    tags: TaskTagFilter = [],  # noqa: B006  (the framework copies it)
    priority: Annotated[PriorityFilter | None, Query()] = None,
    source: SourceFilter = None,
    expires_after: Annotated[When | None, Query(description="Only tasks that expire then or later.")] = None,
    expires_before: Annotated[When | None, Query(description="Only tasks that expire before.")] = None,
    expired: Annotated[bool | None, Query(description="Whether `expires_at` has passed.")] = None,
) -> TaskConditions:
    return TaskConditions(
        tags=tuple(tags),
        ranks=priority_ranks(priority),
        source=source,
        expires_after=expires_after,
        expires_before=expires_before,
        has_expired=expired,
    )


async def _list_query(
    conditions: Annotated[TaskConditions, Depends(_conditions)],
    status: StatusFilter = None,
    pull_state: PullStateFilter = None,
    pulled_status: PullStateFilter = None,
    search: Search = "",
) -> TaskListQuery:
    """`pulled_status` is the older name of `pull_state`, with the words pulled and not_pulled."""
    older = OLDER_STATES[pulled_status] if pulled_status else []
    states = STATES[pull_state] if pull_state else older
    return TaskListQuery(status=status, states=states, search=search, conditions=conditions)


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
        known = KnownTotals(counts=project.unqueued)
        if queue == "any":
            known = KnownTotals(counts=project.counts, states=project.states)
        found, total = await task_lists.list_page(
            tx, query.list_filter(scope, tx.now), known, offset=page.offset, limit=page.size
        )
    return say.page(task_views(found, project_id=project_id), page, total=total)


@router.get(
    "/projects/{project_id}/tasks/check",
    summary="Check whether a task of a project changed",
    **requires(Scope.READ, bound=True),
)
async def check_project_tasks(
    project_id: ProjectHere, deps: DepsHere, say: SayHere, since: When | None = None
) -> Said[dict[str, Any]]:
    async with deps.db.read() as tx:
        project = await projects.get_project(tx, project_id)
    return say(
        check_view(project.active_at, count=project.counts.total, since=since, now=tx.now), "Checked.", "已检查。"
    )


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
        known = KnownTotals(counts=queue.counts, states=queue.states)
        found, total = await task_lists.list_page(
            tx, query.list_filter(scope, tx.now), known, offset=page.offset, limit=page.size
        )
    return say.page(task_views(found, project_id=project_id), page, total=total)


@router.get(
    "/projects/{project_id}/queues/{queue_id}/tasks/check",
    summary="Check whether a task of a queue changed",
    **requires(Scope.READ, bound=True),
)
async def check_queue_tasks(
    project_id: ProjectHere, queue_id: QueueId, deps: DepsHere, say: SayHere, since: When | None = None
) -> Said[dict[str, Any]]:
    async with deps.db.read() as tx:
        _, queue = await _get_queue(tx, project_id, queue_id)
    return say(check_view(queue.updated_at, count=queue.counts.total, since=since, now=tx.now), "Checked.", "已检查。")


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


def _time_and_number(one: TaskMessage | LogLine) -> tuple[datetime, int]:
    return one.created_at, one.number


async def _full_task(tx: Tx, project: Project, task_id: str, queue: TaskQueue | None = None) -> dict[str, Any]:
    with deleted_as_missing():
        found = await find_task(tx, project, task_id, queue)
    messages = sorted(await task_messages.list_messages(tx, found.id), key=_time_and_number)
    lines = sorted(await task_messages.list_log(tx, found.id), key=_time_and_number)
    return task_view(found, project_id=project.project_id) | {
        "messages": [message_view(message) for message in messages],
        "logs": [log_line_view(line) for line in reversed(lines)],
        "pull_history": [
            pull_view(one) for one in await pulls.list_pulls(tx, found.id, offset=0, limit=MAX_SHOWN_PULLS)
        ],
    }
