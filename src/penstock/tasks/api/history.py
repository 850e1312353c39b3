"""Pull history of a task, pull statistics of a project or queue, and pending (held) tasks."""

from typing import Annotated, Any

from fastapi import Query

from penstock.access.domain import Scope
from penstock.access.guard import requires
from penstock.kernel.http.envelope import PageHere, PageParams, Said, Say, SayHere
from penstock.tasks import statistics
from penstock.tasks.api.params import DepsHere, ProjectHere, QueueId, TaskId, new_router
from penstock.tasks.api.stats_views import client_view, pagination_view, percent, pull_view, seconds, slice_of
from penstock.tasks.api.views import format_time
from penstock.tasks.domain import PullState
from penstock.tasks.remember import CachedStats
from penstock.tasks.statistics import PullStats
from penstock.tasks.store.pulls import PullRecord

router = new_router()
MAX_TIMEOUT_SECONDS = 10 * 365 * 24 * 3600
Timeout = Annotated[
    int, Query(ge=0, le=MAX_TIMEOUT_SECONDS, description="Minimum seconds since the pull; 0 for all held tasks.")
]


@router.get(
    "/projects/{project_id}/tasks/pull/stats",
    summary="Pull statistics of a project",
    **requires(Scope.READ, bound=True),
)
async def get_pull_stats(project_id: ProjectHere, deps: DepsHere, say: SayHere) -> Said[dict[str, Any]]:
    return _stats_response(say, await statistics.pull_stats(deps, project_id, None))


@router.get(
    "/projects/{project_id}/queues/{queue_id}/tasks/pull/stats",
    summary="Pull statistics of a queue",
    **requires(Scope.READ, bound=True),
)
async def get_queue_pull_stats(
    project_id: ProjectHere, queue_id: QueueId, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return _stats_response(say, await statistics.pull_stats(deps, project_id, queue_id))


@router.get(
    "/projects/{project_id}/tasks/pull/pending",
    summary="Tasks pulled and not pushed, the longest held first",
    **requires(Scope.READ, bound=True),
)
async def list_pending_pulls(
    project_id: ProjectHere, deps: DepsHere, say: SayHere, page: PageHere, timeout: Timeout = 3600
) -> Said[dict[str, Any]]:
    found, total, now = await statistics.list_held(deps, project_id, seconds=timeout, page=slice_of(page))
    held = [
        {
            "task_id": one.task_id,
            "name": one.name,
            "queue_id": one.queue_id or None,
            "pulled_at": format_time(one.pulled_at),
            "pulled_by": one.lease_owner,
            "leased_until": format_time(one.leased_until),
            "timeout_hours": round((now - one.pulled_at).total_seconds() / 3600, 2),
        }
        for one in found
    ]
    data = {"tasks": held, "total": total, "pagination": pagination_view(say, page, total)}
    return say(data, f"{total} found.", f"共 {total} 条。")


@router.get(
    "/projects/{project_id}/tasks/{task_id}/pull/history",
    summary="Pull history of a task, newest first",
    **requires(Scope.READ, bound=True),
)
async def get_pull_history(
    project_id: ProjectHere, task_id: TaskId, deps: DepsHere, say: SayHere, page: PageHere
) -> Said[dict[str, Any]]:
    found, total = await statistics.history(deps, project_id, task_id, None, slice_of(page))
    return _history_response(say, task_id, found, page, total)


@router.get(
    "/projects/{project_id}/queues/{queue_id}/tasks/{task_id}/pull/history",
    summary="Pull history of a task of a queue, newest first",
    **requires(Scope.READ, bound=True),
)
async def get_queue_pull_history(
    project_id: ProjectHere, queue_id: QueueId, task_id: TaskId, deps: DepsHere, say: SayHere, page: PageHere
) -> Said[dict[str, Any]]:
    found, total = await statistics.history(deps, project_id, task_id, queue_id, slice_of(page))
    return _history_response(say, task_id, found, page, total)


def _history_response(
    say: Say, task_id: str, found: list[PullRecord], page: PageParams, total: int
) -> Said[dict[str, Any]]:
    shown = [pull_view(one) for one in found]
    data = {"task_id": task_id, "pull_history": shown, "pagination": pagination_view(say, page, total)}
    return say(data, f"{total} pulls found.", f"共 {total} 次拉取。")


def _stats_response(say: Say, cached: CachedStats[PullStats]) -> Said[dict[str, Any]]:
    """`average_`, `median_` and `p95_pull_duration` are seconds from pull to push; rates are percent of ended pulls."""
    stats, pulls = cached.value, cached.value.pulls
    pulled = stats.states.get(PullState.HELD, 0) + stats.states.get(PullState.CLOSED, 0)
    total = sum(stats.states.values())
    data = {
        "total_server_tasks": total,
        "not_pulled": total - pulled,
        "pulled": pulled,
        "pull_success_rate": percent(pulls.pushed, pulls.ended),
        "average_pull_duration": seconds(pulls.seconds, pulls.pushed),
        "median_pull_duration": seconds(stats.median),
        "p95_pull_duration": seconds(stats.p95),
        "pulls_total": pulls.total,
        "pushed": pulls.pushed,
        "released": pulls.released,
        "timed_out": pulls.timed_out,
        "revoked": pulls.revoked,
        "held": pulls.held,
        "by_client": [client_view(one) for one in stats.clients],
        "cached_at": format_time(cached.at),
    }
    return say(data, "Statistics counted.", "统计完成。")
