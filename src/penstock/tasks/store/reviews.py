"""Review requests of other modules, and the tasks that ask for their answers."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, select, update

from penstock.kernel.db import Tx
from penstock.kernel.dialect.bulk import insert_new
from penstock.kernel.dialect.sql import any_of
from penstock.tasks.store.tables import task_review

r = task_review.c
COLUMNS = ("request", "origin", "task_pk", "created_at", "ended_at")


@dataclass(frozen=True, kw_only=True)
class ReviewRequest:
    """A review request and the primary key of its task."""

    request: str
    origin: str
    task_pk: str


async def insert_request(tx: Tx, *, request: str, origin: str, task_pk: str) -> bool:
    """Insert an open request; False if it exists: delivered before, or withdrawn already."""
    return bool(await insert_new(tx, task_review, COLUMNS, [(request, origin, task_pk, tx.now, None)]))


async def insert_withdrawn(tx: Tx, *, request: str, origin: str) -> bool:
    """Record that a request was withdrawn before it arrived; False if it had."""
    return bool(await insert_new(tx, task_review, COLUMNS, [(request, origin, None, tx.now, tx.now)]))


async def end_request(tx: Tx, request: str) -> str | None:
    """End an open request; returns the primary key of its task, or None if it has ended before."""
    mine = update(task_review).where(r.request == request, r.ended_at.is_(None))
    task_pk: str | None = await tx.conn.scalar(mine.values(ended_at=tx.now).returning(r.task_pk))
    return task_pk


async def find_task_pk(tx: Tx, request: str) -> str | None:
    """The primary key of a request's task."""
    return await tx.conn.scalar(select(r.task_pk).where(r.request == request))


async def list_open(tx: Tx, task_pks: Collection[str]) -> list[ReviewRequest]:
    """The open requests of these tasks."""
    mine = select(r.request, r.origin, r.task_pk).where(any_of(r.task_pk, task_pks), r.ended_at.is_(None))
    return [ReviewRequest(**row._mapping) for row in await tx.conn.execute(mine)]


async def delete_ended(tx: Tx, *, before: datetime, limit: int = 10_000) -> int:
    """Delete the oldest ended requests; returns how many."""
    old = select(r.request).where(r.ended_at < before).order_by(r.ended_at).limit(limit)
    return (await tx.conn.execute(delete(task_review).where(r.request.in_(old)))).rowcount
