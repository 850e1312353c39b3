"""Removing a project or a queue with all that is in it.

Whoever removes it does not wait for a million rows: in one transaction nobody finds it any more, its name is free, its
tasks are off offer and out of their holders' hands. The rows go afterwards, in a job, some thousands at a time. What
stays is the audit line, and for a while an empty row by which those who ask for changes hear of it.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from penstock.access import audit
from penstock.access.domain import Caller
from penstock.kernel.db import Tx
from penstock.kernel.maintenance import until_none
from penstock.kernel.queue import Job, NewJob
from penstock.tasks.deps import Deps
from penstock.tasks.lifecycle import Book, channel, open_book
from penstock.tasks.store import feed, projects, queues, removal

ROOM = "tasks"
REMOVE = "tasks.remove"


class DeleteSome(Protocol):
    """Deletes a bounded number of rows of a removed project; returns how many."""

    async def __call__(self, tx: Tx, project_pk: str, /) -> int:
        """Delete some."""
        ...


class DeleteOld(Protocol):
    """Deletes a bounded number of old rows; returns how many."""

    async def __call__(self, tx: Tx, *, before: datetime) -> int:
        """Delete some."""
        ...


async def delete_project(tools: Deps, caller: Caller, project_id: str) -> None:
    """Remove a project with its queues and tasks."""
    async with tools.db.tx(actor=caller.name) as tx:
        book = await open_book(tx, project_id)
        pk, tasks = book.project.id, book.project.counts.total
        await removal.withdraw_all(tx, pk, None, by=caller.name)
        _tell(book)
        await book.close(by=caller.name)
        await projects.delete_project(tx, pk)
        await audit.note(tx, caller, "tasks.delete_project", f"project:{project_id}", tasks=tasks)
        await tools.queue.enqueue(tx, _removal_of(pk, None))


async def delete_queue(tools: Deps, caller: Caller, project_id: str, queue_id: str) -> None:
    """Remove a queue with its tasks."""
    async with tools.db.tx(actor=caller.name) as tx:
        book = await open_book(tx, project_id)
        gone = await book.get_queue(queue_id)
        await removal.withdraw_all(tx, book.project.id, gone.id, by=caller.name)
        left = book.project.counts.less(gone.counts)
        book.project = replace(book.project, queue_count=book.project.queue_count - 1, counts=left)
        _tell(book)
        await book.close(by=caller.name)
        await queues.delete_queue(tx, gone.id)
        detail = {"queue": queue_id, "tasks": gone.counts.total}
        await audit.note(tx, caller, "tasks.delete_queue", f"project:{project_id}", **detail)
        await tools.queue.enqueue(tx, _removal_of(book.project.id, gone.id))


async def remove_rows(tools: Deps, job: Job) -> None:
    """Delete what was in a removed project or queue. It can be done again, or begun anew in the middle."""
    project_pk, queue_pk = job.payload["project_pk"], job.payload["queue_pk"]
    await until_none(partial(_some_tasks, tools, project_pk, queue_pk))
    if queue_pk is None:
        for others in (feed.delete_changes_of, queues.delete_queues_of):
            await until_none(partial(_some_others, tools, others, project_pk))


async def forget_removed(tools: Deps) -> None:
    """Delete the empty rows of what was removed so long ago that nobody asks for it any more."""
    before = tools.db.clock.now() - timedelta(days=tools.rules.history_days)
    for old in (queues.delete_gone_queues, projects.delete_gone_projects):
        await until_none(partial(_old, tools, old, before))


def _tell(book: Book) -> None:
    """Let those hear of it who watch or wait. The feed has no line per task, but its number has moved on."""
    book.project = replace(book.project, version=book.project.version + 1)
    book.touch("")
    book.tell()
    book.tx.wake(channel(book.project.id))


def _removal_of(project_pk: str, queue_pk: str | None) -> NewJob:
    payload = {"project_pk": project_pk, "queue_pk": queue_pk}
    return NewJob(id=f"{REMOVE}:{queue_pk or project_pk}", kind=REMOVE, payload=payload, room=ROOM)


async def _some_tasks(tools: Deps, project_pk: str, queue_pk: str | None) -> int:
    async with tools.db.tx() as tx:
        return await removal.delete_some_tasks(tx, project_pk, queue_pk)


async def _some_others(tools: Deps, others: DeleteSome, project_pk: str) -> int:
    async with tools.db.tx() as tx:
        return await others(tx, project_pk)


async def _old(tools: Deps, old: DeleteOld, before: datetime) -> int:
    async with tools.db.tx() as tx:
        return await old(tx, before=before)
