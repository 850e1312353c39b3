"""Statistics of projects, queues, hours and clients. A bound API key gets the statistics of its project.

All are cached briefly; `cached_at` says when they were counted. Where only the latest rows count, `counted` says how
many did. Without `project_id` all projects count.
"""

from datetime import datetime
from typing import Annotated, Any

from fastapi import Depends, Query

from penstock import __version__
from penstock.access.domain import Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.kernel.http.envelope import PageHere, Said, SayHere
from penstock.tasks import statistics
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
from penstock.tasks.domain import Project, PullState, Status
from penstock.tasks.store.statistics import MAX_OPEN, QueueTaskCounts

router = new_router()
MAX_HOURS = 168  # a week
MESSAGES = ("Statistics counted.", "统计完成。")


async def _project_filter(
    caller: CurrentCaller,
    project_id: Annotated[str | None, Query(min_length=1, max_length=MAX_ID_LENGTH, pattern=NO_CONTROLS)] = None,
) -> str | None:
    """The requested project; for a bound API key always its own."""
    if project_id is not None:
        refuse_other_project(caller, project_id)
    return project_id or caller.project


ProjectFilter = Annotated[str | None, Depends(_project_filter)]
Hours = Annotated[int, Query(ge=1, le=MAX_HOURS)]


@router.get("/stats", summary="Totals", **requires(Scope.READ, bound=True))
async def get_stats(project_id: ProjectFilter, deps: DepsHere, say: SayHere) -> Said[dict[str, Any]]:
    """Projects, queues, tasks by status, and pulls: all pulls of a project, or the latest 10,000 of all projects."""
    cached = await statistics.overview(deps, project_id)
    pulls = cached.value.pulls
    shown = {**totals_view(cached.value.totals), "pulls": {**pull_counts_view(pulls), "counted": pulls.total}}
    return say({**shown, "cached_at": format_time(cached.at)}, *MESSAGES)


@router.get("/stats/project/{project_id}", summary="Totals of a project", **requires(Scope.READ, bound=True))
async def get_project_stats(project_id: ProjectHere, deps: DepsHere, say: SayHere) -> Said[dict[str, Any]]:
    """Queues, tasks by status and pulls of one project."""
    cached = await statistics.overview(deps, project_id)
    totals = cached.value.totals
    shown = {"project_id": project_id, "queue_count": totals.queues, **task_counts_view(totals.counts)}
    return say({**shown, "pulls": pull_counts_view(cached.value.pulls), "cached_at": format_time(cached.at)}, *MESSAGES)


@router.get("/stats/projects", summary="Tasks by status, per project", **requires(Scope.READ, bound=True))
async def list_project_stats(
    caller: CurrentCaller, deps: DepsHere, say: SayHere, page: PageHere
) -> Said[dict[str, Any]]:
    """Pages of projects, most recently active first."""
    cached = await statistics.by_project(deps, caller.project, slice_of(page))
    found, total = cached.value
    return say(
        {
            "items": [_project_stats_view(one) for one in found],
            "pagination": pagination_view(say, page, total),
            "cached_at": format_time(cached.at),
        },
        *MESSAGES,
    )


@router.get("/stats/by-queue", summary="Tasks by status, per queue", **requires(Scope.READ, bound=True))
async def list_queue_stats(
    project_id: ProjectFilter, deps: DepsHere, say: SayHere, page: PageHere
) -> Said[dict[str, Any]]:
    """Pages of queues: of a project, most recently active first; of all projects, newest queue first."""
    cached = await statistics.by_queue(deps, project_id, slice_of(page))
    found, total = cached.value
    return say(
        {
            "items": [_queue_stats_view(one) for one in found],
            "pagination": pagination_view(say, page, total),
            "cached_at": format_time(cached.at),
        },
        *MESSAGES,
    )


@router.get("/stats/by-hour", summary="Finished tasks per hour", **requires(Scope.READ, bound=True))
async def get_stats_by_hour(
    project_id: ProjectFilter, deps: DepsHere, say: SayHere, hours: Hours = 24
) -> Said[dict[str, Any]]:
    """One entry per UTC hour, oldest first. `counted_from` is set if there were too many tasks to count all."""
    cached = await statistics.by_hour(deps, project_id, hours)
    hourly = cached.value
    lines = [_hour_view(start, {s: hourly.finished.get((start, s), 0) for s in Status}) for start in hourly.starts]
    return say(
        {"hours": lines, "counted_from": format_time(hourly.counted_from), "cached_at": format_time(cached.at)},
        *MESSAGES,
    )


@router.get("/stats/by-client", summary="Clients that pull, and hosts that push", **requires(Scope.READ, bound=True))
async def get_stats_by_client(project_id: ProjectFilter, deps: DepsHere, say: SayHere) -> Said[dict[str, Any]]:
    """`pullers` are clients by X-Client-Id; `pushers` are users and hosts from the `clientInfo` of projects."""
    cached = await statistics.by_client(deps, project_id)
    pullers = [client_view(one) for one in cached.value.pullers]
    pushers = [push_source_view(one) for one in cached.value.push_sources]
    return say({"pullers": pullers, "pushers": pushers, "cached_at": format_time(cached.at)}, *MESSAGES)


@router.get("/stats/error-types", summary="Error reasons", **requires(Scope.READ, bound=True))
async def get_error_types(project_id: ProjectFilter, deps: DepsHere, say: SayHere) -> Said[dict[str, Any]]:
    """The most frequent error reasons, or first lines of reports, of the latest 10,000 failed tasks; null if none."""
    cached = await statistics.error_types(deps, project_id)
    types = [{"reason": reason, "count": count} for reason, count in cached.value.top]
    return say({"error_types": types, "counted": cached.value.counted, "cached_at": format_time(cached.at)}, *MESSAGES)


@router.get("/stats/execution-duration", summary="Execution durations", **requires(Scope.READ, bound=True))
async def get_execution_duration(project_id: ProjectFilter, deps: DepsHere, say: SayHere) -> Said[dict[str, Any]]:
    """Seconds from start (or from the pull, if no start was reported) to finish, of the latest 10,000 tasks."""
    cached = await statistics.execution_durations(deps, project_id)
    took = cached.value
    shown = {"mean": seconds(took.mean), "p50": seconds(took.median), "p95": seconds(took.p95), "counted": took.counted}
    return say({**shown, "cached_at": format_time(cached.at)}, *MESSAGES)


@router.get("/stats/system", summary="Number of rows in the database", **requires(Scope.READ, bound=True))
async def get_system_stats(project_id: ProjectFilter, deps: DepsHere, say: SayHere) -> Said[dict[str, Any]]:
    """Version, database, and row counts. `offered` and `held` are counted up to `counted_most`, 100,000."""
    cached = await statistics.inventory(deps, project_id)
    totals, by_state = cached.value.totals, cached.value.open
    data = {
        "version": __version__,
        "database": "postgresql" if deps.db.on_postgres else "sqlite",
        "projects": totals.projects,
        "queues": totals.queues,
        "tasks": totals.counts.total,
        "offered": by_state[PullState.OFFERED],
        "held": by_state[PullState.HELD],
        "counted_most": MAX_OPEN,
        "cached_at": format_time(cached.at),
    }
    return say(data, *MESSAGES)


def _project_stats_view(one: Project) -> dict[str, Any]:
    return {
        "project_id": one.project_id,
        "name": one.name,
        "displayTitle": one.display_title,
        "queue_count": one.queue_count,
        **task_counts_view(one.counts),
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
