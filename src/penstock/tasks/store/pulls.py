"""Pull history: when and by whom a task was pulled and released, and the outcome."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, func, select, update

from penstock.kernel.db import Tx
from penstock.kernel.dialect.bulk import WriteBatch, insert_rows
from penstock.kernel.dialect.sql import any_of
from penstock.tasks.domain import PullOutcome, Task
from penstock.tasks.store.tables import task_pull

tp = task_pull.c
NAMES = ("project_pk", "queue_pk", "task_pk", "pull_id", "lease_token", "pulled_at", "pulled_by", "actor")
OPEN = tp.ended_at.is_(None)


@dataclass(frozen=True, kw_only=True)
class PullRecord:
    """One pull of one task."""

    id: int
    task_pk: str
    pull_id: str
    pulled_at: datetime
    pulled_by: str
    confirmed_at: datetime | None
    ended_at: datetime | None
    ended_by: str | None
    outcome: PullOutcome | None
    seconds: float | None


@dataclass(frozen=True, kw_only=True)
class HistoryRow:
    """A pull that happened elsewhere, of a task that is imported; without an outcome it is open."""

    task: Task
    pulled_at: datetime
    pulled_by: str
    ended_at: datetime | None = None
    ended_by: str | None = None
    outcome: PullOutcome | None = None


def _from_row(row: Row[Any]) -> PullRecord:
    known = {name: row._mapping[name] for name in PullRecord.__dataclass_fields__}
    return PullRecord(**{**known, "outcome": None if row.outcome is None else PullOutcome(row.outcome)})


def end_pulls(writes: WriteBatch, ended: Sequence[tuple[Task, PullOutcome, str]]) -> None:
    """End the open pulls of these tasks (as they were before): with which outcome, and by whom."""
    now = writes.tx.now
    rows = [
        (before.id, outcome.value, now, by, (now - before.pulled_at).total_seconds())
        for before, outcome, by in ended
        if before.pulled_at is not None
    ]
    names = ("task_pk", "outcome", "ended_at", "ended_by", "seconds")
    writes.update(task_pull, names, rows, where=OPEN)


async def insert_history(tx: Tx, history: Sequence[HistoryRow]) -> None:
    """Insert pulls of imported tasks, oldest first."""
    rows = [
        (
            *(one.task.partition_key, one.task.queue_pk, one.task.id, "", one.task.lease_token or ""),
            *(one.pulled_at, one.pulled_by, "", one.ended_at, one.ended_by),
            *(one.outcome and one.outcome.value, _seconds(one)),
        )
        for one in history
    ]
    await insert_rows(tx, task_pull, (*NAMES, "ended_at", "ended_by", "outcome", "seconds"), rows)


def _seconds(one: HistoryRow) -> float | None:
    return None if one.ended_at is None else (one.ended_at - one.pulled_at).total_seconds()


async def confirm_pulls(tx: Tx, pks: Collection[str]) -> None:
    """Mark the open pulls of these tasks as confirmed by their holders."""
    mine = update(task_pull).where(any_of(tp.task_pk, pks), tp.ended_at.is_(None), tp.confirmed_at.is_(None))
    await tx.conn.execute(mine.values(confirmed_at=tx.now))


async def list_pulls(tx: Tx, task_pk: str, *, offset: int, limit: int) -> list[PullRecord]:
    """The pulls of one task, oldest first."""
    mine = select(task_pull).where(tp.task_pk == task_pk).order_by(tp.id).offset(offset).limit(limit)
    return [_from_row(row) for row in await tx.conn.execute(mine)]


async def count_pulls(tx: Tx, task_pk: str) -> int:
    """How often a task was pulled."""
    return await tx.conn.scalar(select(func.count()).select_from(task_pull).where(tp.task_pk == task_pk)) or 0


async def list_last_tokens(tx: Tx, pks: Collection[str]) -> dict[str, tuple[str, PullOutcome | None]]:
    """The lease token and outcome of each task's last pull, to recognise a repeated push."""
    newest = select(func.max(tp.id)).where(any_of(tp.task_pk, pks)).group_by(tp.task_pk)
    rows = await tx.conn.execute(select(tp.task_pk, tp.lease_token, tp.outcome).where(tp.id.in_(newest)))
    return {row.task_pk: (row.lease_token, None if row.outcome is None else PullOutcome(row.outcome)) for row in rows}


async def list_pulled_under(tx: Tx, token: str, pks: Collection[str]) -> set[str]:
    """Those of these tasks that were ever pulled under a lease token."""
    pulled = select(tp.task_pk).where(any_of(tp.task_pk, pks), tp.lease_token == token)
    return set((await tx.conn.scalars(pulled)).all())


async def list_lost_by(tx: Tx, name: str, pks: Collection[str]) -> set[str]:
    """Those of these tasks that the client pulled and lost again: its last pull of them ended without a push."""
    last = func.max(tp.id).filter(tp.pulled_by == name)  # in WHERE, a plan would look for the name in another index
    newest = select(last).where(any_of(tp.task_pk, pks)).group_by(tp.task_pk)
    rows = await tx.conn.execute(select(tp.task_pk, tp.outcome).where(tp.id.in_(newest)))
    return {row.task_pk for row in rows if row.outcome not in (None, PullOutcome.PUSHED.value)}


async def find_pull(tx: Tx, task_pk: str, *, name: str, token: str | None) -> PullRecord | None:
    """The pull of a task under a lease token, or without one the last by that client."""
    whose = tp.lease_token == token if token is not None else tp.pulled_by == name
    mine = select(task_pull).where(tp.task_pk == task_pk, whose).order_by(tp.id.desc()).limit(1)
    row = (await tx.conn.execute(mine)).one_or_none()
    return None if row is None else _from_row(row)


async def delete_old_pulls(tx: Tx, *, before: datetime, limit: int = 10_000) -> int:
    """Delete the oldest ended pulls; returns how many."""
    old = select(tp.id).where(tp.ended_at < before).order_by(tp.ended_at).limit(limit)
    return (await tx.conn.execute(delete(task_pull).where(tp.id.in_(old)))).rowcount
