"""Tasks: lists, row locks, writes, and the removal of all tasks of a project or queue."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from operator import attrgetter
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Select, bindparam, delete, func, or_, select, true, union_all, update

from penstock.kernel.bulk import (
    WriteBatch,
    any_of,
    any_of_param,
    array_param,
    equals_as_array,
    insert_rows,
    update_rows,
)
from penstock.kernel.columns import Id
from penstock.kernel.compiled_statement import CompiledStatement
from penstock.kernel.db import Tx
from penstock.tasks.domain import PullOutcome, PullState, Side, Status, Task
from penstock.tasks.store.search import contains, folded
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
)

t, tp, o = task.c, task_pull.c, task_offer_tag.c
NAMES = tuple(known.name for known in fields(Task))
COLUMNS = tuple(t[name] for name in NAMES)
CREATION_ORDER = (t.partition_key, t.id)  # inside one project
ENDED_PULL = ("task_pk", "outcome", "ended_at", "ended_by", "seconds")
FREED = ("lease_owner", "lease_token", "leased_until", "pulled_at", "confirmed_at", "status_at_pull")
SEARCHED = frozenset({"task_id", "name"})
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


@dataclass(frozen=True, kw_only=True)
class QueueScope:
    """Which tasks of a project: those of one queue, those without a queue (""), or all (None)."""

    project_pk: str
    queue_pk: str | None = None

    @property
    def condition(self) -> ColumnElement[bool]:
        """The scope as an SQL condition."""
        return (t.partition_key == self.project_pk) & self._in_queue

    def scan_condition(self, tx: Tx) -> ColumnElement[bool]:
        """The scope as a condition of a scan in `CREATION_ORDER`."""
        return equals_as_array(tx, t.partition_key, self.project_pk) & self._in_queue

    @property
    def _in_queue(self) -> ColumnElement[bool]:
        return _queue_is_active() if self.queue_pk is None else t.queue_pk == self.queue_pk


@dataclass(frozen=True, kw_only=True)
class TaskListFilter:
    """The filter of a task list."""

    where: QueueScope
    status: Status | None = None
    states: Collection[PullState] = ()
    search: str = ""

    def on(self, tx: Tx, statement: Select[Any]) -> Select[Any]:
        """A statement restricted to the matching tasks."""
        statement = statement.where(self.where.scan_condition(tx), IS_ACTIVE)
        if self.status is not None:
            statement = statement.where(t.status == self.status)
        if self.states:
            statement = statement.where(t.state.in_(list(self.states)))
        return statement.where(contains(t.search_text, self.search)) if self.search else statement


async def list_tasks(tx: Tx, listing: TaskListFilter, *, offset: int, limit: int) -> list[Task]:
    """Matching tasks in creation order."""
    statement = listing.on(tx, select(*COLUMNS)).order_by(*CREATION_ORDER).offset(offset).limit(limit)
    if len(listing.states) > 1:  # one scan per state: a single scan would read the other states too
        scans = [
            replace(listing, states=(state,)).on(tx, select(*COLUMNS)).order_by(*CREATION_ORDER).limit(offset + limit)
            for state in listing.states
        ]
        found = union_all(*(select(scan.subquery(f"scan_{n}")) for n, scan in enumerate(scans))).subquery("found")
        statement = select(found).order_by(found.c.id).offset(offset).limit(limit)
    return [from_row(row) for row in await tx.conn.execute(statement)]


async def count_tasks(tx: Tx, listing: TaskListFilter) -> int:
    """How many tasks match."""
    return await tx.conn.scalar(listing.on(tx, select(func.count()).select_from(task))) or 0


async def list_by_task_id(tx: Tx, project_pk: str, task_ids: Collection[str]) -> list[Task]:
    """All tasks of a project with one of these ids, in any queue, including deleted ones."""
    return [from_row(row) for row in await tx.conn.execute(_with_task_ids(tx, project_pk, task_ids))]


async def claim_by_task_id(tx: Tx, project_pk: str, task_ids: Collection[str]) -> list[Task]:
    """Like `list_by_task_id`, with row locks: a pull claims tasks without the project's lock."""
    values = {"in_project": project_pk, "named": array_param(tx, task_ids)}
    return [from_row(row) for row in await _claim_by_task_id(tx.on_postgres).rows(tx, values)]


@cache  # every push of a status runs it
def _claim_by_task_id(on_postgres: bool) -> CompiledStatement:
    here = t.partition_key == bindparam("in_project", type_=Id)
    named = any_of_param(t.task_id, "named", on_postgres=on_postgres)
    return CompiledStatement(select(*COLUMNS).where(here, named, _queue_is_active()).order_by(t.id).with_for_update())


def _with_task_ids(tx: Tx, project_pk: str, task_ids: Collection[str]) -> Select[Any]:
    named = (t.partition_key == project_pk, any_of(tx, t.task_id, task_ids), _queue_is_active())
    return select(*COLUMNS).where(*named).order_by(t.id)


async def claim_page(
    tx: Tx, where: QueueScope, *, after: str = "", limit: int, also: ColumnElement[bool] | None = None
) -> list[Task]:
    """Lock the next active tasks by primary key, after the last one of the page before."""
    condition = true() if also is None else also
    mine = (
        select(*COLUMNS)
        .where(where.scan_condition(tx), IS_ACTIVE, condition, t.id > after)
        .order_by(*CREATION_ORDER)
        .limit(limit)
    )
    return [from_row(row) for row in await tx.conn.execute(mine.with_for_update())]


def in_status(status: Status | None) -> ColumnElement[bool] | None:
    """A condition for `claim_page`; None is any status."""
    return None if status is None else t.status == status.value


async def claim_by_pk(tx: Tx, pks: Collection[str]) -> list[Task]:
    """Lock tasks by primary key."""
    mine = select(*COLUMNS).where(any_of(tx, t.id, pks)).order_by(t.id).with_for_update()
    return [from_row(row) for row in await tx.conn.execute(mine)]


async def claim_in_queue(tx: Tx, where: QueueScope, task_ids: Collection[str]) -> list[Task]:
    """Lock those of these tasks that are in one queue, including deleted ones."""
    mine = select(*COLUMNS).where(where.condition, any_of(tx, t.task_id, task_ids)).order_by(t.id).with_for_update()
    return [from_row(row) for row in await tx.conn.execute(mine)]


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
    rows = [(*_values(one), folded(one.task_id, one.name)) for one in new]
    await insert_rows(tx, task, (*NAMES, "search_text"), rows)


def move_tasks(writes: WriteBatch, moved: Sequence[tuple[Task, Task]]) -> None:
    """Write the difference between each `before` and `after`. The caller has locked these rows.

    A column that one task changed is written for all: one statement for ten thousand tasks.
    """
    names = [name for name in NAMES if any(getattr(old, name) != getattr(new, name) for old, new in moved)]
    if not names:
        return
    pick = attrgetter("id", *names)
    rows: list[Sequence[Any]] = [pick(after) for _, after in moved]
    if SEARCHED & set(names):
        names.append("search_text")
        rows = [(*row, folded(after.task_id, after.name)) for row, (_, after) in zip(rows, moved, strict=True)]
    writes.update(task, ("id", *names), rows)


async def move_task(tx: Tx, before: Task, after: Task) -> None:
    """Write the changes of one task immediately."""
    writes = WriteBatch(tx)
    move_tasks(writes, [(before, after)])
    await writes.write()


async def delete_tasks(tx: Tx, pks: Collection[str]) -> None:
    """Delete tasks with their messages, logs and pulls."""
    for table in (task_message, task_log, task_pull, task_offer_tag):
        await tx.conn.execute(delete(table).where(any_of(tx, table.c.task_pk, pks)))
    await tx.conn.execute(delete(task).where(any_of(tx, t.id, pks)))


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
