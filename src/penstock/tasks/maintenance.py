"""Maintenance: lease expiry, task expiry, archiving of expired tasks, and retention of history.

Each is a periodic task that one process of the cluster runs. It finds due tasks without a lock, then locks one project
at a time and skips what has changed since: a holder may have renewed its lease in the last moment.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import ColumnElement, false

from penstock.kernel.db import Tx
from penstock.kernel.errors import Unavailable
from penstock.kernel.maintenance import DeleteOld, repeat_until_zero
from penstock.tasks.deps import Deps
from penstock.tasks.domain import ChangeKind, PullOutcome, PullState, Side, Task
from penstock.tasks.lifecycle import UnitOfWork, count_ended_pulls
from penstock.tasks.store import expiry, feed, projects, pulls, tasks
from penstock.tasks.store.expiry import DueTasks, TimeExpression

log = logging.getLogger(__name__)

TIMEOUT = "timeout"
EXPIRY = "expiry"
RECEIPT_RETENTION = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """How to find due tasks and what to change. `change` returns None for a task that is no longer due."""

    find: Callable[[Tx], Awaitable[DueTasks]]
    change: Callable[[Task, datetime], Task | None]
    kind: ChangeKind
    by: str


async def expire_leases(deps: Deps) -> None:
    """Offer tasks of silent clients again: those that sent nothing for the pull timeout, so that their lease expired.

    A task that was pulled too many times without a push gets status error instead, with the reason.
    """
    max_attempts = deps.config.max_attempts

    def change(task: Task, now: datetime) -> Task | None:
        has_expired = task.leased_until is not None and task.leased_until <= now
        if not has_expired:
            return None
        return task.returned_or_failed("time_out", max_attempts=max_attempts, by=TIMEOUT, now=now)

    await _sweep(deps, Sweep(find=expiry.list_expired_leases, change=change, kind=ChangeKind.TIMED_OUT, by=TIMEOUT))


async def expire_tasks(deps: Deps) -> None:
    """Mark offered tasks that were not pulled before their `expires_at` as expired, and withdraw them.

    A held task expires when its lease ends: its holder may finish it after its expiry.
    """

    def change(task: Task, now: datetime) -> Task | None:
        is_due = task.state is PullState.OFFERED and task.has_expired(now)
        return task.expired(by=EXPIRY, now=now) if is_due else None

    await _sweep(deps, Sweep(find=expiry.list_expiring, change=change, kind=ChangeKind.EXPIRED, by=EXPIRY))


async def archive_expired(deps: Deps) -> None:
    """Keep, archive or delete expired tasks, as the setting TASK_EXPIRED_ACTION (`expired_action`) says."""
    if _keeps_expired(deps):
        return
    deletes = deps.config.expired_action == "delete"

    def change(task: Task, now: datetime) -> Task | None:
        is_active = task.deleted_at is None and task.archived_at is None
        is_unclaimed = task.state is PullState.IDLE and task.source is Side.SERVER
        if task.expired_at is None or not is_active or not is_unclaimed:
            return None
        return task.deleted(by=EXPIRY, now=now) if deletes else task.archived(by=EXPIRY, now=now)

    kind = ChangeKind.DELETED if deletes else ChangeKind.ARCHIVED
    await _sweep(deps, Sweep(find=expiry.list_expired, change=change, kind=kind, by=EXPIRY))


def needs_archiving(deps: Deps, since: TimeExpression, now: TimeExpression) -> ColumnElement[bool]:
    """Whether `archive_expired` has anything to do."""
    return false() if _keeps_expired(deps) else expiry.has_expired_tasks(since, now)


def _keeps_expired(deps: Deps) -> bool:
    return deps.config.expired_action == "keep"


async def delete_old_history(deps: Deps) -> None:
    """Delete ended pulls, change feed entries and receipts that are past their retention."""
    history = timedelta(days=deps.config.history_days)
    await repeat_until_zero(partial(_delete_batch, deps, pulls.delete_old_pulls, history))
    await repeat_until_zero(partial(_delete_batch, deps, feed.delete_changes, history))
    await repeat_until_zero(partial(_delete_batch, deps, pulls.delete_receipts, RECEIPT_RETENTION))


async def _delete_batch(deps: Deps, delete: DeleteOld, retention: timedelta) -> int:
    async with deps.db.tx() as tx:
        return await delete(tx, before=tx.now - retention)


async def _sweep(deps: Deps, sweep: Sweep) -> None:
    """Repeat until a round finds nothing to do."""
    await repeat_until_zero(partial(_sweep_round, deps, sweep))


async def _sweep_round(deps: Deps, sweep: Sweep) -> int:
    async with deps.db.read() as tx:
        due = await sweep.find(tx)
    changed, failed = 0, []
    for project_pk, pks in due.items():
        try:
            changed += await _sweep_project(deps, sweep, project_pk, pks)
        except Unavailable:
            raise
        except Exception as error:  # a broken project must not block the others; raised below if nothing succeeded
            log.exception("sweep of project %s failed", project_pk)
            failed.append(error)
    if failed and not changed:
        raise failed[0]
    return changed


async def _sweep_project(deps: Deps, sweep: Sweep, project_pk: str, pks: Sequence[str]) -> int:
    """Change the tasks of one project that are still due; returns how many."""
    async with deps.db.tx(actor=sweep.by) as tx:
        project = await projects.claim_project_by_pk(tx, project_pk)
        if project is None:
            return 0
        uow = UnitOfWork(tx, project)
        for before in await tasks.claim_by_pk(tx, pks):
            after = sweep.change(before, tx.now)
            if after is not None:
                uow.record(before, after, sweep.kind, PullOutcome.TIMED_OUT)
        if not uow.changes:
            return 0
        count_ended_pulls(uow, deps.metrics)
        uow.announce()
        await uow.close(by=sweep.by)
        return uow.written
