"""What makes the room's verbs run: its jobs and its timers."""

from collections.abc import Mapping
from functools import partial

from penstock.kernel.scheduler import PeriodicTask
from penstock.kernel.workers import JobHandler
from penstock.tasks import maintenance, remove
from penstock.tasks.deps import Deps
from penstock.tasks.store import expiry

ROOM = remove.ROOM
TIME_OUT_SECONDS = 0.5  # what a silent holder had can be pulled again within a second
EXPIRE_SECONDS = 1
PUT_AWAY_SECONDS = 10
TIDY_SECONDS = 60


def handlers(tools: Deps) -> Mapping[str, JobHandler]:
    """Which verb does which kind of job."""
    return {remove.REMOVE: partial(remove.remove_rows, tools)}


def periodic_tasks(tools: Deps) -> list[PeriodicTask]:
    """What has to be done every so often."""
    return [
        PeriodicTask(
            name="time-out-pulls",
            every_seconds=TIME_OUT_SECONDS,
            run=partial(lapse.time_out, tools),
            needed=due.is_any_lapsed,
        ),
        PeriodicTask(
            name="expire-tasks",
            every_seconds=EXPIRE_SECONDS,
            run=partial(lapse.expire, tools),
            needed=due.is_any_expiring,
        ),
        PeriodicTask(
            name="put-away-expired",
            every_seconds=PUT_AWAY_SECONDS,
            run=partial(lapse.put_away, tools),
            needed=partial(lapse.is_any_to_put_away, tools),
        ),
        PeriodicTask(name="forget-pulls", every_seconds=TIDY_SECONDS, run=partial(lapse.forget, tools)),
        PeriodicTask(name="forget-removed", every_seconds=TIDY_SECONDS, run=partial(remove.forget_removed, tools)),
    ]
