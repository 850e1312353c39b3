"""What makes the room's verbs run: its jobs and its timer."""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from penstock.kernel.scheduler import PeriodicTask
from penstock.kernel.workers import JobHandler
from penstock.notify.deliver import deliver
from penstock.notify.deps import Deps
from penstock.notify.forget import forget_old, forget_removed
from penstock.notify.tries import DELIVER, FORGET

TIDY_SECONDS = 60


def handlers(tools: Deps) -> Mapping[str, JobHandler]:
    """Which verb does which kind of job."""
    return {DELIVER: partial(deliver, tools), FORGET: partial(forget_removed, tools)}


def periodic_tasks(tools: Deps, *, history: timedelta) -> list[PeriodicTask]:
    """What has to be done every so often."""
    return [PeriodicTask(name="forget-deliveries", every_seconds=TIDY_SECONDS, run=partial(forget_old, tools, history))]
