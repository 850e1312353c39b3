"""Text search in names, ids and custom titles: case-insensitive in every script, the same on both databases.

A substring has no index that both databases offer without an extension, so a search reads all texts of its queue or
project. Those of tasks are in a narrow table: 300,000 of them take about 30 ms. A page stops reading at its end.
"""

from collections.abc import Iterable, Sequence

from sqlalchemy import Column, ColumnElement, delete

from penstock.kernel.db import Tx
from penstock.kernel.dialect.bulk import insert_rows
from penstock.kernel.dialect.sql import any_of, contains_text
from penstock.tasks.domain import Task
from penstock.tasks.store.tables import task_search

s = task_search.c
NAMES = tuple(column.name for column in s)


def folded(*texts: str | None) -> str:
    """The case-folded text that is stored for search."""
    return "\n".join(text.casefold() for text in texts if text)


def contains(column: Column[str], search: str) -> ColumnElement[bool]:
    """Whether a stored text contains the search term; `%` and `_` are literal."""
    return contains_text(column, search.casefold())


async def insert_texts(tx: Tx, new: Iterable[Task]) -> None:
    """Insert the texts of new tasks, except deleted and archived ones."""
    await insert_rows(tx, task_search, NAMES, [row for one in new if (row := _row(one)) is not None])


async def write_texts(tx: Tx, changed: Sequence[tuple[Task | None, Task | None]]) -> None:
    """Write the texts of tasks that were renamed, moved to another queue, deleted, archived or restored.

    New tasks and tasks that are deleted for good are left to `insert_texts` and `delete_texts`.
    """
    rows = [(_row(before), _row(after)) for before, after in changed if before is not None and after is not None]
    different = [(before, after) for before, after in rows if before != after]
    await delete_texts(tx, [before[2] for before, _ in different if before is not None])
    await insert_rows(tx, task_search, NAMES, [after for _, after in different if after is not None])


async def delete_texts(tx: Tx, task_pks: Sequence[str]) -> None:
    """Delete the texts of these tasks."""
    if task_pks:
        await tx.conn.execute(delete(task_search).where(any_of(s.task_pk, task_pks)))


def _row(one: Task) -> tuple[str, str, str, str] | None:
    if one.deleted_at is not None or one.archived_at is not None:
        return None
    return one.partition_key, one.queue_pk, one.id, folded(one.task_id, one.name)
