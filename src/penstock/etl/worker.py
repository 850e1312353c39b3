"""What makes the room's verbs run: its jobs, its timers, and the messages that tell run state."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial

from penstock.etl import advance, moves, reconcile, rehearse, remove, rules, runs
from penstock.etl.deps import Deps
from penstock.etl.domain import Phase
from penstock.etl.store import tasks
from penstock.kernel.db import Tx
from penstock.kernel.outbox import Parcel
from penstock.kernel.retry import Backoff
from penstock.kernel.scheduler import PeriodicTask
from penstock.kernel.workers import JobHandler
from penstock.messages import EtlTaskEnded, EtlTaskRemoved, EtlTaskSubmitted

ROOM = moves.ROOM
RECONCILE_SECONDS = 5
TIDY_SECONDS = 60
SWEEP_SECONDS = 3600


def handlers(tools: Deps) -> Mapping[str, JobHandler]:
    """Which verb does which kind of job."""
    return {
        moves.KINDS[Phase.OCR]: partial(advance.ocr, tools),
        moves.KINDS[Phase.POSTPROCESS]: partial(advance.postprocess, tools),
        remove.REMOVE: partial(remove.remove_objects, tools),
    }


def retries(tools: Deps) -> Mapping[str, Backoff]:
    """How long which kind of job waits between two attempts."""
    return dict.fromkeys(moves.KINDS.values(), tools.terms.backoff)


def periodic_tasks(tools: Deps) -> list[PeriodicTask]:
    """What has to be done every so often."""
    reconciler = reconcile.Reconciler(tools)
    return [
        PeriodicTask(
            name="reconcile-etl", every_seconds=RECONCILE_SECONDS, run=reconciler.run, needed=reconciler.needed
        ),
        PeriodicTask(name="forget-etl-tasks", every_seconds=TIDY_SECONDS, run=partial(remove.forget, tools)),
        PeriodicTask(name="forget-etl-rules", every_seconds=SWEEP_SECONDS, run=partial(rules.forget, tools)),
        PeriodicTask(name="sweep-etl-tries", every_seconds=SWEEP_SECONDS, run=partial(rehearse.sweep, tools)),
    ]


class RunStateCarrier:
    """Brings to run state what rows say. Each time the row is looked at anew: late and double messages are harmless."""

    channels: Collection[str] = frozenset(
        message.__name__ for message in (EtlTaskSubmitted, EtlTaskEnded, EtlTaskRemoved)
    )

    def __init__(self, tools: Deps) -> None:
        self._tools = tools

    async def carry(self, parcel: Parcel) -> Callable[[Tx], Awaitable[None]] | None:
        """Put what the task's row says now."""
        task_id = parcel.payload["task_id"]
        async with self._tools.db.read() as tx:
            row = await tasks.find_task(tx, task_id)
        if row is None:
            await runs.show_removed(self._tools, task_id, run=parcel.payload["run"])
        else:
            await runs.show(self._tools, row)
        return None
