"""Push: a client sends the tasks of a queue as they are now.

A push replaces the queue's client tasks with that list; tasks created on the server stay even if they are not listed. A
final status from the holder closes the pull. A pushed task belongs to the client and is no longer offered. A push is
atomic: it is accepted or refused as a whole. Repeating it writes nothing. Pushes to one project are serialised.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from penstock.kernel.db import Tx
from penstock.tasks.conflicts import ClientUpdate, differs, refuse_conflicts, refuse_moved, refuse_overwrites
from penstock.tasks.deps import Deps
from penstock.tasks.domain import ChangeKind, Holder, Project, PullOutcome, Side, Status, Task, TaskQueue
from penstock.tasks.lifecycle import UnitOfWork, count_ended_pulls, open_unit_of_work
from penstock.tasks.result_schema import validate_result
from penstock.tasks.store import leases, projects, pulls, task_messages, tasks
from penstock.tasks.store.tasks import QueueScope

BATCH_SIZE = 20_000  # a queue may hold more tasks than one push


@dataclass(frozen=True, kw_only=True)
class PushedMessage:
    """A message of a pushed task; its number is its position."""

    role: str
    content: str
    session_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class PushedTask:
    """One task of a push. `fields` has the fields the client sent; absent fields keep their values."""

    task_id: str
    status: Status
    fields: Mapping[str, Any]
    messages: Sequence[PushedMessage] | None = None
    logs: Sequence[str] | None = None
    lease_token: str | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """The columns that it sets."""
        columns = dict(self.fields)
        if self.messages is not None:
            columns["message_count"] = len(self.messages)
        if self.logs is not None:
            columns["log_count"] = len(self.logs)
        return columns


@dataclass(frozen=True, kw_only=True)
class Push:
    """A queue with its tasks, as a client pushes it."""

    project_id: str
    project_name: str
    queue_id: str
    queue_name: str
    about: Mapping[str, str | None] = field(default_factory=dict)  # columns about the client and its repository
    meta: Mapping[str, Any] | None = None
    tasks: Sequence[PushedTask] = ()


@dataclass(frozen=True, kw_only=True)
class PushCounts:
    """How many tasks of a push were new, and how many existed."""

    created: int
    updated: int


@dataclass(frozen=True, kw_only=True)
class _TaskDiff:
    """A pushed task compared with the stored one."""

    pushed: PushedTask
    holder: Holder
    before: Task | None
    after: Task
    new_messages: bool  # whether its messages differ from the stored ones
    new_logs: bool  # whether its log differs from the stored one

    @cached_property
    def changes(self) -> bool:
        """Whether there is anything to write."""
        return self.before is None or self.new_messages or self.new_logs or differs(self.before, self.after)


async def submit(deps: Deps, push: Push, holder: Holder) -> PushCounts:
    """Apply a push, or raise its first conflict and write nothing."""
    async with deps.db.tx(actor=holder.name) as tx:
        uow = await _open_project(tx, push)
        queue = await _open_queue(uow, push)
        diffs = await _compare(deps, tx, queue, push, holder)
        known = [(one, one.before) for one in diffs if one.before is not None]
        updates = [ClientUpdate(holder=one.holder, task=before, changes=one.changes) for one, before in known]
        await refuse_conflicts(tx, uow.project, updates)
        new = [(one.pushed.task_id, one.holder) for one in diffs if one.before is None]
        await refuse_moved(tx, uow.project, new)
        _validate_results(diffs)
        changed = [one for one in diffs if one.changes]
        for one in changed:
            if one.before is None:
                uow.record(None, one.after, ChangeKind.CREATED)
            else:
                after = replace(one.after, updated_at=tx.now, updated_by=holder.name)
                uow.record(one.before, after, ChangeKind.PUSHED, PullOutcome.PUSHED)
        await leases.move_leases(tx, [one.after for one, before in known if not one.changes and one.after != before])
        await _drop_missing(deps, uow, queue, push, holder)
        if uow.has_changes:
            uow.announce()
        count_ended_pulls(uow, deps.metrics)
        await uow.close(by=holder.name)
        await _write_messages(tx, changed)
    return PushCounts(created=len(diffs) - len(known), updated=len(known))


async def _open_project(tx: Tx, push: Push) -> UnitOfWork:
    """Open a unit of work on the project; create the project if it is missing, rename it if its name changed."""
    if await projects.find_project(tx, push.project_id) is None:
        pk, name = tx.new_id("project"), push.project_name
        new = Project(id=pk, project_id=push.project_id, name=name, created_at=tx.now, updated_at=tx.now)
        await projects.insert_missing(tx, new)
    uow = await open_unit_of_work(tx, push.project_id)
    about: dict[str, Any] = {**push.about, "name": push.project_name}
    pushed = replace(uow.project, **about)
    if pushed != uow.project:
        uow.project = replace(pushed, updated_at=tx.now)
    return uow


async def _open_queue(uow: UnitOfWork, push: Push) -> TaskQueue:
    """The queue; created if it is missing, renamed if its name changed."""
    now, found = uow.tx.now, await uow.find_queue(push.queue_id)
    if found is None:
        new = TaskQueue(
            id=uow.tx.new_id("queue"),
            project_pk=uow.project.id,
            queue_id=push.queue_id,
            name=push.queue_name,
            meta=push.meta,
            created_at=now,
            updated_at=now,
        )
        uow.put_queue(new)
        uow.project = replace(uow.project, queue_count=uow.project.queue_count + 1, updated_at=now)
        return new
    pushed = replace(found, name=push.queue_name, meta=found.meta if push.meta is None else push.meta)
    if pushed != found:
        pushed = replace(pushed, updated_at=now)
        uow.put_queue(pushed)
    return pushed


async def _compare(deps: Deps, tx: Tx, queue: TaskQueue, push: Push, holder: Holder) -> list[_TaskDiff]:
    """Compare each pushed task with the stored one, which is locked."""
    where = QueueScope(project_pk=queue.project_pk, queue_pk=queue.id)
    stored = {one.task_id: one for one in await tasks.claim_in_queue(tx, where, [one.task_id for one in push.tasks])}
    pairs = [(pushed, stored.get(pushed.task_id)) for pushed in push.tasks]
    same_messages, same_logs = await _list_same_messages(tx, pairs)
    pks = [one.id for one in stored.values()]
    pulled = await pulls.list_pulled_under(tx, holder.token, pks) if holder.token is not None else set()
    diffs = []
    for pushed, before in pairs:
        pk = "" if before is None else before.id
        token = pushed.lease_token or (holder.token if pk in pulled else None)
        task_holder = holder if token == holder.token else replace(holder, token=token)
        if before is None:
            after = _new_task(tx, pushed, queue, by=holder.name)
        else:
            merged = _merged(before, pushed, now=tx.now)
            after = merged.updated_by_client(task_holder, seconds=deps.config.pull_timeout, now=tx.now)
        new_messages = pushed.messages is not None and pk not in same_messages
        new_logs = pushed.logs is not None and pk not in same_logs
        diffs.append(
            _TaskDiff(
                pushed=pushed,
                holder=task_holder,
                before=before,
                after=after,
                new_messages=new_messages,
                new_logs=new_logs,
            )
        )
    return diffs


async def _list_same_messages(tx: Tx, pairs: Sequence[tuple[PushedTask, Task | None]]) -> tuple[set[str], set[str]]:
    """The tasks whose stored messages, and those whose stored log lines, equal the pushed ones."""
    known = [(pushed, before) for pushed, before in pairs if before is not None]
    messages = {
        before.id: [(one.role, one.session_id, one.content) for one in pushed.messages]
        for pushed, before in known
        if pushed.messages is not None and len(pushed.messages) == before.message_count
    }
    logs = {
        before.id: [(line,) for line in pushed.logs]
        for pushed, before in known
        if pushed.logs is not None and len(pushed.logs) == before.log_count
    }
    return await task_messages.list_same_messages(tx, messages), await task_messages.list_same_logs(tx, logs)


def _merged(before: Task, pushed: PushedTask, *, now: datetime) -> Task:
    """The task with the pushed columns that differ; the same object if none does, as for most of a long list."""
    new = {name: value for name, value in pushed.columns.items() if getattr(before, name) != value}
    merged = replace(before, **new) if new else before
    return merged.with_status(pushed.status, now=now)


def _new_task(tx: Tx, pushed: PushedTask, queue: TaskQueue, *, by: str) -> Task:
    new = Task(
        id=tx.new_id("task"),
        partition_key=queue.project_pk,
        queue_pk=queue.id,
        queue_id=queue.queue_id,
        task_id=pushed.task_id,
        status=Status.PENDING,
        source=Side.CLIENT,
        origin=Side.CLIENT,
        scheduled_at=tx.now,
        created_at=tx.now,
        created_by=by,
        updated_at=tx.now,
        updated_by=by,
        **pushed.columns,
    )
    return new.with_status(pushed.status, now=tx.now)


def _validate_results(diffs: Sequence[_TaskDiff]) -> None:
    """Validate the pushed results against the schemas of their tasks."""
    for number, one in enumerate(diffs):
        if "result" in one.pushed.fields:
            result = one.pushed.fields["result"]
            validate_result(one.after.result_schema, result, field=f"tasks[{number}].result")


async def _drop_missing(deps: Deps, uow: UnitOfWork, queue: TaskQueue, push: Push, holder: Holder) -> None:
    """Delete tasks created by clients that are not in the list, without a tombstone."""
    where = QueueScope(project_pk=queue.project_pk, queue_pk=queue.id)
    listed, after = {one.task_id for one in push.tasks}, ""
    without_token = replace(holder, token=None)
    while found := await tasks.list_pushed(uow.tx, where, after=after, limit=BATCH_SIZE):
        after = found[-1][0]
        missing = [pk for pk, task_id in found if task_id not in listed]
        dropped = await tasks.claim_by_pk(uow.tx, missing) if missing else []
        refuse_overwrites(uow.project, [ClientUpdate(holder=without_token, task=one, changes=True) for one in dropped])
        for one in dropped:
            uow.record(one, None, ChangeKind.DROPPED)
        if len(uow.changes) >= BATCH_SIZE:
            count_ended_pulls(uow, deps.metrics)
            await uow.flush(by=holder.name)


async def _write_messages(tx: Tx, changed: Sequence[_TaskDiff]) -> None:
    """Replace the stored messages and logs with the pushed ones."""
    with_messages = [one for one in changed if one.new_messages]
    with_logs = [one for one in changed if one.new_logs]
    await task_messages.delete_messages(tx, [one.after.id for one in with_messages if one.before is not None])
    await task_messages.delete_log(tx, [one.after.id for one in with_logs if one.before is not None])
    await task_messages.insert_messages(
        tx,
        [
            (one.after.id, task_messages.TaskMessage(number=number, created_at=tx.now, **vars(message)))
            for one in with_messages
            for number, message in enumerate(one.pushed.messages or ())
        ],
    )
    await task_messages.insert_log(
        tx,
        [
            (one.after.id, task_messages.LogLine(number=number, created_at=tx.now, content=line))
            for one in with_logs
            for number, line in enumerate(one.pushed.logs or ())
        ],
    )
