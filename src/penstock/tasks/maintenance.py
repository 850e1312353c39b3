"""Maintenance: lease expiry, task expiry, archiving of expired tasks, and retention of history.

`worker.py` runs each as a periodic task of one process of the cluster. It finds due tasks without a lock, then locks
one project at a time and skips what has changed since: a holder may have renewed its lease in the last moment.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, false

from penstock.kernel.db import Tx
from penstock.tasks.deps import Config, Deps
from penstock.tasks.domain import ChangeKind, PullOutcome, PullState, Side, Task
from penstock.tasks.lifecycle import UnitOfWork, count_ended_pulls
from penstock.tasks.store import executions, expiry, feed, operations, projects, pulls, reviews, tasks
from penstock.tasks.store.expiry import DueTasks, TimeExpression

TIMEOUT = "system-timeout"  # as existing clients know it
EXPIRY = "expiry"


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """How to find due tasks and what to change. `change` returns None for a task that is no longer due."""

    find: Callable[[Tx], Awaitable[DueTasks]]
    change: Callable[[Task, datetime], Task | None]
    kind: ChangeKind
    by: str


def lease_expiry(config: Config) -> Sweep:
    """Offer tasks of silent clients again: those that sent nothing for PULL_TIMEOUT, so that their lease expired.

    A task that was pulled too many times without a push gets status error instead, with the reason.
    """

    def change(task: Task, now: datetime) -> Task | None:
        has_expired = task.leased_until is not None and task.leased_until <= now
        if not has_expired:
            return None
        return task.returned_or_failed("time_out", max_attempts=config.max_attempts, by=TIMEOUT, now=now)

    return Sweep(find=expiry.list_expired_leases, change=change, kind=ChangeKind.TIMED_OUT, by=TIMEOUT)


def task_expiry() -> Sweep:
    """Mark offered tasks that were not pulled before their `expires_at` as expired, and withdraw them.

    A held task expires when its lease ends: its holder may finish it after its expiry.
    """

    def change(task: Task, now: datetime) -> Task | None:
        is_due = task.state is PullState.OFFERED and task.has_expired(now)
        return task.expired(by=EXPIRY, now=now) if is_due else None

    return Sweep(find=expiry.list_expiring, change=change, kind=ChangeKind.EXPIRED, by=EXPIRY)


def archiving(config: Config) -> Sweep | None:
    """Archive or delete expired tasks, as the setting TASK_EXPIRED_ACTION (`expired_action`) says; None keeps them."""
    if config.expired_action == "keep":
        return None
    deletes = config.expired_action == "delete"

    def change(task: Task, now: datetime) -> Task | None:
        is_active = task.deleted_at is None and task.archived_at is None
        is_unclaimed = task.state is PullState.IDLE and task.source is Side.SERVER
        if task.expired_at is None or not is_active or not is_unclaimed:
            return None
        return task.deleted(by=EXPIRY, now=now) if deletes else task.archived(by=EXPIRY, now=now)

    kind = ChangeKind.DELETED if deletes else ChangeKind.ARCHIVED
    return Sweep(find=expiry.list_expired, change=change, kind=kind, by=EXPIRY)


def needs_archiving(config: Config, since: TimeExpression, now: TimeExpression) -> ColumnElement[bool]:
    """Whether there is anything to archive or delete."""
    return false() if config.expired_action == "keep" else expiry.has_expired_tasks(since, now)


async def sweep_project(tx: Tx, deps: Deps, sweep: Sweep, project_pk: str, pks: Sequence[str]) -> int:
    """Change the tasks of one project that are still due; returns how many."""
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


async def delete_old_history(tx: Tx, config: Config) -> int:
    """Delete one batch of pulls, changes, reviews, operations or executions past their retention; returns how many."""
    before = tx.now - timedelta(days=config.history_days)
    return (
        await pulls.delete_old_pulls(tx, before=before)
        or await feed.delete_changes(tx, before=before)
        or await reviews.delete_ended(tx, before=before)
        or await operations.delete_ended(tx, before=before)
        or await executions.delete_executions(tx, before=before)
    )
