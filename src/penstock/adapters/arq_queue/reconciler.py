"""The reconciler: every due row has an ARQ job, whatever happened to Redis.

ARQ jobs get lost when Redis is flushed or restarted, when a partition was paused or at its limit as its job came up,
or when a worker dies while claiming. Each pass checks the front of every module's backlog, where a missing job delays
work, and one page further back. While jobs are missing it goes on, so a flushed Redis is refilled quickly.
"""

from penstock.adapters.arq_queue.enqueue import ArqEnqueuer, wake_channel
from penstock.kernel.backlog import list_module_backlogs, list_waiting_jobs
from penstock.kernel.db import Db
from penstock.kernel.job_dispatch import WaitingJob
from penstock.kernel.leases import PROMOTE_BATCH
from penstock.kernel.queue import JobQueue
from penstock.kernel.scheduler import PeriodicTask

EVERY_SECONDS = 2.0
PAGE = 500
PAGES_AT_ONCE = 20  # per module and pass, so that other modules do not wait long
MODULES_AT_ONCE = 100
ACTOR = "reconciler"


class ArqReconciler:
    """Walks the backlog. It remembers only a cursor, so any process can take over."""

    def __init__(self, db: Db, queue: JobQueue, enqueuer: ArqEnqueuer) -> None:
        self._db = db
        self._queue = queue
        self._enqueuer = enqueuer
        self._module: str | None = None
        self._cursors: dict[str, WaitingJob] = {}

    def periodic_task(self) -> PeriodicTask:
        """The periodic task for the scheduler."""
        return PeriodicTask(name="reconcile-tickets", every_seconds=EVERY_SECONDS, run=self.run)

    async def run(self) -> None:
        """Run one pass."""
        await self._promote()
        async with self._db.read() as tx:
            waiting = await list_module_backlogs(tx, after=self._module, limit=MODULES_AT_ONCE)
        for found in waiting:
            if await self._walk(found.module):
                self._db.wakeups.wake(wake_channel(found.module))
        self._module = waiting[-1].module if len(waiting) == MODULES_AT_ONCE else None

    async def _promote(self) -> None:
        """Promote jobs that came due. Claims by id do not need it, but this backlog only shows promoted jobs."""
        for _ in range(PAGES_AT_ONCE):
            async with self._db.tx(actor=ACTOR) as tx:
                promoted = await self._queue.leases.promote(tx)
            if promoted < PROMOTE_BATCH:
                return

    async def _walk(self, module: str) -> int:
        """Check the front of a module's backlog, then continue from the cursor while jobs are missing."""
        page, total = await self._enqueue_page(module, None)
        after = self._cursors.pop(module, None)
        for _ in range(PAGES_AT_ONCE):
            if len(page) < PAGE:
                return total
            page, added = await self._enqueue_page(module, after or page[-1])
            total, after = total + added, None
            if not added:
                break
        if len(page) == PAGE:
            self._cursors[module] = page[-1]
        return total

    async def _enqueue_page(self, module: str, after: WaitingJob | None) -> tuple[list[WaitingJob], int]:
        async with self._db.read() as tx:
            page = await list_waiting_jobs(tx, module, after=after, limit=PAGE)
        return page, await self._enqueuer.push(page)
