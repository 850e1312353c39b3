"""Queues of projects."""

from collections.abc import Collection, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import Row, Select, bindparam, delete, func, insert, select, update

from penstock.kernel.columns import Id
from penstock.kernel.db import Tx
from penstock.kernel.dialect.bulk import WriteBatch
from penstock.kernel.dialect.compiled_statement import CompiledStatement, LeasedRow
from penstock.kernel.dialect.sql import any_of
from penstock.tasks.domain import Counts, Operation, StateCounts, Status, TaskQueue
from penstock.tasks.errors import QueueNotFound
from penstock.tasks.store.search import contains, folded
from penstock.tasks.store.tables import queue

q = queue.c
IS_ACTIVE = q.deleted_at.is_(None)
COUNTS = tuple(status.value for status in Status)
NAMES = tuple(known.name for known in fields(TaskQueue) if known.name not in {"counts", "states"})
_NAMED = (q.project_pk == bindparam("in_project", type_=Id), q.queue_id == bindparam("named", type_=Id))
_FIND = CompiledStatement(select(queue).where(*_NAMED, IS_ACTIVE))


def _states(row: Row[Any] | LeasedRow) -> StateCounts:
    return StateCounts(open_tasks=row.open_tasks, closed_tasks=row.closed_tasks, idle_tasks=row.idle_tasks)


def from_row(row: Row[Any] | LeasedRow) -> TaskQueue:
    """A queue from its row."""
    known = {name: getattr(row, name) for name in NAMES}
    if row.last_operation is not None:
        known["last_operation"] = Operation(row.last_operation)
    return TaskQueue(**known, counts=Counts(**{name: getattr(row, name) for name in COUNTS}), states=_states(row))


def values_of(known: TaskQueue) -> dict[str, Any]:
    """The columns of a queue's row."""
    values = {name: getattr(known, name) for name in NAMES} | vars(known.counts) | vars(known.states)
    values["search_text"] = folded(known.queue_id, known.name)
    values["active_at"] = known.active_at
    return values


async def find_queue(tx: Tx, project_pk: str, queue_id: str) -> TaskQueue | None:
    """A queue of a project by its `queue_id`, or None."""
    found = await _FIND.rows(tx, {"in_project": project_pk, "named": queue_id})
    return from_row(found[0]) if found else None


async def get_queue(tx: Tx, project_pk: str, queue_id: str, *, project_id: str) -> TaskQueue:
    """A queue of a project by its `queue_id`. Raises `QueueNotFound`."""
    found = await find_queue(tx, project_pk, queue_id)
    if found is None:
        raise QueueNotFound(project_id=project_id, queue_id=queue_id)
    return found


async def list_queues_by_pk(tx: Tx, pks: Collection[str]) -> list[TaskQueue]:
    """Queues by primary key."""
    return [from_row(row) for row in await tx.conn.execute(select(queue).where(any_of(q.id, pks)))] if pks else []


async def insert_queue(tx: Tx, new: TaskQueue) -> None:
    """Insert a queue."""
    await tx.conn.execute(insert(queue).values(values_of(new)))


def move_queues(writes: WriteBatch, moved: Sequence[tuple[TaskQueue, TaskQueue]]) -> None:
    """Write the changed columns of queues whose project this transaction has locked, in one statement for all."""
    values = [(values_of(before), values_of(after)) for before, after in moved if before != after]
    names = sorted({name for old, new in values for name in new if old[name] != new[name]})
    writes.update(queue, ("id", *names), [(new["id"], *(new[name] for name in names)) for _, new in values])


async def touch_queue(tx: Tx, queue_pk: str) -> None:
    """Move the `updated_at` of a queue to now."""
    await tx.conn.execute(update(queue).where(q.id == queue_pk).values(updated_at=tx.now))


async def delete_queue(tx: Tx, queue_pk: str) -> None:
    """Turn a queue into a tombstone, which is kept for a while, as a project's is."""
    erased = {"deleted_at": tx.now, "updated_at": tx.now, "name": "", "search_text": "", "meta": None}
    await tx.conn.execute(update(queue).where(q.id == queue_pk).values(erased))


async def delete_queues_of(tx: Tx, project_pk: str, *, limit: int = 2_000) -> int:
    """Delete some queues of a deleted project; returns how many."""
    some = select(q.id).where(q.project_pk == project_pk).limit(limit)
    return (await tx.conn.execute(delete(queue).where(q.id.in_(some)))).rowcount


async def delete_queue_tombstones(tx: Tx, *, before: datetime, limit: int = 1_000) -> int:
    """Delete tombstones older than `before`; returns how many."""
    old = select(q.id).where(q.deleted_at < before).order_by(q.deleted_at).limit(limit)
    return (await tx.conn.execute(delete(queue).where(q.id.in_(old)))).rowcount


def _filtered(statement: Select[Any], project_pk: str, search: str) -> Select[Any]:
    statement = statement.where(q.project_pk == project_pk, IS_ACTIVE)
    return statement.where(contains(q.search_text, search)) if search else statement


async def list_queues(tx: Tx, project_pk: str, *, search: str = "", offset: int, limit: int) -> list[TaskQueue]:
    """The queues of a project, ordered by their newest task."""
    filtered = _filtered(select(queue), project_pk, search).order_by(q.active_at.desc(), q.id.desc())
    return [from_row(row) for row in await tx.conn.execute(filtered.offset(offset).limit(limit))]


async def count_queues(tx: Tx, project_pk: str, *, search: str) -> int:
    """How many queues of a project match a search."""
    return await tx.conn.scalar(_filtered(select(func.count()).select_from(queue), project_pk, search)) or 0


async def find_last_change(tx: Tx, project_pk: str) -> datetime | None:
    """When a queue of a project was last created, changed or deleted."""
    newest = select(q.updated_at).where(q.project_pk == project_pk).order_by(q.updated_at.desc()).limit(1)
    latest: datetime | None = await tx.conn.scalar(newest)
    return latest
