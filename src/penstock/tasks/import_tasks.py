"""Import: projects, metadata, queues and tasks of the older store.

An import can be interrupted and repeated: what exists is skipped, unless the export is newer and nobody has changed it
here since it was imported. A task keeps its side and its pull: one that the server wrote and nobody pulled is on offer,
a held one is held under a new lease, and one that a client wrote is not on offer. Missing projects and queues are
created.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from penstock.access import audit
from penstock.kernel.db import Tx
from penstock.kernel.ids import new_token
from penstock.tasks.domain import ChangeKind, Project, PullOutcome, PullState, Side, Task, TaskQueue
from penstock.tasks.domain.imported import (
    Imported,
    ImportedMetadata,
    ImportedProject,
    ImportedPull,
    ImportedQueue,
    ImportedTask,
)
from penstock.tasks.errors import MAX_LISTED_IDS
from penstock.tasks.lifecycle import UnitOfWork, open_unit_of_work
from penstock.tasks.store import projects, pulls, task_messages, tasks

PROJECTS, METADATA, QUEUES, TASKS = "projects", "projectmetadatas", "queues", "tasks"
CREATED, UPDATED = "created", "updated"
# Reasons for a skip.
EXISTS = "exists already"
KEPT = "exists already and is kept: it was pulled, or changed here"
DELETED_HERE = "was deleted here"
NO_PROJECT = "its project does not exist"
TIMED_OUT_BY = "system-timeout"  # who released a pull that timed out
UNKNOWN_HOLDER = "unknown"

Tally = Counter[tuple[str, str]]  # how many, by collection and outcome: created, updated, or the reason for a skip


@dataclass(frozen=True, kw_only=True)
class Importer:
    """Who imports, and the duration of the leases of held tasks."""

    by: str
    lease_seconds: float


async def store_batch(tx: Tx, batch: Sequence[Imported], importer: Importer) -> Tally:
    """Store a batch. Every import locks projects in the same order, so that two of them cannot deadlock."""
    grouped: dict[str, list[Imported]] = {}
    for one in batch:
        grouped.setdefault(one.project_id, []).append(one)
    tally = Tally()
    for project_id, mine in sorted(grouped.items()):
        tally += await _store_in_project(tx, project_id, mine, importer)
    return tally


async def _store_in_project(tx: Tx, project_id: str, mine: Sequence[Imported], importer: Importer) -> Tally:
    tally, was_created = Tally(), False
    if await projects.find_project(tx, project_id) is None:
        new = _new_project(tx, project_id, mine)
        if new is None:
            return Tally({(METADATA, NO_PROJECT): len(mine)})
        was_created = await projects.insert_missing(tx, new)
    uow = await open_unit_of_work(tx, project_id)
    for one in mine:
        if isinstance(one, ImportedProject):
            tally[PROJECTS, CREATED if was_created else _put_project(uow, one)] += 1
            was_created = False  # a project may be in the export twice
        elif isinstance(one, ImportedMetadata):
            tally[METADATA, await _put_metadata(uow, one)] += 1
        elif isinstance(one, ImportedQueue):
            tally[QUEUES, await _put_queue(uow, one)] += 1
    return tally + await _store_tasks(uow, [one for one in mine if isinstance(one, ImportedTask)], importer)


def _new_project(tx: Tx, project_id: str, mine: Sequence[Imported]) -> Project | None:
    """The project, from its document or else from one of its tasks; None if only metadata is left of it."""
    first = next((one for one in mine if isinstance(one, ImportedProject)), None)
    if first is None and all(isinstance(one, ImportedMetadata) and not one.has_project for one in mine):
        return None
    source = first or next((one for one in mine if isinstance(one, ImportedTask)), None)
    about = {name: value or None for name, value in source.about.items()} if source is not None else {}
    name = first.name if first is not None else source.project_name if isinstance(source, ImportedTask) else None
    new = Project(
        id=tx.new_id("project"),
        project_id=project_id,
        name=name or project_id,
        last_task_at=first.last_task_at if first is not None else None,
        created_at=(source.created_at if source is not None else None) or tx.now,
        updated_at=tx.now,
    )
    return replace(new, **about)  # type: ignore[arg-type]  # these columns are texts


def _put_project(uow: UnitOfWork, one: ImportedProject) -> str:
    if not _is_newer(one.updated_at, uow.project.updated_at):
        return EXISTS
    about: dict[str, Any] = {name: value for name, value in one.about.items() if value}
    uow.project = replace(uow.project, name=one.name, updated_at=uow.tx.now, **about)
    return UPDATED


async def _put_metadata(uow: UnitOfWork, one: ImportedMetadata) -> str:
    known = uow.project
    if known.metadata_created_at is not None and not _is_newer(one.updated_at, known.metadata_updated_at):
        return EXISTS
    uow.project = replace(
        known,
        custom_title=one.custom_title,
        notes=one.notes,
        tags=one.tags,
        metadata_created_at=known.metadata_created_at or one.created_at or uow.tx.now,
        metadata_updated_at=one.updated_at or uow.tx.now,
        updated_at=uow.tx.now,
    )
    await projects.replace_tags(uow.tx, known.id, one.tags)
    return CREATED if known.metadata_created_at is None else UPDATED


async def _put_queue(uow: UnitOfWork, one: ImportedQueue) -> str:
    known = await uow.find_queue(one.queue_id)
    if known is not None and not _is_newer(one.updated_at, known.updated_at):
        return EXISTS
    queue = known or uow.add_queue(one.queue_id, one.name)
    changed = replace(
        queue,
        name=one.name,
        meta=one.meta,
        last_task_at=max(filter(None, (queue.last_task_at, one.last_task_at)), default=None),
        last_reset_at=one.last_reset_at or queue.last_reset_at,
        last_operation=one.last_operation or queue.last_operation,
        created_at=queue.created_at if known is not None else one.created_at or queue.created_at,
        updated_at=uow.tx.now,
    )
    uow.put_queue(changed)
    return CREATED if known is None else UPDATED


def _is_newer(exported: datetime | None, stored: datetime | None) -> bool:
    return exported is not None and stored is not None and exported > stored


async def _store_tasks(uow: UnitOfWork, imported: Sequence[ImportedTask], importer: Importer) -> Tally:
    """Write the tasks of a batch, and with them the project and its queues."""
    tally, written = Tally(), dict[tuple[str, str], tuple[Task, ImportedTask]]()
    found = await tasks.list_by_task_id(uow.tx, uow.project.id, [one.task_id for one in imported])
    known = {(one.queue_id, one.task_id): one for one in found}
    for one in imported:
        before = known.get(one.key)
        outcome = EXISTS if one.key in written else _outcome_for(before, one, importer)
        tally[TASKS, outcome] += 1
        if outcome not in (CREATED, UPDATED):
            continue
        queue = await _open_queue(uow, one)
        after = _new_task(uow, one, queue, importer) if before is None else _updated_task(before, one)
        uow.record(before, after, ChangeKind.CREATED if before is None else ChangeKind.PUSHED)
        uow.active_at[after.queue_pk] = max(uow.active_at.get(after.queue_pk, after.updated_at), after.updated_at)
        written[one.key] = after, one
    await _close(uow, [task for task, _ in written.values()], importer)
    await _replace_messages(uow.tx, list(written.values()))
    new = [(task, one) for key, (task, one) in written.items() if key not in known]
    await pulls.insert_history(uow.tx, [row for task, one in new for row in _history(task, one)])
    return tally


def _outcome_for(stored: Task | None, one: ImportedTask, importer: Importer) -> str:
    """Whether a task is created or updated, or the reason why not."""
    if stored is None:
        return CREATED
    if stored.deleted_at is not None:
        return DELETED_HERE if one.deleted_at is None else EXISTS
    if not _is_newer(one.updated_at, stored.updated_at):
        return EXISTS
    is_as_imported = stored.created_by == stored.updated_by == importer.by and stored.state is PullState.IDLE
    is_plain = one.source is Side.CLIENT and one.pulled_at is None and one.deleted_at is None
    return UPDATED if is_as_imported and is_plain else KEPT


async def _close(uow: UnitOfWork, written: Sequence[Task], importer: Importer) -> None:
    if not uow.has_changes:
        return
    shown = [task.task_id for task in written[:MAX_LISTED_IDS]]
    target = f"project:{uow.project.project_id}"
    await audit.record(uow.tx, importer.by, "tasks.import", target, count=len(written), tasks=shown)
    if written:
        uow.announce()
    await uow.close(by=importer.by)


async def _open_queue(uow: UnitOfWork, one: ImportedTask) -> TaskQueue | None:
    """The queue of a task; created if it is missing."""
    if one.queue_id is None:
        return None
    found = await uow.find_queue(one.queue_id)
    if found is not None:
        return found
    new = replace(uow.add_queue(one.queue_id, one.queue_name or one.queue_id), created_at=one.created_at or uow.tx.now)
    uow.put_queue(new)
    return new


def _new_task(uow: UnitOfWork, one: ImportedTask, queue: TaskQueue | None, importer: Importer) -> Task:
    created_at = one.created_at or uow.tx.now
    updated_at = one.updated_at or created_at
    was_offered = one.source is Side.SERVER or one.pulled_at is not None or bool(one.pulls)
    new = Task(
        id=uow.tx.new_id("task"),
        partition_key=uow.project.id,
        queue_pk=queue.id if queue is not None else "",
        queue_id=queue.queue_id if queue is not None else "",
        task_id=one.task_id,
        status=one.status,
        source=one.source,
        origin=Side.SERVER if was_offered else Side.CLIENT,
        finished_at=updated_at if one.status.is_final else None,
        scheduled_at=created_at,
        created_at=created_at,
        created_by=importer.by,
        updated_at=updated_at,
        updated_by=importer.by,
        deleted_at=one.deleted_at,
        message_count=len(one.messages),
        log_count=len(one.logs),
        **one.fields,
    )
    if one.deleted_at is not None:
        return new
    if one.pulled_at is None:
        return replace(new, state=PullState.OFFERED) if one.source is Side.SERVER else new
    pulled = replace(new, pulled_at=one.pulled_at, lease_owner=one.pulled_by or UNKNOWN_HOLDER)
    if one.source is Side.CLIENT:
        return replace(pulled, state=PullState.CLOSED, pushed_at=updated_at, pushed_by=pulled.lease_owner)
    return replace(
        pulled,
        state=PullState.HELD,
        lease_token=new_token(),
        leased_until=uow.tx.now + timedelta(seconds=importer.lease_seconds),
        lease_count=1,
        status_at_pull=one.status,
    )


def _updated_task(stored: Task, one: ImportedTask) -> Task:
    updated_at = one.updated_at or stored.updated_at
    counts = {"message_count": len(one.messages), "log_count": len(one.logs)}
    changed: dict[str, Any] = {**one.fields, **counts, "updated_at": updated_at}
    return replace(stored, **changed).with_status(one.status, now=updated_at)


def _history(task: Task, one: ImportedTask) -> list[pulls.HistoryRow]:
    """The pull history of a new task, oldest first. Only the pull of a held task is open."""
    entries = sorted(one.pulls, key=lambda entry: entry.pulled_at)
    if one.pulled_at is not None and (not entries or entries[-1].released_at is not None):
        entries.append(ImportedPull(pulled_at=one.pulled_at, pulled_by=one.pulled_by or UNKNOWN_HOLDER))
    rows: list[pulls.HistoryRow] = []
    for number, entry in enumerate(entries):
        following = entries[number + 1].pulled_at if number + 1 < len(entries) else None
        rows.append(_history_row(task, entry, following=following))
    return rows


def _history_row(task: Task, entry: ImportedPull, *, following: datetime | None) -> pulls.HistoryRow:
    ended_at, ended_by, outcome = entry.released_at, entry.released_by, PullOutcome.RELEASED
    if entry.released_by == TIMED_OUT_BY:
        outcome = PullOutcome.TIMED_OUT
    if entry.released_at is None:
        if following is None and task.is_held:
            return pulls.HistoryRow(task=task, pulled_at=entry.pulled_at, pulled_by=entry.pulled_by)
        is_pushed = following is None and task.state is PullState.CLOSED
        outcome = PullOutcome.PUSHED if is_pushed else PullOutcome.REVOKED
        ended_at, ended_by = following or task.updated_at, entry.pulled_by if is_pushed else task.updated_by
    return pulls.HistoryRow(
        task=task,
        pulled_at=entry.pulled_at,
        pulled_by=entry.pulled_by,
        ended_at=max(ended_at or entry.pulled_at, entry.pulled_at),
        ended_by=ended_by,
        outcome=outcome,
    )


async def _replace_messages(tx: Tx, written: Sequence[tuple[Task, ImportedTask]]) -> None:
    messages, lines = [], []
    for task, one in written:
        for number, text in enumerate(one.messages):
            at = text.created_at or task.updated_at
            message = task_messages.TaskMessage(
                number=number, role=text.role, content=text.content, session_id=text.session_id, created_at=at
            )
            messages.append((task.id, message))
        for number, text in enumerate(one.logs):
            at = text.created_at or task.updated_at
            lines.append((task.id, task_messages.LogLine(number=number, content=text.content, created_at=at)))
    pks = [task.id for task, _ in written]
    await task_messages.delete_messages(tx, pks)
    await task_messages.delete_log(tx, pks)
    await task_messages.insert_messages(tx, messages)
    await task_messages.insert_log(tx, lines)
