"""Statements on tasks. Every update is guarded by the run and the expected status."""

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
# A literal, not a parameter: the planner uses the partial index only if it sees the constant.
_active = t.status == literal_column("'pending'")
_ended = t.status != literal_column("'pending'")
# Statements of the hot path are built once, with bind parameters.
_this = t.id == bindparam("this_id", type_=t.id.type)
_this_run = and_(_this, t.run == bindparam("this_run", type_=t.run.type))
FIND = select(*COLUMNS).where(_this)
IS_ACTIVE = select(t.id).where(_this_run, _active)
CLAIM = IS_ACTIVE.with_for_update()
INSERT = insert(etl_task).returning(t.id)
MOVE = update(etl_task).where(_this_run, t.status == bindparam("this_status", type_=t.status.type))
COUNT = select(func.count()).select_from(select(t.id).where(_active).limit(bindparam("limit")).subquery())


@dataclass(frozen=True, kw_only=True)
class TaskFilter:
    """Which tasks to list; None means any."""

    user_id: int | None = None
    project_id: int | None = None
    status: Status | None = None

    def apply(self, statement: Select[Any]) -> Select[Any]:
        """The statement restricted to these tasks, newest first."""
        if self.user_id is not None:
            statement = statement.where(t.user_id == self.user_id)
        if self.project_id is not None:
            statement = statement.where(t.project_id == self.project_id)
        if self.status is not None:
            statement = statement.where(t.status == self.status.value)
        return statement.order_by(t.id.desc())


async def insert_task(tx: Tx, new: EtlTask) -> EtlTask:
    """Add a task; the database assigns its id."""
    values = {name: getattr(new, name) for name in NAMES if name != "id"}
    number = (await tx.conn.execute(INSERT, values)).scalar_one()
    return replace(new, id=number)


async def find_task(tx: Tx, task_id: int) -> EtlTask | None:
    """The row of a task."""
    row = (await tx.conn.execute(FIND, {"this_id": task_id})).one_or_none()
    return None if row is None else _task(row)


async def is_active(tx: Tx, task_id: int, *, run: int) -> bool:
    """Whether this run is active now."""
    return await tx.conn.scalar(IS_ACTIVE, {"this_id": task_id, "this_run": run}) is not None


async def claim_active(tx: Tx, task_id: int, *, run: int) -> bool:
    """Whether this run is active; if so, it is locked until this transaction ends."""
    return await tx.conn.scalar(CLAIM, {"this_id": task_id, "this_run": run}) is not None


async def list_tasks(tx: Tx, chosen: TaskFilter, *, offset: int = 0, limit: int) -> list[EtlTask]:
    """Tasks, newest first."""
    rows = await tx.conn.execute(chosen.apply(select(*COLUMNS)).offset(offset).limit(limit))
    return [_task(row) for row in rows]


async def list_before(tx: Tx, chosen: TaskFilter, *, before: int | None, limit: int) -> list[EtlTask]:
    """Tasks with ids below `before`, newest first."""
    older = select(*COLUMNS) if before is None else select(*COLUMNS).where(t.id < before)
    return [_task(row) for row in await tx.conn.execute(chosen.apply(older).limit(limit))]


async def list_by_ids(tx: Tx, ids: Collection[int]) -> list[EtlTask]:
    """The tasks with these ids that exist, newest first."""
    rows = await tx.conn.execute(select(*COLUMNS).where(t.id.in_(list(ids))).order_by(t.id.desc()))
    return [_task(row) for row in rows]


async def list_active(tx: Tx, *, after: int, limit: int) -> list[EtlTask]:
    """Active tasks by id, starting after `after`."""
    rows = await tx.conn.execute(select(*COLUMNS).where(_active, t.id > after).order_by(t.id).limit(limit))
    return [_task(row) for row in rows]


async def list_ended(tx: Tx, *, before: datetime, limit: int) -> list[EtlTask]:
    """Tasks that ended before `before`, oldest first."""
    old = select(*COLUMNS).where(_ended, t.updated_at < before).order_by(t.updated_at).limit(limit)
    return [_task(row) for row in await tx.conn.execute(old)]


def is_any_active() -> ColumnElement[bool]:
    """A condition: there is an active task."""
    return any_rows(select(t.id).where(_active).order_by(t.id))


async def count_active(tx: Tx, *, limit: int) -> int:
    """How many tasks are active; counting stops at `limit`."""
    return await tx.conn.scalar(COUNT, {"limit": limit}) or 0


async def find_completed_by_name(
    tx: Tx, *, user_id: int, project_id: int, filename: str, after: int = 0
) -> EtlTask | None:
    """The latest completed task of a filename with an id above `after`."""
    done = (
        select(*COLUMNS)
        .where(_with_filename(user_id, project_id, filename), t.status == Status.COMPLETED.value, t.id > after)
        .order_by(t.id.desc())
        .limit(1)
    )
    row = (await tx.conn.execute(done)).one_or_none()
    return None if row is None else _task(row)


async def has_running_by_name(tx: Tx, *, user_id: int, project_id: int, filename: str) -> bool:
    """Whether a task of a filename is active."""
    running = (
        select(t.id).where(_with_filename(user_id, project_id, filename), t.status == Status.PENDING.value).limit(1)
    )
    return await tx.conn.scalar(running) is not None


async def is_source_used(tx: Tx, s3_key: str, *, user_id: int) -> bool:
    """Whether a task of this user has this source document."""
    return await tx.conn.scalar(select(t.id).where(t.s3_key == s3_key, t.user_id == user_id).limit(1)) is not None


async def move_task(tx: Tx, before: EtlTask, after: EtlTask) -> bool:
    """Update a task; returns whether the row still had the run and status of `before`."""
    expected = {"this_id": before.id, "this_run": before.run, "this_status": before.status.value}
    values = {name: getattr(after, name) for name in NAMES if name != "id"}
    return (await tx.conn.execute(MOVE, expected | values)).rowcount == 1


async def move_metadata(tx: Tx, task: EtlTask, metadata: JsonObject) -> bool:
    """Update the metadata of an active run; returns whether it is active."""
    guarded = update(etl_task).where(t.id == task.id, t.run == task.run, t.status == Status.PENDING.value)
    return (await tx.conn.execute(guarded.values(metadata=metadata))).rowcount == 1


async def delete_tasks(tx: Tx, tasks: Sequence[EtlTask]) -> set[int]:
    """Delete those of these tasks that have ended; returns their ids."""
    these = delete(etl_task).where(t.id.in_([task.id for task in tasks]), _ended)
    return set((await tx.conn.scalars(these.returning(t.id))).all())


def _with_filename(user_id: int, project_id: int, filename: str) -> ColumnElement[bool]:
    return and_(t.user_id == user_id, t.project_id == project_id, t.filename == filename)


def _task(row: Row[Any]) -> EtlTask:
    values = dict(zip(NAMES, row, strict=True))
    return EtlTask(**values | {"status": Status(values["status"])})
