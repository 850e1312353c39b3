"""Statistics: pull history, held tasks, and counts by project, queue, hour and client.

Statistics are cached for `Config.stats_seconds`; history and held tasks are read directly. The project or queue is
looked up each time, so a deleted one is not reported. Without a project, all projects count.
"""

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from penstock.kernel.db import Tx
from penstock.tasks.deps import Deps
from penstock.tasks.domain import FINAL, Project, PullState, Status, Task
from penstock.tasks.lifecycle import resolve_task
from penstock.tasks.remember import CachedStats
from penstock.tasks.store import locations, projects, pulls, queues, statistics, tasks
from penstock.tasks.store.pulls import PullRecord
from penstock.tasks.store.statistics import ClientPullCounts, HeldTask, PullCounts, PushSource, QueueTaskCounts, Totals
from penstock.tasks.store.tasks import QueueScope

T = TypeVar("T")
MAX_REASONS = 20


@dataclass(frozen=True, kw_only=True)
class Slice:
    """An offset and a limit."""

    offset: int
    limit: int


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
    """Totals of a project or of all; across all projects only the latest pulls count."""

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


async def history(
    deps: Deps, project_id: str, task_id: str, queue_id: str | None, page: Slice
) -> tuple[list[PullRecord], int]:
    """A page of the pull history of a task, newest first, and the total: who pulled it, when, and the outcome.

    A deleted task keeps its history.
    """
    async with deps.db.read() as tx:
        task = await _find_task(tx, project_id, task_id, queue_id)
        found = await pulls.list_pulls(tx, task.id, offset=page.offset, limit=page.limit)
        return found, await pulls.count_pulls(tx, task.id)


async def list_held(
    deps: Deps, project_id: str, *, seconds: float, page: Slice
) -> tuple[list[HeldTask], int, datetime]:
    """A page of pending pulls: tasks held for at least `seconds`, longest first; the total; and the current time."""
    async with deps.db.read() as tx:
        location = await locations.get_location(tx, project_id, None)
        before = tx.now - timedelta(seconds=seconds)
        found, total = await statistics.list_held(
            tx, location.project_pk, pulled_before=before, offset=page.offset, limit=page.limit
        )
    return found, total, tx.now


async def pull_stats(deps: Deps, project_id: str, queue_id: str | None) -> CachedStats[PullStats]:
    """Pull statistics of a project or queue."""
    scope = await _scope(deps, project_id, queue_id)
    return await _cached(deps, ("pulls", scope), partial(_count_pulls, scope=scope))


async def overview(deps: Deps, project_id: str | None) -> CachedStats[Overview]:
    """Totals of a project, or of all projects."""
    scope = await _optional_scope(deps, project_id)
    return await _cached(deps, ("overview", scope), partial(_count_overview, scope=scope))


async def by_project(deps: Deps, only: str | None, page: Slice) -> CachedStats[tuple[list[Project], int]]:
    """A page of projects, most recently active first, and the total."""
    return await _cached(deps, ("projects", only, page), partial(_list_projects, only=only, page=page))


async def by_queue(deps: Deps, project_id: str | None, page: Slice) -> CachedStats[tuple[list[QueueTaskCounts], int]]:
    """A page of queues, and the total."""
    scope = await _optional_scope(deps, project_id)
    return await _cached(deps, ("queues", scope, page), partial(_list_queues, scope=scope, page=page))


async def by_hour(deps: Deps, project_id: str | None, hours: int) -> CachedStats[HourlyStats]:
    """Finished tasks in each of the last hours, including the current one."""
    scope = await _optional_scope(deps, project_id)
    return await _cached(deps, ("hours", scope, hours), partial(_count_by_hour, scope=scope, hours=hours))


async def by_client(deps: Deps, project_id: str | None) -> CachedStats[ClientStats]:
    """The clients that pull most, and the users and hosts that push most."""
    scope = await _optional_scope(deps, project_id)
    return await _cached(deps, ("clients", scope), partial(_list_clients, scope=scope))


async def error_types(deps: Deps, project_id: str | None) -> CachedStats[ErrorReasons]:
    """The most frequent error reasons."""
    scope = await _optional_scope(deps, project_id)
    return await _cached(deps, ("errors", scope), partial(_count_reasons, scope=scope))


async def execution_durations(deps: Deps, project_id: str | None) -> CachedStats[Durations]:
    """Execution durations of tasks."""
    scope = await _optional_scope(deps, project_id)
    return await _cached(deps, ("durations", scope), partial(_measure_durations, scope=scope))


async def inventory(deps: Deps, project_id: str | None) -> CachedStats[Inventory]:
    """Number of rows in the database."""
    scope = await _optional_scope(deps, project_id)
    return await _cached(deps, ("inventory", scope), partial(_count_rows, scope=scope))


async def _find_task(tx: Tx, project_id: str, task_id: str, queue_id: str | None) -> Task:
    """The task that a path means; a deleted task if no active one has the id."""
    project = await projects.get_project(tx, project_id)
    queue = None if queue_id is None else await queues.get_queue(tx, project.id, queue_id, project_id=project_id)
    found = await tasks.list_by_task_id(tx, project.id, [task_id])
    mine = [one for one in found if queue is None or one.queue_pk == queue.id]
    active = [one for one in mine if one.deleted_at is None]
    return resolve_task(active or [replace(one, deleted_at=None) for one in mine], project_id, task_id, queue)


async def _scope(deps: Deps, project_id: str, queue_id: str | None = None) -> QueueScope:
    async with deps.db.read() as tx:
        location = await locations.get_location(tx, project_id, queue_id)
    return QueueScope(project_pk=location.project_pk, queue_pk=location.queue_pk)


async def _optional_scope(deps: Deps, project_id: str | None) -> QueueScope | None:
    return None if project_id is None else await _scope(deps, project_id)


async def _cached(deps: Deps, key: Hashable, count: Callable[[Tx], Awaitable[T]]) -> CachedStats[T]:
    async def counted() -> T:
        async with deps.db.read() as tx:
            return await count(tx)

    return await deps.stats_cache.recall(key, counted, clock=deps.db.clock, seconds=deps.config.stats_seconds)


async def _count_pulls(tx: Tx, *, scope: QueueScope) -> PullStats:
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


async def _count_overview(tx: Tx, *, scope: QueueScope | None) -> Overview:
    return Overview(totals=await statistics.count_totals(tx, scope), pulls=await statistics.count_pulls(tx, scope))


async def _list_projects(tx: Tx, *, only: str | None, page: Slice) -> tuple[list[Project], int]:
    found = await projects.list_projects(tx, only=only, offset=page.offset, limit=page.limit)
    return found, await projects.count_projects(tx, only=only)


async def _list_queues(tx: Tx, *, scope: QueueScope | None, page: Slice) -> tuple[list[QueueTaskCounts], int]:
    found = await statistics.list_queues(tx, scope, offset=page.offset, limit=page.limit)
    return found, (await statistics.count_totals(tx, scope)).queues


async def _count_by_hour(tx: Tx, *, scope: QueueScope | None, hours: int) -> HourlyStats:
    current = tx.now.replace(minute=0, second=0, microsecond=0)
    starts = [current - timedelta(hours=ago) for ago in reversed(range(hours))]
    cuts = [await statistics.find_finish_time(tx, scope, status, position=statistics.MAX_FINISHED) for status in FINAL]
    cut = max((at for at in cuts if at is not None and at >= starts[0]), default=None)
    finished = await statistics.count_finished(tx, scope, starts, after=cut)
    return HourlyStats(starts=starts, finished=finished, counted_from=cut)


async def _list_clients(tx: Tx, *, scope: QueueScope | None) -> ClientStats:
    return ClientStats(
        pullers=await statistics.list_clients(tx, scope), push_sources=await statistics.list_push_sources(tx, scope)
    )


async def _count_reasons(tx: Tx, *, scope: QueueScope | None) -> ErrorReasons:
    texts = await statistics.list_error_texts(tx, scope)
    reasons = Counter(_first_line(text) for text in texts)
    top = sorted(reasons.items(), key=lambda one: (-one[1], one[0] or ""))[:MAX_REASONS]
    return ErrorReasons(counted=len(texts), top=top)


async def _measure_durations(tx: Tx, *, scope: QueueScope | None) -> Durations:
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


async def _count_rows(tx: Tx, *, scope: QueueScope | None) -> Inventory:
    return Inventory(totals=await statistics.count_totals(tx, scope), open=await statistics.count_open(tx, scope))


def _first_line(text: str | None) -> str | None:
    lines = (text or "").strip().splitlines()
    return lines[0].rstrip() if lines else None


def _position(percent: int, many: int) -> int:
    """The position (from 0) of a percentile, by the nearest-rank method."""
    return max(0, -(-percent * many // 100) - 1)
