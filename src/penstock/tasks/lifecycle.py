"""What verbs share: a project taken in hand, and all that changed in it written down as a whole.

A `Book` holds the project's row locked until the transaction ends. So whatever happens in a project happens in one
order, and the numbers of its feed are in the order of commits. Only pulls go past the book: they lock the tasks they
take and nothing else, or everybody would queue up for the project. That is why verbs lock the tasks they change.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256

from penstock.kernel.bulk import Writes
from penstock.kernel.db import Tx
from penstock.kernel.events import LONGEST_NAME
from penstock.kernel.message import Event
from penstock.tasks.domain import Change, ChangeKind, Outcome, Project, PullState, Queue, Task
from penstock.tasks.errors import AmbiguousTask, TaskGone, TaskNotFound, place_of
from penstock.tasks.metrics import Meters
from penstock.tasks.store import feed, offers, projects, pulls, queues, tasks


def channel(project_pk: str) -> str:
    """What is woken when something comes on offer in a project."""
    return f"tasks:{project_pk}"


def feed_channel(project_pk: str) -> str:
    """What is woken when the feed of a project has a new line."""
    return f"tasks-feed:{project_pk}"


def stream_name(project_id: str) -> str:
    """What the events of a project are known by. A name may be longer than events can carry: then by its digest."""
    name = f"project:{project_id}"
    return name if len(name) <= LONGEST_NAME else f"project:{sha256(project_id.encode()).hexdigest()}"


@dataclass
class Book:
    """A project in hand. `close` writes what was noted; without it nothing is written."""

    tx: Tx
    project: Project  # as it is now; `close` writes what differs from what was read
    changes: list[Change] = field(default_factory=list)
    written: int = 0  # changes that are in the tables already
    _read: Project = field(init=False)
    _queues: dict[str, tuple[Queue | None, Queue]] = field(default_factory=dict)  # as read, and as it is now
    _touched: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._read = self.project

    async def find_queue(self, queue_id: str) -> Queue | None:
        """A queue of the project, as it is now."""
        for _, known in self._queues.values():
            if known.queue_id == queue_id:
                return known
        found = await queues.find_queue(self.tx, self.project.id, queue_id)
        if found is not None:
            self._queues[found.id] = (found, found)
        return found

    async def get_queue(self, queue_id: str) -> Queue:
        """The same, or `QueueNotFound`."""
        found = await self.find_queue(queue_id)
        return found or await queues.get_queue(self.tx, self.project.id, queue_id, project_id=self.project.project_id)

    def put_queue(self, after: Queue) -> None:
        """Note a queue that was made or changed."""
        read, _ = self._queues.get(after.id, (None, after))
        self._queues[after.id] = (read, after)

    def touch(self, queue_pk: str) -> None:
        """Note that something was said in a queue, or beside all of them."""
        self._touched.add(queue_pk)

    def note(
        self,
        before: Task | None,
        after: Task | None,
        kind: ChangeKind,
        outcome: Outcome = Outcome.REVOKED,
        *,
        by: str | None = None,
    ) -> None:
        """Note what happened to a task. `outcome` counts when this ended a pull; `by` when not all is one's doing."""
        ended = before is not None and before.is_held and not (after is not None and after.is_held)
        self.changes.append(Change(before=before, after=after, kind=kind, outcome=outcome if ended else None, by=by))

    @property
    def has_changes(self) -> bool:
        """Whether anything differs from what was read."""
        moved = self.project != self._read or any(read != now for read, now in self._queues.values())
        return bool(self.changes) or moved

    def tell(self) -> None:
        """Let those who watch know that the feed has something new."""
        version, changed = self.project.version + len(self.changes), self.written + len(self.changes)
        data = {"version": version, "changed": changed}
        name = stream_name(self.project.project_id)
        self.tx.tell(Event(topic=name, kind="tasks_changed", audience=name, data=data))

    async def flush(self, *, by: str) -> None:
        """Write what was noted so far, and stay open: for verbs that go through a long queue in parts."""
        writes = Writes(self.tx)
        await self._write_changes(writes, by=by)
        await writes.write()

    async def _write_changes(self, writes: Writes, *, by: str) -> None:
        changes, self.changes = self._numbered(), []
        await _write_tasks(writes, changes)
        pulls.end_pulls(writes, [(c.before, c.outcome, c.by or by) for c in changes if c.before and c.outcome])
        await _write_tags(self.tx, changes)
        feed.insert_changes(writes, self.project.id, changes, first=self.project.version + 1, by=by)
        await self._count(changes)
        self.project = replace(self.project, version=self.project.version + len(changes))
        self.written += len(changes)
        if any(c.after is not None and c.after.state is PullState.OFFERED for c in changes):
            self.tx.wake(channel(self.project.id))
        if changes:
            self.tx.wake(feed_channel(self.project.id))

    async def close(self, *, by: str) -> None:
        """Write everything that was noted, and the project and its queues with it."""
        writes = Writes(self.tx)
        await self._write_changes(writes, by=by)
        for queue_pk in self._touched - {""}:
            read, known = self._queues[queue_pk]
            self._queues[queue_pk] = (read, replace(known, last_task_at=self.tx.now, updated_at=self.tx.now))
        for read, now in self._queues.values():
            if read is None:
                await queues.insert_queue(self.tx, now)
        queues.move_queues(writes, [(read, now) for read, now in self._queues.values() if read is not None])
        if self._touched:
            self.project = replace(self.project, last_task_at=self.tx.now, updated_at=self.tx.now)
        projects.move_project(writes, self._read, self.project)
        await writes.write()

    def _numbered(self) -> list[Change]:
        first = self.project.version + 1
        return [
            replace(change, after=replace(change.after, version=number)) if change.after is not None else change
            for number, change in enumerate(self.changes, first)
        ]

    async def _count(self, changes: Sequence[Change]) -> None:
        """Keep the counts of the queues and of the project."""
        here: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        for change in changes:
            for one, step in ((change.before, -1), (change.after, 1)):
                if one is not None:
                    here[one.queue_pk][one.status] += step if one.deleted_at is None and one.archived_at is None else 0
        self._touched |= set(here)
        await self._load(self._touched)
        for queue_pk, steps in here.items():
            self.project = replace(self.project, counts=self.project.counts.plus(steps))
            if queue_pk:
                read, known = self._queues[queue_pk]
                self._queues[queue_pk] = (read, replace(known, counts=known.counts.plus(steps)))

    async def _load(self, queue_pks: Iterable[str]) -> None:
        missing = set(queue_pks) - {""} - set(self._queues)
        for found in await queues.list_queues_by_pk(self.tx, missing):
            self._queues[found.id] = (found, found)


async def _write_tasks(writes: Writes, changes: Sequence[Change]) -> None:
    """Tasks that left their queue's name to others first: a dropped task's id may come again in the same push."""
    dropped = [c.before.id for c in changes if c.before is not None and c.after is None]
    if dropped:
        await tasks.delete_tasks(writes.tx, dropped)
    tasks.move_tasks(writes, [(c.before, c.after) for c in changes if c.before is not None and c.after is not None])
    new = [c.after for c in changes if c.before is None and c.after is not None]
    if new:
        await writes.write()
        await tasks.insert_tasks(writes.tx, new)


async def _write_tags(tx: Tx, changes: Sequence[Change]) -> None:
    """What was found by its tags no longer is, and what is on offer now is. Whatever comes on offer is cleared first,
    too: a pull that met an edit may have left the edit's tags behind, since it sees the table as it was before it."""
    was = [c.before.id for c in changes if c.before and c.after and (_has_tags(c.before) or _has_tags(c.after))]
    await offers.delete_offer_tags(tx, was)
    await offers.insert_offer_tags(tx, [c.after for c in changes if c.after is not None])


def _has_tags(one: Task) -> bool:
    return bool(one.tags) and one.state is PullState.OFFERED


def count_ended(book: Book, meters: Meters) -> None:
    """Count the pulls that end with what is noted and not yet written, once it is committed."""
    for change in book.changes:
        if change.outcome is not None and change.before is not None and change.before.pulled_at is not None:
            seconds = (book.tx.now - change.before.pulled_at).total_seconds()
            book.tx.after.append(partial(meters.count_ended, change.outcome, seconds))


async def open_book(tx: Tx, project_id: str) -> Book:
    """Take a project in hand, or `ProjectNotFound`."""
    return Book(tx, await projects.claim_project(tx, project_id))


def pick(found: Sequence[Task], project_id: str, task_id: str, queue: Queue | None = None) -> Task:
    """The one that a path means, of all tasks of a project with that id.

    In a queue that is named, the one there. Else the one beside all queues, or the only one.
    """
    place = queue.queue_id if queue is not None else None
    mine = [one for one in found if queue is None or one.queue_pk == queue.id]
    living = [one for one in mine if one.deleted_at is None]
    beside = [one for one in living if not one.queue_pk]
    if len(beside or living) == 1:
        return (beside or living)[0]
    if living:
        queues = [one.queue_id for one in living]
        raise AmbiguousTask(task_id=task_id, project_id=project_id, queues=queues, shown=", ".join(queues))
    if mine:
        raise TaskGone(task_id=task_id, **place_of(project_id, place))
    raise TaskNotFound(task_id=task_id, **place_of(project_id, place))


def by_name(found: Iterable[Task]) -> defaultdict[str, list[Task]]:
    """Tasks of one project by the ids that clients know: several queues may have the same one."""
    named: defaultdict[str, list[Task]] = defaultdict(list)
    for one in found:
        named[one.task_id].append(one)
    return named


async def claim_task(book: Book, task_id: str, queue_id: str | None = None) -> Task:
    """The task that a path means, locked until the transaction ends."""
    queue = None if queue_id is None else await book.get_queue(queue_id)
    found = await tasks.claim_namesakes(book.tx, book.project.id, [task_id])
    return pick(found, book.project.project_id, task_id, queue)


async def find_task(tx: Tx, project: Project, task_id: str, queue: Queue | None = None) -> Task:
    """The same, only to be read."""
    return pick(await tasks.list_namesakes(tx, project.id, [task_id]), project.project_id, task_id, queue)
