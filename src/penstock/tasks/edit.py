"""Create, edit, move, delete and restore tasks on the server.

Every change here makes the server the last writer and revokes the lease of a held task, because its holder works on
outdated input. Only a move keeps the lease: the work is the same in another queue.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypedDict

from penstock.access import audit
from penstock.access.domain import Caller
from penstock.kernel.db import Tx
from penstock.kernel.errors import Conflict, Invalid, NotFound, PenstockError
from penstock.tasks.deps import Deps
from penstock.tasks.domain import UNPLACED, UNSET_RANK, BatchResult, ChangeKind, Side, Status, Task, TaskQueue
from penstock.tasks.errors import MAX_LISTED_IDS, BadTask, TaskExists, location_details
from penstock.tasks.lifecycle import (
    UnitOfWork,
    by_task_id,
    claim_task,
    count_ended_pulls,
    deleted_as_missing,
    open_unit_of_work,
    resolve_task,
)
from penstock.tasks.result_schema import validate_result
from penstock.tasks.store import tasks


@dataclass(frozen=True, kw_only=True)
class QueuePath:
    """A project and, optionally, a queue of it, by the ids from the path."""

    project_id: str
    queue_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """A task to create."""

    task_id: str | None = None  # None: the server generates one
    name: str
    prompt: str
    status: Status = Status.PENDING
    priority: int = UNSET_RANK
    spec_file: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    report: str | None = None
    result_schema: dict[str, Any] | None = None
    expires_at: datetime | None = None
    path: str = ""  # prefix of its fields in the request, for errors


@dataclass(frozen=True, kw_only=True)
class TaskMove:
    """A task after its move, and the queue it was in before, or ""."""

    task: Task
    from_queue_id: str


class TaskEdits(TypedDict, total=False):
    """Fields to change; absent fields keep their value."""

    name: str
    prompt: str
    status: Status
    priority: int
    spec_file: list[str]
    tags: list[str]
    report: str | None
    result: Any
    result_schema: dict[str, Any] | None
    expires_at: datetime | None


Transition = Callable[[Task, Sequence[Task]], Task]  # the task, and all tasks of the project with its id


async def create(tx: Tx, deps: Deps, caller: Caller, path: QueuePath, new_tasks: Sequence[TaskSpec]) -> list[Task]:
    """Create tasks in a queue, or in the project without a queue, in an atomic batch, and offer them."""
    uow = await open_unit_of_work(tx, path.project_id)
    queue = await _queue(uow, path.queue_id)
    await _refuse_existing(uow, new_tasks, queue)
    for new in new_tasks:
        _refuse_past(new.expires_at, now=tx.now, path=new.path)
        task = _new_task(uow, new, queue, by=caller.name, expiry_seconds=deps.config.expiry_time)
        uow.record(None, task, ChangeKind.CREATED)
    return await _write(deps, uow, caller, "tasks.create")


async def edit(tx: Tx, deps: Deps, caller: Caller, path: QueuePath, task_id: str, edits: TaskEdits) -> Task:
    """Edit a task, revoke the holder's pull and offer the task again, even if the edit changes nothing else."""
    uow = await open_unit_of_work(tx, path.project_id)
    with deleted_as_missing():
        before = await claim_task(uow, task_id, path.queue_id)
    after = _edited(before, edits, by=caller.name, now=tx.now)
    uow.record(before, after, ChangeKind.EDITED)
    (written,) = await _write(deps, uow, caller, "tasks.edit", fields=sorted(edits))
    return written


async def delete(tx: Tx, deps: Deps, caller: Caller, path: QueuePath, task_ids: Sequence[str]) -> BatchResult[Task]:
    """Soft delete: mark tasks as deleted. A deleted task keeps its row, its id and its pull history."""
    uow = await open_unit_of_work(tx, path.project_id)

    def mark_deleted(one: Task, _: Sequence[Task]) -> Task:
        released = one.returned("release", by=caller.name, now=tx.now) if one.is_held else one
        return released.deleted(by=caller.name, now=tx.now)

    result = await _for_each(uow, path, task_ids, mark_deleted, ChangeKind.DELETED)
    return await _write_all(deps, uow, caller, result, "tasks.delete")


async def move(
    tx: Tx, deps: Deps, caller: Caller, path: QueuePath, task_ids: Sequence[str], *, to: str | None
) -> BatchResult[TaskMove]:
    """Move tasks into a queue, from one queue to another, or with None out of their queue. A move keeps the pull.

    Moving to an id that exists in the target is refused with `TaskExists`, and so is a move to where the task is.
    """
    uow = await open_unit_of_work(tx, path.project_id)
    target = await _queue(uow, to)
    queue_pk, queue_id = _queue_keys(target)
    origins: dict[str, str] = {}

    def move_one(one: Task, candidates: Sequence[Task]) -> Task:
        if one.queue_pk == queue_pk:
            raise BadTask(field="queue_id", reason="the task is there already", reason_zh="任务已在该位置")
        if any(other.queue_pk == queue_pk for other in candidates):
            raise _exists(uow, one.task_id, target)
        origins[one.id] = one.queue_id
        place = replace(one, queue_pk=queue_pk, queue_id=queue_id, position=UNPLACED)
        return replace(place, updated_at=tx.now, updated_by=caller.name)

    result = await _for_each(uow, path, task_ids, move_one, ChangeKind.MOVED)
    written = await _write_all(deps, uow, caller, result, "tasks.move", to=to)
    moved = [TaskMove(task=one, from_queue_id=origins[one.id]) for one in written.done]
    return BatchResult(done=moved, failed=written.failed)


async def restore(tx: Tx, deps: Deps, caller: Caller, path: QueuePath, task_id: str) -> Task:
    """Undo a deletion. A task that is not deleted is returned unchanged."""
    uow = await open_unit_of_work(tx, path.project_id)
    queue = await _queue(uow, path.queue_id)
    found = await tasks.claim_by_task_id(tx, uow.project.id, [task_id])
    here = [one for one in found if queue is None or one.queue_pk == queue.id]
    deleted = [replace(one, deleted_at=None) for one in here if one.deleted_at is not None]
    resolved = resolve_task(deleted or here, path.project_id, task_id, queue)
    (before,) = (one for one in found if one.id == resolved.id)
    if before.deleted_at is None:
        return before
    uow.record(before, before.restored(by=caller.name, now=tx.now), ChangeKind.RESTORED)
    (written,) = await _write(deps, uow, caller, "tasks.restore")
    return written


async def _queue(uow: UnitOfWork, queue_id: str | None) -> TaskQueue | None:
    return None if queue_id is None else await uow.get_queue(queue_id)


def _queue_keys(queue: TaskQueue | None) -> tuple[str, str]:
    """The `queue_pk` and `queue_id` of a task in this queue."""
    return ("", "") if queue is None else (queue.id, queue.queue_id)


def _exists(uow: UnitOfWork, task_id: str, queue: TaskQueue | None) -> TaskExists:
    return TaskExists(task_id=task_id, **location_details(uow.project.project_id, _queue_keys(queue)[1]))


async def _refuse_existing(uow: UnitOfWork, new_tasks: Sequence[TaskSpec], queue: TaskQueue | None) -> None:
    """Refuse ids that exist or are given twice. A deleted task keeps its id, and with it its history."""
    ids = Counter(new.task_id for new in new_tasks if new.task_id is not None)
    for new in new_tasks:
        if new.task_id is not None and ids[new.task_id] > 1:
            raise BadTask(field=f"{new.path}taskId", reason="given more than once", reason_zh="出现多次")
    for one in await tasks.list_by_task_id(uow.tx, uow.project.id, list(ids)):
        if one.queue_pk == _queue_keys(queue)[0]:
            raise _exists(uow, one.task_id, queue)


def _refuse_past(expires_at: datetime | None, *, now: datetime, path: str = "") -> None:
    if expires_at is not None and expires_at <= now:
        raise BadTask(field=f"{path}expires_at", reason="must be in the future", reason_zh="必须是将来的时间")


def _new_task(uow: UnitOfWork, new: TaskSpec, queue: TaskQueue | None, *, by: str, expiry_seconds: float) -> Task:
    now, pk = uow.tx.now, uow.tx.new_id("task")
    queue_pk, queue_id = _queue_keys(queue)
    default_expiry = now + timedelta(seconds=expiry_seconds) if expiry_seconds > 0 else None
    task = Task(
        id=pk,
        partition_key=uow.project.id,
        queue_pk=queue_pk,
        queue_id=queue_id,
        task_id=new.task_id or pk,
        name=new.name,
        prompt=new.prompt,
        status=Status.PENDING,
        source=Side.SERVER,
        origin=Side.SERVER,
        priority=new.priority,
        spec_file=new.spec_file,
        tags=new.tags,
        report=new.report,
        result_schema=new.result_schema,
        expires_at=new.expires_at or default_expiry,
        scheduled_at=now,
        created_at=now,
        created_by=by,
        updated_at=now,
        updated_by=by,
        server_modified_at=now,
    )
    return task.with_status(new.status, now=now).reoffered(now=now)


def _edited(before: Task, edits: TaskEdits, *, by: str, now: datetime) -> Task:
    """The edited task, offered again."""
    plain: dict[str, Any] = {name: value for name, value in edits.items() if name != "status"}
    after = replace(before, **plain).with_status(edits.get("status", before.status), now=now)
    if after.expires_at != before.expires_at:
        _refuse_past(after.expires_at, now=now)
        after = replace(after, expired_at=None, archived_at=None)  # a later `expires_at` reactivates an expired task
    _validate_result(before, after)
    if after.status is not Status.ERROR:
        after = replace(after, error_reason=None)
    if "status" in edits:  # the requested status wins over the status at pull
        after = replace(after, status_at_pull=None)
    return after.pull_reset(by=by, now=now)


def _validate_result(before: Task, after: Task) -> None:
    changed = (before.result, before.result_schema) != (after.result, after.result_schema)
    if after.result is not None and changed:
        validate_result(after.result_schema, after.result)


async def _for_each(
    uow: UnitOfWork, path: QueuePath, task_ids: Sequence[str], change: Transition, kind: ChangeKind
) -> BatchResult[Task]:
    """Apply `change` to each task and record the changes; an error of one task does not stop the others."""
    queue = await _queue(uow, path.queue_id)
    candidates = by_task_id(await tasks.claim_by_task_id(uow.tx, uow.project.id, task_ids))
    done: list[Task] = []
    failed: list[tuple[str, PenstockError]] = []
    for task_id in dict.fromkeys(task_ids):
        try:
            with deleted_as_missing():
                before = resolve_task(candidates[task_id], path.project_id, task_id, queue)
            after = change(before, candidates[task_id])
        except (Invalid, NotFound, Conflict) as error:
            failed.append((task_id, error))
            continue
        done.append(after)
        if after is not before:
            uow.record(before, after, kind)
    return BatchResult(done=done, failed=failed)


async def _write_all(
    deps: Deps, uow: UnitOfWork, caller: Caller, result: BatchResult[Task], action: str, **detail: object
) -> BatchResult[Task]:
    """Write the recorded changes, if any; the tasks as written."""
    if not uow.changes:
        return result
    written = {one.id: one for one in await _write(deps, uow, caller, action, **detail)}
    return replace(result, done=[written.get(one.id, one) for one in result.done])


async def _write(deps: Deps, uow: UnitOfWork, caller: Caller, action: str, **detail: object) -> list[Task]:
    """Write the recorded changes with an audit log line and an event; the tasks as written."""
    changed = [change.task for change in uow.changes]
    queues = {(change.before or change.task).queue_id for change in uow.changes}
    holders = {str(change.before.lease_owner) for change in uow.changes if change.before and change.outcome}
    detail |= {"count": len(changed), "tasks": [one.task_id for one in changed[:MAX_LISTED_IDS]]}
    detail |= {"queues": sorted(queues)[:MAX_LISTED_IDS], "taken_from": sorted(holders)[:MAX_LISTED_IDS]}
    await audit.record(uow.tx, caller, action, f"project:{uow.project.project_id}", **detail)
    uow.announce()
    count_ended_pulls(uow, deps.metrics)
    await uow.close(by=caller.name)
    return [replace(one, version=number) for number, one in enumerate(changed, uow.project.version - len(changed) + 1)]
