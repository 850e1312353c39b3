"""How figures look on the wire. Rates are percent and durations seconds; where nothing was counted they are 0."""

from typing import Any

from penstock.kernel.http.envelope import PageAsked, Say
from penstock.tasks.api.views import moment, shown_counts
from penstock.tasks.domain import Counts, Outcome
from penstock.tasks.statistics import Slice
from penstock.tasks.store.statistics import ClientPulls, Pulls, Pusher, Totals
from penstock.tasks.store.pulls import Pull


def percent(part: int, whole: int) -> float:
    """So many of so many, with two decimals."""
    return round(100 * part / whole, 2) if whole else 0.0


def seconds(total: float, many: int = 1) -> float:
    """The mean of so many durations, with milliseconds."""
    return round(total / many, 3) if many else 0.0


def slice_of(asked: PageAsked) -> Slice:
    """The part of a list that a page is."""
    return Slice(offset=asked.offset, limit=asked.size)


def shown_pagination(say: Say, asked: PageAsked, total: int) -> dict[str, int]:
    """Which page this is, where the list has a name of its own instead of `items`."""
    pagination: dict[str, int] = say.page([], asked, total=total).data.pagination.model_dump(by_alias=True)
    return pagination


def shown_pull(pull: Pull) -> dict[str, Any]:
    """A line of a task's history. One that ended in a push was not released."""
    is_pushed = pull.outcome is Outcome.PUSHED
    return {
        "pulled_at": moment(pull.pulled_at),
        "pulled_by": pull.pulled_by,
        "released_at": None if is_pushed else moment(pull.ended_at),
        "released_by": None if is_pushed else pull.ended_by,
        "confirmed_at": moment(pull.confirmed_at),
        "pushed_at": moment(pull.ended_at) if is_pushed else None,
        "outcome": pull.outcome,
        "seconds": pull.seconds,
    }


def shown_pulls(pulls: Pulls) -> dict[str, Any]:
    """How pulls ended."""
    return {
        "total": pulls.total,
        "pushed": pulls.pushed,
        "released": pulls.released,
        "timed_out": pulls.timed_out,
        "revoked": pulls.revoked,
        "held": pulls.held,
        "success_rate": percent(pulls.pushed, pulls.ended),
        "average_duration": seconds(pulls.seconds, pulls.pushed),
    }


def shown_client(one: ClientPulls) -> dict[str, Any]:
    """A client that pulls."""
    return {
        "client": one.client,
        "pulls": one.pulls.total,
        "pushed": one.pulls.pushed,
        "success_rate": percent(one.pulls.pushed, one.pulls.ended),
        "average_duration": seconds(one.pulls.seconds, one.pulls.pushed),
    }


def shown_pusher(one: Pusher) -> dict[str, Any]:
    """A machine that pushes."""
    return {"username": one.username, "hostname": one.hostname, **shown_totals(one.totals)}


def shown_totals(totals: Totals) -> dict[str, Any]:
    """How much there is."""
    return {"projects": totals.projects, "queues": totals.queues, **shown_work(totals.counts)}


def shown_work(counts: Counts) -> dict[str, Any]:
    """Tasks by status, and how many of those that were tried succeeded."""
    rate = percent(counts.done, counts.done + counts.error)
    return {"task_count": counts.total, "task_stats": shown_counts(counts), "success_rate": rate}
