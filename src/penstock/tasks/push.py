"""Push: a client sends the tasks of a queue as they are now.

A push replaces the queue's client tasks with that list; tasks created on the server stay even if they are not listed. A
final status from the holder closes the pull, also of a task that it pulled elsewhere (`pulled_elsewhere.py`). A pushed
task belongs to the client and is no longer offered. A push is atomic: it is accepted or refused as a whole. Repeating
it moves only times. Pushes to one project are serialised.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from penstock.access import audit
from penstock.access.domain import Caller
from penstock.kernel.db import Tx
from penstock.tasks.conflicts import ClientUpdate, differs, push_outcome, refuse_conflicts, refuse_overwrites
from penstock.tasks.deps import Deps
from penstock.tasks.domain import UNSET_RANK, ChangeKind, Holder, PullState, Side, Status, Task, TaskQueue
from penstock.tasks.errors import ProjectNotFound
from penstock.tasks.lifecycle import UnitOfWork, count_ended_pulls, open_or_create_project
from penstock.tasks.pulled_elsewhere import PulledElsewhere, find_pulled_elsewhere
from penstock.tasks.result_schema import validate_result
from penstock.tasks.store import leases, pulls, task_messages, tasks
from penstock.tasks.store.task_messages import LogLine, TaskMessage
from penstock.tasks.store.tasks import QueueScope

BATCH_SIZE = 20_000  # a queue may hold more tasks than one push
SETTLED = (Status.DONE, Status.ERROR)  # a task that is pushed again in one of these keeps what was said


@dataclass(frozen=True, kw_only=True)
class PushedMessage:
    """A message of a pushed task; its number is its position."""

    role: str
    content: str
    session_id: str | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class PushedLine:
    """A log line of a pushed task; its number is its position."""

    content: str
    created_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class PushedTask:
    """One task of a push. `fields` has the fields the client sent; absent fields keep their values.

    A priority and an expiry are used only where the stored task has none.
    """

    task_id: str
    status: Status
    fields: Mapping[str, Any]
    priority: int = UNSET_RANK
    expires_at: datetime | None = None
    messages: Sequence[PushedMessage] = ()
    logs: Sequence[PushedLine] = ()
    lease_token: str | None = None

    def keeps_messages(self, before: Task | None) -> bool:
        """Whether the stored messages and log stay, whatever was sent: it is finished, as before."""
        return before is not None and before.status is self.status and self.status in SETTLED

    def columns(self, before: Task | None) -> dict[str, Any]:
        """The columns that it sets."""
        columns = dict(self.fields)
        if before is None or before.priority == UNSET_RANK:
            columns["priority"] = self.priority
        if before is None or before.expires_at is None:
            columns["expires_at"] = self.expires_at
        if not self.keeps_messages(before):
            columns |= {"message_count": len(self.messages), "log_count": len(self.logs)}
        return columns


@dataclass(frozen=True, kw_only=True)
class Push:
    """A queue with its tasks, as a client pushes it."""

    project_id: str
    project_name: str
    queue_id: str
    queue_name: str
    about: Mapping[str, str | None] = field(default_factory=dict)  # columns about the client and its repository
    meta: Any = None
    tasks: Sequence[PushedTask] = ()
    caller: Caller | None = None  # who pushes: only into projects that they may use; their merchant owns a new one


@dataclass(frozen=True, kw_only=True)
class PushCounts:
    """The tasks of a push: of a new queue all are created, of a known one all are updated.

    `overwritten` are the tasks that another client holds or held until this push.
    """

    created: int
    updated: int
    overwritten: Sequence[str]


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


async def submit(tx: Tx, deps: Deps, push: Push, holder: Holder) -> PushCounts:
    """Apply a push, or raise its first conflict and write nothing."""
    uow = await _open_project(tx, push)
    found = await uow.find_queue(push.queue_id)
    queue = uow.add_queue(push.queue_id, push.queue_name, push.meta) if found is None else _put_queue(uow, found, push)
    where = QueueScope(project_pk=queue.project_pk, queue_pk=queue.id)
    elsewhere = await find_pulled_elsewhere(tx, where, push.tasks, holder)
    diffs = await _compare(deps, tx, queue, push, holder, elsewhere)
    copies = _compare_elsewhere(deps, tx, push, elsewhere)
    stored = [(one, one.before) for one in (*diffs, *copies) if one.before is not None]
    updates = [ClientUpdate(holder=one.holder, task=before, changes=one.changes) for one, before in stored]
    await refuse_conflicts(tx, uow.project, updates)
    _validate_results(diffs, copies)
    changed = [one for one in (*diffs, *copies) if one.changes]
    overwritten = [one.pushed.task_id for one, before in stored if before.is_held and not one.holder.holds(before)]
    for one in changed:
        if one.before is None:
            uow.record(None, one.after, ChangeKind.CREATED)
        else:
            after = replace(one.after, updated_at=tx.now, updated_by=holder.name)
            uow.record(one.before, after, ChangeKind.PUSHED, push_outcome(one.holder, one.before))
    unchanged = [(one, before) for one, before in stored if not one.changes]
    await leases.move_leases(tx, [one.after for one, before in unchanged if one.after != before])
    await tasks.touch_tasks(tx, [before.id for _, before in unchanged], by=holder.name)
    await tasks.place_tasks(tx, _moved(diffs))
    uow.touch(queue.id)
    dropped = await _drop_missing(deps, uow, queue, push, holder)
    if uow.has_changes:
        uow.announce()
        await _audit(uow, push, holder, dropped=dropped)
    count_ended_pulls(uow, deps.metrics)
    await uow.close(by=holder.name)
    await _write_messages(tx, changed)
    created = len(push.tasks) if found is None else 0
    return PushCounts(created=created, updated=len(push.tasks) - created, overwritten=overwritten)


async def _audit(uow: UnitOfWork, push: Push, holder: Holder, *, dropped: int) -> None:
    """Record a push that changes something, and the project if it is new."""
    by, target = push.caller or holder.name, f"project:{push.project_id}"
    if uow.is_new:
        await audit.record(uow.tx, by, "tasks.create_project", target)
    counts = {"tasks": len(push.tasks), "changed": len(uow.changes) + uow.written, "dropped": dropped}
    await audit.record(uow.tx, by, "tasks.push", target, queue=push.queue_id, **counts)


def _moved(diffs: Sequence[_TaskDiff]) -> list[tuple[str, int]]:
    """The new positions of stored tasks that this push lists elsewhere than the last one."""
    numbered = [(one.before, number) for number, one in enumerate(diffs) if one.before is not None]
    return [(before.id, number) for before, number in numbered if before.position != number]


async def _open_project(tx: Tx, push: Push) -> UnitOfWork:
    """Open a unit of work on the project; create the project if it is missing, rename it if its name changed."""
    merchant_id, access = (push.caller.merchant_id, push.caller.project_access) if push.caller else (None, None)
    uow = await open_or_create_project(tx, push.project_id, name=push.project_name, merchant_id=merchant_id)
    if access is not None and not access.covers(push.project_id, uow.project.merchant_id):
        raise ProjectNotFound(project_id=push.project_id)  # of another merchant; nothing is written
    about: dict[str, Any] = {**push.about, "name": push.project_name}
    pushed = replace(uow.project, **about)
    if pushed != uow.project:
        uow.project = replace(pushed, updated_at=tx.now)
    return uow


def _put_queue(uow: UnitOfWork, found: TaskQueue, push: Push) -> TaskQueue:
    """The queue with the pushed name and meta."""
    pushed = replace(found, name=push.queue_name, meta=push.meta)
    if pushed != found:
        pushed = replace(pushed, updated_at=uow.tx.now)
        uow.put_queue(pushed)
    return pushed


async def _compare(
    deps: Deps, tx: Tx, queue: TaskQueue, push: Push, holder: Holder, elsewhere: Mapping[str, PulledElsewhere]
) -> list[_TaskDiff]:
    """Compare each pushed task with the stored one, which is locked."""
    where = QueueScope(project_pk=queue.project_pk, queue_pk=queue.id)
    stored = {one.task_id: one for one in await tasks.claim_in_queue(tx, where, [one.task_id for one in push.tasks])}
    pairs = [(pushed, stored.get(pushed.task_id)) for pushed in push.tasks]
    same_messages, same_logs = await _list_same_messages(tx, pairs)
    pks = [one.id for one in stored.values()]
    pulled = await pulls.list_pulled_under(tx, holder.token, pks) if holder.token is not None else set()
    late = await _list_late(tx, pairs, holder)
    diffs = []
    for number, (pushed, before) in enumerate(pairs):
        pk = "" if before is None else before.id
        token = pushed.lease_token or (holder.token if pk in pulled else None)
        if pushed.task_id in elsewhere:  # the token is that of the task elsewhere
            token = None
        task_holder = holder if token == holder.token else replace(holder, token=token)
        if before is None:
            after = replace(_new_task(tx, pushed, queue, by=holder.name), position=number)
        elif pk in late:
            after = before.with_status(pushed.status, now=tx.now)
        else:
            merged = _merged(before, pushed, now=tx.now)
            after = merged.updated_by_client(task_holder, seconds=deps.config.pull_timeout, now=tx.now)
        keeps = pushed.keeps_messages(before) or pk in late
        diffs.append(
            _TaskDiff(
                pushed=pushed,
                holder=task_holder,
                before=before,
                after=after,
                new_messages=not keeps and pk not in same_messages,
                new_logs=not keeps and pk not in same_logs,
            )
        )
    return diffs


def _compare_elsewhere(deps: Deps, tx: Tx, push: Push, elsewhere: Mapping[str, PulledElsewhere]) -> list[_TaskDiff]:
    """The tasks that the client pulled elsewhere, with the status, report and result that it pushes for them."""
    diffs = []
    for pushed in push.tasks:
        found = elsewhere.get(pushed.task_id)
        if found is None:
            continue
        told = {name: value for name, value in pushed.fields.items() if name in ("report", "result")}
        merged = replace(found.task, **told).with_status(pushed.status, now=tx.now)
        after = merged.updated_by_client(found.holder, seconds=deps.config.pull_timeout, now=tx.now)
        diffs.append(
            _TaskDiff(
                pushed=pushed, holder=found.holder, before=found.task, after=after, new_messages=False, new_logs=False
            )
        )
    return diffs


async def _list_late(tx: Tx, pairs: Sequence[tuple[PushedTask, Task | None]], holder: Holder) -> set[str]:
    """The offered tasks that this client once held and reports as unfinished: they stay on offer."""
    unfinished = [
        before.id
        for pushed, before in pairs
        if before is not None and before.state is PullState.OFFERED and not pushed.status.is_final
    ]
    return await pulls.list_lost_by(tx, holder.name, unfinished) if unfinished else set()


async def _list_same_messages(tx: Tx, pairs: Sequence[tuple[PushedTask, Task | None]]) -> tuple[set[str], set[str]]:
    """The tasks whose stored messages, and those whose stored log lines, equal the pushed ones."""
    known = [(pushed, before) for pushed, before in pairs if before is not None and not pushed.keeps_messages(before)]
    messages = {
        before.id: [(one.created_at, one.role, one.session_id, one.content) for one in pushed.messages]
        for pushed, before in known
        if len(pushed.messages) == before.message_count
    }
    logs = {
        before.id: [(one.created_at, one.content) for one in pushed.logs]
        for pushed, before in known
        if len(pushed.logs) == before.log_count
    }
    empty_messages = {pk for pk, given in messages.items() if not given}
    empty_logs = {pk for pk, given in logs.items() if not given}
    said = {pk: given for pk, given in messages.items() if given}
    lines = {pk: given for pk, given in logs.items() if given}
    return (
        empty_messages | await task_messages.list_same_messages(tx, said),
        empty_logs | await task_messages.list_same_logs(tx, lines),
    )


def _merged(before: Task, pushed: PushedTask, *, now: datetime) -> Task:
    """The task with the pushed columns that differ; the same object if none does, as for most of a long list."""
    new = {name: value for name, value in pushed.columns(before).items() if getattr(before, name) != value}
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
        **pushed.columns(None),
    )
    return new.with_status(pushed.status, now=tx.now)


def _validate_results(diffs: Sequence[_TaskDiff], copies: Sequence[_TaskDiff]) -> None:
    """Validate the pushed results against the schemas of their tasks, here and elsewhere."""
    numbers = {one.pushed.task_id: number for number, one in enumerate(diffs)}
    for one in (*diffs, *copies):
        if "result" in one.pushed.fields:
            field_path = f"tasks[{numbers[one.pushed.task_id]}].result"
            validate_result(one.after.result_schema, one.pushed.fields["result"], field=field_path)


async def _drop_missing(deps: Deps, uow: UnitOfWork, queue: TaskQueue, push: Push, holder: Holder) -> int:
    """Delete tasks created by clients that are not in the list, without a tombstone; returns how many."""
    where = QueueScope(project_pk=queue.project_pk, queue_pk=queue.id)
    listed, after = {one.task_id for one in push.tasks}, ""
    without_token, count = replace(holder, token=None), 0
    while found := await tasks.list_pushed(uow.tx, where, after=after, limit=BATCH_SIZE):
        after = found[-1][0]
        missing = [pk for pk, task_id in found if task_id not in listed]
        dropped = await tasks.claim_by_pk(uow.tx, missing) if missing else []
        refuse_overwrites(uow.project, [ClientUpdate(holder=without_token, task=one, changes=True) for one in dropped])
        for one in dropped:
            uow.record(one, None, ChangeKind.DROPPED)
        count += len(dropped)
        if len(uow.changes) >= BATCH_SIZE:
            count_ended_pulls(uow, deps.metrics)
            await uow.flush(by=holder.name)
    return count


async def _write_messages(tx: Tx, changed: Sequence[_TaskDiff]) -> None:
    """Replace the stored messages and logs with the pushed ones."""
    with_messages = [one for one in changed if one.new_messages]
    with_logs = [one for one in changed if one.new_logs]
    await task_messages.delete_messages(tx, [one.after.id for one in with_messages if one.before is not None])
    await task_messages.delete_log(tx, [one.after.id for one in with_logs if one.before is not None])
    await task_messages.insert_messages(
        tx,
        [
            (
                one.after.id,
                TaskMessage(
                    number=number,
                    role=message.role,
                    content=message.content,
                    session_id=message.session_id,
                    created_at=message.created_at or tx.now,
                ),
            )
            for one in with_messages
            for number, message in enumerate(one.pushed.messages)
        ],
    )
    await task_messages.insert_log(
        tx,
        [
            (one.after.id, LogLine(number=number, created_at=line.created_at or tx.now, content=line.content))
            for one in with_logs
            for number, line in enumerate(one.pushed.logs)
        ],
    )
