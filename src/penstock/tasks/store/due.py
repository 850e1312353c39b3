"""What has come due by itself: leases that ran out, and tasks whose time to be pulled has passed. Found by an index
each, the longest due first, a bounded number at a time. Projects that are deleted are left to the job that clears them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, and_, false, func, literal_column, select

from penstock.kernel.db import Tx
from penstock.tasks.store.tables import EXPIRING, HELD, LIVES, project, task

t = task.c
AT_ONCE = 1000
# An expired task that a client pushed all the same is theirs: only what still waits here in vain is put away.
# Asked so that no other index fits: it is by when they expired that they are walked.
_waits = and_(t.state == literal_column("'idle'"), t.source == literal_column("'server'"))
EXPIRED = and_(t.expired_at.is_not(None), LIVES, func.coalesce(_waits, false()))

Found = Mapping[str, Sequence[str]]


async def list_lapsed(tx: Tx) -> Found:
    """Tasks whose lease has run out, by project."""
    return await _list_due(tx, t.leased_until, HELD)


async def list_expiring(tx: Tx) -> Found:
    """Tasks on offer that nobody pulled in time, by project."""
    return await _list_due(tx, t.expires_at, EXPIRING)


async def list_expired(tx: Tx) -> Found:
    """Tasks that have expired and are still in the lists, by project."""
    return await _list_due(tx, t.expired_at, EXPIRED)


async def _list_due(tx: Tx, when: Column[Any], which: ColumnElement[bool]) -> Found:
    gone = select(project.c.deleted_at).where(project.c.id == t.partition_key).scalar_subquery()
    lives = gone.is_(None)  # as EXISTS it may lead PostgreSQL from the projects, and make it sort
    due = select(t.id, t.partition_key).where(which, when <= tx.now, lives).order_by(when).limit(AT_ONCE)
    found: defaultdict[str, list[str]] = defaultdict(list)
    for row in await tx.conn.execute(due):
        found[row.partition_key].append(row.id)
    return found
