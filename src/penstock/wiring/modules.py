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

# Message → handlers in other modules. JobsWaiting stays in the outbox when the queue changes from ARQ back to SQL.
ROUTES: Routes = {JobsWaiting: ()}
PUBLIC = frozenset(  # messages that webhooks and Redis Streams may receive
    message.__name__ for message in (WebhookPing, EtlTaskSubmitted, EtlTaskEnded, EtlTaskRemoved)
)
# The modules that have jobs; the empty name is for jobs of no module.
MODULES: Sequence[str] = ("", "notify", tasks_worker.MODULE, etl_worker.ROOM)


@dataclass(frozen=True, kw_only=True)
class Modules:
    """The dependencies of every module."""

    notify: NotifyDeps
    tasks: TasksDeps
    etl: EtlDeps

    def handlers(self) -> Mapping[str, JobHandler]:
        """The job handlers by kind."""
        return {
            **notify_worker.handlers(self.notify),
            **tasks_worker.handlers(self.tasks),
            **etl_worker.handlers(self.etl),
        }

    def retries(self) -> Mapping[str, Backoff]:
        """The backoff of job kinds that do not use the default."""
        return etl_worker.retries(self.etl)

    def carriers(self) -> list[Carrier]:
        """The outbox sinks of the modules."""
        return [etl_worker.RunStateCarrier(self.etl)]

    def periodic_tasks(self, *, history: timedelta) -> list[PeriodicTask]:
        """The periodic tasks of the modules."""
        return [
            *notify_worker.periodic_tasks(self.notify, history=history),
            *tasks_worker.periodic_tasks(self.tasks),
            *etl_worker.periodic_tasks(self.etl),
        ]
