"""Lease renewal: a lease is found, checked and extended in one statement, without the project's lock.

Thousands of holders renew at the same time and must not queue for the project's row. A lease is identified by its
token, or without one by its holder's name. The statements do not check the state: a CHECK allows a token only while a
task is held, and the condition would make PostgreSQL scan the index of all held tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, String, Update, bindparam, func, or_, select, update

from penstock.kernel.columns import Id, UtcTime
from penstock.kernel.db import Tx
from penstock.kernel.dialect.bulk import update_rows
from penstock.kernel.dialect.compiled_statement import CompiledStatement, LeasedRow
from penstock.tasks.domain import Task
from penstock.tasks.store.tables import project, task

p, t = project.c, task.c


@dataclass(frozen=True, kw_only=True)
class LeaseLookup:
    """Which lease to extend: the ids from the path, and the holder or the token."""

    project_id: str
    task_id: str
    queue_id: str | None
    holder: str
    token: str | None

    @property
    def shape(self) -> tuple[bool, bool]:
        """Which conditions its statement has: whether a queue is given, and whether a token is."""
        return self.queue_id is not None, self.token is not None

    def values(self) -> dict[str, Any]:
        """The parameters of its statement."""
        values = {"project": self.project_id, "named": self.task_id}
        values |= {} if self.queue_id is None else {"queue": self.queue_id}
        return values | ({"holder": self.holder} if self.token is None else {"token": self.token})


async def renew(tx: Tx, lookup: LeaseLookup, *, until: datetime) -> bool:
    """Extend a lease; False if the holder does not hold it, or the ids are ambiguous."""
    return bool(await _renew(*lookup.shape).ids(tx, lookup.values() | {"until": until}))


async def confirm(tx: Tx, lookup: LeaseLookup, *, until: datetime) -> LeasedRow | None:
    """Extend a lease and confirm receipt; the first confirmation counts. The row has `id` and `confirmed_at`."""
    rows = await _confirm(*lookup.shape).rows(tx, lookup.values() | {"until": until, "now": tx.now})
    return rows[0] if rows else None


async def move_leases(tx: Tx, kept: Sequence[Task]) -> None:
    """Write `leased_until` and `confirmed_at` of tasks that this transaction has locked."""
    rows = [(one.id, one.leased_until, one.confirmed_at) for one in kept]
    await update_rows(tx, task, ("id", "leased_until", "confirmed_at"), rows)


@lru_cache(maxsize=4)
def _renew(in_queue: bool, by_token: bool) -> CompiledStatement:
    return CompiledStatement(_extended(in_queue, by_token).returning(t.id))


@lru_cache(maxsize=4)
def _confirm(in_queue: bool, by_token: bool) -> CompiledStatement:
    first = func.coalesce(t.confirmed_at, bindparam("now", type_=UtcTime), type_=UtcTime)
    return CompiledStatement(_extended(in_queue, by_token).values(confirmed_at=first).returning(t.id, t.confirmed_at))


def _extended(in_queue: bool, by_token: bool) -> Update:
    named = select(p.id).where(p.project_id == bindparam("project", type_=Id), p.deleted_at.is_(None))
    mine = [t.partition_key == named.scalar_subquery(), t.task_id == bindparam("named", type_=Id)]
    mine.append(t.queue_id == bindparam("queue", type_=Id) if in_queue else _is_unambiguous())
    if by_token:
        mine.append(t.lease_token == bindparam("token", type_=String))
    else:
        mine += [t.lease_token.is_not(None), t.lease_owner == bindparam("holder", type_=String)]
    return update(task).where(*mine).values(leased_until=bindparam("until", type_=UtcTime))


def _is_unambiguous() -> ColumnElement[bool]:
    """Without a queue, an id means the task that has no queue, or the only task with that id."""
    other = task.alias("other").c
    same = (other.partition_key == t.partition_key, other.task_id == t.task_id, other.id != t.id)
    return or_(t.queue_pk == "", ~select(other.id).where(*same, other.deleted_at.is_(None)).exists())
