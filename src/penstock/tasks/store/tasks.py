"""Tasks: reading them, and writing what changed in them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from operator import attrgetter
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Select, bindparam, delete, func, select, true, union_all

from penstock.kernel.bulk import Writes, among, among_given, as_given, insert_rows, pinned
from penstock.kernel.columns import Id
from penstock.kernel.db import Tx
from penstock.kernel.hot import HotStatement
from penstock.tasks.domain import PullState, Side, Status, Task
from penstock.tasks.store.search import contains, folded
from penstock.tasks.store.tables import LIVES, queue, task, task_log, task_message, task_offer_tag, task_pull

t = task.c
NAMES = tuple(known.name for known in fields(Task))
COLUMNS = tuple(t[name] for name in NAMES)
IN_ORDER = (t.partition_key, t.id)  # in one project, the order in which tasks were made
SEARCHED = frozenset({"task_id", "name"})
_values = attrgetter(*NAMES)


class TaskRow(Protocol):
    """A row with the columns of a task."""

    def __getattr__(self, name: str) -> Any:
        """A column."""
        ...


def from_row(row: TaskRow) -> Task:
    """Read a row that has the columns of a task."""
    values = dict(zip(NAMES, _values(row), strict=True))
    at_pull = values["status_at_pull"]
    values["status"] = Status(values["status"])
    values["source"], values["origin"] = Side(values["source"]), Side(values["origin"])
    values["state"] = PullState(values["state"])
    values["status_at_pull"] = None if at_pull is None else Status(at_pull)
    return Task(**values)


def _queue_lives() -> ColumnElement[bool]:
    """Whether a task is in no deleted queue: the tasks of one are there until a job has removed them.

    A value, not an EXISTS: that PostgreSQL may turn into a join with all queues there are.
    """
    deleted_at = select(queue.c.deleted_at).where(queue.c.id == t.queue_pk).scalar_subquery()
    return deleted_at.is_(None)


@dataclass(frozen=True, kw_only=True)
class Where:
    """Where in a project tasks are looked for: in one queue, beside all queues (""), or anywhere (None)."""

    project_pk: str
    queue_pk: str | None = None

    @property
    def place(self) -> ColumnElement[bool]:
        """The same as a condition."""
        return (t.partition_key == self.project_pk) & self._in_queue

    def walked(self, tx: Tx) -> ColumnElement[bool]:
        """The same for a walk `IN_ORDER`."""
        return pinned(tx, t.partition_key, self.project_pk) & self._in_queue

    @property
    def _in_queue(self) -> ColumnElement[bool]:
        return _queue_lives() if self.queue_pk is None else t.queue_pk == self.queue_pk


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Which tasks a list has."""

    where: Where
    status: Status | None = None
    states: Collection[PullState] = ()
    search: str = ""

    def on(self, tx: Tx, statement: Select[Any]) -> Select[Any]:
        """A statement about just those."""
        statement = statement.where(self.where.walked(tx), LIVES)
        if self.status is not None:
            statement = statement.where(t.status == self.status)
        if self.states:
            statement = statement.where(t.state.in_(list(self.states)))
        return statement.where(contains(t.search_text, self.search)) if self.search else statement


async def list_tasks(tx: Tx, listing: Listing, *, offset: int, limit: int) -> list[Task]:
    """Tasks in the order in which they were made."""
    statement = listing.on(tx, select(*COLUMNS)).order_by(*IN_ORDER).offset(offset).limit(limit)
    if len(listing.states) > 1:  # a walk for each: along all of them together it would pass over all the others
        walks = [
            replace(listing, states=(state,)).on(tx, select(*COLUMNS)).order_by(*IN_ORDER).limit(offset + limit)
            for state in listing.states
        ]
        found = union_all(*(select(walk.subquery(f"walk_{n}")) for n, walk in enumerate(walks))).subquery("found")
        statement = select(found).order_by(found.c.id).offset(offset).limit(limit)
    return [from_row(row) for row in await tx.conn.execute(statement)]


async def count_tasks(tx: Tx, listing: Listing) -> int:
    """How many a list has."""
    return await tx.conn.scalar(listing.on(tx, select(func.count()).select_from(task))) or 0


async def list_namesakes(tx: Tx, project_pk: str, task_ids: Collection[str]) -> list[Task]:
    """All tasks of a project with one of these names, in whatever queue, deleted or not."""
    return [from_row(row) for row in await tx.conn.execute(_namesakes(tx, project_pk, task_ids))]


async def claim_namesakes(tx: Tx, project_pk: str, task_ids: Collection[str]) -> list[Task]:
    """The same, locked for this transaction: a pull takes tasks without the project's lock."""
    values = {"in_project": project_pk, "named": as_given(tx, task_ids)}
    return [from_row(row) for row in await _claiming_namesakes(tx.on_postgres).rows(tx, values)]


@cache  # every push of a status runs it
def _claiming_namesakes(on_postgres: bool) -> HotStatement:
    here = t.partition_key == bindparam("in_project", type_=Id)
    named = among_given(t.task_id, "named", on_postgres=on_postgres)
    return HotStatement(select(*COLUMNS).where(here, named, _queue_lives()).order_by(t.id).with_for_update())


def _namesakes(tx: Tx, project_pk: str, task_ids: Collection[str]) -> Select[Any]:
    named = (t.partition_key == project_pk, among(tx, t.task_id, task_ids), _queue_lives())
    return select(*COLUMNS).where(*named).order_by(t.id)


async def claim_some(
    tx: Tx, where: Where, *, after: str = "", limit: int, also: ColumnElement[bool] | None = None
) -> list[Task]:
    """Some living tasks by our own id, after the last of the page before, locked for this transaction."""
    condition = true() if also is None else also
    mine = select(*COLUMNS).where(where.walked(tx), LIVES, condition, t.id > after).order_by(*IN_ORDER).limit(limit)
    return [from_row(row) for row in await tx.conn.execute(mine.with_for_update())]


def in_status(status: Status | None) -> ColumnElement[bool] | None:
    """A condition for `claim_some`; None is any status."""
    return None if status is None else t.status == status.value


async def claim_by_pk(tx: Tx, pks: Collection[str]) -> list[Task]:
    """Tasks by our own ids, locked for this transaction."""
    mine = select(*COLUMNS).where(among(tx, t.id, pks)).order_by(t.id).with_for_update()
    return [from_row(row) for row in await tx.conn.execute(mine)]


async def claim_named(tx: Tx, where: Where, task_ids: Collection[str]) -> list[Task]:
    """Those of these tasks that are in one queue, deleted or not, locked for this transaction."""
    mine = select(*COLUMNS).where(where.place, among(tx, t.task_id, task_ids)).order_by(t.id).with_for_update()
    return [from_row(row) for row in await tx.conn.execute(mine)]


async def list_pushed(tx: Tx, where: Where, *, after: str = "", limit: int) -> list[tuple[str, str]]:
    """Some of the living tasks of a queue that clients made, which a push replaces: our id and theirs."""
    mine = select(t.id, t.task_id).where(where.place, LIVES, t.origin == Side.CLIENT.value, t.id > after)
    return [(row.id, row.task_id) for row in await tx.conn.execute(mine.order_by(t.id).limit(limit))]


async def list_held_by_pull(tx: Tx, pull_id: str) -> list[Task]:
    """What one holder took with one call and still has, in order."""
    tp = task_pull.c
    held = (tp.pull_id == pull_id, tp.ended_at.is_(None))
    mine = select(*COLUMNS).join_from(task_pull, task, t.id == tp.task_pk).where(*held).order_by(tp.id)
    return [from_row(row) for row in await tx.conn.execute(mine)]


async def insert_tasks(tx: Tx, new: Sequence[Task]) -> None:
    """Add tasks."""
    rows = [(*_values(one), folded(one.task_id, one.name)) for one in new]
    await insert_rows(tx, task, (*NAMES, "search_text"), rows)


def move_tasks(writes: Writes, moved: Sequence[tuple[Task, Task]]) -> None:
    """Write what changed between each `before` and `after`. The caller has locked these rows.

    A column that one of them changed is written for all: one statement for ten thousand tasks, whatever changed.
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
    """The same for one, at once."""
    writes = Writes(tx)
    move_tasks(writes, [(before, after)])
    await writes.write()


async def delete_tasks(tx: Tx, pks: Collection[str]) -> None:
    """Remove tasks with everything that was said of them."""
    for table in (task_message, task_log, task_pull, task_offer_tag):
        await tx.conn.execute(delete(table).where(among(tx, table.c.task_pk, pks)))
    await tx.conn.execute(delete(task).where(among(tx, t.id, pks)))
