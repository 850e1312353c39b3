"""The change feed of a project: one entry per changed task, numbered in commit order."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, func, select

from penstock.kernel.db import Tx
from penstock.kernel.dialect.bulk import WriteBatch
from penstock.tasks.domain import Change, ChangeKind
from penstock.tasks.store.tables import task_change

c = task_change.c
NAMES = ("project_pk", "version", "task_id", "queue_id", "kind", "status", "holder", "by", "at")


@dataclass(frozen=True, kw_only=True)
class FeedEntry:
    """One entry of the change feed."""

    version: int
    task_id: str
    queue_id: str
    kind: ChangeKind
    status: str
    holder: str | None
    by: str
    at: datetime


def insert_changes(writes: WriteBatch, project_pk: str, changes: Sequence[Change], *, first: int, by: str) -> None:
    """Insert entries, numbered from `first`. The caller holds the project's lock."""
    rows = [
        (
            project_pk,
            number,
            change.task.task_id,
            change.task.queue_id,
            change.kind.value,
            change.task.status.value,
            change.before.lease_owner if change.before is not None and change.before.is_held else None,
            change.by or by,
            writes.tx.now,
        )
        for number, change in enumerate(changes, first)
    ]
    writes.insert(task_change, NAMES, rows)


async def list_changes(
    tx: Tx, project_pk: str, *, after: int, upto: int, limit: int, holder: str | None = None
) -> list[FeedEntry]:
    """Entries with `after` < version <= `upto`, in order; with a holder, only those of tasks it held."""
    mine = select(*(c[name] for name in NAMES[1:])).where(c.project_pk == project_pk)
    mine = mine.where(c.version.between(after + 1, upto))
    if holder is not None:
        mine = mine.where(c.holder == holder)
    rows = await tx.conn.execute(mine.order_by(c.version).limit(limit))
    return [FeedEntry(**{**row._mapping, "kind": ChangeKind(row.kind)}) for row in rows]


async def list_kinds(tx: Tx, project_pk: str, versions: Collection[int]) -> dict[int, ChangeKind]:
    """What happened at each of these versions, of those that are still kept."""
    mine = select(c.version, c.kind).where(c.project_pk == project_pk, c.version.in_(list(versions)))
    return {row.version: ChangeKind(row.kind) for row in await tx.conn.execute(mine)}


async def find_oldest_version(tx: Tx, project_pk: str) -> int | None:
    """The oldest version that is still kept."""
    first: int | None = await tx.conn.scalar(select(func.min(c.version)).where(c.project_pk == project_pk))
    return first


async def delete_changes(tx: Tx, *, before: datetime, limit: int = 10_000) -> int:
    """Delete the oldest entries; returns how many. Entries with the same time are deleted together."""
    oldest = select(c.at).where(c.at < before).order_by(c.at).limit(limit).subquery()
    old = c.at <= select(func.max(oldest.c.at)).scalar_subquery()
    return (await tx.conn.execute(delete(task_change).where(old))).rowcount


async def delete_changes_of(tx: Tx, project_pk: str, *, limit: int = 10_000) -> int:
    """Delete some entries of a deleted project; returns how many."""
    some = select(c.version).where(c.project_pk == project_pk).order_by(c.version).limit(limit)
    mine = delete(task_change).where(c.project_pk == project_pk, c.version.in_(some))
    return (await tx.conn.execute(mine)).rowcount
