"""Statements on tasks. Every move is guarded by the run and by what the row is believed to say."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, and_, bindparam, delete, func, insert, literal_column, select, update

from penstock.etl.domain import EtlTask, Status
from penstock.etl.store.tables import etl_task
from penstock.kernel.compiled_statement import any_rows
from penstock.kernel.db import Tx
from penstock.kernel.json_object import JsonObject

t = etl_task.c
NAMES = tuple(known.name for known in fields(EtlTask))
COLUMNS = tuple(t[name] for name in NAMES)
# A constant, not a parameter: only so can a planner see that the partial index will do.
_under_way = t.status == literal_column("'pending'")
_over = t.status != literal_column("'pending'")
# What every document needs several times is written once, with a place for each value.
_this = t.id == bindparam("this_id", type_=t.id.type)
_this_run = and_(_this, t.run == bindparam("this_run", type_=t.run.type))
FIND = select(*COLUMNS).where(_this)
LOOK = select(t.id).where(_this_run, _under_way)
CLAIM = LOOK.with_for_update()
INSERT = insert(etl_task).returning(t.id)
MOVE = update(etl_task).where(_this_run, t.status == bindparam("this_status", type_=t.status.type))
COUNT = select(func.count()).select_from(select(t.id).where(_under_way).limit(bindparam("most")).subquery())


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Which tasks a list has; None is any."""

    user_id: int | None = None
    project_id: int | None = None
    status: Status | None = None

    def on(self, statement: Select[Any]) -> Select[Any]:
        """A statement about just those, newest first."""
        if self.user_id is not None:
            statement = statement.where(t.user_id == self.user_id)
        if self.project_id is not None:
            statement = statement.where(t.project_id == self.project_id)
        if self.status is not None:
            statement = statement.where(t.status == self.status.value)
        return statement.order_by(t.id.desc())


async def insert_task(tx: Tx, new: EtlTask) -> EtlTask:
    """Add a task; the database gives it its number."""
    values = {name: getattr(new, name) for name in NAMES if name != "id"}
    number = (await tx.conn.execute(INSERT, values)).scalar_one()
    return replace(new, id=number)


async def find_task(tx: Tx, task_id: int) -> EtlTask | None:
    """A task's row."""
    row = (await tx.conn.execute(FIND, {"this_id": task_id})).one_or_none()
    return None if row is None else _task(row)


async def is_under_way(tx: Tx, task_id: int, *, run: int) -> bool:
    """Whether this run is under way now."""
    return await tx.conn.scalar(LOOK, {"this_id": task_id, "this_run": run}) is not None


async def claim_under_way(tx: Tx, task_id: int, *, run: int) -> bool:
    """Whether this run is under way; if so, nobody can end it before this transaction ends."""
    return await tx.conn.scalar(CLAIM, {"this_id": task_id, "this_run": run}) is not None


async def list_tasks(tx: Tx, listing: Listing, *, offset: int = 0, limit: int) -> list[EtlTask]:
    """Tasks, newest first."""
    rows = await tx.conn.execute(listing.on(select(*COLUMNS)).offset(offset).limit(limit))
    return [_task(row) for row in rows]


async def list_before(tx: Tx, listing: Listing, *, before: int | None, limit: int) -> list[EtlTask]:
    """The same from a number downwards."""
    older = select(*COLUMNS) if before is None else select(*COLUMNS).where(t.id < before)
    return [_task(row) for row in await tx.conn.execute(listing.on(older).limit(limit))]


async def list_these(tx: Tx, ids: Collection[int]) -> list[EtlTask]:
    """Those of these tasks that exist, newest first."""
    rows = await tx.conn.execute(select(*COLUMNS).where(t.id.in_(list(ids))).order_by(t.id.desc()))
    return [_task(row) for row in rows]


async def list_under_way(tx: Tx, *, after: int, limit: int) -> list[EtlTask]:
    """Tasks that are not over, by their numbers, from the one after `after`."""
    rows = await tx.conn.execute(select(*COLUMNS).where(_under_way, t.id > after).order_by(t.id).limit(limit))
    return [_task(row) for row in rows]


async def list_over(tx: Tx, *, before: datetime, limit: int) -> list[EtlTask]:
    """Tasks that were over before then, the oldest first."""
    old = select(*COLUMNS).where(_over, t.updated_at < before).order_by(t.updated_at).limit(limit)
    return [_task(row) for row in await tx.conn.execute(old)]


def is_any_under_way() -> ColumnElement[bool]:
    """Whether there is a task that is not over, as a condition."""
    return any_rows(select(t.id).where(_under_way).order_by(t.id))


async def count_under_way(tx: Tx, *, most: int) -> int:
    """How many tasks are not over; it stops counting at `most`."""
    return await tx.conn.scalar(COUNT, {"most": most}) or 0


async def find_namesake(tx: Tx, *, user_id: int, project_id: int, filename: str, after: int = 0) -> EtlTask | None:
    """The latest completed task of a document's name, of those after a number."""
    done = (
        select(*COLUMNS)
        .where(_named(user_id, project_id, filename), t.status == Status.COMPLETED.value, t.id > after)
        .order_by(t.id.desc())
        .limit(1)
    )
    row = (await tx.conn.execute(done)).one_or_none()
    return None if row is None else _task(row)


async def has_namesake_under_way(tx: Tx, *, user_id: int, project_id: int, filename: str) -> bool:
    """Whether a task of a document's name is not over."""
    running = select(t.id).where(_named(user_id, project_id, filename), t.status == Status.PENDING.value).limit(1)
    return await tx.conn.scalar(running) is not None


async def is_named(tx: Tx, s3_key: str, *, user_id: int) -> bool:
    """Whether some task of this user is about an object."""
    return await tx.conn.scalar(select(t.id).where(t.s3_key == s3_key, t.user_id == user_id).limit(1)) is not None


async def move_task(tx: Tx, before: EtlTask, after: EtlTask) -> bool:
    """Write what changed; returns whether the row still was in the status and the run of `before`."""
    believed = {"this_id": before.id, "this_run": before.run, "this_status": before.status.value}
    values = {name: getattr(after, name) for name in NAMES if name != "id"}
    return (await tx.conn.execute(MOVE, believed | values)).rowcount == 1


async def move_pointers(tx: Tx, task: EtlTask, metadata: JsonObject) -> bool:
    """Keep pointers in the row of a run that is under way; returns whether it is."""
    guarded = update(etl_task).where(t.id == task.id, t.run == task.run, t.status == Status.PENDING.value)
    return (await tx.conn.execute(guarded.values(metadata=metadata))).rowcount == 1


async def delete_tasks(tx: Tx, tasks: Sequence[EtlTask]) -> set[int]:
    """Remove tasks that are over; returns the numbers of those that still were."""
    these = delete(etl_task).where(t.id.in_([task.id for task in tasks]), _over)
    return set((await tx.conn.scalars(these.returning(t.id))).all())


def _named(user_id: int, project_id: int, filename: str) -> ColumnElement[bool]:
    return and_(t.user_id == user_id, t.project_id == project_id, t.filename == filename)


def _task(row: Row[Any]) -> EtlTask:
    values = dict(zip(NAMES, row, strict=True))
    return EtlTask(**values | {"status": Status(values["status"])})
