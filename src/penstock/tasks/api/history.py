"""Pull history of a task, pull statistics of a project or queue, and pending (held) tasks."""

from typing import Annotated, Any

from fastapi import Query

from penstock.access.domain import Scope
from penstock.access.guard import requires
from penstock.kernel.cache import CacheEntry
from penstock.kernel.http.envelope import LongPageHere, PageParams, Said, Say, SayHere
from penstock.tasks import statistics
from penstock.tasks.api.params import DepsHere, ProjectHere, QueueId, TaskId, new_router
from penstock.tasks.api.stats import count_cached, scope_of
from penstock.tasks.api.stats_views import client_view, pagination_view, percent, pull_view, seconds, slice_of
from penstock.tasks.api.views import format_time
from penstock.tasks.domain import PullState
from penstock.tasks.statistics import PullHistory, PullStats

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
    scope = await scope_of(deps, project_id)
    return _stats_response(say, await count_cached(deps, statistics.pull_stats, scope))


@router.get(
    "/projects/{project_id}/queues/{queue_id}/tasks/pull/stats",
    summary="Pull statistics of a queue",
    **requires(Scope.READ, bound=True),
)
async def get_queue_pull_stats(
    project_id: ProjectHere, queue_id: QueueId, deps: DepsHere, say: SayHere
) -> Said[dict[str, Any]]:
    scope = await scope_of(deps, project_id, queue_id)
    return _stats_response(say, await count_cached(deps, statistics.pull_stats, scope))


@router.get(
    "/projects/{project_id}/tasks/pull/pending",
    summary="Tasks pulled and not pushed, the longest held first",
    **requires(Scope.READ, bound=True),
)
async def list_pending_pulls(
    project_id: ProjectHere, deps: DepsHere, say: SayHere, page: LongPageHere, timeout: Timeout = 3600
) -> Said[dict[str, Any]]:
    async with deps.db.read() as tx:
        found, total = await statistics.list_held(tx, project_id, seconds=timeout, page=slice_of(page))
    held = [
        {
            "task_id": one.task_id,
            "name": one.name,
            "status": one.status,
            "type": "queue" if one.queue_id else "project",
            "queue_id": one.queue_id or None,
            "queue_name": one.queue_name,
            "pulled_at": format_time(one.pulled_at),
            "pulled_by": one.lease_owner,
            "leased_until": format_time(one.leased_until),
            "timeout_hours": round((tx.now - one.pulled_at).total_seconds() / 3600, 2),
        }
        for one in found
    ]
    data = {
        "tasks": held,
        "count": total,
        "total": total,
        "timeout_seconds": timeout,
        "timeout_hours": round(timeout / 3600, 2),
        "pagination": pagination_view(say, page, total),
    }
    return say(data, f"{total} found.", f"共 {total} 条。")


@router.get(
    "/projects/{project_id}/tasks/{task_id}/pull/history",
    summary="Pull history of a task, oldest first",
    **requires(Scope.READ, bound=True),
)
async def get_pull_history(
    project_id: ProjectHere, task_id: TaskId, deps: DepsHere, say: SayHere, page: LongPageHere
) -> Said[dict[str, Any]]:
    async with deps.db.read() as tx:
        found = await statistics.history(tx, project_id, task_id, None, slice_of(page))
    return _history_response(say, found, page)


@router.get(
    "/projects/{project_id}/queues/{queue_id}/tasks/{task_id}/pull/history",
    summary="Pull history of a task of a queue, oldest first",
    **requires(Scope.READ, bound=True),
)
async def get_queue_pull_history(
    project_id: ProjectHere, queue_id: QueueId, task_id: TaskId, deps: DepsHere, say: SayHere, page: LongPageHere
) -> Said[dict[str, Any]]:
    async with deps.db.read() as tx:
        found = await statistics.history(tx, project_id, task_id, queue_id, slice_of(page))
    return _history_response(say, found, page)


def _history_response(say: Say, found: PullHistory, page: PageParams) -> Said[dict[str, Any]]:
    """`current_pull` is that of the task as it is now: pulled, whether pushed or not."""
    task, total = found.task, found.total
    current = {"pulled_at": format_time(task.pulled_at), "pulled_by": task.lease_owner}
    data = {
        "task_id": task.task_id,
        "current_pull": None if task.pulled_at is None else current,
        "pull_history": [pull_view(one) for one in found.pulls],
        "total_pulls": total,
        "pagination": pagination_view(say, page, total),
    }
    return say(data, f"{total} pulls found.", f"共 {total} 次拉取。")


def _stats_response(say: Say, cached: CacheEntry[PullStats]) -> Said[dict[str, Any]]:
    """`average_`, `median_` and `p95_pull_duration` are seconds from pull to push; rates are percent of ended pulls."""
    stats, pulls = cached.value, cached.value.pulls
    pulled = stats.states.get(PullState.HELD, 0) + stats.states.get(PullState.CLOSED, 0)
    total = sum(stats.states.values())
    data = {
        "total_server_tasks": total,
        "not_pulled": total - pulled,
        "pulled": pulled,
        "pulled_not_pushed": stats.states.get(PullState.HELD, 0),
        "pull_success_rate": percent(pulls.pushed, pulls.ended),
        "average_pull_duration": seconds(pulls.seconds, pulls.pushed) if pulls.pushed else None,
        "median_pull_duration": seconds(stats.median),
        "p95_pull_duration": seconds(stats.p95),
        "pulls_total": pulls.total,
        "pushed": pulls.pushed,
        "released": pulls.released,
        "timed_out": pulls.timed_out,
        "revoked": pulls.revoked,
        "overwritten": pulls.overwritten,
        "held": pulls.held,
        "by_client": [client_view(one) for one in stats.clients],
        "cached_at": format_time(cached.loaded_at),
    }
    return say(data, "Statistics counted.", "统计完成。")
