"""Job handlers and periodic tasks of the tasks module: lease expiry, task expiry, retention and alerts.

They open the transactions; the verbs they run take one.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from penstock.kernel.db import Db, Tx
from penstock.kernel.errors import Unavailable
from penstock.kernel.maintenance import repeat_until_zero
from penstock.kernel.message import Message
from penstock.kernel.queue import Job
from penstock.kernel.relay import MessageHandler
from penstock.kernel.scheduler import PeriodicTask
from penstock.kernel.workers import JobHandler
from penstock.messages import ReviewRequested, ReviewWithdrawn
from penstock.tasks import alerts, maintenance, queue_operations, remove, reviews
from penstock.tasks.alerts import AlertThresholds
from penstock.tasks.deps import Deps
from penstock.tasks.maintenance import Sweep
from penstock.tasks.store import expiry

log = logging.getLogger(__name__)

MODULE = remove.MODULE
LEASE_EXPIRY_SECONDS = 0.5  # a task with an expired lease can be pulled again within a second
TASK_EXPIRY_SECONDS = 1
ARCHIVE_SECONDS = 10
CLEANUP_SECONDS = 60
ALERT_SECONDS = 60


def handlers(deps: Deps) -> Mapping[str, JobHandler]:
    """The handler of each job kind."""
    return {
        remove.REMOVE_JOB: partial(_remove_rows, deps),
        queue_operations.OPERATE_JOB: partial(_run_operation, deps),
    }


def message_handlers(deps: Deps) -> Mapping[type[Message], Sequence[MessageHandler]]:
    """The handlers of messages from other modules."""

    async def on_requested(tx: Tx, asked: ReviewRequested) -> None:
        await reviews.request_review(tx, deps, asked)

    async def on_withdrawn(tx: Tx, withdrawn: ReviewWithdrawn) -> None:
        await reviews.withdraw_review(tx, deps, withdrawn)

    return {ReviewRequested: [on_requested], ReviewWithdrawn: [on_withdrawn]}


def periodic_tasks(deps: Deps) -> list[PeriodicTask]:
    """The maintenance of the module. `needed` is a cheap query that skips a run with nothing to do."""
    config = deps.config
    return [
        PeriodicTask(
            name="time-out-pulls",
            every_seconds=LEASE_EXPIRY_SECONDS,
            run=partial(run_sweep, deps, maintenance.lease_expiry(config)),
            needed=expiry.LEASES.has_expired,
        ),
        PeriodicTask(
            name="expire-tasks",
            every_seconds=TASK_EXPIRY_SECONDS,
            run=partial(run_sweep, deps, maintenance.task_expiry()),
            needed=expiry.has_expiring,
        ),
        PeriodicTask(
            name="put-away-expired",
            every_seconds=ARCHIVE_SECONDS,
            run=partial(run_sweep, deps, maintenance.archiving(config)),
            needed=partial(maintenance.needs_archiving, config),
        ),
        PeriodicTask(
            name="forget-pulls",
            every_seconds=CLEANUP_SECONDS,
            run=partial(_run_batches, deps, partial(maintenance.delete_old_history, config=config)),
        ),
        PeriodicTask(
            name="forget-removed",
            every_seconds=CLEANUP_SECONDS,
            run=partial(_run_batches, deps, partial(remove.delete_tombstones, config=config)),
        ),
    ]


def alert_task(db: Db, thresholds: AlertThresholds) -> PeriodicTask:
    """The periodic task that checks the alert rules of all projects."""
    return PeriodicTask(name="watch-pulls", every_seconds=ALERT_SECONDS, run=partial(check_alerts, db, thresholds))


async def check_alerts(db: Db, thresholds: AlertThresholds) -> None:
    """Evaluate the alert rules of every project with activity; start and end alerts."""
    async with db.read() as tx:
        state = await alerts.read_state(tx)
    if not state.is_current(thresholds):
        async with db.tx(actor=alerts.ACTOR) as tx:
            await alerts.update_alerts(tx, thresholds, state)


async def run_sweep(deps: Deps, sweep: Sweep | None) -> None:
    """Repeat a sweep until a round finds nothing to do."""
    if sweep is not None:
        await repeat_until_zero(partial(_sweep_round, deps, sweep))


async def _sweep_round(deps: Deps, sweep: Sweep) -> int:
    async with deps.db.read() as tx:
        due = await sweep.find(tx)
    changed, failed = 0, []
    for project_pk, pks in due.items():
        try:
            async with deps.db.tx(actor=sweep.by) as tx:
                count = await maintenance.sweep_project(tx, deps, sweep, project_pk, pks)
            changed += count
        except Unavailable:
            raise
        except Exception as error:  # a broken project must not block the others; raised below if nothing succeeded
            log.exception("sweep of project %s failed", project_pk)
            failed.append(error)
    if failed and not changed:
        raise failed[0]
    return changed


async def _remove_rows(deps: Deps, job: Job) -> None:
    """Delete the rows of a removed project or queue. Safe to repeat or resume."""
    project_pk, queue_pk = job.payload["project_pk"], job.payload["queue_pk"]
    await _run_batches(deps, partial(remove.delete_rows, project_pk=project_pk, queue_pk=queue_pk))


async def _run_operation(deps: Deps, job: Job) -> None:
    """Apply a queue operation batch by batch, from where it stopped."""

    async def run() -> int:
        async with deps.db.tx(actor=job.payload["by"]) as tx:
            return await queue_operations.run_batch(tx, deps, job.payload["operation_id"])

    await repeat_until_zero(run)


async def _run_batches(deps: Deps, delete_some: Callable[[Tx], Awaitable[int]]) -> None:
    """Delete in bounded batches, each in its own transaction, until nothing is left."""

    async def run() -> int:
        async with deps.db.tx() as tx:
            return await delete_some(tx)

    await repeat_until_zero(run)
