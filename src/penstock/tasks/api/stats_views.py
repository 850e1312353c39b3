"""Response bodies of statistics. Rates are percent, durations seconds; both are 0 if nothing was counted."""

from typing import Any

from penstock.kernel.http.envelope import PageParams, Say
from penstock.tasks.api.views import counts_view, format_time
from penstock.tasks.domain import Counts, PullOutcome
from penstock.tasks.statistics import Slice
from penstock.tasks.store.pulls import PullRecord
from penstock.tasks.store.statistics import ClientPullCounts, PullCounts, PushSource, Totals


def percent(part: int, whole: int) -> float:
    """A percentage with two decimals."""
    return round(100 * part / whole, 2) if whole else 0.0


def seconds(total: float, many: int = 1) -> float:
    """The mean of `many` durations, in seconds with milliseconds."""
    return round(total / many, 3) if many else 0.0


def slice_of(page: PageParams) -> Slice:
    """The offset and limit of a page."""
    return Slice(offset=page.offset, limit=page.size)


def pagination_view(say: Say, page: PageParams, total: int) -> dict[str, int]:
    """The pagination of a list that is not called `items`."""
    pagination: dict[str, int] = say.page([], page, total=total).data.pagination.model_dump(by_alias=True)
    return pagination


def pull_view(pull: PullRecord) -> dict[str, Any]:
    """An entry of a task's pull history. A pull that was pushed, by whomever, has no `released_at`."""
    is_pushed = pull.outcome in (PullOutcome.PUSHED, PullOutcome.OVERWRITTEN)
    return {
        "pulled_at": format_time(pull.pulled_at),
        "pulled_by": pull.pulled_by,
        "released_at": None if is_pushed else format_time(pull.ended_at),
        "released_by": None if is_pushed else pull.ended_by,
        "confirmed_at": format_time(pull.confirmed_at),
        "pushed_at": format_time(pull.ended_at) if is_pushed else None,
        "pushed_by": pull.ended_by if is_pushed else None,
        "outcome": pull.outcome,
        "seconds": pull.seconds,
    }


def pull_counts_view(pulls: PullCounts) -> dict[str, Any]:
    """Pulls by outcome."""
    return {
        "total": pulls.total,
        "pushed": pulls.pushed,
        "released": pulls.released,
        "timed_out": pulls.timed_out,
        "revoked": pulls.revoked,
        "overwritten": pulls.overwritten,
        "held": pulls.held,
        "success_rate": percent(pulls.pushed, pulls.ended),
        "average_duration": seconds(pulls.seconds, pulls.pushed),
    }


def client_view(one: ClientPullCounts) -> dict[str, Any]:
    """A client that pulls."""
    return {
        "client": one.client,
        "pulls": one.pulls.total,
        "pushed": one.pulls.pushed,
        "success_rate": percent(one.pulls.pushed, one.pulls.ended),
        "average_duration": seconds(one.pulls.seconds, one.pulls.pushed),
    }


def push_source_view(one: PushSource) -> dict[str, Any]:
    """A user and host that pushes."""
    return {"username": one.username, "hostname": one.hostname, **totals_view(one.totals)}


def totals_view(totals: Totals) -> dict[str, Any]:
    """Number of projects, queues and tasks."""
    counts = {"projects": totals.projects, "project_count": totals.projects}
    counts |= {"queues": totals.queues, "queue_count": totals.queues}
    return {**counts, **task_counts_view(totals.counts), "unqueued_count": totals.unqueued}


def task_counts_view(counts: Counts) -> dict[str, Any]:
    """Tasks by status, and the success rate of finished ones."""
    rate = percent(counts.done, counts.done + counts.error)
    return {"task_count": counts.total, "task_stats": counts_view(counts), "success_rate": rate}
