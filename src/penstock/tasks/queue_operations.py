"""Doing work over: a whole queue is reset or run again, or some tasks of it are.

Each task is pending once more and written by the server; and, unless the settings say otherwise, it is taken from
whoever has it and put on offer. A long queue is gone through in parts, so that memory stays flat. It is one transaction
all the same: nobody sees half of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from penstock.access import audit
from penstock.access.domain import Caller
from penstock.kernel.errors import Conflict, Gone, NotFound, PenstockError
from penstock.tasks.deps import Deps, Rules
from penstock.tasks.domain import ChangeKind, Operation, PullState, Queue, Status, Task
from penstock.tasks.errors import SHOWN_IDS, TaskArchived
from penstock.tasks.metrics import Meters
from penstock.tasks.lifecycle import Book, by_name, claim_task, count_ended, open_book, pick
from penstock.tasks.store import tasks
from penstock.tasks.store.tasks import Where

PART = 2_000  # tasks in memory at once
AUDITED = {Operation.RESET: "tasks.reset", Operation.RESET_ERROR: "tasks.reset_error", Operation.RE_RUN: "tasks.rerun"}
SOME_AGAIN = "tasks.rerun_tasks"  # apart from what is done to whole queues, which alarms count
PULLED = (PullState.HELD, PullState.CLOSED)


@dataclass(frozen=True, kw_only=True)
class Way:
    """How an operation goes about a task."""

    kind: ChangeKind = ChangeKind.RESET
    only: Status | None = None  # tasks in another status are left alone
    forgets: bool = False  # what came of the work before
    clears_pulls: bool

    @classmethod
    def of(cls, operation: Operation, rules: Rules) -> "Way":
        """As the settings have it."""
        if operation is Operation.RE_RUN:
            return cls(kind=ChangeKind.RERUN, clears_pulls=rules.rerun_clears_pulls)
        if operation is Operation.RESET_ERROR:
            return cls(only=Status.ERROR, clears_pulls=rules.reset_clears_pulls)
        return cls(forgets=True, clears_pulls=rules.reset_clears_pulls)

    def applied(self, task: Task, *, by: str, now: datetime) -> Task:
        """The task, to be done over. Who has it may keep it where pulls are not cleared; nobody's goes on offer."""
        again = replace(task.with_status(Status.PENDING, now=now), error_reason=None)
        again = again.written_by_server(by=by, now=now)
        if self.forgets:
            again = replace(again, report=None, result=None)
        if self.clears_pulls or task.state not in PULLED:
            return again.offered_anew(now=now)
        # A holder who lets go of it must not bring back the status it was pulled in.
        return replace(again, status_at_pull=Status.PENDING) if task.is_held else again


@dataclass(frozen=True, kw_only=True)
class Operated:
    """What was done to a queue."""

    queue: Queue
    operation: Operation
    affected: int


@dataclass(frozen=True, kw_only=True)
class RunAgain:
    """What became of a list of tasks: how many were taken, and why the others were not."""

    affected: int
    failed: Sequence[tuple[str, PenstockError]]


async def operate(tools: Deps, caller: Caller, project_id: str, queue_id: str, operation: Operation) -> Operated:
    """Do all living tasks of a queue over, or those in error."""
    way = Way.of(operation, tools.rules)
    async with tools.db.tx(actor=caller.name) as tx:
        book = await open_book(tx, project_id)
        queue = await book.get_queue(queue_id)
        reset_at = tx.now if way.kind is ChangeKind.RESET else queue.last_reset_at
        done = replace(queue, last_reset_at=reset_at, last_operation=operation, last_operation_by=caller.name)
        book.put_queue(replace(done, updated_at=tx.now))
        affected = await _go_through(book, tools.meters, queue.id, way, by=caller.name)
        await _close(book, tools.meters, by=caller.name)
        about = {"queue": queue_id, "affected": affected}
        await audit.note(tx, caller, AUDITED[operation], f"project:{project_id}", **about)
    tools.meters.count_operation(operation)
    return Operated(queue=done, operation=operation, affected=affected)


async def run_again(tools: Deps, caller: Caller, project_id: str, task_id: str, *, queue_id: str | None = None) -> Task:
    """Do one task over, whatever its status."""
    way = Way.of(Operation.RE_RUN, tools.rules)
    async with tools.db.tx(actor=caller.name) as tx:
        book = await open_book(tx, project_id)
        task = _unarchived(await claim_task(book, task_id, queue_id))
        after = way.applied(task, by=caller.name, now=tx.now)
        book.note(task, after, way.kind)
        await _close(book, tools.meters, by=caller.name)
        about = {"queue": task.queue_id, "affected": 1, "tasks": [task_id]}
        await audit.note(tx, caller, SOME_AGAIN, f"project:{project_id}", **about)
    return replace(after, version=book.project.version)


async def run_several_again(
    tools: Deps, caller: Caller, project_id: str, task_ids: Sequence[str], *, queue_id: str | None = None
) -> RunAgain:
    """Do some tasks over; those that cannot be are told of, and the others are done."""
    way = Way.of(Operation.RE_RUN, tools.rules)
    async with tools.db.tx(actor=caller.name) as tx:
        book = await open_book(tx, project_id)
        found, failed = await _claim_named(book, task_ids, queue_id)
        for task in found:
            book.note(task, way.applied(task, by=caller.name, now=tx.now), way.kind)
        await _close(book, tools.meters, by=caller.name)
        about = {"queue": queue_id, "affected": len(found), "tasks": [task.task_id for task in found[:SHOWN_IDS]]}
        await audit.note(tx, caller, SOME_AGAIN, f"project:{project_id}", **about)
    return RunAgain(affected=len(found), failed=failed)


async def _go_through(book: Book, meters: Meters, queue_pk: str, way: Way, *, by: str) -> int:
    """Do the tasks of a queue over, part by part; returns how many."""
    where = Where(project_pk=book.project.id, queue_pk=queue_pk)
    also = tasks.in_status(way.only)
    affected, after = 0, ""
    while part := await tasks.claim_some(book.tx, where, after=after, limit=PART, also=also):
        for task in part:
            book.note(task, way.applied(task, by=by, now=book.tx.now), way.kind)
        count_ended(book, meters)
        await book.flush(by=by)
        affected, after = affected + len(part), part[-1].id
    return affected


async def _claim_named(
    book: Book, task_ids: Sequence[str], queue_id: str | None
) -> tuple[list[Task], list[tuple[str, PenstockError]]]:
    """The tasks of these names, locked, and what is wrong with the other names."""
    queue = None if queue_id is None else await book.get_queue(queue_id)
    namesakes = by_name(await tasks.claim_namesakes(book.tx, book.project.id, task_ids))
    found: list[Task] = []
    failed: list[tuple[str, PenstockError]] = []
    for task_id in dict.fromkeys(task_ids):
        try:
            found.append(_unarchived(pick(namesakes[task_id], book.project.project_id, task_id, queue)))
        except (NotFound, Gone, Conflict) as error:
            failed.append((task_id, error))
    return found, failed


def _unarchived(task: Task) -> Task:
    if task.archived_at is not None:
        raise TaskArchived(task_id=task.task_id)
    return task


async def _close(book: Book, meters: Meters, *, by: str) -> None:
    """Write everything down, and tell those who watch when there is something to tell."""
    if book.written or book.changes:
        book.tell()
    count_ended(book, meters)
    await book.close(by=by)
