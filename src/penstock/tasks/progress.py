"""A client tells how one task goes: a message, a line for the log, or the status it is in now.

Whoever holds the task keeps it for as long again with each of them; a final status closes the pull. What is said of the
status is taken by the rules of a push.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from penstock.kernel.db import Tx
from penstock.kernel.errors import Conflict, Gone, Invalid, NotFound, PenstockError, Refused
from penstock.tasks.deps import Deps
from penstock.tasks.domain import ChangeKind, Holder, Outcome, Status, Task
from penstock.tasks.errors import ProjectNotFound, QueueNotFound, TaskGone, TaskNotFound, place_of
from penstock.tasks.lost import lost
from penstock.tasks.lifecycle import Book, by_name, claim_task, count_ended, find_task, open_book, pick
from penstock.tasks.conflicts import Saying, differs, list_lost, refuse_running_over
from penstock.tasks.result_schema import refuse_misfit
from penstock.tasks.store import leases, projects, queues, task_messages, tasks
from penstock.tasks.store.task_messages import LogLine, Message

REFUSALS = (Invalid, Refused, NotFound, Conflict, Gone)  # of one word; whatever else goes wrong does so for all


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


@dataclass(frozen=True, kw_only=True)
class Word:
    """A status that someone tells of a task, and the report or result that came with it."""

    spot: Spot
    holder: Holder
    status: Status
    fields: Mapping[str, Any]


async def set_status(
    tools: Deps, spot: Spot, holder: Holder, status: Status, fields: Mapping[str, Any] | None = None
) -> Moved:
    """Take a status, and the report or result that came with it. To say the same twice is harmless.

    Many finish at the same time and would queue up for their project, so they share a trip and its lock.
    """
    word = Word(spot=spot, holder=holder, status=status, fields=fields or {})
    key = ("status", spot.project_id)
    taken: Moved | PenstockError = await tools.trips.ask(key, word, partial(_take_all, tools, spot.project_id))
    if isinstance(taken, PenstockError):
        raise taken
    return taken


async def _take_all(tools: Deps, project_id: str, words: Sequence[Word]) -> Sequence[Moved | PenstockError]:
    """Take what was said, as far as nothing speaks against it. What is said twice of one task is taken in turn."""
    said: Counter[str] = Counter()
    turns: defaultdict[int, list[int]] = defaultdict(list)
    for number, word in enumerate(words):
        turns[said[word.spot.task_id]].append(number)
        said[word.spot.task_id] += 1
    taken: dict[int, Moved | PenstockError] = {}
    for turn in turns.values():
        taken |= zip(turn, await _take_some(tools, project_id, [words[number] for number in turn]), strict=True)
    return [taken[number] for number in range(len(words))]


async def _take_some(tools: Deps, project_id: str, words: Sequence[Word]) -> Sequence[Moved | PenstockError]:
    """Take what was said of some tasks, of each one thing."""
    async with tools.db.tx(actor="push") as tx:
        try:
            book = await open_book(tx, project_id)
        except ProjectNotFound:
            return [TaskNotFound(**word.spot.names) for word in words]
        found = by_name(await tasks.claim_namesakes(tx, book.project.id, [word.spot.task_id for word in words]))
        taken: list[Moved | PenstockError] = []
        for word in words:
            try:
                taken.append(await _take(tools, book, found[word.spot.task_id], word))
            except REFUSALS as error:
                taken.append(error)
        count_ended(book, tools.meters)
        await book.close(by=tx.actor)
    return taken


async def _take(tools: Deps, book: Book, namesakes: Sequence[Task], word: Word) -> Moved:
    tx, spot, holder = book.tx, word.spot, word.holder
    queue = None if spot.queue_id is None else await book.find_queue(spot.queue_id)
    if queue is None and spot.queue_id is not None:
        raise TaskNotFound(**spot.names)
    before = pick(namesakes, spot.project_id, spot.task_id, queue)
    merged = replace(before, **word.fields).with_status(word.status, now=tx.now)
    after = merged.told_by(holder, seconds=tools.rules.pull_timeout, now=tx.now)
    changes = differs(before, after)
    await _refuse(book, Saying(holder=holder, task=before, changes=changes))
    if "result" in word.fields:
        refuse_misfit(before.result_schema, word.fields["result"])
    if changes:
        after = replace(after, updated_at=tx.now, updated_by=holder.name)
        book.note(before, after, ChangeKind.PUSHED, Outcome.PUSHED, by=holder.name)
    else:
        await holds.keep(tx, [after] if after != before else [])
    return Moved(task=after, previous=before.status)


async def say(
    tools: Deps, spot: Spot, holder: Holder, *, role: str, content: str, session_id: str | None = None
) -> Message:
    """Add a message to a task's conversation; the task, its queue and its project are as new as it."""
    async with tools.db.tx(actor=holder.name) as tx:
        book, before = await _claim(tx, spot)
        count = before.message_count
        after = replace(before, message_count=count + 1, updated_at=tx.now, updated_by=holder.name)
        if holder.holds(before):
            after = after.kept_by_holder(seconds=tools.rules.pull_timeout, now=tx.now)
        said = Message(number=count, role=role, content=content, session_id=session_id, created_at=tx.now)
        await tasks.move_task(tx, before, after)
        await talk.insert_message(tx, before.id, said)
        book.touch(before.queue_pk)
        await book.close(by=holder.name)
    return said


async def log(tools: Deps, spot: Spot, holder: Holder, content: str) -> LogLine:
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
