"""Tasks: row locks, writes, and the removal of all tasks of a project or queue. `task_lists.py` has the lists."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Select, bindparam, delete, func, or_, select, true, update
from sqlalchemy.sql.base import ReadOnlyColumnCollection

from penstock.kernel.columns import Id
from penstock.kernel.db import Tx
from penstock.kernel.dialect.bulk import WriteBatch, insert_rows, update_rows
from penstock.kernel.dialect.compiled_statement import CompiledStatement
from penstock.kernel.dialect.sql import any_of, any_of_param, equals_as_array
from penstock.tasks.domain import PullOutcome, PullState, Side, Status, Task
from penstock.tasks.store.search import insert_texts
from penstock.tasks.store.tables import (
    HELD,
    IS_ACTIVE,
    OFFERED,
    queue,
    task,
    task_log,
    task_message,
    task_offer_tag,
    task_pull,
    task_search,
)

t, tp, o = task.c, task_pull.c, task_offer_tag.c
NAMES = tuple(known.name for known in fields(Task))
COLUMNS = tuple(t[name] for name in NAMES)
CREATION_ORDER = (t.partition_key, t.id)  # inside one project
ENDED_PULL = ("task_pk", "outcome", "ended_at", "ended_by", "seconds")
FREED = ("lease_owner", "lease_token", "leased_until", "pulled_at", "confirmed_at", "status_at_pull")
_values = attrgetter(*NAMES)


class TaskRow(Protocol):
    """A row with the columns of a task."""

    def __getattr__(self, name: str) -> Any:
        """A column of the row."""
        ...


def from_row(row: TaskRow) -> Task:
    """A task from its row."""
    values = dict(zip(NAMES, _values(row), strict=True))
    at_pull = values["status_at_pull"]
    values["status"] = Status(values["status"])
    values["source"], values["origin"] = Side(values["source"]), Side(values["origin"])
    values["state"] = PullState(values["state"])
    values["status_at_pull"] = None if at_pull is None else Status(at_pull)
    return Task(**values)


def _queue_is_active() -> ColumnElement[bool]:
    """Whether a task's queue is not deleted: tasks of a deleted queue exist until a job has removed them.

    A scalar subquery, not EXISTS, which PostgreSQL may turn into a join with all queues.
    """
    deleted_at = select(queue.c.deleted_at).where(queue.c.id == t.queue_pk).scalar_subquery()
    return deleted_at.is_(None)


def removed_queues(project_pk: str) -> Select[tuple[str]]:
    """The deleted queues of a project whose rows are still there: few, and looked up once for a whole scan."""
    return select(queue.c.id).where(queue.c.project_pk == project_pk, queue.c.deleted_at.is_not(None))


@dataclass(frozen=True, kw_only=True)
class QueueScope:
    """Which tasks of a project: those of one queue, those without a queue (""), or all (None)."""

    project_pk: str
    queue_pk: str | None = None

    @property
    def condition(self) -> ColumnElement[bool]:
        """The scope as an SQL condition."""
        return (t.partition_key == self.project_pk) & self._in_queue

    def scan_condition(self) -> ColumnElement[bool]:
        """The scope as a condition of a scan in `CREATION_ORDER`."""
        return equals_as_array(t.partition_key, self.project_pk) & self._in_queue

    def list_condition(self) -> ColumnElement[bool]:
        """The scope as a condition of a list in its order."""
        return self.scan_condition() if self.queue_pk is None else self.condition

    def list_order(self, c: ReadOnlyColumnCollection[str, Any]) -> tuple[ColumnElement[Any], ...]:
        """The order of its list: a queue in push order, then as created; without a queue, newest first."""
        if self.queue_pk is None:
            return c.partition_key, c.id
        return (c.position, c.id) if self.queue_pk else (c.position.desc(), c.id.desc())

    @property
    def _in_queue(self) -> ColumnElement[bool]:
        if self.queue_pk is None:
            return t.queue_pk.not_in(removed_queues(self.project_pk))
        return t.queue_pk == self.queue_pk


async def list_by_task_id(tx: Tx, project_pk: str, task_ids: Collection[str]) -> list[Task]:
    """All tasks of a project with one of these ids, in any queue, including deleted ones."""
    return [from_row(row) for row in await tx.conn.execute(_with_task_ids(project_pk, task_ids))]


async def claim_by_task_id(tx: Tx, project_pk: str, task_ids: Collection[str]) -> list[Task]:
    """Like `list_by_task_id`, with row locks: a pull claims tasks without the project's lock."""
    values = {"in_project": project_pk, "named": list(task_ids)}
    return [from_row(row) for row in await _claim_by_task_id().rows(tx, values)]


@cache  # every push of a status runs it
def _claim_by_task_id() -> CompiledStatement:
    here = t.partition_key == bindparam("in_project", type_=Id)
    named = any_of_param(t.task_id, "named")
    return CompiledStatement(select(*COLUMNS).where(here, named, _queue_is_active()).order_by(t.id).with_for_update())


def _with_task_ids(project_pk: str, task_ids: Collection[str]) -> Select[Any]:
    named = (t.partition_key == project_pk, any_of(t.task_id, task_ids), _queue_is_active())
    return select(*COLUMNS).where(*named).order_by(t.id)


async def claim_page(
    tx: Tx, where: QueueScope, *, after: str = "", limit: int, also: ColumnElement[bool] | None = None
) -> list[Task]:
    """Lock the next active tasks by primary key, after the last one of the page before."""
    condition = true() if also is None else also
    mine = (
        select(*COLUMNS)
        .where(where.scan_condition(), IS_ACTIVE, condition, t.id > after)
        .order_by(*CREATION_ORDER)
        .limit(limit)
    )
    return [from_row(row) for row in await tx.conn.execute(mine.with_for_update())]


def in_status(status: Status | None) -> ColumnElement[bool] | None:
    """A condition for `claim_page`; None is any status."""
    return None if status is None else t.status == status.value


async def claim_by_pk(tx: Tx, pks: Collection[str]) -> list[Task]:
    """Lock tasks by primary key."""
    mine = select(*COLUMNS).where(any_of(t.id, pks)).order_by(t.id).with_for_update()
    return [from_row(row) for row in await tx.conn.execute(mine)]


async def find_project_pk(tx: Tx, pk: str) -> str | None:
    """The primary key of a task's project."""
    return await tx.conn.scalar(select(t.partition_key).where(t.id == pk))


async def claim_in_queue(tx: Tx, where: QueueScope, task_ids: Collection[str]) -> list[Task]:
    """Lock those of these tasks that are in one queue, including deleted ones."""
    mine = select(*COLUMNS).where(where.condition, any_of(t.task_id, task_ids)).order_by(t.id).with_for_update()
    return [from_row(row) for row in await tx.conn.execute(mine)]


async def claim_elsewhere(tx: Tx, where: QueueScope, task_ids: Collection[str]) -> list[Task]:
    """Lock the tasks of the project with one of these ids that are outside a queue, including deleted ones."""
    queue_pk = func.coalesce(t.queue_pk, "")  # no index fits: a plan must not look for the other queues
    outside = _with_task_ids(where.project_pk, task_ids).where(queue_pk != where.queue_pk)
    return [from_row(row) for row in await tx.conn.execute(outside.with_for_update())]


async def place_tasks(tx: Tx, positions: Sequence[tuple[str, int]]) -> None:
    """Write the positions of tasks in the last push of their queue: primary key and position."""
    await update_rows(tx, task, ("id", "position"), positions)


async def touch_tasks(tx: Tx, pks: Collection[str], *, by: str) -> None:
    """Move the `updated_at` of tasks that were pushed again as they are."""
    if pks:
        await tx.conn.execute(update(task).where(any_of(t.id, pks)).values(updated_at=tx.now, updated_by=by))


async def list_pushed(tx: Tx, where: QueueScope, *, after: str = "", limit: int) -> list[tuple[str, str]]:
    """Some active tasks of a queue that clients created, which a push replaces: primary key and task id."""
    mine = select(t.id, t.task_id).where(where.condition, IS_ACTIVE, t.origin == Side.CLIENT.value, t.id > after)
    return [(row.id, row.task_id) for row in await tx.conn.execute(mine.order_by(t.id).limit(limit))]


async def list_held_by_pull(tx: Tx, pull_id: str) -> list[Task]:
    """The tasks of one pull request that are still held, in order."""
    held = (tp.pull_id == pull_id, tp.ended_at.is_(None))
    mine = select(*COLUMNS).join_from(task_pull, task, t.id == tp.task_pk).where(*held).order_by(tp.id)
    return [from_row(row) for row in await tx.conn.execute(mine)]


async def insert_tasks(tx: Tx, new: Sequence[Task]) -> None:
    """Insert tasks."""
    await insert_rows(tx, task, NAMES, [_values(one) for one in new])
    await insert_texts(tx, new)


def move_tasks(writes: WriteBatch, moved: Sequence[tuple[Task, Task]]) -> None:
    """Write the difference between each `before` and `after`. The caller has locked these rows.

    A column that one task changed is written for all: one statement for ten thousand tasks.
    """
    names = [name for name in NAMES if any(getattr(old, name) != getattr(new, name) for old, new in moved)]
    if not names:
        return
    pick = attrgetter("id", *names)
    writes.update(task, ("id", *names), [pick(after) for _, after in moved])


async def move_task(tx: Tx, before: Task, after: Task) -> None:
    """Write the changes of one task immediately."""
    writes = WriteBatch(tx)
    move_tasks(writes, [(before, after)])
    await writes.write()


async def delete_tasks(tx: Tx, pks: Collection[str]) -> None:
    """Delete tasks with their messages, logs, pulls and texts."""
    for table in (task_message, task_log, task_pull, task_offer_tag, task_search):
        await tx.conn.execute(delete(table).where(any_of(table.c.task_pk, pks)))
    await tx.conn.execute(delete(task).where(any_of(t.id, pks)))


def _removed_in(project_pk: str, queue_pk: str | None) -> ColumnElement[bool]:
    """In one queue, or with None anywhere in the project, including deleted queues."""
    here = t.partition_key == project_pk
    return here if queue_pk is None else here & (t.queue_pk == queue_pk)


async def withdraw_tasks(tx: Tx, project_pk: str, queue_pk: str | None, *, by: str) -> None:
    """Withdraw every offered, held or expired task of a project or queue that is being removed.

    Only these are updated, because the statements that look for them do not check their queue or project. All others
    may be a million, and are not found once the queue or project is a tombstone. The caller has locked the project, so
    no task is added. Pulls do not take that lock: the first update waits for running ones, and only then are held tasks
    looked up.
    """
    here = _removed_in(project_pk, queue_pk)
    withdrawn: dict[str, Any] = {"deleted_at": tx.now, "state": PullState.IDLE, **dict.fromkeys(FREED)}
    await tx.conn.execute(update(task).where(here, or_(OFFERED, HELD), IS_ACTIVE).values(withdrawn))
    await tx.conn.execute(update(task).where(here, t.expired_at.is_not(None), IS_ACTIVE).values(deleted_at=tx.now))
    await _end_open_pulls(tx, project_pk, here, by=by)
    tagged = select(t.id).where(t.id == o.task_pk, here)
    await tx.conn.execute(delete(task_offer_tag).where(o.project_pk == project_pk, tagged.exists()))


async def _end_open_pulls(tx: Tx, project_pk: str, here: ColumnElement[bool], *, by: str) -> None:
    held = select(tp.task_pk, tp.pulled_at).join_from(task_pull, task, t.id == tp.task_pk)
    found = await tx.conn.execute(held.where(tp.project_pk == project_pk, tp.outcome.is_(None), here))
    rows = [
        (row.task_pk, PullOutcome.REVOKED.value, tx.now, by, (tx.now - row.pulled_at).total_seconds()) for row in found
    ]
    await update_rows(tx, task_pull, ENDED_PULL, rows, tp.ended_at.is_(None))


async def delete_some_tasks(tx: Tx, project_pk: str, queue_pk: str | None, *, limit: int = 2_000) -> int:
    """Delete some tasks of a removed project or queue with all that belongs to them; returns how many."""
    pks = (await tx.conn.scalars(select(t.id).where(_removed_in(project_pk, queue_pk)).limit(limit))).all()
    if pks:
        await delete_tasks(tx, pks)
    return len(pks)
