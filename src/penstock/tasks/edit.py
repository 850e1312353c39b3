"""Tasks that people and programs plan here: making, editing, moving and deleting them, and undoing a deletion.

Whatever is written here makes the server the one who wrote last, and takes the task out of its holder's hands: they
work on something that is no longer asked for. Only a move leaves the hold alone, for the work is the same elsewhere.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypedDict

from penstock.access import audit
from penstock.access.domain import Caller
from penstock.kernel.errors import Conflict, Gone, NotFound, PenstockError
from penstock.tasks.deps import Deps
from penstock.tasks.domain import MIDDLE, ChangeKind, Queue, Side, Status, Task, rank_of
from penstock.tasks.errors import SHOWN_IDS, BadTask, TaskExists, place_of
from penstock.tasks.lifecycle import Book, by_name, claim_task, count_ended, open_book, pick
from penstock.tasks.result_schema import refuse_misfit
from penstock.tasks.store import tasks


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where tasks are looked for or put: in a queue, or without one in the project itself."""

    project_id: str
    queue_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A task to be made."""

    task_id: str | None = None  # None lets us choose
    name: str
    prompt: str
    status: Status = Status.PENDING
    priority: int = rank_of(MIDDLE)
    spec_file: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    report: str | None = None
    result_schema: dict[str, Any] | None = None
    expires_at: datetime | None = None
    path: str = ""  # where it stands in the request, for errors


class Edits(TypedDict, total=False):
    """What is to change in a task; what is absent stays."""

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


@dataclass(frozen=True, kw_only=True)
class Done:
    """What became of the tasks that were named: as they are now, and why the others were left alone."""

    tasks: Sequence[Task]
    failed: Sequence[tuple[str, PenstockError]]

    def only(self) -> Task:
        """The one task that was named, or what is wrong with it."""
        for _, error in self.failed:
            raise error
        return self.tasks[0]


Decide = Callable[[Task, Sequence[Task]], Task]  # a task and all of its name, as it is to be


async def create(tools: Deps, caller: Caller, place: Place, plans: Sequence[Plan]) -> list[Task]:
    """Make tasks, all or none; they are on offer at once."""
    async with tools.db.tx(actor=caller.name) as tx:
        book = await open_book(tx, place.project_id)
        queue = await _queue(book, place.queue_id)
        await _refuse_taken(book, plans, queue)
        for plan in plans:
            _refuse_past(plan.expires_at, now=tx.now, path=plan.path)
            made = _made(book, plan, queue, by=caller.name, expiry_seconds=tools.rules.expiry_time)
            book.note(None, made, ChangeKind.CREATED)
        return await _write(tools, book, caller, "tasks.create")


async def edit(tools: Deps, caller: Caller, place: Place, task_id: str, edits: Edits) -> Task:
    """Change a task; whoever has it loses it. What changes nothing does nothing."""
    async with tools.db.tx(actor=caller.name) as tx:
        book = await open_book(tx, place.project_id)
        before = await claim_task(book, task_id, place.queue_id)
        after = _edited(before, edits, by=caller.name, now=tx.now)
        if after is before:
            return before
        book.note(before, after, ChangeKind.EDITED)
        (written,) = await _write(tools, book, caller, "tasks.edit", fields=sorted(edits))
        return written


async def delete(tools: Deps, caller: Caller, place: Place, task_ids: Sequence[str]) -> Done:
    """Mark tasks as deleted. Their rows and the history of their pulls stay."""
    async with tools.db.tx(actor=caller.name) as tx:
        book = await open_book(tx, place.project_id)

        def decide(one: Task, _: Sequence[Task]) -> Task:
            free = one.given_back("release", by=caller.name, now=tx.now) if one.is_held else one
            return free.deleted(by=caller.name, now=tx.now)

        done = await _each(book, place, task_ids, decide, ChangeKind.DELETED)
        return await _write_all(tools, book, caller, done, "tasks.delete")


async def move(tools: Deps, caller: Caller, place: Place, task_ids: Sequence[str], *, to: str | None) -> Done:
    """Put tasks into another queue, or beside all of them. Who has them keeps them."""
    async with tools.db.tx(actor=caller.name) as tx:
        book = await open_book(tx, place.project_id)
        target = await _queue(book, to)
        pk, name = _keys(target)

        def decide(one: Task, namesakes: Sequence[Task]) -> Task:
            if one.queue_pk == pk:
                return one
            if any(other.queue_pk == pk for other in namesakes):
                raise _taken(book, one.task_id, target)
            return replace(one, queue_pk=pk, queue_id=name, updated_at=tx.now, updated_by=caller.name)

        done = await _each(book, place, task_ids, decide, ChangeKind.MOVED)
        return await _write_all(tools, book, caller, done, "tasks.move", to=to)


async def restore(tools: Deps, caller: Caller, place: Place, task_id: str) -> Task:
    """Undo a deletion. What is not deleted stays as it is."""
    async with tools.db.tx(actor=caller.name) as tx:
        book = await open_book(tx, place.project_id)
        queue = await _queue(book, place.queue_id)
        found = await tasks.claim_namesakes(tx, book.project.id, [task_id])
        here = [one for one in found if queue is None or one.queue_pk == queue.id]
        gone = [replace(one, deleted_at=None) for one in here if one.deleted_at is not None]
        meant = pick(gone or here, place.project_id, task_id, queue)
        (before,) = (one for one in found if one.id == meant.id)
        if before.deleted_at is None:
            return before
        book.note(before, before.restored(by=caller.name, now=tx.now), ChangeKind.RESTORED)
        (written,) = await _write(tools, book, caller, "tasks.restore")
        return written


async def _queue(book: Book, queue_id: str | None) -> Queue | None:
    return None if queue_id is None else await book.get_queue(queue_id)


def _keys(queue: Queue | None) -> tuple[str, str]:
    """What a task knows of its queue: our id and theirs."""
    return ("", "") if queue is None else (queue.id, queue.queue_id)


def _taken(book: Book, task_id: str, queue: Queue | None) -> TaskExists:
    return TaskExists(task_id=task_id, **place_of(book.project.project_id, _keys(queue)[1]))


async def _refuse_taken(book: Book, plans: Sequence[Plan], queue: Queue | None) -> None:
    """A deleted task keeps its id, too: its history would pass to another one."""
    asked = Counter(plan.task_id for plan in plans if plan.task_id is not None)
    for plan in plans:
        if plan.task_id is not None and asked[plan.task_id] > 1:
            raise BadTask(field=f"{plan.path}taskId", reason="it comes more than once", reason_zh="出现多次")
    for one in await tasks.list_namesakes(book.tx, book.project.id, list(asked)):
        if one.queue_pk == _keys(queue)[0]:
            raise _taken(book, one.task_id, queue)


def _refuse_past(expires_at: datetime | None, *, now: datetime, path: str = "") -> None:
    if expires_at is not None and expires_at <= now:
        raise BadTask(field=f"{path}expires_at", reason="it has passed already", reason_zh="时间已过")


def _made(book: Book, plan: Plan, queue: Queue | None, *, by: str, expiry_seconds: float) -> Task:
    now, pk = book.tx.now, book.tx.new_id("task")
    queue_pk, queue_id = _keys(queue)
    by_rule = now + timedelta(seconds=expiry_seconds) if expiry_seconds > 0 else None
    new = Task(
        id=pk,
        partition_key=book.project.id,
        queue_pk=queue_pk,
        queue_id=queue_id,
        task_id=plan.task_id or pk,
        name=plan.name,
        prompt=plan.prompt,
        status=Status.PENDING,
        source=Side.SERVER,
        origin=Side.SERVER,
        priority=plan.priority,
        spec_file=plan.spec_file,
        tags=plan.tags,
        report=plan.report,
        result_schema=plan.result_schema,
        expires_at=plan.expires_at or by_rule,
        scheduled_at=now,
        created_at=now,
        created_by=by,
        updated_at=now,
        updated_by=by,
        server_modified_at=now,
    )
    return new.with_status(plan.status, now=now).offered_anew(now=now)


def _edited(before: Task, edits: Edits, *, by: str, now: datetime) -> Task:
    """The task with the edits, on offer again; or as it was when they change nothing."""
    plain: dict[str, Any] = {name: value for name, value in edits.items() if name != "status"}
    after = replace(before, **plain).with_status(edits.get("status", before.status), now=now)
    if after == before:
        return before
    if after.expires_at != before.expires_at:
        _refuse_past(after.expires_at, now=now)
        after = replace(after, expired_at=None, archived_at=None)
    _refuse_misfit(before, after)
    if after.status is not Status.ERROR:
        after = replace(after, error_reason=None)
    if "status" in edits:  # what was asked for counts, and not what the task was pulled in
        after = replace(after, status_at_pull=None)
    return after.pull_reset(by=by, now=now)


def _refuse_misfit(before: Task, after: Task) -> None:
    known, told = (before.result, before.result_schema), (after.result, after.result_schema)
    if after.result is not None and told != known:
        refuse_misfit(after.result_schema, after.result)


async def _each(book: Book, place: Place, task_ids: Sequence[str], decide: Decide, kind: ChangeKind) -> Done:
    """Decide on each of these tasks, and note what changes."""
    queue = await _queue(book, place.queue_id)
    namesakes = by_name(await tasks.claim_namesakes(book.tx, book.project.id, task_ids))
    decided: list[Task] = []
    failed: list[tuple[str, PenstockError]] = []
    for task_id in dict.fromkeys(task_ids):
        try:
            before = pick(namesakes[task_id], place.project_id, task_id, queue)
            after = decide(before, namesakes[task_id])
        except (NotFound, Conflict, Gone) as error:
            failed.append((task_id, error))
            continue
        decided.append(after)
        if after is not before:
            book.note(before, after, kind)
    return Done(tasks=decided, failed=failed)


async def _write_all(tools: Deps, book: Book, caller: Caller, done: Done, action: str, **about: object) -> Done:
    """Write down what was noted, if anything was."""
    if not book.changes:
        return done
    written = {one.id: one for one in await _write(tools, book, caller, action, **about)}
    return replace(done, tasks=[written.get(one.id, one) for one in done.tasks])


async def _write(tools: Deps, book: Book, caller: Caller, action: str, **about: object) -> list[Task]:
    """Write down what was noted and who did it, and tell those who watch. The tasks as they are then."""
    changed = [change.task for change in book.changes]
    queues = {(change.before or change.task).queue_id for change in book.changes}
    holders = {str(change.before.lease_owner) for change in book.changes if change.before and change.outcome}
    about |= {"count": len(changed), "tasks": [one.task_id for one in changed[:SHOWN_IDS]]}
    about |= {"queues": sorted(queues)[:SHOWN_IDS], "taken_from": sorted(holders)[:SHOWN_IDS]}
    await audit.note(book.tx, caller, action, f"project:{book.project.project_id}", **about)
    book.tell()
    count_ended(book, tools.meters)
    await book.close(by=caller.name)
    return [replace(one, version=number) for number, one in enumerate(changed, book.project.version - len(changed) + 1)]
