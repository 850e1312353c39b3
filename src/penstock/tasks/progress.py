"""Progress of one task: a client adds a message or a log line, or sets the status.

Running, messages and log lines of the holder extend its lease; a final status closes the pull. A status is checked for
the same conflicts as a push.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from penstock.kernel.db import Tx
from penstock.kernel.errors import Conflict, Gone, Invalid, NotFound, PenstockError, Refused
from penstock.tasks.conflicts import (
    ClientUpdate,
    differs,
    lease_lost_error,
    list_lost_leases,
    push_outcome,
    refuse_overwrites,
)
from penstock.tasks.deps import Deps
from penstock.tasks.domain import ChangeKind, Holder, PullState, Status, Task
from penstock.tasks.errors import ProjectNotFound, QueueNotFound, TaskGone, TaskNotFound, location_details
from penstock.tasks.lifecycle import (
    UnitOfWork,
    by_task_id,
    claim_task,
    count_ended_pulls,
    find_task,
    open_unit_of_work,
    resolve_task,
)
from penstock.tasks.result_schema import validate_result
from penstock.tasks.store import projects, queues, task_messages, tasks
from penstock.tasks.store.task_messages import LogLine, TaskMessage

REFUSALS = (Invalid, Refused, NotFound, Conflict, Gone)  # fail one update of a batch; any other error fails all


@dataclass(frozen=True, kw_only=True)
class TaskPath:
    """A task by the ids from the path; without a queue it is looked up in the whole project."""

    project_id: str
    task_id: str
    queue_id: str | None = None

    @property
    def details(self) -> dict[str, Any]:
        """The ids as error details."""
        return {"task_id": self.task_id, **location_details(self.project_id, self.queue_id)}


@dataclass(frozen=True, kw_only=True)
class StatusChange:
    """A task after a status update, and the status it had before."""

    task: Task
    previous: Status


@dataclass(frozen=True, kw_only=True)
class StatusUpdate:
    """A status that a client sets, with the report or result that came with it."""

    path: TaskPath
    holder: Holder
    status: Status
    fields: Mapping[str, Any]


def split_into_rounds(updates: Sequence[StatusUpdate]) -> list[list[int]]:
    """The positions of the updates in rounds with at most one update per task, so that each is applied in order."""
    seen: Counter[str] = Counter()
    rounds: defaultdict[int, list[int]] = defaultdict(list)
    for number, update in enumerate(updates):
        rounds[seen[update.path.task_id]].append(number)
        seen[update.path.task_id] += 1
    return list(rounds.values())


async def set_statuses(
    tx: Tx, deps: Deps, project_id: str, updates: Sequence[StatusUpdate]
) -> Sequence[StatusChange | PenstockError]:
    """Set the status of tasks of one project, at most one update each, and their reports or results.

    Repeating a status is harmless. An update that is refused does not stop the others: its result is the error.
    """
    try:
        uow = await open_unit_of_work(tx, project_id)
    except ProjectNotFound:
        return [TaskNotFound(**update.path.details) for update in updates]
    task_ids = [update.path.task_id for update in updates]
    candidates = by_task_id(await tasks.claim_by_task_id(tx, uow.project.id, task_ids))
    results: list[StatusChange | PenstockError] = []
    for update in updates:
        try:
            results.append(await _apply(deps, uow, candidates[update.path.task_id], update))
        except REFUSALS as error:
            results.append(error)
    count_ended_pulls(uow, deps.metrics)
    await uow.close(by=tx.actor)
    return results


async def _apply(deps: Deps, uow: UnitOfWork, candidates: Sequence[Task], update: StatusUpdate) -> StatusChange:
    tx, path, holder = uow.tx, update.path, update.holder
    queue = None if path.queue_id is None else await uow.find_queue(path.queue_id)
    if queue is None and path.queue_id is not None:
        raise TaskNotFound(**path.details)
    before = resolve_task(candidates, path.project_id, path.task_id, queue)
    after = replace(before, **update.fields).with_status(update.status, now=tx.now)
    if update.status.is_final or before.state is not PullState.OFFERED:  # an unfinished task stays on offer
        after = after.updated_by_client(holder, seconds=deps.config.pull_timeout, now=tx.now)
    changes = differs(before, after)
    await _refuse_conflicts(uow, ClientUpdate(holder=holder, task=before, changes=changes))
    if "result" in update.fields:
        validate_result(before.result_schema, update.fields["result"])
    after = replace(after, updated_at=tx.now, updated_by=holder.name)
    if changes:
        uow.record(before, after, ChangeKind.PUSHED, push_outcome(holder, before), by=holder.name)
    else:  # a repeated status: only the times move
        await tasks.move_task(tx, before, after)
        uow.touch(before.queue_pk)
    return StatusChange(task=after, previous=before.status)


async def add_message(
    tx: Tx, deps: Deps, path: TaskPath, holder: Holder, *, role: str, content: str, session_id: str | None = None
) -> TaskMessage:
    """Add a message to a task. Updates the `updated_at` of the task, its queue and its project."""
    uow, before = await _claim(tx, path)
    count = before.message_count
    after = replace(before, message_count=count + 1, updated_at=tx.now, updated_by=holder.name)
    if holder.holds(before):
        after = after.with_lease_extended(seconds=deps.config.pull_timeout, now=tx.now)
    message = TaskMessage(number=count, role=role, content=content, session_id=session_id, created_at=tx.now)
    await tasks.move_task(tx, before, after)
    await task_messages.insert_message(tx, before.id, message)
    uow.touch(before.queue_pk)
    await uow.close(by=holder.name)
    return message


async def add_log_line(tx: Tx, deps: Deps, path: TaskPath, holder: Holder, content: str) -> LogLine:
    """Add a log line to a task. It updates the `updated_at` of the queue only, and does not lock the project."""
    found = await _find(tx, path)
    until = tx.now + timedelta(seconds=deps.config.pull_timeout)
    line = await task_messages.insert_line(tx, found.id, content, holder=holder, until=until)
    if line is None:  # deleted since it was found
        raise TaskGone(**path.details)
    if found.queue_pk:
        await queues.touch_queue(tx, found.queue_pk)
    return line


async def _claim(tx: Tx, path: TaskPath) -> tuple[UnitOfWork, Task]:
    """Lock the project and the task. A missing project or queue raises `TaskNotFound` with all ids."""
    try:
        uow = await open_unit_of_work(tx, path.project_id)
        return uow, await claim_task(uow, path.task_id, path.queue_id)
    except (ProjectNotFound, QueueNotFound) as error:
        raise TaskNotFound(**path.details) from error


async def _find(tx: Tx, path: TaskPath) -> Task:
    """The task, without a lock."""
    project = await projects.find_project(tx, path.project_id)
    if project is None:
        raise TaskNotFound(**path.details)
    if path.queue_id is None:
        return await find_task(tx, project, path.task_id)
    queue = await queues.find_queue(tx, project.id, path.queue_id)
    if queue is None:
        raise TaskNotFound(**path.details)
    return await find_task(tx, project, path.task_id, queue)


async def _refuse_conflicts(uow: UnitOfWork, update: ClientUpdate) -> None:
    if await list_lost_leases(uow.tx, [update]):
        raise await lease_lost_error(uow.tx, update.task, update.holder)
    refuse_overwrites(uow.project, [update])
