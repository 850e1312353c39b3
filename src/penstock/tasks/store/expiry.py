"""Expiry: leases that ran out, offers past their `expires_at`, and expired tasks to archive.

Each is found by its own index, the longest overdue first, a bounded number at a time. Deleted projects are left to the
job that removes them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Column, ColumnElement, Select, and_, false, func, literal, literal_column, select

from penstock.kernel.columns import UtcTime
from penstock.kernel.db import Tx
from penstock.kernel.dialect.compiled_statement import any_rows
from penstock.kernel.leases import Leases
from penstock.tasks.store.tables import EXPIRING, HELD, IS_ACTIVE, LEASE, project, task

t = task.c
BATCH_SIZE = 1000
# An expired task that a client pushed anyway belongs to the client; only tasks nobody pulled are archived.
# The COALESCE keeps planners from using another index than the one on expired_at.
_unclaimed = and_(t.state == literal_column("'idle'"), t.source == literal_column("'server'"))
EXPIRED = and_(t.expired_at.is_not(None), IS_ACTIVE, func.coalesce(_unclaimed, false()))

LEASES = Leases(task, LEASE)  # for the question whether a lease has run out; claims have statements of their own

DueTasks = Mapping[str, Sequence[str]]
TimeExpression = ColumnElement[datetime]


async def list_expired_leases(tx: Tx) -> DueTasks:
    """Held tasks whose lease has run out, by project."""
    return await _list_due(tx, t.leased_until, HELD)


async def list_expiring(tx: Tx) -> DueTasks:
    """Offered tasks past their expiry time, by project."""
    return await _list_due(tx, t.expires_at, EXPIRING)


async def list_expired(tx: Tx) -> DueTasks:
    """Expired tasks that are not archived yet, by project."""
    return await _list_due(tx, t.expired_at, EXPIRED)


def has_expiring(_since: TimeExpression, now: TimeExpression) -> ColumnElement[bool]:
    """Whether any offered task is past its expiry time. `_since` is ignored: a task may be offered long after that, so
    none may be skipped for being due long ago."""
    return _is_any_due(t.expires_at, EXPIRING, now)


def has_expired_tasks(_since: TimeExpression, now: TimeExpression) -> ColumnElement[bool]:
    """Whether any expired task is not archived. Includes tasks that a client pushed: excluding them could scan many."""
    return _is_any_due(t.expired_at, and_(t.expired_at.is_not(None), IS_ACTIVE), now)


async def _list_due(tx: Tx, when: Column[Any], which: ColumnElement[bool]) -> DueTasks:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for row in await tx.conn.execute(_due(when, which, literal(tx.now, UtcTime)).limit(BATCH_SIZE)):
        found[row.partition_key].append(row.id)
    return found


def _is_any_due(when: Column[Any], which: ColumnElement[bool], now: TimeExpression) -> ColumnElement[bool]:
    return any_rows(_due(when, which, now).with_only_columns(t.id))


def _due(when: Column[Any], which: ColumnElement[bool], now: TimeExpression) -> Select[Any]:
    """Tasks and their projects, the longest overdue first."""
    gone = select(project.c.deleted_at).where(project.c.id == t.partition_key).scalar_subquery()
    lives = gone.is_(None)  # not EXISTS: PostgreSQL may start from the projects, and sort
    return select(t.id, t.partition_key).where(which, when <= now, lives).order_by(when)
