"""What each room brings to the house: the messages it hears, the jobs it does, its duties. Rooms add a line to each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from penstock.etl import worker as etl_worker
from penstock.etl.tools import Tools as EtlTools
from penstock.kernel.announce import JobsWaiting
from penstock.kernel.outbox import Carrier, Routes
from penstock.kernel.retry import Backoff
from penstock.kernel.timekeeper import Duty
from penstock.kernel.workers import JobHandler
from penstock.messages import EtlTaskEnded, EtlTaskRemoved, EtlTaskSubmitted, WebhookPing
from penstock.notify import worker as notify_worker
from penstock.notify.tools import Tools as NotifyTools
from penstock.tasks import worker as tasks_worker
from penstock.tasks.tools import Tools as TasksTools

# A message of one room: what another room does on hearing it. The first is what ARQ leaves when jobs go by SQL again.
ROUTES: Routes = {JobsWaiting: ()}
PUBLIC = frozenset(  # the messages that may leave the house, by webhook or Redis Stream
    message.__name__ for message in (WebhookPing, EtlTaskSubmitted, EtlTaskEnded, EtlTaskRemoved)
)
# Where jobs wait; the first is for what belongs to no room.
ROOMS: Sequence[str] = ("", "notify", tasks_worker.ROOM, etl_worker.ROOM)


@dataclass(frozen=True, kw_only=True)
class Rooms:
    """The tools of every room."""

    notify: NotifyTools
    tasks: TasksTools
    etl: EtlTools

    def handlers(self) -> Mapping[str, JobHandler]:
        """Which function does which kind of job."""
        return {
            **notify_worker.handlers(self.notify),
            **tasks_worker.handlers(self.tasks),
            **etl_worker.handlers(self.etl),
        }

    def retries(self) -> Mapping[str, Backoff]:
        """How long which kind of job waits between two attempts, where that is set."""
        return etl_worker.retries(self.etl)

    def carriers(self) -> list[Carrier]:
        """Who takes which message out of the database."""
        return [etl_worker.RunStateCarrier(self.etl)]

    def duties(self, *, history: timedelta) -> list[Duty]:
        """What rooms have to do every so often."""
        return [
            *notify_worker.duties(self.notify, history=history),
            *tasks_worker.duties(self.tasks),
            *etl_worker.duties(self.etl),
        ]
