"""What became of pulls: the history of a task, the statistics of a project or a queue, and what is still out."""

from typing import Annotated, Any

from fastapi import Query

from penstock.access.domain import Scope
from penstock.access.door import open_to
from penstock.kernel.http.envelope import PageAsked, PageHere, Said, Say, SayHere
from penstock.tasks import statistics
from penstock.tasks.api.stats_views import percent, seconds, shown_client, shown_pagination, shown_pull, slice_of
from penstock.tasks.api.params import ProjectHere, QueueId, TaskId, ToolsHere, new_router
from penstock.tasks.api.views import moment
from penstock.tasks.domain import PullState
from penstock.tasks.remember import Remembered
from penstock.tasks.statistics import PullFigures
from penstock.tasks.store.pulls import Pull

router = new_router()
LONGEST_TIMEOUT = 10 * 365 * 24 * 3600
Timeout = Annotated[int, Query(ge=0, le=LONGEST_TIMEOUT, description="Seconds since the pull; 0 for all that is held.")]


@router.get("/projects/{project_id}/tasks/pull/stats", summary="How pulls end", **open_to(Scope.READ, bound=True))
async def get_pull_stats(project_id: ProjectHere, tools: ToolsHere, say: SayHere) -> Said[dict[str, Any]]:
    return _told(say, await report.pull_figures(tools, project_id, None))


@router.get(
    "/projects/{project_id}/queues/{queue_id}/tasks/pull/stats",
    summary="How pulls of a queue end",
    **open_to(Scope.READ, bound=True),
)
async def get_queue_pull_stats(
    project_id: ProjectHere, queue_id: QueueId, tools: ToolsHere, say: SayHere
) -> Said[dict[str, Any]]:
    return _told(say, await report.pull_figures(tools, project_id, queue_id))


@router.get(
    "/projects/{project_id}/tasks/pull/pending",
    summary="What was pulled and not pushed for so long, the longest first",
    **open_to(Scope.READ, bound=True),
)
async def list_pending_pulls(
    project_id: ProjectHere, tools: ToolsHere, say: SayHere, asked: PageHere, timeout: Timeout = 3600
) -> Said[dict[str, Any]]:
    found, total, now = await report.still_out(tools, project_id, seconds=timeout, asked=slice_of(asked))
    held = [
        {
            "task_id": one.task_id,
            "name": one.name,
            "queue_id": one.queue_id or None,
            "pulled_at": moment(one.pulled_at),
            "pulled_by": one.lease_owner,
            "leased_until": moment(one.leased_until),
            "timeout_hours": round((now - one.pulled_at).total_seconds() / 3600, 2),
        }
        for one in found
    ]
    data = {"tasks": held, "total": total, "pagination": shown_pagination(say, asked, total)}
    return say(data, f"{total} found.", f"共 {total} 条。")


@router.get(
    "/projects/{project_id}/tasks/{task_id}/pull/history",
    summary="Who pulled a task, newest first",
    **open_to(Scope.READ, bound=True),
)
async def get_pull_history(
    project_id: ProjectHere, task_id: TaskId, tools: ToolsHere, say: SayHere, asked: PageHere
) -> Said[dict[str, Any]]:
    found, total = await report.history(tools, project_id, task_id, None, slice_of(asked))
    return _listed(say, task_id, found, asked, total)


@router.get(
    "/projects/{project_id}/queues/{queue_id}/tasks/{task_id}/pull/history",
    summary="Who pulled a task of a queue, newest first",
    **open_to(Scope.READ, bound=True),
)
async def get_queue_pull_history(
    project_id: ProjectHere, queue_id: QueueId, task_id: TaskId, tools: ToolsHere, say: SayHere, asked: PageHere
) -> Said[dict[str, Any]]:
    found, total = await report.history(tools, project_id, task_id, queue_id, slice_of(asked))
    return _listed(say, task_id, found, asked, total)


def _listed(say: Say, task_id: str, found: list[Pull], asked: PageAsked, total: int) -> Said[dict[str, Any]]:
    shown = [shown_pull(one) for one in found]
    data = {"task_id": task_id, "pull_history": shown, "pagination": shown_pagination(say, asked, total)}
    return say(data, f"{total} pulls found.", f"共 {total} 次拉取。")


def _told(say: Say, known: Remembered[PullFigures]) -> Said[dict[str, Any]]:
    """`average_`, `median_` and `p95_pull_duration` are seconds from pull to push; rates are percent of ended pulls."""
    counted, pulls = known.figure, known.figure.pulls
    pulled = counted.states.get(PullState.HELD, 0) + counted.states.get(PullState.CLOSED, 0)
    total = sum(counted.states.values())
    data = {
        "total_server_tasks": total,
        "not_pulled": total - pulled,
        "pulled": pulled,
        "pull_success_rate": percent(pulls.pushed, pulls.ended),
        "average_pull_duration": seconds(pulls.seconds, pulls.pushed),
        "median_pull_duration": seconds(counted.median),
        "p95_pull_duration": seconds(counted.p95),
        "pulls_total": pulls.total,
        "pushed": pulls.pushed,
        "released": pulls.released,
        "timed_out": pulls.timed_out,
        "revoked": pulls.revoked,
        "held": pulls.held,
        "by_client": [shown_client(one) for one in counted.clients],
        "cached_at": moment(known.at),
    }
    return say(data, "Counted.", "统计完成。")
