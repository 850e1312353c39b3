"""Statements on the cache of stage results. Every lookup names the user: a key alone finds nothing."""

from collections.abc import Collection
from dataclasses import dataclass, fields
from datetime import datetime

from sqlalchemy import delete, select, tuple_

from penstock.etl.domain import Phase
from penstock.etl.store.tables import etl_memory
from penstock.kernel.bulk import upsert
from penstock.kernel.db import Tx

m = etl_memory.c


@dataclass(frozen=True, kw_only=True)
class CachedStage:
    """A cache entry: which task and run made the artifacts of a key."""

    user_id: int
    key: str
    stage: Phase
    task_id: int
    run: int
    made_at: datetime


COLUMNS = tuple(m[known.name] for known in fields(CachedStage))


async def find_memory(tx: Tx, user_id: int, key: str) -> CachedStage | None:
    """The cache entry of a user and key."""
    row = (await tx.conn.execute(select(*COLUMNS).where(m.user_id == user_id, m.key == key))).one_or_none()
    return None if row is None else CachedStage(**row._asdict() | {"stage": Phase(row.stage)})


async def insert_memory(tx: Tx, new: CachedStage) -> None:
    """Add or replace an entry. The latest task wins, since it is the last to be removed."""
    statement = upsert(tx, etl_memory)
    latest = {name: statement.excluded[name] for name in ("stage", "task_id", "run", "made_at")}
    upserted = statement.on_conflict_do_update(index_elements=["user_id", "key"], set_=latest)
    await tx.conn.execute(upserted, {column.name: getattr(new, column.name) for column in COLUMNS})


async def delete_of_tasks(tx: Tx, task_ids: Collection[int]) -> None:
    """Delete the entries of these tasks."""
    await tx.conn.execute(delete(etl_memory).where(m.task_id.in_(list(task_ids))))


async def delete_old(tx: Tx, *, before: datetime, limit: int) -> int:
    """Delete entries older than `before`, oldest first; returns how many.

    Locked rows are skipped until the next time. Waiting for them could deadlock with the removal of tasks, which locks
    rows in another order.
    """
    oldest = select(m.user_id, m.key).where(m.made_at < before).order_by(m.made_at).limit(limit)
    old = oldest.with_for_update(skip_locked=True).cte("old")
    these = delete(etl_memory).where(tuple_(m.user_id, m.key).in_(select(old.c.user_id, old.c.key)))
    return len((await tx.conn.execute(these.returning(m.key))).all())  # SQLite reports no row count after a WITH
