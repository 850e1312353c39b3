"""Job handlers and periodic tasks of the tasks module: lease expiry, task expiry, retention and alerts."""

from collections.abc import Mapping
from functools import partial

from penstock.kernel.db import Db
from penstock.kernel.scheduler import PeriodicTask
from penstock.kernel.workers import JobHandler
from penstock.tasks import alerts, maintenance, remove
from penstock.tasks.alerts import AlertThresholds
from penstock.tasks.deps import Deps
from penstock.tasks.store import expiry

MODULE = remove.MODULE
LEASE_EXPIRY_SECONDS = 0.5  # a task with an expired lease can be pulled again within a second
TASK_EXPIRY_SECONDS = 1
ARCHIVE_SECONDS = 10
CLEANUP_SECONDS = 60
ALERT_SECONDS = 60


def handlers(deps: Deps) -> Mapping[str, JobHandler]:
    """The handler of each job kind."""
    return {remove.REMOVE_JOB: partial(remove.remove_rows, deps)}


def periodic_tasks(deps: Deps) -> list[PeriodicTask]:
    """The maintenance of the module. `needed` is a cheap query that skips a run with nothing to do."""
    return [
        PeriodicTask(
            name="time-out-pulls",
            every_seconds=LEASE_EXPIRY_SECONDS,
            run=partial(maintenance.expire_leases, deps),
            needed=expiry.has_expired_leases,
        ),
        PeriodicTask(
            name="expire-tasks",
            every_seconds=TASK_EXPIRY_SECONDS,
            run=partial(maintenance.expire_tasks, deps),
            needed=expiry.has_expiring,
        ),
        PeriodicTask(
            name="put-away-expired",
            every_seconds=ARCHIVE_SECONDS,
            run=partial(maintenance.archive_expired, deps),
            needed=partial(maintenance.needs_archiving, deps),
        ),
        PeriodicTask(
            name="forget-pulls",
            every_seconds=CLEANUP_SECONDS,
            run=partial(maintenance.delete_old_history, deps),
        ),
        PeriodicTask(
            name="forget-removed",
            every_seconds=CLEANUP_SECONDS,
            run=partial(remove.delete_tombstones, deps),
        ),
    ]


def alert_task(db: Db, thresholds: AlertThresholds) -> PeriodicTask:
    """The periodic task that checks the alert rules of all projects."""
    return PeriodicTask(
        name="watch-pulls", every_seconds=ALERT_SECONDS, run=partial(alerts.check_alerts, db, thresholds)
    )
