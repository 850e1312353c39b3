"""Statistics: pull history, held tasks, and counts by project, queue, hour and client.

Without a project, all projects count. `api/stats.py` caches statistics for `Config.stats_seconds`; history and held
tasks are read directly.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from penstock.access.domain import ProjectAccess
from penstock.kernel.db import Tx
from penstock.tasks.domain import FINAL, Counts, Project, PullState, Status, Task
from penstock.tasks.lifecycle import resolve_task
from penstock.tasks.store import executions, locations, projects, pulls, queues, statistics, tasks
from penstock.tasks.store.executions import Executions, ExecutionScope
from penstock.tasks.store.pulls import PullRecord
from penstock.tasks.store.statistics import ClientPullCounts, HeldTask, PullCounts, PushSource, QueueTaskCounts, Totals
from penstock.tasks.store.tasks import QueueScope

MAX_REASONS = 20


@dataclass(frozen=True, kw_only=True)
class Slice:
    """An offset and a limit."""

    offset: int
    limit: int


@dataclass(frozen=True, kw_only=True)
class PullHistory:
    """A page of the pulls of a task, and how many there were."""

    task: Task
    pulls: Sequence[PullRecord]
    total: int


@dataclass(frozen=True, kw_only=True)
class PullStats:
    """Pull statistics of a project or queue: durations from pull to push as mean, median and p95, in seconds.

    The success rate is the share of ended pulls that were pushed.
    """

    states: Mapping[PullState, int]  # without tasks that only clients wrote
    pulls: PullCounts
    median: float
    p95: float
    clients: Sequence[ClientPullCounts]


@dataclass(frozen=True, kw_only=True)
class Overview:
    """Totals of a project or of all, and their latest pulls."""

    totals: Totals
    pulls: PullCounts


@dataclass(frozen=True, kw_only=True)
class HourlyStats:
    """Finished tasks per hour. `counted_from` is set if there were too many: earlier tasks are not counted."""

    starts: Sequence[datetime]
    finished: Mapping[tuple[datetime, Status], int]
    counted_from: datetime | None


@dataclass(frozen=True, kw_only=True)
class ErrorReasons:
    """Error reasons of the latest failed tasks, most frequent first; None stands for no reason."""

    counted: int
    top: Sequence[tuple[str | None, int]]


@dataclass(frozen=True, kw_only=True)
class Durations:
    """Durations of the latest finished tasks, in seconds."""

    counted: int = 0
    mean: float = 0.0
    median: float = 0.0
    p95: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ClientStats:
    """Clients that pull, and users and hosts that push."""

    pullers: Sequence[ClientPullCounts]
    push_sources: Sequence[PushSource]


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """Number of rows in the database."""

    totals: Totals
    open: Mapping[PullState, int]


@dataclass(frozen=True, kw_only=True)
class DailyExecutions:
    """Executions and tasks by status of each day that has executions."""

    total: Executions
    days: Sequence[tuple[date, Executions, Counts]]


async def daily_executions(tx: Tx, scope: ExecutionScope) -> DailyExecutions:
    """Executions per day, oldest first, with the tasks by status at its end."""
    hours, tasks_at = await executions.sum_by_hour(tx, scope), await executions.list_days(tx, scope)
    by_status = {at.date(): counts for at, counts in tasks_at.items()}
    days: dict[date, list[Executions]] = {}
    for at, counted in sorted(hours.items()):
        days.setdefault(at.date(), []).append(counted)
    lines = [(day, add_up(found), by_status.get(day, Counts())) for day, found in days.items()]
    return DailyExecutions(total=add_up(hours.values()), days=lines)


async def project_executions(
    tx: Tx, scope: ExecutionScope, only: ProjectAccess | None
) -> list[tuple[Project, Executions]]:
    """All projects with their executions, most first."""
    found = await projects.list_projects(tx, only=only, offset=0, limit=executions.MAX_GROUPS)
    counted = await executions.sum_by_project(tx, scope)
    lines = [(one, counted.get(one.id, Executions())) for one in found]
    return sorted(lines, key=lambda line: -line[1].total)


def add_up(found: Iterable[Executions]) -> Executions:
    """The sum of executions."""
    counted = list(found)
    return Executions(total=sum(one.total for one in counted), success=sum(one.success for one in counted))


async def history(tx: Tx, project_id: str, task_id: str, queue_id: str | None, page: Slice) -> PullHistory:
    """A page of the pull history of a task, oldest first: who pulled it, when, and the outcome.

    A deleted task keeps its history.
    """
    task = await _find_task(tx, project_id, task_id, queue_id)
    found = await pulls.list_pulls(tx, task.id, offset=page.offset, limit=page.limit)
    return PullHistory(task=task, pulls=found, total=await pulls.count_pulls(tx, task.id))


async def list_held(tx: Tx, project_id: str, *, seconds: float, page: Slice) -> tuple[list[HeldTask], int]:
    """A page of pending pulls: tasks held for at least `seconds`, longest first; and the total."""
    location = await locations.get_location(tx, project_id, None)
    before = tx.now - timedelta(seconds=seconds)
    return await statistics.list_held(
        tx, location.project_pk, pulled_before=before, offset=page.offset, limit=page.limit
    )


async def get_scope(tx: Tx, project_id: str, queue_id: str | None = None) -> QueueScope:
    """The project or queue that statistics are of. Raises `ProjectNotFound` or `QueueNotFound`."""
    location = await locations.get_location(tx, project_id, queue_id)
    return QueueScope(project_pk=location.project_pk, queue_pk=location.queue_pk)


async def pull_stats(tx: Tx, scope: QueueScope) -> PullStats:
    """Pull statistics of a project or queue."""
    counted = await statistics.count_pulls(tx, scope)
    median = await statistics.find_pushed_seconds(tx, scope, position=_position(50, counted.pushed))
    p95 = await statistics.find_pushed_seconds(tx, scope, position=_position(95, counted.pushed))
    return PullStats(
        states=await statistics.count_server_tasks(tx, scope),
        pulls=counted,
        median=median or 0.0,
        p95=p95 or 0.0,
        clients=await statistics.list_clients(tx, scope),
    )


async def overview(tx: Tx, scope: QueueScope | None) -> Overview:
    """Totals of a project, or of all projects."""
    return Overview(totals=await statistics.count_totals(tx, scope), pulls=await statistics.count_pulls(tx, scope))


async def by_project(tx: Tx, only: ProjectAccess | None, page: Slice) -> tuple[list[Project], int]:
    """A page of projects, most recently active first, and the total."""
    found = await projects.list_projects(tx, only=only, offset=page.offset, limit=page.limit)
    return found, await projects.count_projects(tx, only=only)


async def by_queue(tx: Tx, scope: QueueScope | None, page: Slice) -> tuple[list[QueueTaskCounts], int]:
    """A page of queues, and the total."""
    found = await statistics.list_queues(tx, scope, offset=page.offset, limit=page.limit)
    return found, (await statistics.count_totals(tx, scope)).queues


async def by_hour(tx: Tx, scope: QueueScope | None, hours: int) -> HourlyStats:
    """Finished tasks in each of the last hours, including the current one."""
    current = tx.now.replace(minute=0, second=0, microsecond=0)
    starts = [current - timedelta(hours=ago) for ago in reversed(range(hours))]
    cuts = [await statistics.find_finish_time(tx, scope, status, position=statistics.MAX_FINISHED) for status in FINAL]
    cut = max((at for at in cuts if at is not None and at >= starts[0]), default=None)
    finished = await statistics.count_finished(tx, scope, starts, after=cut)
    return HourlyStats(starts=starts, finished=finished, counted_from=cut)


async def by_client(tx: Tx, scope: QueueScope | None) -> ClientStats:
    """The clients that pull most, and the users and hosts that push most."""
    return ClientStats(
        pullers=await statistics.list_clients(tx, scope), push_sources=await statistics.list_push_sources(tx, scope)
    )


async def error_types(tx: Tx, scope: QueueScope | None) -> ErrorReasons:
    """The most frequent error reasons."""
    texts = await statistics.list_error_texts(tx, scope)
    reasons = Counter(_first_line(text) for text in texts)
    top = sorted(reasons.items(), key=lambda one: (-one[1], one[0] or ""))[:MAX_REASONS]
    return ErrorReasons(counted=len(texts), top=top)


async def execution_durations(tx: Tx, scope: QueueScope | None) -> Durations:
    """Execution durations of tasks."""
    runs = await statistics.list_run_times(tx, scope)
    if not runs:
        return Durations()
    seconds = sorted((finished - started).total_seconds() for started, finished in runs)
    many = len(seconds)
    return Durations(
        counted=many,
        mean=math.fsum(seconds) / many,
        median=seconds[_position(50, many)],
        p95=seconds[_position(95, many)],
    )


async def inventory(tx: Tx, scope: QueueScope | None) -> Inventory:
    """Number of rows in the database."""
    return Inventory(totals=await statistics.count_totals(tx, scope), open=await statistics.count_open(tx, scope))


async def _find_task(tx: Tx, project_id: str, task_id: str, queue_id: str | None) -> Task:
    """The task that a path means; a deleted task if no active one has the id."""
    project = await projects.get_project(tx, project_id)
    queue = None if queue_id is None else await queues.get_queue(tx, project.id, queue_id, project_id=project_id)
    found = await tasks.list_by_task_id(tx, project.id, [task_id])
    mine = [one for one in found if queue is None or one.queue_pk == queue.id]
    active = [one for one in mine if one.deleted_at is None]
    return resolve_task(active or [replace(one, deleted_at=None) for one in mine], project_id, task_id, queue)


def _first_line(text: str | None) -> str | None:
    lines = (text or "").strip().splitlines()
    return lines[0].rstrip() if lines else None


def _position(percent: int, many: int) -> int:
    """The position (from 0) of a percentile, by the nearest-rank method."""
    return max(0, -(-percent * many // 100) - 1)
