"""What each module contributes: the messages it handles, the jobs it runs, its periodic tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from penstock.access import audit
from penstock.access import store as access_store
from penstock.etl import worker as etl_worker
from penstock.etl.deps import Deps as EtlDeps
from penstock.kernel.db import Db
from penstock.kernel.job_dispatch import JobsWaiting
from penstock.kernel.maintenance import ACTOR, CLEANUP_SECONDS, DeleteOld, repeat_until_zero
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
MODULES: Sequence[str] = ("", "notify", tasks_worker.MODULE, etl_worker.MODULE)


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


def access_cleaner(db: Db, *, audit_age: timedelta, lock: timedelta) -> PeriodicTask:
    """Delete old audit lines and keys, expired sessions, and login attempts that no longer count."""
    ages: list[tuple[DeleteOld, timedelta]] = [
        (audit.delete_lines, audit_age),
        (access_store.delete_keys, audit_age),
        (access_store.delete_sessions, timedelta()),
        (access_store.delete_attempts, lock),
    ]

    async def delete_some(delete: DeleteOld, age: timedelta) -> int:
        async with db.tx(actor=ACTOR) as tx:
            return await delete(tx, before=tx.now - age)

    async def run() -> None:
        for delete, age in ages:
            await repeat_until_zero(partial(delete_some, delete, age))

    return PeriodicTask(name="forget-access", every_seconds=CLEANUP_SECONDS, run=run)
