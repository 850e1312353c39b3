"""A client tells how one task goes: a message, a line for the log, or the status it is in now.

Whoever holds the task keeps it for as long again with each of them; a final status closes the pull. What is said of the
status is taken by the rules of a push.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from penstock.kernel.db import Tx
from penstock.tasks.domain import ChangeKind, Holder, Outcome, Status, Task
from penstock.tasks.errors import BadTask, ProjectNotFound, QueueNotFound, TaskGone, TaskNotFound, place_of
from penstock.tasks.lost import lost
from penstock.tasks.moves import Book, claim_task, count_ended, find_task, open_book
from penstock.tasks.objections import Saying, differs, list_lost, refuse_running_over
from penstock.tasks.schema import misfit_of
from penstock.tasks.store import holds, projects, queues, talk, tasks
from penstock.tasks.store.talk import LogLine, Message
from penstock.tasks.tools import Tools


@dataclass(frozen=True, kw_only=True)
class Spot:
    """Which task a path means; without a queue it is looked for in the whole project."""

    project_id: str
    task_id: str
    queue_id: str | None = None

    @property
    def names(self) -> dict[str, Any]:
        """The same for an error."""
        return {"task_id": self.task_id, **place_of(self.project_id, self.queue_id)}


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A task after its status was told, and the status before."""

    task: Task
    previous: Status


async def set_status(
    tools: Tools, spot: Spot, holder: Holder, status: Status, fields: Mapping[str, Any] | None = None
) -> Moved:
    """Take a status, and the report or result that came with it. To say the same twice is harmless."""
    async with tools.db.tx(actor=holder.name) as tx:
        book, before = await _claim(tx, spot)
        merged = replace(before, **(fields or {})).with_status(status, now=tx.now)
        after = merged.told_by(holder, seconds=tools.rules.pull_timeout, now=tx.now)
        changes = differs(before, after)
        await _refuse(book, Saying(holder=holder, task=before, changes=changes))
        _refuse_misfit(before, fields or {})
        if not changes:
            await holds.keep(tx, [after] if after != before else [])
            return Moved(task=after, previous=before.status)
        after = replace(after, updated_at=tx.now, updated_by=holder.name)
        book.note(before, after, ChangeKind.PUSHED, Outcome.PUSHED)
        count_ended(book, tools.meters)
        await book.close(by=holder.name)
    return Moved(task=after, previous=before.status)


async def say(
    tools: Tools, spot: Spot, holder: Holder, *, role: str, content: str, session_id: str | None = None
) -> Message:
    """Add a message to a task's conversation; the task, its queue and its project are as new as it."""
    async with tools.db.tx(actor=holder.name) as tx:
        book, before = await _claim(tx, spot)
        count = before.message_count
        after = replace(before, message_count=count + 1, updated_at=tx.now, updated_by=holder.name)
        if holder.holds(before):
            after = after.kept_by_holder(seconds=tools.rules.pull_timeout, now=tx.now)
        said = Message(number=count, role=role, content=content, session_id=session_id, created_at=tx.now)
        await tasks.move_tasks(tx, [(before, after)])
        await talk.insert_message(tx, before.id, said)
        book.touch(before.queue_pk)
        await book.close(by=holder.name)
    return said


async def log(tools: Tools, spot: Spot, holder: Holder, content: str) -> LogLine:
    """Add a line to a task's log; nothing else is as new as it, and nobody waits for the project."""
    async with tools.db.tx(actor=holder.name) as tx:
        found = await _find(tx, spot)
        until = tx.now + timedelta(seconds=tools.rules.pull_timeout)
        line = await talk.insert_line(tx, found.id, content, holder=holder, until=until)
        if line is None:  # deleted since it was found
            raise TaskGone(**spot.names)
    return line


async def _claim(tx: Tx, spot: Spot) -> tuple[Book, Task]:
    """The project and the task in hand. Whatever is missing, all three names are told."""
    try:
        book = await open_book(tx, spot.project_id)
        return book, await claim_task(book, spot.task_id, spot.queue_id)
    except (ProjectNotFound, QueueNotFound) as error:
        raise TaskNotFound(**spot.names) from error


async def _find(tx: Tx, spot: Spot) -> Task:
    """The task, only to be read."""
    project = await projects.find_project(tx, spot.project_id)
    if project is None:
        raise TaskNotFound(**spot.names)
    if spot.queue_id is None:
        return await find_task(tx, project, spot.task_id)
    queue = await queues.find_queue(tx, project.id, spot.queue_id)
    if queue is None:
        raise TaskNotFound(**spot.names)
    return await find_task(tx, project, spot.task_id, queue)


async def _refuse(book: Book, said: Saying) -> None:
    if await list_lost(book.tx, [said]):
        raise await lost(book.tx, said.task, said.holder)
    refuse_running_over(book.project, [said])


def _refuse_misfit(task: Task, fields: Mapping[str, Any]) -> None:
    if task.result_schema is None or "result" not in fields:
        return
    if misfit := misfit_of(task.result_schema, fields["result"]):
        raise BadTask(field="result", reason=misfit, reason_zh=misfit)
