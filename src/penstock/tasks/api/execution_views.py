"""Executions as existing clients read them: the dates of a request, summaries, days, hours, errors and durations."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any

from fastapi import Depends, Query, Request

from penstock.kernel.http.language import prefers_chinese
from penstock.tasks.api.params import DepsHere
from penstock.tasks.domain import Counts
from penstock.tasks.errors import BadTask
from penstock.tasks.executions import ERROR_LABELS
from penstock.tasks.statistics import DailyExecutions
from penstock.tasks.store.executions import ExecutionDurations, Executions, ExecutionScope
from penstock.tasks.store.tasks import QueueScope

DEFAULT_DAYS = 30
MAX_DAYS = 3660  # ten years
HOURS = range(24)
RANGES = ("0-1分钟", "1-5分钟", "5-10分钟", "10分钟以上")  # minutes, as existing clients know them


async def _dates(
    deps: DepsHere,
    start: Annotated[date | None, Query(alias="startDate", description="The first day, UTC.")] = None,
    end: Annotated[date | None, Query(alias="endDate", description="The last day, UTC, inclusive; today.")] = None,
) -> tuple[date, date]:
    """The first and the last day; the last 30 days unless the request says otherwise."""
    last = end or deps.db.clock.now().astimezone(UTC).date()
    first = start or date.fromordinal(max(1, last.toordinal() - DEFAULT_DAYS + 1))
    if not 0 <= (last - first).days < MAX_DAYS:
        reason = f"must be 1 to {MAX_DAYS} days from startDate to endDate"
        raise BadTask(field="endDate", reason=reason, reason_zh=f"startDate 到 endDate 须为 1 至 {MAX_DAYS} 天")
    return first, last


async def _day(
    deps: DepsHere, day: Annotated[date | None, Query(alias="date", description="A day, UTC; today.")] = None
) -> tuple[date, date]:
    chosen = day or deps.db.clock.now().astimezone(UTC).date()
    return chosen, chosen


Days = tuple[date, date]
DatesHere = Annotated[Days, Depends(_dates)]
DayHere = Annotated[Days, Depends(_day)]


def execution_scope(scope: QueueScope | None, days: Days) -> ExecutionScope:
    """The executions of a project, or of all, on these days."""
    start, last = (datetime.combine(day, time(), UTC) for day in days)
    end = datetime.max.replace(tzinfo=UTC) if days[1] == date.max else last + timedelta(days=1)
    return ExecutionScope(project_pk=None if scope is None else scope.project_pk, start=start, end=end)


def summary_view(found: Executions) -> dict[str, Any]:
    """A summary; the success rate is from 0 to 1."""
    rate = round(found.success / found.total, 2) if found.total else 0.0
    return {
        "total_execution": found.total,
        "total_success": found.success,
        "total_failure": found.total - found.success,
        "success_rate": rate,
    }


def executions_view(found: Executions) -> dict[str, int]:
    """Executions of a day or an hour."""
    return {"total": found.total, "success": found.success, "failure": found.total - found.success}


def daily_view(found: DailyExecutions) -> dict[str, Any]:
    """The summary, and one entry per day with executions, oldest first."""
    days = [
        {"date": day.isoformat(), "execution": executions_view(counted), "task_status": _status_view(tasks)}
        for day, counted, tasks in found.days
    ]
    return {"summary": summary_view(found.total), "daily_stats": days}


def hourly_view(days: Days, found: Mapping[datetime, Executions]) -> dict[str, Any]:
    """The 24 hours of a day."""
    by_hour = {at.hour: counted for at, counted in found.items()}
    hours = [{"hour": hour, "execution": executions_view(by_hour.get(hour, Executions()))} for hour in HOURS]
    return {"date": days[0].isoformat(), "hourly_stats": hours}


def error_types_view(request: Request, found: Mapping[str, int]) -> list[dict[str, Any]]:
    """The types of errors that occurred, most first, with their share in percent."""
    total = sum(found.values())
    return [
        {
            "type": kind,
            "count": count,
            "percentage": round(100 * count / total, 2),
            "label": ERROR_LABELS[kind][prefers_chinese(request)],
        }
        for kind, count in sorted(found.items(), key=lambda one: (-one[1], one[0]))
    ]


def durations_view(found: ExecutionDurations) -> dict[str, Any]:
    """The mean, shortest and longest duration in milliseconds, and how many took how long."""
    mean = round(found.milliseconds / found.count) if found.count else 0
    summary = {"avg_duration": mean, "min_duration": found.shortest, "max_duration": found.longest}
    ranges = [{"range": label, "count": count} for label, count in zip(RANGES, found.durations, strict=True)]
    return {"summary": {**summary, "total_count": found.count}, "distribution": ranges}


def _status_view(counts: Counts) -> dict[str, int]:
    return {"total": counts.total, "pending": counts.pending, "done": counts.done, "error": counts.error}
