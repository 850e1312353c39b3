"""A client pushes a queue: the list of its tasks, as they are now.

The client's own tasks in the queue become that list; what the server planned there stays when it is left out. A task
that a client had pulled comes back this way: with a final status its pull is closed. A push is taken as a whole or
refused as a whole, and pushing the same twice writes nothing the second time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from penstock.kernel.db import Tx
from penstock.tasks.deps import Deps
from penstock.tasks.domain import ChangeKind, Holder, Outcome, Project, Queue, Side, Status, Task
from penstock.tasks.lifecycle import Book, count_ended, open_book
from penstock.tasks.conflicts import Saying, differs, refuse, refuse_moved, refuse_running_over
from penstock.tasks.result_schema import refuse_misfit
from penstock.tasks.store import leases, projects, pulls, task_messages, tasks
from penstock.tasks.store.tasks import Where

READ_AT_ONCE = 20_000  # a queue may have grown past what one push can hold


@dataclass(frozen=True, kw_only=True)
class Spoken:
    """A message, before it has a number."""

    role: str
    content: str
    session_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Told:
    """One task as a client tells it. `fields` has what it gave, by our names; what it did not give stays as it is."""

    task_id: str
    status: Status
    fields: Mapping[str, Any]
    messages: Sequence[Spoken] | None = None
    logs: Sequence[str] | None = None
    lease_token: str | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The columns that it gives."""
        given = dict(self.fields)
        if self.messages is not None:
            given["message_count"] = len(self.messages)
        if self.logs is not None:
            given["log_count"] = len(self.logs)
        return given


@dataclass(frozen=True, kw_only=True)
class Push:
    """A queue as a client tells it."""

    project_id: str
    project_name: str
    queue_id: str
    queue_name: str
    about: Mapping[str, str | None] = field(default_factory=dict)  # what the client says of itself and its repository
    meta: Mapping[str, Any] | None = None
    tasks: Sequence[Told] = ()


@dataclass(frozen=True, kw_only=True)
class Counted:
    """How many tasks of a push were new, and how many were there before."""

    created: int
    updated: int


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A task of the list, beside what is here."""

    told: Told
    holder: Holder
    before: Task | None
    after: Task
    speaks: bool  # whether its messages are others than those here
    logs: bool  # the same of its log

    @cached_property
    def changes(self) -> bool:
        """Whether there is anything to write."""
        return self.before is None or self.speaks or self.logs or differs(self.before, self.after)


async def submit(tools: Deps, push: Push, holder: Holder) -> Counted:
    """Take a push."""
    async with tools.db.tx(actor=holder.name) as tx:
        book = await _open(tx, push)
        queue = await _place(book, push)
        entries = await _compare(tools, tx, queue, push, holder)
        known = [(one, one.before) for one in entries if one.before is not None]
        said = [Saying(holder=one.holder, task=before, changes=one.changes) for one, before in known]
        await refuse(tx, book.project, said)
        new = [(one.told.task_id, one.holder) for one in entries if one.before is None]
        await refuse_moved(tx, book.project, new)
        _refuse_misfits(entries)
        changed = [one for one in entries if one.changes]
        for one in changed:
            if one.before is None:
                book.note(None, one.after, ChangeKind.CREATED)
            else:
                after = replace(one.after, updated_at=tx.now, updated_by=holder.name)
                book.note(one.before, after, ChangeKind.PUSHED, Outcome.PUSHED)
        await holds.keep(tx, [one.after for one, before in known if not one.changes and one.after != before])
        await _drop_missing(tools, book, queue, push, holder)
        if book.has_changes:
            book.tell()
        count_ended(book, tools.meters)
        await book.close(by=holder.name)
        await _write_talk(tx, changed)
    return Counted(created=len(entries) - len(known), updated=len(known))


async def _open(tx: Tx, push: Push) -> Book:
    """The project in hand; made when it is missing, renamed when its name is another."""
    if await projects.find_project(tx, push.project_id) is None:
        pk, name = tx.new_id("project"), push.project_name
        new = Project(id=pk, project_id=push.project_id, name=name, created_at=tx.now, updated_at=tx.now)
        await projects.insert_missing(tx, new)
    book = await open_book(tx, push.project_id)
    about: dict[str, Any] = {**push.about, "name": push.project_name}
    told = replace(book.project, **about)
    if told != book.project:
        book.project = replace(told, updated_at=tx.now)
    return book


async def _place(book: Book, push: Push) -> Queue:
    """The queue; made when it is missing, renamed when its name is another."""
    now, found = book.tx.now, await book.find_queue(push.queue_id)
    if found is None:
        new = Queue(
            id=book.tx.new_id("queue"),
            project_pk=book.project.id,
            queue_id=push.queue_id,
            name=push.queue_name,
            meta=push.meta,
            created_at=now,
            updated_at=now,
        )
        book.put_queue(new)
        book.project = replace(book.project, queue_count=book.project.queue_count + 1, updated_at=now)
        return new
    told = replace(found, name=push.queue_name, meta=found.meta if push.meta is None else push.meta)
    if told != found:
        told = replace(told, updated_at=now)
        book.put_queue(told)
    return told


async def _compare(tools: Deps, tx: Tx, queue: Queue, push: Push, holder: Holder) -> list[_Entry]:
    """The list beside what is here."""
    where = Where(project_pk=queue.project_pk, queue_pk=queue.id)
    here = {one.task_id: one for one in await tasks.claim_named(tx, where, [one.task_id for one in push.tasks])}
    pairs = [(told, here.get(told.task_id)) for told in push.tasks]
    same_messages, same_logs = await _list_same_talk(tx, pairs)
    pks = [one.id for one in here.values()]
    taken = await pulls.list_taken(tx, holder.token, pks) if holder.token is not None else set()
    entries = []
    for told, before in pairs:
        pk = "" if before is None else before.id
        token = told.lease_token or (holder.token if pk in taken else None)
        mine = holder if token == holder.token else replace(holder, token=token)
        if before is None:
            after = _made(tx, told, queue, by=holder.name)
        else:
            after = _merged(before, told, now=tx.now).told_by(mine, seconds=tools.rules.pull_timeout, now=tx.now)
        speaks = told.messages is not None and pk not in same_messages
        logs = told.logs is not None and pk not in same_logs
        entries.append(_Entry(told=told, holder=mine, before=before, after=after, speaks=speaks, logs=logs))
    return entries


async def _list_same_talk(tx: Tx, pairs: Sequence[tuple[Told, Task | None]]) -> tuple[set[str], set[str]]:
    """The tasks whose messages, and those whose logs, are here just as they were given, and with the same numbers."""
    known = [(told, before) for told, before in pairs if before is not None]
    spoken = {
        before.id: [(one.role, one.session_id, one.content) for one in told.messages]
        for told, before in known
        if told.messages is not None and len(told.messages) == before.message_count
    }
    logged = {
        before.id: [(line,) for line in told.logs]
        for told, before in known
        if told.logs is not None and len(told.logs) == before.log_count
    }
    return await talk.list_same_messages(tx, spoken), await talk.list_same_logs(tx, logged)


def _merged(before: Task, told: Told, *, now: datetime) -> Task:
    """A task with what differs in what is told of it; itself when nothing does, as for most of a long list."""
    new = {name: value for name, value in told.given.items() if getattr(before, name) != value}
    merged = replace(before, **new) if new else before
    return merged.with_status(told.status, now=now)


def _made(tx: Tx, told: Told, queue: Queue, *, by: str) -> Task:
    new = Task(
        id=tx.new_id("task"),
        partition_key=queue.project_pk,
        queue_pk=queue.id,
        queue_id=queue.queue_id,
        task_id=told.task_id,
        status=Status.PENDING,
        source=Side.CLIENT,
        origin=Side.CLIENT,
        scheduled_at=tx.now,
        created_at=tx.now,
        created_by=by,
        updated_at=tx.now,
        updated_by=by,
        **told.given,
    )
    return new.with_status(told.status, now=tx.now)


def _refuse_misfits(entries: Sequence[_Entry]) -> None:
    """Hold results against the schemas of their tasks."""
    for number, one in enumerate(entries):
        if "result" in one.told.fields:
            result = one.told.fields["result"]
            refuse_misfit(one.after.result_schema, result, field=f"tasks[{number}].result")


async def _drop_missing(tools: Deps, book: Book, queue: Queue, push: Push, holder: Holder) -> None:
    """Remove the client's own tasks that are not in its list."""
    where = Where(project_pk=queue.project_pk, queue_pk=queue.id)
    listed, after = {one.task_id for one in push.tasks}, ""
    anybody = replace(holder, token=None)
    while found := await tasks.list_pushed(book.tx, where, after=after, limit=READ_AT_ONCE):
        after = found[-1][0]
        missing = [pk for pk, task_id in found if task_id not in listed]
        dropped = await tasks.claim_by_pk(book.tx, missing) if missing else []
        refuse_running_over(book.project, [Saying(holder=anybody, task=one, changes=True) for one in dropped])
        for one in dropped:
            book.note(one, None, ChangeKind.DROPPED)
        if len(book.changes) >= READ_AT_ONCE:
            count_ended(book, tools.meters)
            await book.flush(by=holder.name)


async def _write_talk(tx: Tx, changed: Sequence[_Entry]) -> None:
    """Put messages and logs that were given in the place of those that were here."""
    spoken = [one for one in changed if one.speaks]
    logged = [one for one in changed if one.logs]
    await talk.delete_messages(tx, [one.after.id for one in spoken if one.before is not None])
    await talk.delete_log(tx, [one.after.id for one in logged if one.before is not None])
    await talk.insert_messages(
        tx,
        [
            (one.after.id, talk.Message(number=number, created_at=tx.now, **vars(said)))
            for one in spoken
            for number, said in enumerate(one.told.messages or ())
        ],
    )
    await talk.insert_log(
        tx,
        [
            (one.after.id, talk.LogLine(number=number, created_at=tx.now, content=line))
            for one in logged
            for number, line in enumerate(one.told.logs or ())
        ],
    )
