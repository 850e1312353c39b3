"""Unit of work: all changes to a project and its tasks, written as a whole.

A `UnitOfWork` locks the project's row until the transaction ends, so pushes and other changes to one project are
serialised, change feed versions are in commit order, counts by status are exact, and there are no deadlocks. Only pulls
bypass it: they lock just the tasks they claim, or all pulls would queue for the project's row. Therefore verbs also
lock the tasks they change.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Any

from penstock.kernel.db import Tx
from penstock.kernel.dialect.bulk import WriteBatch
from penstock.kernel.events import MAX_NAME_LENGTH
from penstock.kernel.message import Event
from penstock.messages import ReviewAnswered
from penstock.tasks.domain import Change, ChangeKind, Project, PullOutcome, PullState, Status, Task, TaskQueue
from penstock.tasks.errors import AmbiguousTask, TaskGone, TaskNotFound, location_details
from penstock.tasks.executions import list_executions
from penstock.tasks.metrics import TaskMetrics
from penstock.tasks.store import executions, feed, offers, projects, pulls, queues, reviews, search, tasks


def offer_channel(project_pk: str) -> str:
    """The channel that is notified when a task is offered in a project."""
    return f"tasks:{project_pk}"


def feed_channel(project_pk: str) -> str:
    """The channel that is notified when the change feed of a project has a new entry."""
    return f"tasks-feed:{project_pk}"


def event_topic(project_id: str) -> str:
    """The topic of a project's events. An id that is too long for a topic is replaced by its digest."""
    name = f"project:{project_id}"
    return name if len(name) <= MAX_NAME_LENGTH else f"project:{sha256(project_id.encode()).hexdigest()}"


@dataclass
class UnitOfWork:
    """Collects changes to a locked project; `close` writes them. Without `close` nothing is written."""

    tx: Tx
    project: Project  # current value; `close` writes what differs from `_loaded`
    changes: list[Change] = field(default_factory=list)
    written: int = 0  # changes that `flush` has written
    is_new: bool = False  # whether this transaction created the project
    _loaded: Project = field(init=False)
    _queues: dict[str, tuple[TaskQueue | None, TaskQueue]] = field(default_factory=dict)  # as loaded, and current
    active_at: dict[str, datetime] = field(default_factory=dict)  # by queue; tasks that are imported are older than now
    _touched: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._loaded = self.project

    async def find_queue(self, queue_id: str) -> TaskQueue | None:
        """A queue of the project with the changes so far, or None."""
        for _, known in self._queues.values():
            if known.queue_id == queue_id:
                return known
        found = await queues.find_queue(self.tx, self.project.id, queue_id)
        if found is not None:
            self._queues[found.id] = (found, found)
        return found

    async def get_queue(self, queue_id: str) -> TaskQueue:
        """A queue of the project with the changes so far. Raises `QueueNotFound`."""
        found = await self.find_queue(queue_id)
        return found or await queues.get_queue(self.tx, self.project.id, queue_id, project_id=self.project.project_id)

    def add_queue(self, queue_id: str, name: str, meta: Any = None) -> TaskQueue:
        """Create a queue that the project does not have."""
        now, pk = self.tx.now, self.tx.new_id("queue")
        new = TaskQueue(
            id=pk, project_pk=self.project.id, queue_id=queue_id, name=name, meta=meta, created_at=now, updated_at=now
        )
        self.put_queue(new)
        self.project = replace(self.project, queue_count=self.project.queue_count + 1, updated_at=now)
        return new

    def put_queue(self, after: TaskQueue) -> None:
        """Record a created or changed queue."""
        loaded, _ = self._queues.get(after.id, (None, after))
        self._queues[after.id] = (loaded, after)

    def touch(self, queue_pk: str) -> None:
        """Record activity in a queue; "" stands for tasks without a queue."""
        self._touched.add(queue_pk)

    def record(
        self,
        before: Task | None,
        after: Task | None,
        kind: ChangeKind,
        outcome: PullOutcome = PullOutcome.REVOKED,
        *,
        by: str | None = None,
    ) -> None:
        """Record a change of a task. `outcome` is used if it ends a pull; `by` overrides the actor of `close`."""
        ended = before is not None and before.is_held and not (after is not None and after.is_held)
        self.changes.append(Change(before=before, after=after, kind=kind, outcome=outcome if ended else None, by=by))

    @property
    def has_changes(self) -> bool:
        """Whether there is anything to write."""
        changed = self.project != self._loaded or any(loaded != now for loaded, now in self._queues.values())
        return bool(self.changes) or changed

    def announce(self) -> None:
        """Send a `tasks_changed` event."""
        version, changed = self.project.version + len(self.changes), self.written + len(self.changes)
        data = {"version": version, "changed": changed}
        name = event_topic(self.project.project_id)
        self.tx.publish(Event(topic=name, kind="tasks_changed", audience=name, data=data))

    async def flush(self, *, by: str) -> None:
        """Write the changes so far and continue: for verbs that process a long queue in batches."""
        writes = WriteBatch(self.tx)
        await self._write_changes(writes, by=by)
        await writes.write()

    async def _write_changes(self, writes: WriteBatch, *, by: str) -> None:
        changes, self.changes = self._numbered(), []
        await _write_tasks(writes, changes)
        await _answer_reviews(self.tx, changes)
        pulls.end_pulls(writes, [(c.before, c.outcome, c.by or by) for c in changes if c.before and c.outcome])
        await _write_tags(self.tx, changes)
        await search.write_texts(self.tx, [(c.before, c.after) for c in changes])
        feed.insert_changes(writes, self.project.id, changes, first=self.project.version + 1, by=by)
        await self._count(changes)
        executed = list_executions(self.project, changes, now=self.tx.now)
        await executions.add_executions(self.tx, executed, of=self.project)
        self.project = replace(self.project, version=self.project.version + len(changes))
        self.written += len(changes)
        if any(c.after is not None and c.after.state is PullState.OFFERED for c in changes):
            self.tx.wake(offer_channel(self.project.id))
        if changes:
            self.tx.wake(feed_channel(self.project.id))

    async def close(self, *, by: str) -> None:
        """Write all changes, the queues and the project. Large pushes need as many statements as small ones."""
        writes = WriteBatch(self.tx)
        await self._write_changes(writes, by=by)
        for queue_pk in self._touched - {""}:
            loaded, known = self._queues[queue_pk]
            at = self.active_at.get(queue_pk, self.tx.now)
            latest = max(at, known.last_task_at or at)
            self._queues[queue_pk] = (loaded, replace(known, last_task_at=latest, updated_at=self.tx.now))
        for loaded, now in self._queues.values():
            if loaded is None:
                await queues.insert_queue(self.tx, now)
        queues.move_queues(writes, [(loaded, now) for loaded, now in self._queues.values() if loaded is not None])
        if self._touched:
            at = max(self.active_at.get(queue_pk, self.tx.now) for queue_pk in self._touched)
            latest = max(at, self.project.last_task_at or at)
            self.project = replace(self.project, last_task_at=latest, updated_at=self.tx.now)
        projects.move_project(writes, self._loaded, self.project)
        await writes.write()

    def _numbered(self) -> list[Change]:
        first = self.project.version + 1
        return [
            replace(change, after=replace(change.after, version=number)) if change.after is not None else change
            for number, change in enumerate(self.changes, first)
        ]

    async def _count(self, changes: Sequence[Change]) -> None:
        """Update the task counters of the queues and of the project."""
        steps_by_queue: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        for change in changes:
            for one, step in ((change.before, -1), (change.after, 1)):
                if one is None:
                    continue
                steps = steps_by_queue[one.queue_pk]
                steps[one.status] += step if one.deleted_at is None and one.archived_at is None else 0
                if one.state_counter is not None:
                    steps[one.state_counter] += step
        self._touched |= set(steps_by_queue)
        await self._load(self._touched)
        for queue_pk, steps in steps_by_queue.items():
            states = self.project.states.plus(steps)
            self.project = replace(self.project, counts=self.project.counts.plus(steps), states=states)
            if not queue_pk:
                self.project = replace(self.project, unqueued=self.project.unqueued.plus(steps))
            if queue_pk:
                loaded, known = self._queues[queue_pk]
                counted = replace(known, counts=known.counts.plus(steps), states=known.states.plus(steps))
                self._queues[queue_pk] = (loaded, counted)

    async def _load(self, queue_pks: Iterable[str]) -> None:
        missing = set(queue_pks) - {""} - set(self._queues)
        for found in await queues.list_queues_by_pk(self.tx, missing):
            self._queues[found.id] = (found, found)


async def _write_tasks(writes: WriteBatch, changes: Sequence[Change]) -> None:
    """Deletes come first, then moves, then inserts: a later task may reuse the id of a dropped or moved one."""
    dropped = [c.before.id for c in changes if c.before is not None and c.after is None]
    if dropped:
        await tasks.delete_tasks(writes.tx, dropped)
    tasks.move_tasks(writes, [(c.before, c.after) for c in changes if c.before is not None and c.after is not None])
    new = [c.after for c in changes if c.before is None and c.after is not None]
    if new:
        await writes.write()
        await tasks.insert_tasks(writes.tx, new)


async def _answer_reviews(tx: Tx, changes: Sequence[Change]) -> None:
    """Send the answers of review tasks that became done. Only tasks with a result schema are looked up."""
    done = {c.after.id: c.after for c in changes if c.after is not None and _became_done(c.before, c.after)}
    asked = [pk for pk, one in done.items() if one.result_schema is not None]
    for review in await reviews.list_open(tx, asked) if asked else ():
        await reviews.end_request(tx, review.request)
        one = done[review.task_pk]
        answer = ReviewAnswered(
            request=review.request, origin=review.origin, result=one.result, answered_by=one.updated_by
        )
        tx.send(answer)


def _became_done(before: Task | None, after: Task) -> bool:
    return after.status is Status.DONE and (before is None or before.status is not Status.DONE)


async def _write_tags(tx: Tx, changes: Sequence[Change]) -> None:
    """Update the tag index of offers. Tags of newly offered tasks are deleted first as well: all parts of a pull's
    statement see the same snapshot, so an edit that commits meanwhile can leave tag rows of a task that is leased."""
    stale = [
        c.before.id
        for c in changes
        if c.before and c.after and (_is_tagged_offer(c.before) or _is_tagged_offer(c.after))
    ]
    await offers.delete_offer_tags(tx, stale)
    await offers.insert_offer_tags(tx, [c.after for c in changes if c.after is not None])


def _is_tagged_offer(one: Task) -> bool:
    return bool(one.tags) and one.state is PullState.OFFERED


def count_ended_pulls(uow: UnitOfWork, metrics: TaskMetrics) -> None:
    """Count the pulls that the unwritten changes end, after the commit."""
    for change in uow.changes:
        if change.outcome is not None and change.before is not None and change.before.pulled_at is not None:
            seconds = (uow.tx.now - change.before.pulled_at).total_seconds()
            uow.tx.after_commit.append(partial(metrics.count_ended, change.outcome, seconds))


async def open_unit_of_work(tx: Tx, project_id: str) -> UnitOfWork:
    """Lock a project and begin a unit of work. Raises `ProjectNotFound`."""
    return UnitOfWork(tx, await projects.claim_project(tx, project_id))


async def open_or_create_project(tx: Tx, project_id: str, *, name: str, merchant_id: int | None = None) -> UnitOfWork:
    """Lock a project and begin a unit of work; create the project, of this merchant, if it is missing."""
    is_new = False
    if await projects.find_project(tx, project_id) is None:
        new = Project(
            id=tx.new_id("project"),
            project_id=project_id,
            name=name,
            merchant_id=merchant_id,
            created_at=tx.now,
            updated_at=tx.now,
        )
        is_new = await projects.insert_missing(tx, new)
    uow = await open_unit_of_work(tx, project_id)
    uow.is_new = is_new
    return uow


def resolve_task(found: Sequence[Task], project_id: str, task_id: str, queue: TaskQueue | None = None) -> Task:
    """The task that a path means, among all tasks of a project with that id.

    A path with a queue names the task in that queue. A path without one names the task that has no queue, or the only
    task with that id; if several queues have it, the id is ambiguous.
    """
    queue_id = queue.queue_id if queue is not None else None
    mine = [one for one in found if queue is None or one.queue_pk == queue.id]
    active = [one for one in mine if one.deleted_at is None]
    unqueued = [one for one in active if not one.queue_pk]
    if len(unqueued or active) == 1:
        return (unqueued or active)[0]
    if active:
        queues = [one.queue_id for one in active]
        raise AmbiguousTask(task_id=task_id, project_id=project_id, queues=queues, shown=", ".join(queues))
    if mine:
        raise TaskGone(task_id=task_id, **location_details(project_id, queue_id))
    raise TaskNotFound(task_id=task_id, **location_details(project_id, queue_id))


@contextmanager
def deleted_as_missing() -> Iterator[None]:
    """Report a deleted task as one that does not exist, except to clients that push or pull it."""
    try:
        yield
    except TaskGone as error:
        raise TaskNotFound(**error.values) from error


def by_task_id(found: Iterable[Task]) -> defaultdict[str, list[Task]]:
    """Tasks of one project grouped by task id: several queues may use the same id."""
    grouped: defaultdict[str, list[Task]] = defaultdict(list)
    for one in found:
        grouped[one.task_id].append(one)
    return grouped


async def claim_task(uow: UnitOfWork, task_id: str, queue_id: str | None = None) -> Task:
    """The task that a path means, with a row lock until the transaction ends."""
    queue = None if queue_id is None else await uow.get_queue(queue_id)
    found = await tasks.claim_by_task_id(uow.tx, uow.project.id, [task_id])
    return resolve_task(found, uow.project.project_id, task_id, queue)


async def find_task(tx: Tx, project: Project, task_id: str, queue: TaskQueue | None = None) -> Task:
    """The task that a path means, without a lock."""
    return resolve_task(await tasks.list_by_task_id(tx, project.id, [task_id]), project.project_id, task_id, queue)
