"""Leases that their holders keep: found, checked and extended in one statement, without the project's lock.

Thousands of holders renew at once and must not queue up for their project. A task in somebody's hands is known by its
token, or by its holder's name. The table allows a token only while a task is held, so that is not asked again: asked,
it would lead PostgreSQL over the index of all held tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, String, Update, bindparam, func, or_, select, update

from penstock.kernel.bulk import update_rows
from penstock.kernel.columns import Id, UtcTime
from penstock.kernel.db import Tx
from penstock.kernel.hot import HotStatement, LeasedRow
from penstock.tasks.domain import Task
from penstock.tasks.store.tables import project, task

p, t = project.c, task.c


@dataclass(frozen=True, kw_only=True)
class Grip:
    """A task by the names in a path, in the hands of someone."""

    project_id: str
    task_id: str
    queue_id: str | None
    holder: str
    token: str | None

    @property
    def shape(self) -> tuple[bool, bool]:
        """What its statement looks like: whether a queue is named, and whether a token is."""
        return self.queue_id is not None, self.token is not None

    def values(self) -> dict[str, Any]:
        """The parameters of its statement."""
        values = {"project": self.project_id, "named": self.task_id}
        values |= {} if self.queue_id is None else {"queue": self.queue_id}
        return values | ({"holder": self.holder} if self.token is None else {"token": self.token})


async def renew(tx: Tx, grip: Grip, *, until: datetime) -> bool:
    """Extend the lease of a task in these hands; False when it is not there, or the names do not say which it is."""
    return bool(await _renew(*grip.shape).ids(tx, grip.values() | {"until": until}))


async def confirm(tx: Tx, grip: Grip, *, until: datetime) -> LeasedRow | None:
    """The same with a receipt, of which the first counts; the row has `id` and `confirmed_at`."""
    rows = await _confirm(*grip.shape).rows(tx, grip.values() | {"until": until, "now": tx.now})
    return rows[0] if rows else None


async def keep(tx: Tx, kept: Sequence[Task]) -> None:
    """Write the leases and receipts of tasks that this transaction has locked."""
    rows = [(one.id, one.leased_until, one.confirmed_at) for one in kept]
    await update_rows(tx, task, ("id", "leased_until", "confirmed_at"), rows)


@lru_cache(maxsize=4)
def _renew(in_queue: bool, by_token: bool) -> HotStatement:
    return HotStatement(_extended(in_queue, by_token).returning(t.id))


@lru_cache(maxsize=4)
def _confirm(in_queue: bool, by_token: bool) -> HotStatement:
    first = func.coalesce(t.confirmed_at, bindparam("now", type_=UtcTime), type_=UtcTime)
    return HotStatement(_extended(in_queue, by_token).values(confirmed_at=first).returning(t.id, t.confirmed_at))


def _extended(in_queue: bool, by_token: bool) -> Update:
    named = select(p.id).where(p.project_id == bindparam("project", type_=Id), p.deleted_at.is_(None))
    mine = [t.partition_key == named.scalar_subquery(), t.task_id == bindparam("named", type_=Id)]
    mine.append(t.queue_id == bindparam("queue", type_=Id) if in_queue else _is_meant())
    if by_token:
        mine.append(t.lease_token == bindparam("token", type_=String))
    else:
        mine += [t.lease_token.is_not(None), t.lease_owner == bindparam("holder", type_=String)]
    return update(task).where(*mine).values(leased_until=bindparam("until", type_=UtcTime))


def _is_meant() -> ColumnElement[bool]:
    """Without a queue, a name means the task beside all queues, or the only one that has it."""
    other = task.alias("other").c
    same = (other.partition_key == t.partition_key, other.task_id == t.task_id, other.id != t.id)
    return or_(t.queue_pk == "", ~select(other.id).where(*same, other.deleted_at.is_(None)).exists())
