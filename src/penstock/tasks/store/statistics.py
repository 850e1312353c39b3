"""Figures: what is counted about tasks and pulls. Nothing here changes anything.

Tasks by status are not counted at all: projects and queues keep those numbers on their rows. The pulls of one project
are counted from an index that holds all that is asked for. What would have no end is bounded: across all projects only
the latest pulls count, and of finished tasks only the latest. `None` for a place means all projects.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    FromClause,
    Row,
    Select,
    and_,
    column,
    func,
    literal,
    literal_column,
    or_,
    select,
    true,
    union_all,
    values,
)

from penstock.kernel.columns import UtcTime
from penstock.kernel.db import Tx
from penstock.tasks.domain import FINAL, Counts, Outcome, PullState, Side, Status
from penstock.tasks.store.tables import FINISHED, HELD, LIVES, OFFERED, project, queue, task, task_pull
from penstock.tasks.store.tasks import Where

t = task.c
tp = task_pull.c
p = project.c
q = queue.c
PUSHED = tp.outcome == literal_column("'pushed'")  # a constant, as the index on it has it
WAITING = {  # with the order of an index that has no others
    PullState.OFFERED: (OFFERED, (t.status, t.priority, t.scheduled_at, t.id)),
    PullState.HELD: (HELD, (t.pulled_at, t.id)),
}
LATEST_PULLS = 10_000
LATEST_FINISHED = 10_000
MOST_FINISHED = 100_000  # that one answer counts by the hour, of each status
MOST_WAITING = 100_000  # on offer or held, across all projects
MOST_CLIENTS = 50
REASON_LENGTH = 200
HOUR = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Pulls:
    """How many pulls ended how."""

    pushed: int = 0
    released: int = 0
    timed_out: int = 0
    revoked: int = 0
    held: int = 0  # not over yet
    seconds: float = 0.0  # from pull to push, of all that were pushed together

    @property
    def total(self) -> int:
        """All of them."""
        return self.ended + self.held

    @property
    def ended(self) -> int:
        """Those that are over."""
        return self.pushed + self.released + self.timed_out + self.revoked


@dataclass(frozen=True, kw_only=True)
class ClientPulls:
    """The pulls of one client."""

    client: str
    pulls: Pulls


@dataclass(frozen=True, kw_only=True)
class Totals:
    """What there is in one project, or in all."""

    projects: int = 0
    queues: int = 0
    counts: Counts = field(default_factory=Counts)


@dataclass(frozen=True, kw_only=True)
class Pusher:
    """A machine from which clients push, as their projects tell."""

    username: str | None
    hostname: str | None
    totals: Totals


@dataclass(frozen=True, kw_only=True)
class HeldTask:
    """A task that was pulled and not yet pushed."""

    task_id: str
    name: str
    queue_id: str
    pulled_at: datetime
    lease_owner: str
    leased_until: datetime


@dataclass(frozen=True, kw_only=True)
class QueueFigures:
    """A queue's counts."""

    project_id: str
    queue_id: str
    name: str
    counts: Counts
    last_task_at: datetime | None


async def count_pulls(tx: Tx, where: Where | None) -> Pulls:
    """How the pulls of a place ended; of all projects, the latest."""
    source = _pulls(where)
    return _as_pulls((await tx.conn.execute(select(*_outcomes(source)).select_from(source))).one())


async def list_clients(tx: Tx, where: Where | None) -> list[ClientPulls]:
    """The clients that pulled most, with how it ended."""
    source = _pulls(where)
    client = source.c.pulled_by
    most = select(client, *_outcomes(source)).group_by(client).order_by(func.count().desc(), client)
    rows = await tx.conn.execute(most.limit(MOST_CLIENTS))
    return [ClientPulls(client=row.pulled_by, pulls=_as_pulls(row)) for row in rows]


async def find_pushed_seconds(tx: Tx, where: Where, *, position: int) -> float | None:
    """How long the pull took that is at this position (from 0) of all that were pushed, the shortest first."""
    walk = select(tp.seconds).where(_pulled_in(where), PUSHED).order_by(tp.seconds).offset(position).limit(1)
    seconds: float | None = await tx.conn.scalar(walk)
    return seconds


async def count_server_tasks(tx: Tx, where: Where) -> Mapping[PullState, int]:
    """How many living tasks there are in each pull state that the server made, or has offered."""
    ours = or_(t.origin == Side.SERVER.value, t.state != PullState.IDLE.value)
    counted = select(t.state, func.count()).where(where.place, LIVES, ours).group_by(t.state)
    return {PullState(row[0]): row[1] for row in await tx.conn.execute(counted)}


async def list_held(
    tx: Tx, project_pk: str, *, pulled_before: datetime, offset: int, limit: int
) -> tuple[list[HeldTask], int]:
    """Tasks that are held since then or longer, the longest first; and how many there are."""
    columns = [t[name] for name in HeldTask.__dataclass_fields__]
    old = and_(t.partition_key == project_pk, HELD, t.pulled_at <= pulled_before)
    oldest = select(*columns).where(old).order_by(t.pulled_at, t.id).offset(offset).limit(limit)
    found = [HeldTask(**row._mapping) for row in await tx.conn.execute(oldest)]
    return found, await tx.conn.scalar(select(func.count()).select_from(task).where(old)) or 0


async def count_waiting(tx: Tx, where: Where | None) -> Mapping[PullState, int]:
    """How many tasks are on offer and how many are held, as far as one counts."""
    counted = {}
    for state, (condition, order) in WAITING.items():
        some: Select[Any] = select(literal_column("1")).select_from(task).where(condition)
        if where is not None:  # in an order, or SQLite takes an index that has every task of the project
            some = some.where(where.place).order_by(*order)
        some = some.limit(MOST_WAITING)
        counted[state] = await tx.conn.scalar(select(func.count()).select_from(some.subquery())) or 0
    return counted


async def count_totals(tx: Tx, where: Where | None) -> Totals:
    """What there is in one project, or in all."""
    return _as_totals((await tx.conn.execute(_living(select(*_sums()), where))).one())


async def list_pushers(tx: Tx, where: Where | None) -> list[Pusher]:
    """The machines whose projects have the most tasks."""
    machine = (p.username, p.hostname)
    tasks = sum((p[status.value] for status in Status), start=literal(0))
    most = _living(select(*machine, *_sums()), where).group_by(*machine).order_by(func.sum(tasks).desc(), *machine)
    rows = await tx.conn.execute(most.limit(MOST_CLIENTS))
    return [Pusher(username=row.username, hostname=row.hostname, totals=_as_totals(row)) for row in rows]


async def list_queues(tx: Tx, where: Where | None, *, offset: int, limit: int) -> list[QueueFigures]:
    """Queues with their counts: of one project, with the newest task first, or of all, the newest queue first."""
    counts = [q[status.value] for status in Status]
    known = select(p.project_id, q.queue_id, q.name, q.last_task_at, *counts).join_from(
        queue, project, q.project_pk == p.id
    )
    living = known.where(q.deleted_at.is_(None), p.deleted_at.is_(None))
    if where is None:
        ordered = living.order_by(q.id.desc())
    else:
        ordered = living.where(q.project_pk == where.project_pk).order_by(q.active_at.desc(), q.id.desc())
    return [
        QueueFigures(
            project_id=row.project_id,
            queue_id=row.queue_id,
            name=row.name,
            counts=_as_counts(row),
            last_task_at=row.last_task_at,
        )
        for row in await tx.conn.execute(ordered.offset(offset).limit(limit))
    ]


async def find_finished(tx: Tx, where: Where | None, status: Status, *, position: int) -> datetime | None:
    """When the task at this position (from 0) was finished, of those in one status, the latest first."""
    walk = select(t.finished_at).where(_finished(where, status)).order_by(t.finished_at.desc())
    at: datetime | None = await tx.conn.scalar(walk.offset(position).limit(1))
    return at


async def count_finished(
    tx: Tx, where: Where | None, starts: Sequence[datetime], *, after: datetime | None
) -> Mapping[tuple[datetime, Status], int]:
    """How many tasks were finished in each of these hours with each status; only those `after` a time, if there is one.

    The hours are rows to be joined with: the two databases have no function in common that rounds a time.
    """
    ends = values(column("start", UtcTime), column("end", UtcTime), name="hour").data(
        [(at, at + HOUR) for at in starts]
    )
    hour = ends.cte("hours")
    inside = and_(t.finished_at >= hour.c.start, t.finished_at < hour.c.end)
    counted: dict[tuple[datetime, Status], int] = {}
    for status in FINAL:
        of_hour = select(hour.c.start, func.count()).join_from(hour, task, and_(inside, _finished(where, status)))
        if after is not None:
            of_hour = of_hour.where(t.finished_at > after)
        counted |= {(row[0], status): row[1] for row in await tx.conn.execute(of_hour.group_by(hour.c.start))}
    return counted


async def list_error_texts(tx: Tx, where: Where | None) -> list[str | None]:
    """The beginning of what was said of each of the latest tasks that failed."""
    said = func.substr(func.coalesce(t.error_reason, t.report), 1, REASON_LENGTH)
    latest = select(said).where(_finished(where, Status.ERROR)).order_by(t.finished_at.desc())
    return list((await tx.conn.scalars(latest.limit(LATEST_FINISHED))).all())


async def list_runs(tx: Tx, where: Where | None) -> list[tuple[datetime, datetime]]:
    """When the latest finished tasks were begun and finished; pulled is begun when nobody said more."""
    begun = func.coalesce(t.started_at, t.pulled_at).label("begun")
    walks = []
    for status in FINAL:
        walk = select(begun, t.finished_at).where(_finished(where, status)).order_by(t.finished_at.desc())
        walks.append(select(walk.limit(LATEST_FINISHED).subquery(f"latest_{status}")))
    runs = union_all(*walks).subquery("runs")
    latest = select(runs).order_by(runs.c.finished_at.desc()).limit(LATEST_FINISHED)
    return [(row.begun, row.finished_at) for row in await tx.conn.execute(latest) if row.begun is not None]


def _pulls(where: Where | None) -> FromClause:
    """The pulls that count, with what is needed of them."""
    some = select(tp.pulled_by, tp.outcome, tp.seconds)
    if where is None:
        return some.order_by(tp.id.desc()).limit(LATEST_PULLS).subquery("pulls")
    return some.where(_pulled_in(where)).subquery("pulls")


def _pulled_in(where: Where) -> ColumnElement[bool]:
    here = tp.project_pk == where.project_pk
    return here if where.queue_pk is None else here & (tp.queue_pk == where.queue_pk)


def _outcomes(source: FromClause) -> list[ColumnElement[Any]]:
    outcome = source.c.outcome
    ended = [func.count().filter(outcome == word.value).label(word.value) for word in Outcome]
    held = func.count().filter(outcome.is_(None)).label("held")
    seconds = func.sum(source.c.seconds).filter(outcome == Outcome.PUSHED.value)
    return [*ended, held, func.coalesce(seconds, 0.0).label("seconds")]


def _as_pulls(row: Row[Any]) -> Pulls:
    return Pulls(**{name: row._mapping[name] for name in Pulls.__dataclass_fields__})


def _sums() -> list[ColumnElement[Any]]:
    added = [func.coalesce(func.sum(p[status.value]), 0).label(status.value) for status in Status]
    return [func.count().label("projects"), func.coalesce(func.sum(p.queue_count), 0).label("queues"), *added]


def _as_totals(row: Row[Any]) -> Totals:
    return Totals(projects=row.projects, queues=row.queues, counts=_as_counts(row))


def _as_counts(row: Row[Any]) -> Counts:
    return Counts(**{status.value: row._mapping[status.value] for status in Status})


def _living(statement: Select[Any], where: Where | None) -> Select[Any]:
    living = statement.where(p.deleted_at.is_(None))
    return living if where is None else living.where(p.id == where.project_pk)


def _finished(where: Where | None, status: Status) -> ColumnElement[bool]:
    here = true() if where is None else where.place
    return and_(FINISHED, t.status == status.value, here)
