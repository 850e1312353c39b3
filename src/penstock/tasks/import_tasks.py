"""Taking in an export of the older store, a task per line.

What is there already is left alone, so an import can be broken off and begun again, and a second one changes nothing.
Tasks come in as their clients' own: nobody is offered work that was done elsewhere long ago.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from penstock.access import audit
from penstock.kernel.db import Db, Tx
from penstock.tasks.domain import ChangeKind, Project, Queue, Side, Status, Task
from penstock.tasks.errors import SHOWN_IDS
from penstock.tasks.lifecycle import Book, open_book
from penstock.tasks.store import projects, task_messages, tasks

BATCH_LINES = 500  # in one transaction
BATCH_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Said:
    """A message, or without a role a line of the log."""

    content: str
    role: str = ""
    session_id: str | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A task as the older store had it. `fields` has what our tasks have too, by the same names."""

    project_id: str
    project_name: str | None = None
    about: Mapping[str, str | None] = field(default_factory=dict)  # the client and its repository
    queue_id: str | None = None
    queue_name: str | None = None
    task_id: str
    status: Status
    fields: Mapping[str, Any]
    messages: Sequence[Said] = ()
    logs: Sequence[Said] = ()
    created_at: datetime | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of an export: what it says, or what is wrong with it. One of another project says nothing."""

    number: int
    size_bytes: int
    entry: Entry | None = None
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What became of the lines."""

    created: int = 0
    skipped: int = 0  # there already
    left_out: int = 0  # of other projects
    bad: int = 0

    @property
    def lines(self) -> int:
        """All of them."""
        return self.created + self.skipped + self.left_out + self.bad

    def plus(self, other: "Loaded") -> "Loaded":
        """Both together."""
        return Loaded(
            created=self.created + other.created,
            skipped=self.skipped + other.skipped,
            left_out=self.left_out + other.left_out,
            bad=self.bad + other.bad,
        )


def _nobody(_loaded: Loaded) -> None:
    """Nobody wants to know how far it is."""


async def load(
    db: Db, lines: Iterable[Line], *, by: str, dry_run: bool = False, tell: Callable[[Loaded], None] = _nobody
) -> Loaded:
    """Take lines in, batch by batch; `tell` hears of each. A dry run only says what would become of them.

    A dry run knows only what is there: a task that stands twice in the file, far apart, would be made twice by it.
    """
    loaded = Loaded()
    for batch in _batches(lines):
        bad, known = sum(bool(line.problem) for line in batch), [line.entry for line in batch if line.entry is not None]
        done = await (_look(db, known) if dry_run else _store(db, known, by=by))
        left_out = len(batch) - bad - len(known)
        loaded = loaded.plus(replace(done, bad=bad, left_out=left_out))
        tell(loaded)
    return loaded


def _batches(lines: Iterable[Line]) -> Iterator[list[Line]]:
    batch: list[Line] = []
    size_bytes = 0
    for line in lines:
        batch.append(line)
        size_bytes += line.size_bytes
        if len(batch) >= BATCH_LINES or size_bytes >= BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


def _by_project(entries: Sequence[Entry]) -> list[tuple[str, list[Entry]]]:
    """Always in the same order: two imports that lock several projects must not wait for each other."""
    sorted_out: dict[str, list[Entry]] = {}
    for entry in entries:
        sorted_out.setdefault(entry.project_id, []).append(entry)
    return sorted(sorted_out.items())


async def _look(db: Db, entries: Sequence[Entry]) -> Loaded:
    """What a store of the same entries would do."""
    loaded = Loaded()
    async with db.read() as tx:
        for project_id, mine in _by_project(entries):
            keys = {(entry.queue_id or "", entry.task_id) for entry in mine}
            project = await projects.find_project(tx, project_id)
            new = keys - (await _list_there(tx, project.id, mine) if project is not None else set())
            loaded = loaded.plus(Loaded(created=len(new), skipped=len(mine) - len(new)))
    return loaded


async def _store(db: Db, entries: Sequence[Entry], *, by: str) -> Loaded:
    """Write what is new, all of it or none."""
    if not entries:
        return Loaded()
    loaded = Loaded()
    async with db.tx(actor=by) as tx:
        for project_id, mine in _by_project(entries):
            made = await _store_in_project(tx, project_id, mine, by=by)
            loaded = loaded.plus(Loaded(created=made, skipped=len(mine) - made))
    return loaded


async def _store_in_project(tx: Tx, project_id: str, entries: Sequence[Entry], *, by: str) -> int:
    book = await _open(tx, project_id, entries[0])
    there = await _list_there(tx, book.project.id, entries)
    made: list[tuple[Task, Entry]] = []
    for entry in entries:
        key = (entry.queue_id or "", entry.task_id)
        if key in there:
            continue
        there.add(key)
        queue = await _place(book, entry)
        task = _made(book, entry, queue, by=by)
        book.note(None, task, ChangeKind.CREATED)
        made.append((task, entry))
    if made:
        shown = [task.task_id for task, _ in made[:SHOWN_IDS]]
        await audit.note(tx, by, "tasks.import", f"project:{project_id}", count=len(made), tasks=shown)
        book.tell()
        await book.close(by=by)
        await _write_talk(tx, made)
    return len(made)


async def _open(tx: Tx, project_id: str, first: Entry) -> Book:
    """The project in hand; made from the first line that names it when it is missing, else left as it is."""
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
    return await open_book(tx, project_id)


async def _list_there(tx: Tx, project_pk: str, entries: Sequence[Entry]) -> set[tuple[str, str]]:
    """The tasks that are there already, by the ids of queue and task; a deleted task keeps its id."""
    named = await tasks.list_namesakes(tx, project_pk, [entry.task_id for entry in entries])
    return {(one.queue_id, one.task_id) for one in named}


async def _place(book: Book, entry: Entry) -> Queue | None:
    """The queue; made when it is missing, else left as it is."""
    if entry.queue_id is None:
        return None
    found = await book.find_queue(entry.queue_id)
    if found is not None:
        return found
    new = Queue(
        id=book.tx.new_id("queue"),
        project_pk=book.project.id,
        queue_id=entry.queue_id,
        name=entry.queue_name or entry.queue_id,
        created_at=entry.created_at or book.tx.now,
        updated_at=book.tx.now,
    )
    book.put_queue(new)
    book.project = replace(book.project, queue_count=book.project.queue_count + 1)
    return new


def _made(book: Book, entry: Entry, queue: Queue | None, *, by: str) -> Task:
    created_at = entry.created_at or book.tx.now
    updated_at = entry.updated_at or created_at
    new = Task(
        id=book.tx.new_id("task"),
        partition_key=book.project.id,
        queue_pk=queue.id if queue is not None else "",
        queue_id=queue.queue_id if queue is not None else "",
        task_id=entry.task_id,
        status=Status.PENDING,
        source=Side.CLIENT,
        origin=Side.CLIENT,
        scheduled_at=created_at,
        created_at=created_at,
        created_by=by,
        updated_at=updated_at,
        updated_by=by,
        message_count=len(entry.messages),
        log_count=len(entry.logs),
        **entry.fields,
    )
    return new.with_status(entry.status, now=updated_at)


async def _write_talk(tx: Tx, made: Sequence[tuple[Task, Entry]]) -> None:
    messages, lines = [], []
    for task, entry in made:
        for number, said in enumerate(entry.messages):
            at = said.created_at or task.updated_at
            message = talk.Message(
                number=number, role=said.role, content=said.content, session_id=said.session_id, created_at=at
            )
            messages.append((task.id, message))
        for number, said in enumerate(entry.logs):
            at = said.created_at or task.updated_at
            lines.append((task.id, talk.LogLine(number=number, content=said.content, created_at=at)))
    await talk.insert_messages(tx, messages)
    await talk.insert_log(tx, lines)
