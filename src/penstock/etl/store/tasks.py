"""Statements on tasks, on the cache of their stages, and on uploads. Every update of a task is guarded by its run and
status.

An upload is a document that is stored, or about to be, and has no task yet. Its row is inserted before the document is
stored, and deleted in the transaction that creates its task. So whatever happens in between, the row of a document
without a task stays, and the document can be found and deleted.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    select,
    tuple_,
    update,
)

from penstock.etl.domain import EtlTask, Phase, Status
from penstock.etl.store.tables import etl_memory, etl_task, etl_upload
from penstock.kernel.db import Tx
from penstock.kernel.dialect.bulk import insert_new
from penstock.kernel.dialect.compiled_statement import any_rows
from penstock.kernel.dialect.sql import any_of, upsert
from penstock.kernel.json_object import JsonObject

t, m, u = etl_task.c, etl_memory.c, etl_upload.c
UPLOAD_COLUMNS = ("key", "user_id", "created_at")
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
_some_active = select(t.id).where(_active).limit(bindparam("limit"))
_some_owned = (
    select(t.id).where(_active, t.user_id == bindparam("owner", type_=t.user_id.type)).limit(bindparam("limit"))
)
COUNT = select(func.count()).select_from(_some_active.subquery())
COUNT_OF = select(COUNT.scalar_subquery(), select(func.count()).select_from(_some_owned.subquery()).scalar_subquery())


@dataclass(frozen=True, kw_only=True)
class OrphanedUpload:
    """A document without a task: its blob key, its owner, and when it was uploaded."""

    key: str
    user_id: int
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class CachedStage:
    """A cache entry: which task and run made the artifacts of a key."""

    user_id: int
    key: str
    stage: Phase
    task_id: int
    run: int
    made_at: datetime


CACHE_COLUMNS = tuple(m[known.name] for known in fields(CachedStage))


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


@dataclass(frozen=True, kw_only=True)
class EndedFilter:
    """Which tasks to retry; None means any. Times are those at which tasks ended: from `since`, before `until`."""

    status: Status
    error_code: str | None = None
    project_id: int | None = None
    rule_id: int | None = None
    since: datetime | None = None
    until: datetime | None = None

    def shown(self) -> dict[str, str]:
        """The given filters as text, for the audit log."""
        return {name: str(value) for name, value in vars(self).items() if value is not None}

    def conditions(self) -> list[ColumnElement[bool]]:
        """The filter in SQL."""
        columns = {t.project_id: self.project_id, t.rule_id: self.rule_id}
        found = [column == value for column, value in columns.items() if value is not None]
        if self.error_code is not None:
            found.append(t.metadata["error_code"].as_string() == self.error_code)
        if self.since is not None:
            found.append(t.updated_at >= self.since)
        if self.until is not None:
            found.append(t.updated_at < self.until)
        return [t.status == self.status.value, *found]


async def insert_task(tx: Tx, new: EtlTask) -> EtlTask:
    """Add a task; the database assigns its id."""
    values = {name: getattr(new, name) for name in NAMES if name != "id"}
    number = (await tx.conn.execute(INSERT, values)).scalar_one()
    return replace(new, id=number)


async def find_task(tx: Tx, task_id: int) -> EtlTask | None:
    """The row of a task."""
    row = (await tx.conn.execute(FIND, {"this_id": task_id})).one_or_none()
    return None if row is None else _task(row)


async def claim_task(tx: Tx, task_id: int) -> EtlTask | None:
    """The row of a task, locked until this transaction ends."""
    row = (await tx.conn.execute(FIND.with_for_update(), {"this_id": task_id})).one_or_none()
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


async def count_tasks(tx: Tx, chosen: TaskFilter, *, limit: int) -> int:
    """How many tasks there are; counting stops at `limit`."""
    some = chosen.apply(select(t.id)).limit(limit).subquery()
    return await tx.conn.scalar(select(func.count()).select_from(some)) or 0


async def list_before(tx: Tx, chosen: TaskFilter, *, before: int | None, limit: int) -> list[EtlTask]:
    """Tasks with ids below `before`, newest first."""
    older = select(*COLUMNS) if before is None else select(*COLUMNS).where(t.id < before)
    return [_task(row) for row in await tx.conn.execute(chosen.apply(older).limit(limit))]


async def list_matching(tx: Tx, chosen: EndedFilter, *, owner: int | None, after: int, limit: int) -> list[EtlTask]:
    """Tasks of an owner, or of anyone, by id, starting after `after`."""
    mine = select(*COLUMNS).where(*chosen.conditions(), t.id > after)
    mine = mine if owner is None else mine.where(t.user_id == owner)
    return [_task(row) for row in await tx.conn.execute(mine.order_by(t.id).limit(limit))]


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


async def count_active_of(tx: Tx, user_id: int, *, limit: int) -> tuple[int, int]:
    """How many tasks are active in all, and of one user; counting stops at `limit`."""
    row = (await tx.conn.execute(COUNT_OF, {"owner": user_id, "limit": limit})).one()
    return row[0], row[1]


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


async def find_cached_stage(tx: Tx, user_id: int, key: str) -> CachedStage | None:
    """The cache entry of a user and key. A key alone finds nothing."""
    row = (await tx.conn.execute(select(*CACHE_COLUMNS).where(m.user_id == user_id, m.key == key))).one_or_none()
    return None if row is None else CachedStage(**row._asdict() | {"stage": Phase(row.stage)})


async def insert_cached_stage(tx: Tx, new: CachedStage) -> None:
    """Add or replace a cache entry. The latest task wins, since it is the last to be removed."""
    statement = upsert(etl_memory)
    latest = {name: statement.excluded[name] for name in ("stage", "task_id", "run", "made_at")}
    upserted = statement.on_conflict_do_update(index_elements=["user_id", "key"], set_=latest)
    await tx.conn.execute(upserted, {column.name: getattr(new, column.name) for column in CACHE_COLUMNS})


async def delete_cached_stages(tx: Tx, task_ids: Collection[int]) -> None:
    """Delete the cache entries of these tasks."""
    await tx.conn.execute(delete(etl_memory).where(m.task_id.in_(list(task_ids))))


async def delete_old_cached_stages(tx: Tx, *, before: datetime, limit: int) -> int:
    """Delete cache entries older than `before`, oldest first; returns how many.

    Locked rows are skipped until the next time. Waiting for them could deadlock with the removal of tasks, which locks
    rows in another order.
    """
    oldest = select(m.user_id, m.key).where(m.made_at < before).order_by(m.made_at).limit(limit)
    old = oldest.with_for_update(skip_locked=True).cte("old")
    these = delete(etl_memory).where(tuple_(m.user_id, m.key).in_(select(old.c.user_id, old.c.key)))
    return len((await tx.conn.execute(these.returning(m.key))).all())  # SQLite reports no row count after a WITH


def _with_filename(user_id: int, project_id: int, filename: str) -> ColumnElement[bool]:
    return and_(t.user_id == user_id, t.project_id == project_id, t.filename == filename)


def _task(row: Row[Any]) -> EtlTask:
    values = dict(zip(NAMES, row, strict=True))
    return EtlTask(**values | {"status": Status(values["status"])})


async def insert_upload(tx: Tx, key: str, *, user_id: int) -> bool:
    """Reserve a key for a document that is about to be stored; False if another upload has it."""
    return bool(await insert_new(tx, etl_upload, UPLOAD_COLUMNS, [(key, user_id, tx.now)]))


async def claim_upload(tx: Tx, key: str) -> bool:
    """Take a document for a task that is created in this transaction; False if it is being swept."""
    swept_at = (await tx.conn.scalars(delete(etl_upload).where(u.key == key).returning(u.swept_at))).one_or_none()
    return swept_at is None


async def delete_uploads(tx: Tx, keys: Collection[str]) -> None:
    """Forget uploads whose documents are deleted."""
    await tx.conn.execute(delete(etl_upload).where(any_of(u.key, keys)))


async def list_orphans(tx: Tx, *, before: datetime, offset: int = 0, limit: int = 100) -> list[OrphanedUpload]:
    """Documents uploaded before a time that have no task, oldest first."""
    old = select(u.key, u.user_id, u.created_at).where(u.created_at < before).order_by(u.created_at, u.key)
    return [OrphanedUpload(**row._mapping) for row in await tx.conn.execute(old.offset(offset).limit(limit))]


async def claim_orphans(tx: Tx, keys: Sequence[str]) -> list[str]:
    """Mark uploads as being swept, so that no task is created for them any more; returns those that no task has."""
    used = set((await tx.conn.scalars(select(t.s3_key).where(any_of(t.s3_key, keys)))).all())
    unused = [key for key in keys if key not in used]
    marked = update(etl_upload).where(any_of(u.key, unused)).values(swept_at=tx.now).returning(u.key)
    return list((await tx.conn.scalars(marked)).all())
