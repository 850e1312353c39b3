"""What each module contributes: the messages it handles, the jobs it runs, its periodic tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from penstock.etl import worker as etl_worker
from penstock.etl.deps import Deps as EtlDeps
from penstock.kernel.announce import JobsWaiting
from penstock.kernel.outbox import Carrier, Routes
from penstock.kernel.retry import Backoff
from penstock.kernel.scheduler import PeriodicTask
from penstock.kernel.workers import JobHandler
from penstock.messages import EtlTaskEnded, EtlTaskRemoved, EtlTaskSubmitted, WebhookPing
from penstock.notify import worker as notify_worker
from penstock.notify.deps import Deps as NotifyDeps
from penstock.tasks import worker as tasks_worker
from penstock.tasks.deps import Deps as TasksDeps

# A message of one room: what another room does on hearing it. The first is what ARQ leaves when jobs go by SQL again.
ROUTES: Routes = {JobsWaiting: ()}
PUBLIC = frozenset(  # the messages that may leave the house, by webhook or Redis Stream
    message.__name__ for message in (WebhookPing, EtlTaskSubmitted, EtlTaskEnded, EtlTaskRemoved)
)
# Where jobs wait; the first is for what belongs to no room.
MODULES: Sequence[str] = ("", "notify", tasks_worker.ROOM, etl_worker.ROOM)


@dataclass(frozen=True, kw_only=True)
class Modules:
    """The tools of every room."""

    notify: NotifyDeps
    tasks: TasksDeps
    etl: EtlDeps

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

    def periodic_tasks(self, *, history: timedelta) -> list[PeriodicTask]:
        """What rooms have to do every so often."""
        return [
            *notify_worker.periodic_tasks(self.notify, history=history),
            *tasks_worker.periodic_tasks(self.tasks),
            *etl_worker.periodic_tasks(self.etl),
        ]
