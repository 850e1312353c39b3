"""Statistics of tasks and pulls. Read-only.

Tasks by status and by pull state are not counted here: projects and queues keep those counters on their rows. Unbounded
sets are cut: of pulls and of finished tasks only the latest count. A scope of `None` means all projects.
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
    select,
    true,
    union_all,
    values,
)

from penstock.kernel.columns import UtcTime
from penstock.kernel.db import Tx
from penstock.kernel.dialect.sql import equals_as_array
from penstock.tasks.domain import FINAL, Counts, PullOutcome, PullState, Status
from penstock.tasks.store.tables import FINISHED, HELD, OFFERED, project, queue, task, task_pull
from penstock.tasks.store.task_lists import count_held
from penstock.tasks.store.tasks import QueueScope

t = task.c
tp = task_pull.c
p = project.c
q = queue.c
OPEN_STATES = {  # each with the order of the index that has only these
    PullState.OFFERED: (OFFERED, (t.status, t.priority, t.scheduled_at, t.id)),
    PullState.HELD: (HELD, (t.pulled_at, t.id)),
}
LATEST_PULLS = 10_000
LATEST_FINISHED = 10_000
MAX_FINISHED = 100_000  # per status, in hourly statistics
MAX_OPEN = 100_000  # offered or held, across all projects
MAX_CLIENTS = 50
REASON_LENGTH = 200
HOUR = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class PullCounts:
    """Pulls by outcome."""

    pushed: int = 0
    released: int = 0
    timed_out: int = 0
    revoked: int = 0
    overwritten: int = 0
    held: int = 0  # still open
    seconds: float = 0.0  # total time from pull to push

    @property
    def total(self) -> int:
        """Ended and open pulls."""
        return self.ended + self.held

    @property
    def ended(self) -> int:
        """Pulls that have ended."""
        return self.pushed + self.released + self.timed_out + self.revoked + self.overwritten


@dataclass(frozen=True, kw_only=True)
class ClientPullCounts:
    """The pulls of one client."""

    client: str
    pulls: PullCounts


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Number of projects, queues and tasks."""

    projects: int = 0
    queues: int = 0
    counts: Counts = field(default_factory=Counts)  # of tasks in queues
    unqueued: int = 0


@dataclass(frozen=True, kw_only=True)
class PushSource:
    """A user and host that pushes, from the `clientInfo` of its projects."""

    username: str | None
    hostname: str | None
    totals: Totals


@dataclass(frozen=True, kw_only=True)
class HeldTask:
    """A task that is pulled and not yet pushed."""

    task_id: str
    name: str
    status: str
    queue_id: str
    queue_name: str | None
    pulled_at: datetime
    lease_owner: str
    leased_until: datetime


@dataclass(frozen=True, kw_only=True)
class QueueTaskCounts:
    """The task counts of a queue."""

    project_id: str
    queue_id: str
    name: str
    counts: Counts
    last_task_at: datetime | None


async def count_pulls(tx: Tx, scope: QueueScope | None) -> PullCounts:
    """The latest pulls by outcome."""
    source = _pulls(scope)
    return _as_pulls((await tx.conn.execute(select(*_outcomes(source)).select_from(source))).one())


async def list_clients(tx: Tx, scope: QueueScope | None) -> list[ClientPullCounts]:
    """The clients with the most pulls, with the outcomes."""
    source = _pulls(scope)
    client = source.c.pulled_by
    most = select(client, *_outcomes(source)).group_by(client).order_by(func.count().desc(), client)
    rows = await tx.conn.execute(most.limit(MAX_CLIENTS))
    return [ClientPullCounts(client=row.pulled_by, pulls=_as_pulls(row)) for row in rows]


async def find_pushed_seconds(tx: Tx, scope: QueueScope, *, position: int) -> float | None:
    """The duration at this position (from 0) of the latest pulls that were pushed, shortest first."""
    source = _pulls(scope)
    pushed = select(source.c.seconds).where(source.c.outcome == PullOutcome.PUSHED.value)
    seconds: float | None = await tx.conn.scalar(pushed.order_by(source.c.seconds).offset(position).limit(1))
    return seconds


async def count_server_tasks(tx: Tx, scope: QueueScope) -> Mapping[PullState, int]:
    """Active tasks by pull state, without those that only clients wrote; from the counters of the project or queue."""
    table = project if scope.queue_pk is None else queue
    mine = table.c.id == (scope.queue_pk or scope.project_pk)
    counters = select(table.c.open_tasks, table.c.closed_tasks, table.c.idle_tasks)
    row = (await tx.conn.execute(counters.where(mine))).one()
    held = await count_held(tx, scope)
    return {
        PullState.OFFERED: max(row.open_tasks - held, 0),
        PullState.HELD: held,
        PullState.CLOSED: row.closed_tasks,
        PullState.IDLE: row.idle_tasks,
    }


async def list_held(
    tx: Tx, project_pk: str, *, pulled_before: datetime, offset: int, limit: int
) -> tuple[list[HeldTask], int]:
    """Tasks held since `pulled_before` or longer, the longest first; and the total."""
    named = select(q.name).where(q.id == t.queue_pk).scalar_subquery().label("queue_name")
    columns = [named if name == "queue_name" else t[name] for name in HeldTask.__dataclass_fields__]
    old = and_(t.partition_key == project_pk, HELD, t.pulled_at <= pulled_before)
    oldest = select(*columns).where(old).order_by(t.pulled_at, t.id).offset(offset).limit(limit)
    found = [HeldTask(**row._mapping) for row in await tx.conn.execute(oldest)]
    return found, await tx.conn.scalar(select(func.count()).select_from(task).where(old)) or 0


async def count_open(tx: Tx, scope: QueueScope | None) -> Mapping[PullState, int]:
    """How many tasks are offered and how many are held, up to `MAX_OPEN` each."""
    counted = {}
    for state, (condition, order) in OPEN_STATES.items():
        some: Select[Any] = select(literal_column("1")).select_from(task).where(condition)
        if scope is not None:  # without the order SQLite uses an index of all tasks of the project
            some = some.where(scope.condition).order_by(*order)
        some = some.limit(MAX_OPEN)
        counted[state] = await tx.conn.scalar(select(func.count()).select_from(some.subquery())) or 0
    return counted


async def count_totals(tx: Tx, scope: QueueScope | None) -> Totals:
    """Number of projects, queues and tasks in one project, or in all."""
    return _as_totals((await tx.conn.execute(_active(select(*_sums()), scope))).one())


async def list_push_sources(tx: Tx, scope: QueueScope | None) -> list[PushSource]:
    """The users and hosts whose projects have the most tasks."""
    machine = (p.username, p.hostname)
    tasks = sum((p[status.value] for status in Status), start=literal(0))
    most = _active(select(*machine, *_sums()), scope).group_by(*machine).order_by(func.sum(tasks).desc(), *machine)
    rows = await tx.conn.execute(most.limit(MAX_CLIENTS))
    return [PushSource(username=row.username, hostname=row.hostname, totals=_as_totals(row)) for row in rows]


async def list_queues(tx: Tx, scope: QueueScope | None, *, offset: int, limit: int) -> list[QueueTaskCounts]:
    """Queues with task counts: of one project, most recently active first; of all projects, newest queue first."""
    counts = [q[status.value] for status in Status]
    known = select(p.project_id, q.queue_id, q.name, q.last_task_at, *counts).join_from(
        queue, project, q.project_pk == p.id
    )
    active = known.where(q.deleted_at.is_(None), p.deleted_at.is_(None))
    if scope is None:
        ordered = active.order_by(q.id.desc())
    else:
        ordered = active.where(q.project_pk == scope.project_pk).order_by(q.active_at.desc(), q.id.desc())
    return [
        QueueTaskCounts(
            project_id=row.project_id,
            queue_id=row.queue_id,
            name=row.name,
            counts=_as_counts(row),
            last_task_at=row.last_task_at,
        )
        for row in await tx.conn.execute(ordered.offset(offset).limit(limit))
    ]


async def find_finish_time(tx: Tx, scope: QueueScope | None, status: Status, *, position: int) -> datetime | None:
    """When the task at this position (from 0) finished, of those in one status, latest first."""
    latest = select(t.finished_at).where(_finished(scope, status)).order_by(t.finished_at.desc())
    at: datetime | None = await tx.conn.scalar(latest.offset(position).limit(1))
    return at


async def count_finished(
    tx: Tx, scope: QueueScope | None, starts: Sequence[datetime], *, after: datetime | None
) -> Mapping[tuple[datetime, Status], int]:
    """Finished tasks per hour and status; with `after`, only those that finished later.

    The hours are joined as rows: the two databases share no function that truncates a time.
    """
    ends = values(column("start", UtcTime), column("end", UtcTime), name="hour").data(
        [(at, at + HOUR) for at in starts]
    )
    hour = ends.cte("hours")
    inside = and_(t.finished_at >= hour.c.start, t.finished_at < hour.c.end)
    counted: dict[tuple[datetime, Status], int] = {}
    for status in FINAL:
        per_hour = select(hour.c.start, func.count()).join_from(hour, task, and_(inside, _finished(scope, status)))
        if after is not None:
            per_hour = per_hour.where(t.finished_at > after)
        counted |= {(row[0], status): row[1] for row in await tx.conn.execute(per_hour.group_by(hour.c.start))}
    return counted


async def list_error_texts(tx: Tx, scope: QueueScope | None) -> list[str | None]:
    """The start of the error reason, or report, of each of the latest failed tasks."""
    text = func.substr(func.coalesce(t.error_reason, t.report), 1, REASON_LENGTH)
    latest = select(text).where(_finished(scope, Status.ERROR)).order_by(t.finished_at.desc())
    return list((await tx.conn.scalars(latest.limit(LATEST_FINISHED))).all())


async def list_run_times(tx: Tx, scope: QueueScope | None) -> list[tuple[datetime, datetime]]:
    """Start and finish time of the latest finished tasks; the pull counts as the start if none was reported."""
    started = func.coalesce(t.started_at, t.pulled_at).label("started")
    scans = []
    for status in FINAL:
        scan = select(started, t.finished_at).where(_finished(scope, status)).order_by(t.finished_at.desc())
        scans.append(select(scan.limit(LATEST_FINISHED).subquery(f"latest_{status}")))
    runs = union_all(*scans).subquery("runs")
    latest = select(runs).order_by(runs.c.finished_at.desc()).limit(LATEST_FINISHED)
    return [(row.started, row.finished_at) for row in await tx.conn.execute(latest) if row.started is not None]


def _pulls(scope: QueueScope | None) -> FromClause:
    """The pulls that are counted."""
    some = select(tp.pulled_by, tp.outcome, tp.seconds)
    if scope is None:
        return some.order_by(tp.id.desc()).limit(LATEST_PULLS).subquery("pulls")
    here = some.where(equals_as_array(tp.project_pk, scope.project_pk))
    order = [tp.project_pk.desc(), tp.id.desc()]
    if scope.queue_pk is not None:
        here = here.where(equals_as_array(tp.queue_pk, scope.queue_pk))
        order.insert(1, tp.queue_pk.desc())
    return here.order_by(*order).limit(LATEST_PULLS).subquery("pulls")


def _outcomes(source: FromClause) -> list[ColumnElement[Any]]:
    outcome = source.c.outcome
    ended = [func.count().filter(outcome == word.value).label(word.value) for word in PullOutcome]
    held = func.count().filter(outcome.is_(None)).label("held")
    seconds = func.sum(source.c.seconds).filter(outcome == PullOutcome.PUSHED.value)
    return [*ended, held, func.coalesce(seconds, 0.0).label("seconds")]


def _as_pulls(row: Row[Any]) -> PullCounts:
    return PullCounts(**{name: row._mapping[name] for name in PullCounts.__dataclass_fields__})


def _sums() -> list[ColumnElement[Any]]:
    unqueued = {status: p[f"unqueued_{status.value}"] for status in Status}
    added = [func.coalesce(func.sum(p[one.value] - unqueued[one]), 0).label(one.value) for one in Status]
    rest = func.coalesce(func.sum(sum(unqueued.values(), start=literal(0))), 0).label("unqueued")
    return [func.count().label("projects"), func.coalesce(func.sum(p.queue_count), 0).label("queues"), *added, rest]


def _as_totals(row: Row[Any]) -> Totals:
    return Totals(projects=row.projects, queues=row.queues, counts=_as_counts(row), unqueued=row.unqueued)


def _as_counts(row: Row[Any]) -> Counts:
    return Counts(**{status.value: row._mapping[status.value] for status in Status})


def _active(statement: Select[Any], scope: QueueScope | None) -> Select[Any]:
    active = statement.where(p.deleted_at.is_(None))
    return active if scope is None else active.where(p.id == scope.project_pk)


def _finished(scope: QueueScope | None, status: Status) -> ColumnElement[bool]:
    here = true() if scope is None else scope.condition
    return and_(FINISHED, t.status == status.value, here)
