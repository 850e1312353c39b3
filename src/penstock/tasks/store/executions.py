"""Counts of executions per hour, and the tasks of a project by status after its last execution of a day."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Column, ColumnElement, Select, case, delete, func, literal, select, tuple_

from penstock.kernel.columns import Id, UtcTime
from penstock.kernel.db import Tx
from penstock.kernel.dialect.sql import upsert
from penstock.tasks.domain import Counts, Project, Status
from penstock.tasks.store.tables import DURATION_COLUMNS, task_day, task_execution

e, d = task_execution.c, task_day.c
SUCCESS = "success"
KEY = ("project_pk", "hour", "queue_id", "hostname", "kind")
ADDED = ("count", "milliseconds", *DURATION_COLUMNS)
MINUTE = 60_000  # milliseconds
DURATION_LIMITS = (MINUTE, 5 * MINUTE, 10 * MINUTE)
MAX_GROUPS = 10_000


@dataclass(frozen=True, kw_only=True)
class ExecutionCount:
    """Executions of one hour, queue, host and kind, with their durations in milliseconds."""

    project_pk: str
    hour: datetime
    queue_id: str
    hostname: str
    kind: str
    count: int
    milliseconds: int
    shortest: int
    longest: int
    durations: tuple[int, ...]  # how many were shorter than each of `DURATION_LIMITS`, and longer than all

    @classmethod
    def single(cls, *, milliseconds: int, **key: Any) -> "ExecutionCount":
        """One execution."""
        position = sum(milliseconds >= limit for limit in DURATION_LIMITS)
        durations = tuple(int(number == position) for number in range(len(DURATION_LIMITS) + 1))
        return cls(
            **key,
            count=1,
            milliseconds=milliseconds,
            shortest=milliseconds,
            longest=milliseconds,
            durations=durations,
        )

    @property
    def key(self) -> tuple[Any, ...]:
        """What it is counted by."""
        return tuple(getattr(self, name) for name in KEY)

    def plus(self, other: "ExecutionCount") -> "ExecutionCount":
        """Both counts of the same key."""
        return ExecutionCount(
            **dict(zip(KEY, self.key, strict=True)),
            count=self.count + other.count,
            milliseconds=self.milliseconds + other.milliseconds,
            shortest=min(self.shortest, other.shortest),
            longest=max(self.longest, other.longest),
            durations=tuple(map(sum, zip(self.durations, other.durations, strict=True))),
        )


@dataclass(frozen=True, kw_only=True)
class ExecutionScope:
    """Which executions: of one project or of all, from a time to another."""

    project_pk: str | None
    start: datetime
    end: datetime

    def on(self, statement: Select[Any], at: Column[Any] = e.hour, key: Column[Any] = e.project_pk) -> Select[Any]:
        """A statement restricted to the scope. For one project, key and time are compared as a pair: only the primary
        key serves that, not the index on the time, which a plan made for an empty table would prefer."""
        if self.project_pk is None:
            return statement.where(at >= self.start, at < self.end)
        start, end = (tuple_(literal(self.project_pk, Id), literal(time, UtcTime)) for time in (self.start, self.end))
        return statement.where(tuple_(key, at) >= start, tuple_(key, at) < end)


@dataclass(frozen=True, kw_only=True)
class Executions:
    """Executions, and how many of them succeeded."""

    total: int = 0
    success: int = 0


@dataclass(frozen=True, kw_only=True)
class ExecutionDurations:
    """Durations of executions, in milliseconds."""

    count: int
    milliseconds: int
    shortest: int
    longest: int
    durations: tuple[int, ...]


async def add_executions(tx: Tx, found: Iterable[ExecutionCount], *, of: Project) -> None:
    """Add executions to their hours, and note the tasks of the project at the end of the day so far."""
    added: dict[tuple[Any, ...], ExecutionCount] = {}
    for one in found:
        added[one.key] = added[one.key].plus(one) if one.key in added else one
    if not added:
        return
    rows = [
        {name: value for name, value in vars(one).items() if name != "durations"}
        | dict(zip(DURATION_COLUMNS, one.durations, strict=True))
        for one in sorted(added.values(), key=lambda one: one.key)  # in one order: concurrent writers do not deadlock
    ]
    new = upsert(task_execution).values(rows)
    sums = {name: e[name] + new.excluded[name] for name in ADDED}
    ends = {
        "shortest": case((new.excluded.shortest < e.shortest, new.excluded.shortest), else_=e.shortest),
        "longest": case((new.excluded.longest > e.longest, new.excluded.longest), else_=e.longest),
    }
    await tx.conn.execute(new.on_conflict_do_update(index_elements=[e[name] for name in KEY], set_=sums | ends))
    counts = vars(of.queue_counts)
    day = {"project_pk": of.id, "day": tx.now.replace(hour=0, minute=0, second=0, microsecond=0), **counts}
    today = upsert(task_day).values(day)
    await tx.conn.execute(today.on_conflict_do_update(index_elements=[d.project_pk, d.day], set_=counts))


async def sum_by_hour(tx: Tx, scope: ExecutionScope) -> Mapping[datetime, Executions]:
    """Executions of each hour that has any."""
    return await _sum_by(tx, scope, e.hour)


async def sum_by_queue(tx: Tx, scope: ExecutionScope) -> Mapping[str, Executions]:
    """Executions of each queue that has any, by its id; tasks without a queue are under ""."""
    return await _sum_by(tx, scope, e.queue_id)


async def sum_by_host(tx: Tx, scope: ExecutionScope) -> Mapping[str, Executions]:
    """Executions of each host that has any."""
    return await _sum_by(tx, scope, e.hostname)


async def sum_by_project(tx: Tx, scope: ExecutionScope) -> Mapping[str, Executions]:
    """Executions of each project that has any, by its primary key."""
    return await _sum_by(tx, scope, e.project_pk)


async def sum_errors(tx: Tx, scope: ExecutionScope) -> Mapping[str, int]:
    """Failed executions by type of error."""
    counted = scope.on(select(e.kind, func.sum(e["count"]))).where(e.kind != SUCCESS).group_by(e.kind)
    return {row[0]: int(row[1]) for row in await tx.conn.execute(counted)}


async def sum_durations(tx: Tx, scope: ExecutionScope) -> ExecutionDurations:
    """Durations of all executions of the scope."""
    sums = [func.coalesce(func.sum(e[name]), 0) for name in ADDED]
    ends = [func.coalesce(func.min(e.shortest), 0), func.coalesce(func.max(e.longest), 0)]
    count, milliseconds, *durations, shortest, longest = map(
        int, (await tx.conn.execute(scope.on(select(*sums, *ends)))).one()
    )
    return ExecutionDurations(
        count=count, milliseconds=milliseconds, shortest=shortest, longest=longest, durations=tuple(durations)
    )


async def list_days(tx: Tx, scope: ExecutionScope) -> Mapping[datetime, Counts]:
    """The tasks by status after the last execution of each day, of the projects that had any."""
    found = scope.on(select(task_day), d.day, d.project_pk).offset(0).subquery("found").c
    counted = select(found.day, *(func.sum(found[status.value]) for status in Status)).group_by(found.day)
    return {
        row[0]: Counts(**dict(zip((status.value for status in Status), map(int, row[1:]), strict=True)))
        for row in await tx.conn.execute(counted)
    }


async def delete_executions(tx: Tx, *, before: datetime, limit: int = 10_000) -> int:
    """Delete the oldest counts; returns how many."""
    oldest = select(e.hour).where(e.hour < before).order_by(e.hour).limit(limit).subquery()
    newest = select(func.max(oldest.c.hour)).scalar_subquery()
    deleted = (await tx.conn.execute(delete(task_execution).where(e.hour <= newest))).rowcount
    return deleted or (await tx.conn.execute(delete(task_day).where(d.day < before))).rowcount


async def delete_executions_of(tx: Tx, project_pk: str) -> int:
    """Delete the counts of a removed project; returns how many."""
    deleted = (await tx.conn.execute(delete(task_execution).where(e.project_pk == project_pk))).rowcount
    return deleted or (await tx.conn.execute(delete(task_day).where(d.project_pk == project_pk))).rowcount


async def _sum_by(tx: Tx, scope: ExecutionScope, column: Column[Any]) -> Mapping[Any, Executions]:
    """The subquery has an OFFSET, or PostgreSQL would walk an index on the grouped column instead."""
    found = scope.on(select(task_execution)).offset(0).subquery("found").c
    group, total = found[column.name], func.sum(found["count"]).label("total")
    succeeded = case((found.kind == SUCCESS, found["count"]), else_=literal(0))
    success: ColumnElement[Any] = func.sum(succeeded).label("success")
    counted = select(group, total, success).group_by(group).order_by(total.desc(), group)
    rows = await tx.conn.execute(counted.limit(MAX_GROUPS))
    return {row[0]: Executions(total=int(row.total), success=int(row.success)) for row in rows}
