"""What becomes of a pull before it is pushed: its holder confirms it, renews it or lets go of it; an admin resets it.

Who holds a task is told by the token of its pull, or without one by the client's name. Everybody else is told why the
task is not theirs. To keep a task is frequent and changes nothing that others see, so it goes past the project's lock.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from penstock.access import audit
from penstock.access.domain import Caller
from penstock.kernel.errors import Conflict, Gone, NotFound, PenstockError, Refused
from penstock.tasks.deps import Deps
from penstock.tasks.domain import ChangeKind, Holder, Outcome, PullState, Task
from penstock.tasks.errors import SHOWN_IDS, BadTask, TaskArchived
from penstock.tasks.lost import lost
from penstock.tasks.lifecycle import Book, by_name, count_ended, open_book, pick
from penstock.tasks.store import leases, pulls, tasks
from penstock.tasks.store.leases import Grip

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Named:
    """A task that is meant, and the lease that its holder says to have."""

    task_id: str
    queue_id: str | None = None
    token: str | None = None


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A lease that its holder keeps."""

    task_id: str
    leased_until: datetime
    confirmed_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Done(Generic[T]):
    """What was done with which tasks, and why not with the others."""

    done: Sequence[T]
    failed: Sequence[tuple[str, PenstockError]]

    def one(self) -> T:
        """What was done with the only task that was meant, or why it was not."""
        if self.failed:
            raise self.failed[0][1]
        return self.done[0]


Act = Callable[[Task, Named], Awaitable[Task]]


async def confirm(tools: Deps, holder: Holder, project_id: str, named: Named) -> Kept:
    """Note that the holder has received a task; its lease begins anew. The first receipt counts."""
    async with tools.db.tx(actor=holder.name) as tx:
        until = tx.now + timedelta(seconds=tools.rules.pull_timeout)
        row = await holds.confirm(tx, _grip(holder, project_id, named), until=until)
        if row is not None:
            await pulls.confirm_pulls(tx, [row.id])
            return Kept(task_id=named.task_id, leased_until=until, confirmed_at=row.confirmed_at)
    return (await confirm_several(tools, holder, project_id, [named])).one()


async def confirm_several(tools: Deps, holder: Holder, project_id: str, wanted: Sequence[Named]) -> Done[Kept]:
    """The same for many."""
    async with tools.db.tx(actor=holder.name) as tx:
        book = await open_book(tx, project_id)

        async def receive(task: Task, named: Named) -> Task:
            await _refuse_others(book, task, _said_by(holder, named))
            received = replace(task, confirmed_at=task.confirmed_at or tx.now)
            return received.kept_by_holder(seconds=tools.rules.pull_timeout, now=tx.now)

        found = await _each(book, wanted, receive)
        await holds.keep(tx, found.done)
        await pulls.confirm_pulls(tx, [one.id for one in found.done])
    return _kept(found)


async def renew(tools: Deps, holder: Holder, project_id: str, named: Named, seconds: float | None = None) -> Kept:
    """Let the holder keep a task for so long from now, or for as long as a new pull would."""
    lasting = _lasting(tools, seconds)
    async with tools.db.once(actor=holder.name) as tx:
        until = tx.now + timedelta(seconds=lasting)
        if await holds.renew(tx, _grip(holder, project_id, named), until=until):
            return Kept(task_id=named.task_id, leased_until=until)
    return (await renew_several(tools, holder, project_id, [named], seconds)).one()


async def renew_several(
    tools: Deps, holder: Holder, project_id: str, wanted: Sequence[Named], seconds: float | None = None
) -> Done[Kept]:
    """The same for many."""
    lasting = _lasting(tools, seconds)
    async with tools.db.tx(actor=holder.name) as tx:
        book = await open_book(tx, project_id)

        async def extend(task: Task, named: Named) -> Task:
            await _refuse_others(book, task, _said_by(holder, named))
            return task.kept_by_holder(seconds=lasting, now=tx.now)

        found = await _each(book, wanted, extend)
        await holds.keep(tx, found.done)
    return _kept(found)


async def release(tools: Deps, caller: Caller, holder: Holder, project_id: str, wanted: Sequence[Named]) -> Done[Task]:
    """Let go of tasks. They are on offer again, in the status they were pulled in."""
    most = tools.rules.max_attempts
    async with tools.db.tx(actor=holder.name) as tx:
        book = await open_book(tx, project_id)

        async def let_go(task: Task, named: Named) -> Task:
            said_by = _said_by(holder, named)
            if not (task.is_held and said_by.is_admin and said_by.token is None):
                await _refuse_others(book, task, said_by)
            after = task.let_go("release", most_attempts=most, by=holder.name, now=tx.now)
            book.note(task, after, ChangeKind.RELEASED, Outcome.RELEASED)
            return after

        released = await _each(book, wanted, let_go)
        await _write(tools, book, caller, "tasks.release", by=holder.name)
    return released


async def reset(tools: Deps, caller: Caller, project_id: str, wanted: Sequence[Named]) -> Done[Task]:
    """Put tasks on offer as if nobody had ever pulled them. Who holds one loses it."""
    async with tools.db.tx(actor=caller.name) as tx:
        book = await open_book(tx, project_id)

        async def offer_anew(task: Task, named: Named) -> Task:
            if task.archived_at is not None:
                raise TaskArchived(task_id=named.task_id)
            if task.state is PullState.OFFERED and not task.lease_count:
                return task
            after = task.pull_reset(by=caller.name, now=tx.now)
            book.note(task, after, ChangeKind.RESET)
            return after

        done = await _each(book, wanted, offer_anew)
        await _write(tools, book, caller, "tasks.pull_reset", by=caller.name)
    return done


async def _each(book: Book, wanted: Sequence[Named], act: Act) -> Done[Task]:
    """Do something with each task that is meant; what is wrong with one does not stop the others."""
    task_ids = {named.task_id for named in wanted}
    namesakes = by_name(await tasks.claim_namesakes(book.tx, book.project.id, task_ids))
    done: dict[str, Task] = {}
    failed: list[tuple[str, PenstockError]] = []
    for named in wanted:
        try:
            queue = None if named.queue_id is None else await book.get_queue(named.queue_id)
            task = pick(namesakes[named.task_id], book.project.project_id, named.task_id, queue)
            if task.id not in done:  # whoever names a task twice means it once
                done[task.id] = await act(task, named)
        except (NotFound, Gone, Conflict, Refused) as error:
            failed.append((named.task_id, error))
    return Done(done=list(done.values()), failed=failed)


async def _refuse_others(book: Book, task: Task, holder: Holder) -> None:
    if not holder.holds(task):
        raise await lost(book.tx, task, holder)


async def _write(tools: Deps, book: Book, caller: Caller, action: str, *, by: str) -> None:
    """Write down what was noted, if anything was, who did it, and who had it."""
    if not book.changes:
        return
    ended = [change.before.lease_owner for change in book.changes if change.before is not None and change.outcome]
    about = {
        "client": by,
        "count": len(book.changes),
        "tasks": [change.task.task_id for change in book.changes[:SHOWN_IDS]],
        "holders": list(dict.fromkeys(ended))[:SHOWN_IDS],
    }
    await audit.note(book.tx, caller, action, f"project:{book.project.project_id}", **about)
    count_ended(book, tools.meters)
    book.tell()
    await book.close(by=by)


def _said_by(holder: Holder, named: Named) -> Holder:
    return holder if named.token is None else replace(holder, token=named.token)


def _grip(holder: Holder, project_id: str, named: Named) -> Grip:
    token = _said_by(holder, named).token
    return Grip(project_id=project_id, task_id=named.task_id, queue_id=named.queue_id, holder=holder.name, token=token)


def _kept(found: Done[Task]) -> Done[Kept]:
    kept = [
        Kept(task_id=one.task_id, leased_until=one.leased_until, confirmed_at=one.confirmed_at)
        for one in found.done
        if one.leased_until is not None
    ]
    return Done(done=kept, failed=found.failed)


def _lasting(tools: Deps, seconds: float | None) -> float:
    most = tools.rules.pull_timeout
    if seconds is not None and seconds > most:
        raise BadTask(field="seconds", reason=f"at most {most:g}", reason_zh=f"最多 {most:g}")
    return most if seconds is None else seconds
