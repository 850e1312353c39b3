"""The backlog: jobs that are due and not claimed, listed by module and page by page.

Every query uses the index that claims use, so it costs the same whether ten jobs wait or a million.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, ScalarSelect, and_, func, literal, literal_column, select, true, tuple_

from penstock.kernel.columns import Id, UtcTime
from penstock.kernel.db import Db, Tx
from penstock.kernel.job_dispatch import WaitingJob, numbers_of
from penstock.kernel.queue import job

_j = job.c
_ready = and_(_j.state == literal_column("'waiting'"), ~_j.deferred)  # constants, so that the partial index matches
_claim_order = (_j.priority, _j.scheduled_at, _j.id)
MAX_POSITION = 1000  # what is further back has no position: the cost of counting is bounded


@dataclass(frozen=True, kw_only=True)
class ModuleBacklog:
    """A module with jobs that are due, and since when its next job is due."""

    module: str
    since: datetime


async def list_waiting_jobs(
    tx: Tx, module: str, *, after: WaitingJob | None = None, limit: int = 500
) -> list[WaitingJob]:
    """The due jobs of a module in claim order; the next page begins after the last job of this one."""
    columns = (_j.id, _j.lease_count, _j.partition_key, *_claim_order[:2], _j.kind, _j.payload)
    due = select(*columns).where(_ready, _j.partition_key == module)
    if after is not None:
        last: tuple[Any, ...] = (literal(after.priority), literal(after.due_at, UtcTime), literal(after.id, Id))
        due = due.where(tuple_(*_claim_order) > tuple_(*last))
    rows = await tx.conn.execute(due.order_by(*_claim_order).limit(limit))
    names = WaitingJob.__dataclass_fields__
    return [WaitingJob(**dict(zip(names, (*row[:-1], numbers_of(row.payload)), strict=True))) for row in rows]


class SqlQueuePositions:
    """Where waiting jobs stand, counted in the claim order up to `MAX_POSITION`."""

    def __init__(self, db: Db) -> None:
        self._db = db

    async def find_position(self, module: str, job_id: str) -> int | None:
        """1 for the job that is next; None if it does not wait, is not due or is further back than can be counted."""
        async with self._db.read() as tx:
            own = select(*_claim_order).where(_ready, _j.id == job_id, _j.partition_key == module)
            row = (await tx.conn.execute(own)).one_or_none()
            if row is None:
                return None
            place: tuple[Any, ...] = (literal(row.priority), literal(row.scheduled_at, UtcTime), literal(row.id, Id))
            ahead = select(_j.id).where(_ready, _j.partition_key == module, tuple_(*_claim_order) < tuple_(*place))
            counted = ahead.order_by(*_claim_order).limit(MAX_POSITION).subquery()
            position = (await tx.conn.scalar(select(func.count()).select_from(counted)) or 0) + 1
        return position if position <= MAX_POSITION else None


async def list_module_backlogs(tx: Tx, *, after: str | None = None, limit: int = 100) -> list[ModuleBacklog]:
    """The modules with due jobs, by name, from the one after `after`.

    A loose index scan: two index look-ups per module, one to skip past the jobs of the module before and one for its
    next job.
    """
    first = _least_module(_j.partition_key > after if after is not None else true())
    modules = select(first.label("module"), literal(1).label("number")).cte("modules", recursive=True)
    found = modules.c.module.is_not(None)
    step = select(_least_module(_j.partition_key > modules.c.module), modules.c.number + 1)
    modules = modules.union_all(step.where(found, modules.c.number < limit))
    due = select(_j.scheduled_at).where(_ready, _j.partition_key == modules.c.module).order_by(*_claim_order).limit(1)
    backlogs = select(modules.c.module, due.scalar_subquery().label("since")).where(modules.c.module.is_not(None))
    return [ModuleBacklog(module=row.module, since=row.since) for row in await tx.conn.execute(backlogs)]


def _least_module(condition: ColumnElement[bool]) -> ScalarSelect[str]:
    return select(func.min(_j.partition_key)).where(_ready, condition).scalar_subquery()
