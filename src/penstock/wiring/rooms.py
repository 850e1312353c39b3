"""What each room brings to the house: the messages it hears, the jobs it does, its duties. Rooms add a line to each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from penstock.kernel.announce import JobsWaiting
from penstock.kernel.outbox import Routes
from penstock.kernel.timekeeper import Duty
from penstock.kernel.workers import JobHandler
from penstock.messages import WebhookPing
from penstock.notify import worker as notify_worker
from penstock.notify.tools import Tools as NotifyTools
from penstock.tasks import worker as tasks_worker
from penstock.tasks.tools import Tools as TasksTools

# A message of one room: what another room does on hearing it. The first is what ARQ leaves when jobs go by SQL again.
ROUTES: Routes = {JobsWaiting: ()}
PUBLIC = frozenset({WebhookPing.__name__})  # the messages that may leave the house, by webhook or Redis Stream
ROOMS: Sequence[str] = ("", "notify", tasks_worker.ROOM)  # where jobs wait; the first is for what belongs to no room


@dataclass(frozen=True, kw_only=True)
class Rooms:
    """The tools of every room."""

    notify: NotifyTools
    tasks: TasksTools

    def handlers(self) -> Mapping[str, JobHandler]:
        """Which function does which kind of job."""
        return {**notify_worker.handlers(self.notify), **tasks_worker.handlers(self.tasks)}

    def duties(self, *, history: timedelta) -> list[Duty]:
        """What rooms have to do every so often."""
        return [*notify_worker.duties(self.notify, history=history), *tasks_worker.duties(self.tasks)]
