"""What has come due by itself: leases that ran out, and tasks whose time to be pulled has passed. Found by an index
each, the longest due first, a bounded number at a time. Projects that are deleted are left to the job that clears them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Column, ColumnElement, Select, and_, false, func, literal, literal_column, select

from penstock.kernel.columns import UtcTime
from penstock.kernel.db import Tx
from penstock.kernel.hot import is_any
from penstock.tasks.store.tables import EXPIRING, HELD, LIVES, project, task

t = task.c
AT_ONCE = 1000
# An expired task that a client pushed all the same is theirs: only what still waits here in vain is put away.
# Asked so that no other index fits: it is by when they expired that they are walked.
_waits = and_(t.state == literal_column("'idle'"), t.source == literal_column("'server'"))
EXPIRED = and_(t.expired_at.is_not(None), LIVES, func.coalesce(_waits, false()))

Found = Mapping[str, Sequence[str]]
Moment = ColumnElement[datetime]


async def list_lapsed(tx: Tx) -> Found:
    """Tasks whose lease has run out, by project."""
    return await _list_due(tx, t.leased_until, HELD)


async def list_expiring(tx: Tx) -> Found:
    """Tasks on offer that nobody pulled in time, by project."""
    return await _list_due(tx, t.expires_at, EXPIRING)


async def list_expired(tx: Tx) -> Found:
    """Tasks that have expired and are still in the lists, by project."""
    return await _list_due(tx, t.expired_at, EXPIRED)


def is_any_lapsed(_since: Moment, now: Moment) -> ColumnElement[bool]:
    """Whether there are tasks whose lease has run out."""
    return _is_any_due(t.leased_until, HELD, now)


def is_any_expiring(_since: Moment, now: Moment) -> ColumnElement[bool]:
    """Whether there are tasks on offer that nobody pulled in time. When that was says nothing about since when they
    are on offer, so none is left out for having been due long ago."""
    return _is_any_due(t.expires_at, EXPIRING, now)


def is_any_expired(_since: Moment, now: Moment) -> ColumnElement[bool]:
    """Whether there are tasks that have expired and are still in the lists, be they those that a client pushed all the
    same: to pass over all of these may take long."""
    return _is_any_due(t.expired_at, and_(t.expired_at.is_not(None), LIVES), now)


async def _list_due(tx: Tx, when: Column[Any], which: ColumnElement[bool]) -> Found:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for row in await tx.conn.execute(_due(when, which, literal(tx.now, UtcTime)).limit(AT_ONCE)):
        found[row.partition_key].append(row.id)
    return found


def _is_any_due(when: Column[Any], which: ColumnElement[bool], now: Moment) -> ColumnElement[bool]:
    return is_any(_due(when, which, now).with_only_columns(t.id))


def _due(when: Column[Any], which: ColumnElement[bool], now: Moment) -> Select[Any]:
    """Tasks and their projects, the longest due first."""
    gone = select(project.c.deleted_at).where(project.c.id == t.partition_key).scalar_subquery()
    lives = gone.is_(None)  # as EXISTS it may lead PostgreSQL from the projects, and make it sort
    return select(t.id, t.partition_key).where(which, when <= now, lives).order_by(when)
