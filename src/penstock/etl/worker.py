"""Job handlers, periodic tasks and the outbox sink of the etl module."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial

from penstock.etl import advance, dry_run, lifecycle, reconcile, remove, rules, runs
from penstock.etl.deps import Deps
from penstock.etl.domain import Phase
from penstock.etl.store import tasks
from penstock.kernel.db import Tx
from penstock.kernel.outbox import Parcel
from penstock.kernel.retry import Backoff
from penstock.kernel.scheduler import PeriodicTask
from penstock.kernel.workers import JobHandler
from penstock.messages import EtlTaskEnded, EtlTaskRemoved, EtlTaskSubmitted

MODULE = lifecycle.MODULE
RECONCILE_SECONDS = 5
REMOVE_SECONDS = 60
CLEAN_SECONDS = 3600


def handlers(deps: Deps) -> Mapping[str, JobHandler]:
    """The handler of each job kind."""
    return {
        lifecycle.KINDS[Phase.OCR]: partial(advance.ocr, deps),
        lifecycle.KINDS[Phase.POSTPROCESS]: partial(advance.postprocess, deps),
        remove.REMOVE: partial(remove.remove_objects, deps),
    }


def retries(deps: Deps) -> Mapping[str, Backoff]:
    """The retry backoff of each job kind."""
    return dict.fromkeys(lifecycle.KINDS.values(), deps.config.backoff)


def periodic_tasks(deps: Deps) -> list[PeriodicTask]:
    """The module's periodic tasks."""
    reconciler = reconcile.EtlReconciler(deps)
    return [
        PeriodicTask(
            name="reconcile-etl", every_seconds=RECONCILE_SECONDS, run=reconciler.run, needed=reconciler.needed
        ),
        PeriodicTask(name="forget-etl-tasks", every_seconds=REMOVE_SECONDS, run=partial(remove.remove_expired, deps)),
        PeriodicTask(
            name="forget-etl-rules", every_seconds=CLEAN_SECONDS, run=partial(rules.delete_unused_rules, deps)
        ),
        PeriodicTask(name="sweep-etl-tries", every_seconds=CLEAN_SECONDS, run=partial(dry_run.delete_leftovers, deps)),
    ]


class RunStateCarrier:
    """Copies task rows to run state. It reads the row each time, so late and duplicate messages are harmless."""

    channels: Collection[str] = frozenset(
        message.__name__ for message in (EtlTaskSubmitted, EtlTaskEnded, EtlTaskRemoved)
    )

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    async def carry(self, parcel: Parcel) -> Callable[[Tx], Awaitable[None]] | None:
        """Put the task's current row."""
        task_id = parcel.payload["task_id"]
        async with self._deps.db.read() as tx:
            row = await tasks.find_task(tx, task_id)
        if row is None:
            await runs.show_removed(self._deps, task_id, run=parcel.payload["run"])
        else:
            await runs.show(self._deps, row)
        return None
