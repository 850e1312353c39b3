"""Messages and log lines of tasks, numbered from 0. The last `MAX_KEPT` of each are kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Table, case, delete, func, select, update

from penstock.kernel.db import Tx
from penstock.kernel.dialect.bulk import insert_rows
from penstock.kernel.dialect.sql import any_of
from penstock.tasks.domain import Holder
from penstock.tasks.store.tables import HELD, task, task_log, task_message

MAX_KEPT = 10_000


@dataclass(frozen=True, kw_only=True)
class TaskMessage:
    """A message of a task's conversation."""

    number: int
    role: str
    content: str
    session_id: str | None
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """A line of a task's log."""

    number: int
    content: str
    created_at: datetime


async def list_messages(tx: Tx, task_pk: str, *, limit: int = 10_000) -> list[TaskMessage]:
    """The messages of a task, oldest first."""
    m = task_message.c
    mine = select(m.number, m.role, m.content, m.session_id, m.created_at).where(m.task_pk == task_pk)
    return [TaskMessage(**row._mapping) for row in await tx.conn.execute(mine.order_by(m.number).limit(limit))]


async def list_log(tx: Tx, task_pk: str, *, limit: int = 10_000) -> list[LogLine]:
    """The log of a task, oldest first."""
    line = task_log.c
    mine = select(line.number, line.content, line.created_at).where(line.task_pk == task_pk)
    return [LogLine(**row._mapping) for row in await tx.conn.execute(mine.order_by(line.number).limit(limit))]


async def insert_messages(tx: Tx, new: Sequence[tuple[str, TaskMessage]]) -> None:
    """Insert messages, each with its task's primary key."""
    rows = [(pk, one.number, one.role, one.content, one.session_id, one.created_at) for pk, one in new]
    names = ("task_pk", "number", "role", "content", "session_id", "created_at")
    await insert_rows(tx, task_message, names, rows)


async def insert_log(tx: Tx, new: Sequence[tuple[str, LogLine]]) -> None:
    """Insert log lines, each with its task's primary key."""
    rows = [(pk, one.number, one.content, one.created_at) for pk, one in new]
    await insert_rows(tx, task_log, ("task_pk", "number", "content", "created_at"), rows)


async def delete_messages(tx: Tx, pks: Sequence[str]) -> None:
    """Delete all messages of tasks, when a push replaces them."""
    if pks:
        await tx.conn.execute(delete(task_message).where(any_of(task_message.c.task_pk, pks)))


async def delete_log(tx: Tx, pks: Sequence[str]) -> None:
    """Delete all log lines of tasks, when a push replaces them."""
    if pks:
        await tx.conn.execute(delete(task_log).where(any_of(task_log.c.task_pk, pks)))


async def insert_message(tx: Tx, task_pk: str, message: TaskMessage) -> None:
    """Insert one message; delete the oldest past `MAX_KEPT`."""
    await insert_messages(tx, [(task_pk, message)])
    await _delete_upto(tx, task_message, task_pk, message.number - MAX_KEPT)


async def insert_line(tx: Tx, task_pk: str, content: str, *, holder: Holder, until: datetime) -> LogLine | None:
    """Insert one log line, and extend the lease if its holder writes it; None if the task was deleted.

    The project is not locked: log lines are frequent and change nothing else.
    """
    t = task.c
    mine = HELD & (t.lease_owner == holder.name if holder.token is None else t.lease_token == holder.token)
    values = {"log_count": t.log_count + 1, "leased_until": case((mine, until), else_=t.leased_until)}
    numbered = update(task).where(t.id == task_pk, t.deleted_at.is_(None)).values(values).returning(t.log_count)
    count = await tx.conn.scalar(numbered)
    if count is None:
        return None
    line = LogLine(number=count - 1, content=content, created_at=tx.now)
    await insert_log(tx, [(task_pk, line)])
    await _delete_upto(tx, task_log, task_pk, line.number - MAX_KEPT)
    return line


async def _delete_upto(tx: Tx, table: Table, task_pk: str, upto: int) -> None:
    if upto >= 0:
        await tx.conn.execute(delete(table).where(table.c.task_pk == task_pk, table.c.number <= upto))


async def list_same_messages(
    tx: Tx, given: Mapping[str, Sequence[tuple[datetime | None, str, str | None, str]]]
) -> set[str]:
    """The tasks whose stored messages equal these: time (None is any), role, session and content of each."""
    return await _list_same(tx, task_message, ("created_at", "role", "session_id", "content"), given)


async def list_same_logs(tx: Tx, given: Mapping[str, Sequence[tuple[datetime | None, str]]]) -> set[str]:
    """The tasks whose stored log lines equal these: time (None is any) and content of each."""
    return await _list_same(tx, task_log, ("created_at", "content"), given)


async def _list_same(
    tx: Tx, table: Table, names: Sequence[str], given: Mapping[str, Sequence[tuple[Any, ...]]]
) -> set[str]:
    """Read only texts of the same size as the given ones: a client cannot make us read more than it sent."""
    if not given:
        return set()
    pk, content = table.c.task_pk, table.c.content
    sizes = select(pk, func.count(), func.sum(func.length(content))).where(any_of(pk, list(given))).group_by(pk)
    known = {row[0]: (row[1], row[2]) for row in await tx.conn.execute(sizes)}
    likely = [one for one, texts in given.items() if known.get(one, (0, 0)) == _size(texts)]
    kept: dict[str, list[tuple[Any, ...]]] = {one: [] for one in likely}
    rows = select(pk, *(table.c[name] for name in names)).where(any_of(pk, likely)).order_by(pk, table.c.number)
    for one, *columns in await tx.conn.execute(rows):
        kept[one].append(tuple(columns))
    return {one for one, texts in kept.items() if all(map(_is_same, texts, given[one]))}


def _is_same(stored: tuple[Any, ...], given: tuple[Any, ...]) -> bool:
    return stored[1:] == given[1:] and given[0] in (None, stored[0])


def _size(texts: Sequence[tuple[Any, ...]]) -> tuple[int, int]:
    return len(texts), sum(len(one[-1] or "") for one in texts)
