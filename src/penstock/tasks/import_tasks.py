"""Import: tasks from an export of the older store, one task per line.

Existing tasks are skipped, so an import can be interrupted and repeated. Invalid lines are reported and the rest is
imported. Imported tasks belong to their clients: they are not on offer and count as never pulled, because the work was
done elsewhere. Missing projects and queues are created, existing ones are not changed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from penstock.access import audit
from penstock.kernel.db import Db, Tx
from penstock.tasks.domain import ChangeKind, Project, Side, Status, Task, TaskQueue
from penstock.tasks.errors import MAX_LISTED_IDS
from penstock.tasks.lifecycle import UnitOfWork, open_unit_of_work
from penstock.tasks.store import projects, task_messages, tasks

BATCH_LINES = 500  # in one transaction
BATCH_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class ImportedMessage:
    """A message, or without a role a log line."""

    content: str
    role: str = ""
    session_id: str | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class ImportedTask:
    """A task of an export. `fields` has the columns that exist here under the same name."""

    project_id: str
    project_name: str | None = None
    about: Mapping[str, str | None] = field(default_factory=dict)  # columns about the client and its repository
    queue_id: str | None = None
    queue_name: str | None = None
    task_id: str
    status: Status
    fields: Mapping[str, Any]
    messages: Sequence[ImportedMessage] = ()
    logs: Sequence[ImportedMessage] = ()
    created_at: datetime | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class ImportLine:
    """A line of an export: its task, or its problem; neither for a task of another project."""

    number: int
    size_bytes: int
    task: ImportedTask | None = None
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class ImportCounts:
    """How many lines were imported, skipped or invalid."""

    created: int = 0
    skipped: int = 0  # exist already
    left_out: int = 0  # belong to other projects
    bad: int = 0  # invalid

    @property
    def lines(self) -> int:
        """Number of lines."""
        return self.created + self.skipped + self.left_out + self.bad

    def plus(self, other: "ImportCounts") -> "ImportCounts":
        """The sum of both."""
        return ImportCounts(
            created=self.created + other.created,
            skipped=self.skipped + other.skipped,
            left_out=self.left_out + other.left_out,
            bad=self.bad + other.bad,
        )


async def import_lines(
    db: Db,
    lines: Iterable[ImportLine],
    *,
    by: str,
    dry_run: bool = False,
    on_progress: Callable[[ImportCounts], None] | None = None,
) -> ImportCounts:
    """Import lines in batches and report progress after each. A dry run only counts what would happen.

    A dry run compares with the database only: a task that is in the file twice, in different batches, counts as created
    twice.
    """
    counts = ImportCounts()
    for batch in _batches(lines):
        bad, known = sum(bool(line.problem) for line in batch), [line.task for line in batch if line.task is not None]
        done = await (_count_new(db, known) if dry_run else _store(db, known, by=by))
        left_out = len(batch) - bad - len(known)
        counts = counts.plus(replace(done, bad=bad, left_out=left_out))
        if on_progress is not None:
            on_progress(counts)
    return counts


def _batches(lines: Iterable[ImportLine]) -> Iterator[list[ImportLine]]:
    batch: list[ImportLine] = []
    size_bytes = 0
    for line in lines:
        batch.append(line)
        size_bytes += line.size_bytes
        if len(batch) >= BATCH_LINES or size_bytes >= BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


def _by_project(imported: Sequence[ImportedTask]) -> list[tuple[str, list[ImportedTask]]]:
    """Tasks grouped by project, always in the same order: two imports that lock several projects must not deadlock."""
    grouped: dict[str, list[ImportedTask]] = {}
    for one in imported:
        grouped.setdefault(one.project_id, []).append(one)
    return sorted(grouped.items())


async def _count_new(db: Db, imported: Sequence[ImportedTask]) -> ImportCounts:
    """The counts that `_store` would return."""
    counts = ImportCounts()
    async with db.read() as tx:
        for project_id, mine in _by_project(imported):
            keys = {(one.queue_id or "", one.task_id) for one in mine}
            project = await projects.find_project(tx, project_id)
            new = keys - (await _list_existing(tx, project.id, mine) if project is not None else set())
            counts = counts.plus(ImportCounts(created=len(new), skipped=len(mine) - len(new)))
    return counts


async def _store(db: Db, imported: Sequence[ImportedTask], *, by: str) -> ImportCounts:
    """Insert the new tasks of a batch in one transaction."""
    if not imported:
        return ImportCounts()
    counts = ImportCounts()
    async with db.tx(actor=by) as tx:
        for project_id, mine in _by_project(imported):
            created = await _store_in_project(tx, project_id, mine, by=by)
            counts = counts.plus(ImportCounts(created=created, skipped=len(mine) - created))
    return counts


async def _store_in_project(tx: Tx, project_id: str, imported: Sequence[ImportedTask], *, by: str) -> int:
    uow = await _open_project(tx, project_id, imported[0])
    existing = await _list_existing(tx, uow.project.id, imported)
    created: list[tuple[Task, ImportedTask]] = []
    for one in imported:
        key = (one.queue_id or "", one.task_id)
        if key in existing:
            continue
        existing.add(key)
        queue = await _open_queue(uow, one)
        task = _new_task(uow, one, queue, by=by)
        uow.record(None, task, ChangeKind.CREATED)
        created.append((task, one))
    if created:
        shown = [task.task_id for task, _ in created[:MAX_LISTED_IDS]]
        await audit.record(tx, by, "tasks.import", f"project:{project_id}", count=len(created), tasks=shown)
        uow.announce()
        await uow.close(by=by)
        await _write_messages(tx, created)
    return len(created)


async def _open_project(tx: Tx, project_id: str, first: ImportedTask) -> UnitOfWork:
    """Open a unit of work on the project; if it is missing, create it from its first task."""
    if await projects.find_project(tx, project_id) is None:
        about = {name: value or None for name, value in first.about.items()}
        new = Project(
            id=tx.new_id("project"),
            project_id=project_id,
            name=first.project_name or project_id,
            created_at=first.created_at or tx.now,
            updated_at=tx.now,
        )
        await projects.insert_missing(tx, replace(new, **about))  # type: ignore[arg-type]  # the columns are texts
    return await open_unit_of_work(tx, project_id)


async def _list_existing(tx: Tx, project_pk: str, imported: Sequence[ImportedTask]) -> set[tuple[str, str]]:
    """The existing tasks by queue id and task id; a deleted task keeps its id."""
    found = await tasks.list_by_task_id(tx, project_pk, [one.task_id for one in imported])
    return {(one.queue_id, one.task_id) for one in found}


async def _open_queue(uow: UnitOfWork, one: ImportedTask) -> TaskQueue | None:
    """The queue of a task; created if it is missing."""
    if one.queue_id is None:
        return None
    found = await uow.find_queue(one.queue_id)
    if found is not None:
        return found
    new = TaskQueue(
        id=uow.tx.new_id("queue"),
        project_pk=uow.project.id,
        queue_id=one.queue_id,
        name=one.queue_name or one.queue_id,
        created_at=one.created_at or uow.tx.now,
        updated_at=uow.tx.now,
    )
    uow.put_queue(new)
    uow.project = replace(uow.project, queue_count=uow.project.queue_count + 1)
    return new


def _new_task(uow: UnitOfWork, one: ImportedTask, queue: TaskQueue | None, *, by: str) -> Task:
    created_at = one.created_at or uow.tx.now
    updated_at = one.updated_at or created_at
    new = Task(
        id=uow.tx.new_id("task"),
        partition_key=uow.project.id,
        queue_pk=queue.id if queue is not None else "",
        queue_id=queue.queue_id if queue is not None else "",
        task_id=one.task_id,
        status=Status.PENDING,
        source=Side.CLIENT,
        origin=Side.CLIENT,
        scheduled_at=created_at,
        created_at=created_at,
        created_by=by,
        updated_at=updated_at,
        updated_by=by,
        message_count=len(one.messages),
        log_count=len(one.logs),
        **one.fields,
    )
    return new.with_status(one.status, now=updated_at)


async def _write_messages(tx: Tx, created: Sequence[tuple[Task, ImportedTask]]) -> None:
    messages, lines = [], []
    for task, one in created:
        for number, text in enumerate(one.messages):
            at = text.created_at or task.updated_at
            message = task_messages.TaskMessage(
                number=number, role=text.role, content=text.content, session_id=text.session_id, created_at=at
            )
            messages.append((task.id, message))
        for number, text in enumerate(one.logs):
            at = text.created_at or task.updated_at
            lines.append((task.id, task_messages.LogLine(number=number, content=text.content, created_at=at)))
    await task_messages.insert_messages(tx, messages)
    await task_messages.insert_log(tx, lines)
