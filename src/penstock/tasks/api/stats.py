"""Statistics of projects, queues, hours and clients: executions, as existing clients read them, and tasks and pulls.

A bound API key gets the statistics of its project.

All are cached for PULL_STATS_SECONDS, or longer if they were slow to count; `cached_at` says when they were counted.
Where only the latest rows count, `counted` says how many did. Without `project_id` all projects count.
"""

from collections.abc import Awaitable, Callable, Hashable
from datetime import datetime
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Query, Request

from penstock import __version__
from penstock.access.domain import Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.kernel.cache import CacheEntry
from penstock.kernel.http.envelope import PageHere, Said, SayHere
from penstock.tasks import statistics
from penstock.tasks.api.execution_views import (
    DatesHere,
    DayHere,
    daily_view,
    durations_view,
    error_types_view,
    execution_scope,
    hourly_view,
    summary_view,
)
from penstock.tasks.api.params import (
    MAX_ID_LENGTH,
    NO_CONTROLS,
    DepsHere,
    ProjectHere,
    new_router,
    refuse_other_project,
)
from penstock.tasks.api.stats_views import (
    client_view,
    pagination_view,
    pull_counts_view,
    push_source_view,
    seconds,
    slice_of,
    task_counts_view,
    totals_view,
)
from penstock.tasks.api.views import format_time
from penstock.tasks.deps import Deps
from penstock.tasks.domain import Project, PullState, Status
from penstock.tasks.errors import ProjectRequired
from penstock.tasks.store import executions, projects
from penstock.tasks.store.statistics import MAX_OPEN, QueueTaskCounts
from penstock.tasks.store.tasks import QueueScope

router = new_router()
MAX_HOURS = 168  # a week
T = TypeVar("T")
MESSAGES = ("Statistics counted.", "统计完成。")


ProjectQuery = Annotated[str | None, Query(min_length=1, max_length=MAX_ID_LENGTH, pattern=NO_CONTROLS)]


async def _project_filter(
    caller: CurrentCaller,
    deps: DepsHere,
    project_id: ProjectQuery = None,
    named: Annotated[ProjectQuery, Query(alias="projectId")] = None,
) -> str | None:
    """The requested project; existing clients call it `projectId`.

    A caller who is kept to one project gets that; one who is kept to several must name it.
    """
    project_id = project_id or named
    if project_id is not None:
        await refuse_other_project(deps, caller, project_id)
        return project_id
    access = caller.project_access
    if access is None:
        return None
    if access.merchant_id is None and len(access.ids) == 1:
        return next(iter(access.ids))
    raise ProjectRequired


async def scope_of(deps: Deps, project_id: str | None, queue_id: str | None = None) -> QueueScope | None:
    """The project or queue to count, looked up for every request: a deleted one is not reported. None counts all."""
    if project_id is None:
        return None
    async with deps.db.read() as tx:
        return await statistics.get_scope(tx, project_id, queue_id)


async def count_cached(deps: Deps, count: Callable[..., Awaitable[T]], *args: Hashable) -> CacheEntry[T]:
    """The result of `count(tx, *args)`, from the cache for `Config.stats_seconds`."""

    async def counted() -> T:
        async with deps.db.read() as tx:
            return await count(tx, *args)

    entry: CacheEntry[T] = await deps.stats_cache.get((count, *args), counted)
    return entry


ProjectFilter = Annotated[str | None, Depends(_project_filter)]
Hours = Annotated[int, Query(ge=1, le=MAX_HOURS)]


@router.get("/stats", summary="Totals", **requires(Scope.READ, bound=True))
async def get_stats(project_id: ProjectFilter, deps: DepsHere, say: SayHere) -> Said[dict[str, Any]]:
    """Projects, queues, tasks by status, and and the latest 10,000 pulls of a project or of all."""
    cached = await count_cached(deps, statistics.overview, await scope_of(deps, project_id))
    pulls = cached.value.pulls
    shown = {**totals_view(cached.value.totals), "pulls": {**pull_counts_view(pulls), "counted": pulls.total}}
    return say({**shown, "cached_at": format_time(cached.loaded_at)}, *MESSAGES)


@router.get("/stats/project/{project_id}", summary="Totals of a project", **requires(Scope.READ, bound=True))
async def get_project_stats(
    project_id: ProjectHere, deps: DepsHere, say: SayHere, dates: DatesHere
) -> Said[dict[str, Any]]:
    """Executions by day, and the queues, tasks by status and pulls of one project."""
    scope = await scope_of(deps, project_id)
    cached = await count_cached(deps, statistics.overview, scope)
    executed = await count_cached(deps, statistics.daily_executions, execution_scope(scope, dates))
    async with deps.db.read() as tx:
        project = await projects.get_project(tx, project_id)
    totals = cached.value.totals
    shown = {"project_id": project_id, "project_name": project.name, **daily_view(executed.value)}
    shown |= {"queue_count": totals.queues, **task_counts_view(totals.counts)}
    return say(
        {**shown, "pulls": pull_counts_view(cached.value.pulls), "cached_at": format_time(cached.loaded_at)}, *MESSAGES
    )


@router.get("/stats/projects", summary="Tasks by status, per project", **requires(Scope.READ, bound=True))
async def list_project_stats(
    caller: CurrentCaller, deps: DepsHere, say: SayHere, page: PageHere, dates: DatesHere
) -> Said[dict[str, Any]]:
    """Executions of all `projects`, most first, and pages of projects with their tasks, most recently active first."""
    access = caller.project_access
    cached = await count_cached(deps, statistics.by_project, access, slice_of(page))
    executed = await count_cached(deps, statistics.project_executions, execution_scope(None, dates), access)
    found, total = cached.value
    return say(
        {
            "projects": [
                {"project_id": one.project_id, "project_name": one.name, "summary": summary_view(counted)}
                for one, counted in executed.value
            ],
            "items": [_project_stats_view(one) for one in found],
            "pagination": pagination_view(say, page, total),
            "cached_at": format_time(cached.loaded_at),
        },
        *MESSAGES,
    )


@router.get("/stats/by-queue", summary="Tasks by status, per queue", **requires(Scope.READ, bound=True))
async def list_queue_stats(
    project_id: ProjectFilter, deps: DepsHere, say: SayHere, page: PageHere, dates: DatesHere
) -> Said[dict[str, Any]]:
    """Executions of `queues`, most first, and pages of queues with their tasks: of a project, most recently active
    first; of all projects, newest queue first."""
    scope = await scope_of(deps, project_id)
    cached = await count_cached(deps, statistics.by_queue, scope, slice_of(page))
    executed = await count_cached(deps, executions.sum_by_queue, execution_scope(scope, dates))
    found, total = cached.value
    return say(
        {
            "queues": [
                {"queue_id": queue_id, "summary": summary_view(counted)}
                for queue_id, counted in executed.value.items()
                if queue_id
            ],
            "items": [_queue_stats_view(one) for one in found],
            "pagination": pagination_view(say, page, total),
            "cached_at": format_time(cached.loaded_at),
        },
        *MESSAGES,
    )


@router.get("/stats/by-hour", summary="Finished tasks per hour", **requires(Scope.READ, bound=True))
async def get_stats_by_hour(
    project_id: ProjectFilter, deps: DepsHere, say: SayHere, day: DayHere, hours: Hours = 24
) -> Said[dict[str, Any]]:
    """Executions in each hour of a `date`, and finished tasks in each of the last `hours`, oldest first.

    `counted_from` is set if there were too many tasks to count all.
    """
    scope = await scope_of(deps, project_id)
    cached = await count_cached(deps, statistics.by_hour, scope, hours)
    executed = await count_cached(deps, executions.sum_by_hour, execution_scope(scope, day))
    hourly = cached.value
    lines = [_hour_view(start, {s: hourly.finished.get((start, s), 0) for s in Status}) for start in hourly.starts]
    shown = {**hourly_view(day, executed.value), "hours": lines, "counted_from": format_time(hourly.counted_from)}
    return say({**shown, "cached_at": format_time(cached.loaded_at)}, *MESSAGES)


@router.get("/stats/by-client", summary="Clients that pull, and hosts that push", **requires(Scope.READ, bound=True))
async def get_stats_by_client(
    project_id: ProjectFilter, deps: DepsHere, say: SayHere, dates: DatesHere
) -> Said[dict[str, Any]]:
    """`clients` are executions by host, most first; `pullers` are clients by X-Client-Id; `pushers` are users and hosts
    from the `clientInfo` of projects."""
    scope = await scope_of(deps, project_id)
    cached = await count_cached(deps, statistics.by_client, scope)
    executed = await count_cached(deps, executions.sum_by_host, execution_scope(scope, dates))
    clients = [{"hostname": host or "unknown", "summary": summary_view(one)} for host, one in executed.value.items()]
    pullers = [client_view(one) for one in cached.value.pullers]
    pushers = [push_source_view(one) for one in cached.value.push_sources]
    shown = {"clients": clients, "pullers": pullers, "pushers": pushers}
    return say({**shown, "cached_at": format_time(cached.loaded_at)}, *MESSAGES)


@router.get("/stats/error-types", summary="Error reasons", **requires(Scope.READ, bound=True))
async def get_error_types(
    project_id: ProjectFilter, deps: DepsHere, request: Request, say: SayHere, dates: DatesHere
) -> Said[dict[str, Any]]:
    """The types of failed executions by the words of their reports, and in `reasons` the most frequent error reasons,
    or first lines of reports, of the latest 10,000 failed tasks; null if none."""
    scope = await scope_of(deps, project_id)
    cached = await count_cached(deps, statistics.error_types, scope)
    failed = await count_cached(deps, executions.sum_errors, execution_scope(scope, dates))
    reasons = [{"reason": reason, "count": count} for reason, count in cached.value.top]
    shown = {"error_types": error_types_view(request, failed.value), "reasons": reasons}
    return say({**shown, "counted": cached.value.counted, "cached_at": format_time(cached.loaded_at)}, *MESSAGES)


@router.get("/stats/execution-duration", summary="Execution durations", **requires(Scope.READ, bound=True))
async def get_execution_duration(
    project_id: ProjectFilter, deps: DepsHere, say: SayHere, dates: DatesHere
) -> Said[dict[str, Any]]:
    """Milliseconds of executions in `summary` and `distribution`; the others are seconds from start (or from the pull,
    if no start was reported) to finish, of the latest 10,000 tasks."""
    scope = await scope_of(deps, project_id)
    cached = await count_cached(deps, statistics.execution_durations, scope)
    executed = await count_cached(deps, executions.sum_durations, execution_scope(scope, dates))
    took = cached.value
    shown: dict[str, Any] = durations_view(executed.value)
    shown |= {
        "mean": seconds(took.mean),
        "p50": seconds(took.median),
        "p95": seconds(took.p95),
        "counted": took.counted,
    }
    return say({**shown, "cached_at": format_time(cached.loaded_at)}, *MESSAGES)


@router.get("/stats/system", summary="Number of rows in the database", **requires(Scope.READ, bound=True))
async def get_system_stats(
    project_id: ProjectFilter, deps: DepsHere, say: SayHere, dates: DatesHere
) -> Said[dict[str, Any]]:
    """Executions by day, and version, database and row counts. `offered` and `held` are counted up to `counted_most`,
    100,000."""
    scope = await scope_of(deps, project_id)
    cached = await count_cached(deps, statistics.inventory, scope)
    executed = await count_cached(deps, statistics.daily_executions, execution_scope(scope, dates))
    totals, by_state = cached.value.totals, cached.value.open
    data = {
        **daily_view(executed.value),
        "version": __version__,
        "database": deps.db.database_name,
        "projects": totals.projects,
        "queues": totals.queues,
        "tasks": totals.counts.total + totals.unqueued,
        "offered": by_state[PullState.OFFERED],
        "held": by_state[PullState.HELD],
        "counted_most": MAX_OPEN,
        "cached_at": format_time(cached.loaded_at),
    }
    return say(data, *MESSAGES)


def _project_stats_view(one: Project) -> dict[str, Any]:
    return {
        "project_id": one.project_id,
        "name": one.name,
        "displayTitle": one.display_title,
        "queue_count": one.queue_count,
        **task_counts_view(one.queue_counts),
        "last_task_at": format_time(one.last_task_at),
    }


def _queue_stats_view(one: QueueTaskCounts) -> dict[str, Any]:
    return {
        "project_id": one.project_id,
        "queue_id": one.queue_id,
        "name": one.name,
        **task_counts_view(one.counts),
        "last_task_at": format_time(one.last_task_at),
    }


def _hour_view(start: datetime, finished: dict[Status, int]) -> dict[str, Any]:
    return {
        "hour": format_time(start),
        "done": finished[Status.DONE],
        "error": finished[Status.ERROR],
        "cancelled": finished[Status.CANCELLED],
        "total": sum(finished.values()),
    }
