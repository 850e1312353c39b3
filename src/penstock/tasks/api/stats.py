"""Statistics of projects, queues, clients and time. A key that is bound to a project gets the figures of that one.

All are remembered for a moment; `cached_at` says when they were counted. Where only the latest of something count,
`counted` says how many did. Without `project_id` all projects count.
"""

from datetime import datetime
from typing import Annotated, Any

from fastapi import Depends, Query

from penstock import __version__
from penstock.access.domain import Scope
from penstock.access.door import CallerHere, open_to
from penstock.kernel.http.envelope import PageHere, Said, SayHere
from penstock.tasks import statistics
from penstock.tasks.api.stats_views import (
    seconds,
    shown_client,
    shown_pagination,
    shown_pulls,
    shown_pusher,
    shown_totals,
    shown_work,
    slice_of,
)
from penstock.tasks.api.params import (
    LONGEST_ID,
    NO_CONTROLS,
    ProjectHere,
    ToolsHere,
    new_router,
    refuse_other_project,
)
from penstock.tasks.api.views import moment
from penstock.tasks.domain import Project, PullState, Status
from penstock.tasks.store.statistics import MOST_WAITING, QueueFigures

router = new_router()
MOST_HOURS = 168  # a week
TOLD = ("Counted.", "统计完成。")


async def _asked_project(
    caller: CallerHere,
    project_id: Annotated[str | None, Query(min_length=1, max_length=LONGEST_ID, pattern=NO_CONTROLS)] = None,
) -> str | None:
    """The project that is asked about; for a bound key always its own."""
    if project_id is not None:
        refuse_other_project(caller, project_id)
    return project_id or caller.project


AskedProject = Annotated[str | None, Depends(_asked_project)]
Hours = Annotated[int, Query(ge=1, le=MOST_HOURS)]


@router.get("/stats", summary="Everything at a glance", **open_to(Scope.READ, bound=True))
async def get_stats(project_id: AskedProject, tools: ToolsHere, say: SayHere) -> Said[dict[str, Any]]:
    """Projects, queues, tasks by status, and pulls: all of a project's, or the latest 10,000 of all projects."""
    known = await report.overview(tools, project_id)
    pulls = known.figure.pulls
    shown = {**shown_totals(known.figure.totals), "pulls": {**shown_pulls(pulls), "counted": pulls.total}}
    return say({**shown, "cached_at": moment(known.at)}, *TOLD)


@router.get("/stats/project/{project_id}", summary="One project at a glance", **open_to(Scope.READ, bound=True))
async def get_project_stats(project_id: ProjectHere, tools: ToolsHere, say: SayHere) -> Said[dict[str, Any]]:
    """Queues, tasks by status and pulls of one project."""
    known = await report.overview(tools, project_id)
    totals = known.figure.totals
    shown = {"project_id": project_id, "queue_count": totals.queues, **shown_work(totals.counts)}
    return say({**shown, "pulls": shown_pulls(known.figure.pulls), "cached_at": moment(known.at)}, *TOLD)


@router.get("/stats/projects", summary="Each project's tasks by status", **open_to(Scope.READ, bound=True))
async def list_project_stats(
    caller: CallerHere, tools: ToolsHere, say: SayHere, asked: PageHere
) -> Said[dict[str, Any]]:
    """Projects in pages, with the newest task first."""
    known = await report.by_project(tools, caller.project, slice_of(asked))
    found, total = known.figure
    return say(
        {
            "items": [_shown_project(one) for one in found],
            "pagination": shown_pagination(say, asked, total),
            "cached_at": moment(known.at),
        },
        *TOLD,
    )


@router.get("/stats/by-queue", summary="Each queue's tasks by status", **open_to(Scope.READ, bound=True))
async def list_queue_stats(
    project_id: AskedProject, tools: ToolsHere, say: SayHere, asked: PageHere
) -> Said[dict[str, Any]]:
    """Queues in pages: of a project with the newest task first, of all projects the newest queue first."""
    known = await report.by_queue(tools, project_id, slice_of(asked))
    found, total = known.figure
    return say(
        {
            "items": [_shown_queue(one) for one in found],
            "pagination": shown_pagination(say, asked, total),
            "cached_at": moment(known.at),
        },
        *TOLD,
    )


@router.get("/stats/by-hour", summary="Finished tasks by the hour", **open_to(Scope.READ, bound=True))
async def get_stats_by_hour(
    project_id: AskedProject, tools: ToolsHere, say: SayHere, hours: Hours = 24
) -> Said[dict[str, Any]]:
    """One line per UTC hour, the oldest first and this hour last. `counted_from` is there when there were too many."""
    known = await report.by_hour(tools, project_id, hours)
    figure = known.figure
    lines = [_shown_hour(start, {s: figure.finished.get((start, s), 0) for s in Status}) for start in figure.starts]
    return say({"hours": lines, "counted_from": moment(figure.counted_from), "cached_at": moment(known.at)}, *TOLD)


@router.get("/stats/by-client", summary="Who pulls, and where is pushed from", **open_to(Scope.READ, bound=True))
async def get_stats_by_client(project_id: AskedProject, tools: ToolsHere, say: SayHere) -> Said[dict[str, Any]]:
    """`pullers` are clients by the names they pull with; `pushers` are machines by the `clientInfo` of projects."""
    known = await report.by_client(tools, project_id)
    pullers = [shown_client(one) for one in known.figure.pullers]
    pushers = [shown_pusher(one) for one in known.figure.pushers]
    return say({"pullers": pullers, "pushers": pushers, "cached_at": moment(known.at)}, *TOLD)


@router.get("/stats/error-types", summary="Why tasks fail", **open_to(Scope.READ, bound=True))
async def get_error_types(project_id: AskedProject, tools: ToolsHere, say: SayHere) -> Said[dict[str, Any]]:
    """The most frequent reasons, or first lines of reports, of the latest 10,000 failed; null is for none given."""
    known = await report.error_types(tools, project_id)
    types = [{"reason": reason, "count": count} for reason, count in known.figure.top]
    return say({"error_types": types, "counted": known.figure.counted, "cached_at": moment(known.at)}, *TOLD)


@router.get("/stats/execution-duration", summary="How long tasks take", **open_to(Scope.READ, bound=True))
async def get_execution_duration(project_id: AskedProject, tools: ToolsHere, say: SayHere) -> Said[dict[str, Any]]:
    """Seconds from start (or pull, when nobody told of a start) to end, of the latest 10,000 finished tasks."""
    known = await report.execution_durations(tools, project_id)
    took = known.figure
    shown = {"mean": seconds(took.mean), "p50": seconds(took.median), "p95": seconds(took.p95), "counted": took.counted}
    return say({**shown, "cached_at": moment(known.at)}, *TOLD)


@router.get("/stats/system", summary="What is in the database", **open_to(Scope.READ, bound=True))
async def get_system_stats(project_id: AskedProject, tools: ToolsHere, say: SayHere) -> Said[dict[str, Any]]:
    """Version, kind of database, and how much there is. `offered` and `held` stop at 100,000, `counted_most`."""
    known = await report.inventory(tools, project_id)
    totals, waiting = known.figure.totals, known.figure.waiting
    data = {
        "version": __version__,
        "database": "postgresql" if tools.db.on_postgres else "sqlite",
        "projects": totals.projects,
        "queues": totals.queues,
        "tasks": totals.counts.total,
        "offered": waiting[PullState.OFFERED],
        "held": waiting[PullState.HELD],
        "counted_most": MOST_WAITING,
        "cached_at": moment(known.at),
    }
    return say(data, *TOLD)


def _shown_project(one: Project) -> dict[str, Any]:
    return {
        "project_id": one.project_id,
        "name": one.name,
        "displayTitle": one.display_title,
        "queue_count": one.queue_count,
        **shown_work(one.counts),
        "last_task_at": moment(one.last_task_at),
    }


def _shown_queue(one: QueueFigures) -> dict[str, Any]:
    return {
        "project_id": one.project_id,
        "queue_id": one.queue_id,
        "name": one.name,
        **shown_work(one.counts),
        "last_task_at": moment(one.last_task_at),
    }


def _shown_hour(start: datetime, finished: dict[Status, int]) -> dict[str, Any]:
    return {
        "hour": moment(start),
        "done": finished[Status.DONE],
        "error": finished[Status.ERROR],
        "cancelled": finished[Status.CANCELLED],
        "total": sum(finished.values()),
    }
