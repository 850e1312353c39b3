"""Reports: who pulled what and how it ended, what is still out, and the figures of projects, queues and clients.

Figures are remembered for a moment (`Rules.stats_seconds`); history and what is still out are read as they are. A
project or queue is looked up each time, so that one that was deleted is not told of. Without one, all projects count.
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
from penstock.tasks.lifecycle import pick
from penstock.tasks.remember import Remembered
from penstock.tasks.store import statistics, locations, projects, pulls, queues, tasks
from penstock.tasks.store.statistics import ClientPulls, HeldTask, Pulls, Pusher, QueueFigures, Totals
from penstock.tasks.store.pulls import Pull
from penstock.tasks.store.tasks import Where

T = TypeVar("T")
TOP_REASONS = 20


@dataclass(frozen=True, kw_only=True)
class Slice:
    """So many of a list, after so many others."""

    offset: int
    limit: int


@dataclass(frozen=True, kw_only=True)
class PullFigures:
    """The pulls of a project or a queue. Durations are from pull to push, in seconds."""

    states: Mapping[PullState, int]  # of tasks that the server made, or has offered
    pulls: Pulls
    median: float
    p95: float
    clients: Sequence[ClientPulls]


@dataclass(frozen=True, kw_only=True)
class Overview:
    """A project or all of them at a glance. The pulls of all are the latest ones only."""

    totals: Totals
    pulls: Pulls


@dataclass(frozen=True, kw_only=True)
class Hours:
    """Finished tasks by the hour; those finished before `counted_from` were too many to count, if it is there."""

    starts: Sequence[datetime]
    finished: Mapping[tuple[datetime, Status], int]
    counted_from: datetime | None


@dataclass(frozen=True, kw_only=True)
class Reasons:
    """Why the latest failed tasks failed, most frequent first; None is for those that did not say."""

    counted: int
    top: Sequence[tuple[str | None, int]]


@dataclass(frozen=True, kw_only=True)
class Durations:
    """How long the latest finished tasks took, in seconds."""

    counted: int = 0
    mean: float = 0.0
    median: float = 0.0
    p95: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Clients:
    """Who pulls, and from where is pushed."""

    pullers: Sequence[ClientPulls]
    pushers: Sequence[Pusher]


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """What is in the database."""

    totals: Totals
    waiting: Mapping[PullState, int]


async def history(
    tools: Deps, project_id: str, task_id: str, queue_id: str | None, asked: Slice
) -> tuple[list[Pull], int]:
    """Some pulls of a task, newest first, and how many there are. A deleted task keeps its history."""
    async with tools.db.read() as tx:
        task = await _find_any(tx, project_id, task_id, queue_id)
        found = await pulls.list_pulls(tx, task.id, offset=asked.offset, limit=asked.limit)
        return found, await pulls.count_pulls(tx, task.id)


async def still_out(
    tools: Deps, project_id: str, *, seconds: float, asked: Slice
) -> tuple[list[HeldTask], int, datetime]:
    """Some tasks that are held for that long, the longest first; how many there are; and the time that was asked at."""
    async with tools.db.read() as tx:
        place = await places.get_place(tx, project_id, None)
        before = tx.now - timedelta(seconds=seconds)
        found, total = await figures.list_held(
            tx, place.project_pk, pulled_before=before, offset=asked.offset, limit=asked.limit
        )
    return found, total, tx.now


async def pull_figures(tools: Deps, project_id: str, queue_id: str | None) -> Remembered[PullFigures]:
    """The pulls of a project or a queue."""
    where = await _place(tools, project_id, queue_id)
    return await _recall(tools, ("pulls", where), partial(_count_pulls, where=where))


async def overview(tools: Deps, project_id: str | None) -> Remembered[Overview]:
    """A project or all of them at a glance."""
    where = await _anywhere(tools, project_id)
    return await _recall(tools, ("overview", where), partial(_count_overview, where=where))


async def by_project(tools: Deps, only: str | None, asked: Slice) -> Remembered[tuple[list[Project], int]]:
    """Some projects, with the newest task first, and how many there are."""
    return await _recall(tools, ("projects", only, asked), partial(_list_projects, only=only, asked=asked))


async def by_queue(tools: Deps, project_id: str | None, asked: Slice) -> Remembered[tuple[list[QueueFigures], int]]:
    """Some queues, and how many there are."""
    where = await _anywhere(tools, project_id)
    return await _recall(tools, ("queues", where, asked), partial(_list_queues, where=where, asked=asked))


async def by_hour(tools: Deps, project_id: str | None, hours: int) -> Remembered[Hours]:
    """How many tasks were finished in each of the last so many hours, this one included."""
    where = await _anywhere(tools, project_id)
    return await _recall(tools, ("hours", where, hours), partial(_count_hours, where=where, hours=hours))


async def by_client(tools: Deps, project_id: str | None) -> Remembered[Clients]:
    """Who pulls most, and where most is pushed from."""
    where = await _anywhere(tools, project_id)
    return await _recall(tools, ("clients", where), partial(_list_clients, where=where))


async def error_types(tools: Deps, project_id: str | None) -> Remembered[Reasons]:
    """Why tasks fail."""
    where = await _anywhere(tools, project_id)
    return await _recall(tools, ("errors", where), partial(_count_reasons, where=where))


async def execution_durations(tools: Deps, project_id: str | None) -> Remembered[Durations]:
    """How long tasks take."""
    where = await _anywhere(tools, project_id)
    return await _recall(tools, ("durations", where), partial(_measure_runs, where=where))


async def inventory(tools: Deps, project_id: str | None) -> Remembered[Inventory]:
    """What is in the database."""
    where = await _anywhere(tools, project_id)
    return await _recall(tools, ("inventory", where), partial(_count_rows, where=where))


async def _find_any(tx: Tx, project_id: str, task_id: str, queue_id: str | None) -> Task:
    """The task that a path means; a deleted one when no other has its name."""
    project = await projects.get_project(tx, project_id)
    queue = None if queue_id is None else await queues.get_queue(tx, project.id, queue_id, project_id=project_id)
    found = await tasks.list_namesakes(tx, project.id, [task_id])
    mine = [one for one in found if queue is None or one.queue_pk == queue.id]
    living = [one for one in mine if one.deleted_at is None]
    return pick(living or [replace(one, deleted_at=None) for one in mine], project_id, task_id, queue)


async def _place(tools: Deps, project_id: str, queue_id: str | None = None) -> Where:
    async with tools.db.read() as tx:
        place = await places.get_place(tx, project_id, queue_id)
    return Where(project_pk=place.project_pk, queue_pk=place.queue_pk)


async def _anywhere(tools: Deps, project_id: str | None) -> Where | None:
    return None if project_id is None else await _place(tools, project_id)


async def _recall(tools: Deps, key: Hashable, count: Callable[[Tx], Awaitable[T]]) -> Remembered[T]:
    async def counted() -> T:
        async with tools.db.read() as tx:
            return await count(tx)

    return await tools.memory.recall(key, counted, clock=tools.db.clock, seconds=tools.rules.stats_seconds)


async def _count_pulls(tx: Tx, *, where: Where) -> PullFigures:
    counted = await figures.count_pulls(tx, where)
    middle = await figures.find_pushed_seconds(tx, where, position=_position(50, counted.pushed))
    late = await figures.find_pushed_seconds(tx, where, position=_position(95, counted.pushed))
    return PullFigures(
        states=await figures.count_server_tasks(tx, where),
        pulls=counted,
        median=middle or 0.0,
        p95=late or 0.0,
        clients=await figures.list_clients(tx, where),
    )


async def _count_overview(tx: Tx, *, where: Where | None) -> Overview:
    return Overview(totals=await figures.count_totals(tx, where), pulls=await figures.count_pulls(tx, where))


async def _list_projects(tx: Tx, *, only: str | None, asked: Slice) -> tuple[list[Project], int]:
    found = await projects.list_projects(tx, only=only, offset=asked.offset, limit=asked.limit)
    return found, await projects.count_projects(tx, only=only)


async def _list_queues(tx: Tx, *, where: Where | None, asked: Slice) -> tuple[list[QueueFigures], int]:
    found = await figures.list_queues(tx, where, offset=asked.offset, limit=asked.limit)
    return found, (await figures.count_totals(tx, where)).queues


async def _count_hours(tx: Tx, *, where: Where | None, hours: int) -> Hours:
    this = tx.now.replace(minute=0, second=0, microsecond=0)
    starts = [this - timedelta(hours=ago) for ago in reversed(range(hours))]
    cuts = [await figures.find_finished(tx, where, status, position=figures.MOST_FINISHED) for status in FINAL]
    cut = max((at for at in cuts if at is not None and at >= starts[0]), default=None)
    finished = await figures.count_finished(tx, where, starts, after=cut)
    return Hours(starts=starts, finished=finished, counted_from=cut)


async def _list_clients(tx: Tx, *, where: Where | None) -> Clients:
    return Clients(pullers=await figures.list_clients(tx, where), pushers=await figures.list_pushers(tx, where))


async def _count_reasons(tx: Tx, *, where: Where | None) -> Reasons:
    texts = await figures.list_error_texts(tx, where)
    reasons = Counter(_first_line(text) for text in texts)
    top = sorted(reasons.items(), key=lambda one: (-one[1], one[0] or ""))[:TOP_REASONS]
    return Reasons(counted=len(texts), top=top)


async def _measure_runs(tx: Tx, *, where: Where | None) -> Durations:
    runs = await figures.list_runs(tx, where)
    if not runs:
        return Durations()
    seconds = sorted((finished - begun).total_seconds() for begun, finished in runs)
    many = len(seconds)
    return Durations(
        counted=many,
        mean=math.fsum(seconds) / many,
        median=seconds[_position(50, many)],
        p95=seconds[_position(95, many)],
    )


async def _count_rows(tx: Tx, *, where: Where | None) -> Inventory:
    return Inventory(totals=await figures.count_totals(tx, where), waiting=await figures.count_waiting(tx, where))


def _first_line(text: str | None) -> str | None:
    lines = (text or "").strip().splitlines()
    return lines[0].rstrip() if lines else None


def _position(percent: int, many: int) -> int:
    """Where the value stands that so many percent do not exceed, from 0: the nearest rank."""
    return max(0, -(-percent * many // 100) - 1)
