"""What makes the room's verbs run: its jobs and its timers."""

from collections.abc import Mapping
from functools import partial

from penstock.kernel.timekeeper import Duty
from penstock.kernel.workers import JobHandler
from penstock.tasks import lapse, remove
from penstock.tasks.store import due
from penstock.tasks.tools import Tools

ROOM = remove.ROOM
TIME_OUT_SECONDS = 0.5  # what a silent holder had can be pulled again within a second
EXPIRE_SECONDS = 1
PUT_AWAY_SECONDS = 10
TIDY_SECONDS = 60


def handlers(tools: Tools) -> Mapping[str, JobHandler]:
    """Which verb does which kind of job."""
    return {remove.REMOVE: partial(remove.remove_rows, tools)}


def duties(tools: Tools) -> list[Duty]:
    """What has to be done every so often."""
    return [
        Duty(
            name="time-out-pulls",
            every_seconds=TIME_OUT_SECONDS,
            run=partial(lapse.time_out, tools),
            needed=due.is_any_lapsed,
        ),
        Duty(
            name="expire-tasks",
            every_seconds=EXPIRE_SECONDS,
            run=partial(lapse.expire, tools),
            needed=due.is_any_expiring,
        ),
        Duty(
            name="put-away-expired",
            every_seconds=PUT_AWAY_SECONDS,
            run=partial(lapse.put_away, tools),
            needed=partial(lapse.is_any_to_put_away, tools),
        ),
        Duty(name="forget-pulls", every_seconds=TIDY_SECONDS, run=partial(lapse.forget, tools)),
        Duty(name="forget-removed", every_seconds=TIDY_SECONDS, run=partial(remove.forget_removed, tools)),
    ]
