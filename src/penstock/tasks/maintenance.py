"""What happens because time passes: a silent holder loses the task, what nobody pulled expires and is put away, and
what is old is forgotten.

Each is a duty, done by one process of the cluster. It looks without a lock, then takes each project in hand, and what
has changed since the look is left alone: a holder may have renewed in the very last moment.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import ColumnElement, false

from penstock.kernel.db import Tx
from penstock.kernel.errors import Unavailable
from penstock.kernel.maintenance import Forget, until_none
from penstock.tasks.deps import Deps
from penstock.tasks.domain import ChangeKind, Outcome, PullState, Side, Task
from penstock.tasks.lifecycle import Book, count_ended
from penstock.tasks.store import expiry, feed, projects, pulls, tasks
from penstock.tasks.store.expiry import Found, Moment

log = logging.getLogger(__name__)

TIMEOUT = "timeout"
EXPIRY = "expiry"
RECEIPTS_KEPT = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """How to go about what has come due. `change` gives None for what no longer is."""

    find: Callable[[Tx], Awaitable[Found]]
    change: Callable[[Task, datetime], Task | None]
    kind: ChangeKind
    by: str


async def time_out(tools: Deps) -> None:
    """Offer again what silent holders have, or give it up when that happened too often."""
    most = tools.rules.max_attempts

    def change(task: Task, now: datetime) -> Task | None:
        lapsed = task.leased_until is not None and task.leased_until <= now
        return task.let_go("time_out", most_attempts=most, by=TIMEOUT, now=now) if lapsed else None

    await _sweep(tools, Sweep(find=due.list_lapsed, change=change, kind=ChangeKind.TIMED_OUT, by=TIMEOUT))


async def expire(tools: Deps) -> None:
    """Take off offer what nobody pulled in time. What somebody holds expires when it comes back."""

    def change(task: Task, now: datetime) -> Task | None:
        due_now = task.state is PullState.OFFERED and task.is_over(now)
        return task.expired(by=EXPIRY, now=now) if due_now else None

    await _sweep(tools, Sweep(find=due.list_expiring, change=change, kind=ChangeKind.EXPIRED, by=EXPIRY))


async def put_away(tools: Deps) -> None:
    """Archive or delete what has expired, as the settings say."""
    if _keeps(tools):
        return
    deletes = tools.rules.expired_action == "delete"

    def change(task: Task, now: datetime) -> Task | None:
        lives = task.deleted_at is None and task.archived_at is None
        waits = task.state is PullState.IDLE and task.source is Side.SERVER
        if task.expired_at is None or not lives or not waits:
            return None
        return task.deleted(by=EXPIRY, now=now) if deletes else task.archived(by=EXPIRY, now=now)

    kind = ChangeKind.DELETED if deletes else ChangeKind.ARCHIVED
    await _sweep(tools, Sweep(find=due.list_expired, change=change, kind=kind, by=EXPIRY))


def is_any_to_put_away(tools: Deps, since: Moment, now: Moment) -> ColumnElement[bool]:
    """Whether `put_away` has anything to do."""
    return false() if _keeps(tools) else due.is_any_expired(since, now)


def _keeps(tools: Deps) -> bool:
    return tools.rules.expired_action == "keep"


async def forget(tools: Deps) -> None:
    """Delete pulls that are over, lines of the feed, and receipts that are older than they are kept."""
    history = timedelta(days=tools.rules.history_days)
    await until_none(partial(_forget_some, tools, pulls.delete_old_pulls, history))
    await until_none(partial(_forget_some, tools, feed.delete_changes, history))
    await until_none(partial(_forget_some, tools, pulls.delete_receipts, RECEIPTS_KEPT))


async def _forget_some(tools: Deps, delete: Forget, kept: timedelta) -> int:
    async with tools.db.tx() as tx:
        return await delete(tx, before=tx.now - kept)


async def _sweep(tools: Deps, sweep: Sweep) -> None:
    """Go on until a round finds nothing to do."""
    await until_none(partial(_round, tools, sweep))


async def _round(tools: Deps, sweep: Sweep) -> int:
    async with tools.db.read() as tx:
        found = await sweep.find(tx)
    changed, failed = 0, []
    for project_pk, pks in found.items():
        try:
            changed += await _in_project(tools, sweep, project_pk, pks)
        except Unavailable:
            raise
        except (
            Exception
        ) as error:  # what is wrong with one project must not hold up the others; it is raised in the end
            log.exception("the sweep of project %s failed", project_pk)
            failed.append(error)
    if failed and not changed:
        raise failed[0]
    return changed


async def _in_project(tools: Deps, sweep: Sweep, project_pk: str, pks: Sequence[str]) -> int:
    """Change what is still due in one project; returns how many tasks that was."""
    async with tools.db.tx(actor=sweep.by) as tx:
        project = await projects.claim_project_by_pk(tx, project_pk)
        if project is None:
            return 0
        book = Book(tx, project)
        for before in await tasks.claim_by_pk(tx, pks):
            after = sweep.change(before, tx.now)
            if after is not None:
                book.note(before, after, sweep.kind, Outcome.TIMED_OUT)
        if not book.changes:
            return 0
        count_ended(book, tools.meters)
        book.tell()
        await book.close(by=sweep.by)
        return book.written
