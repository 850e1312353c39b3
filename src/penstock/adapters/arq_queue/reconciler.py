"""The reconciler: every due row of the ledger has a ticket, whatever happened to Redis.

Tickets get lost when Redis is flushed or restarted, when a partition was paused or full as its ticket came up, or when
a worker dies with a ticket in its hand. Each turn looks at the front of every room, where a missing ticket hurts, and
at one page further back. As long as tickets are missing it goes on, so that a flushed Redis is soon filled again.
"""

from penstock.adapters.arq_queue.tickets import Tickets, ticket_channel
from penstock.kernel.backlog import list_module_backlogs, list_waiting_jobs
from penstock.kernel.db import Db
from penstock.kernel.job_dispatch import WaitingJob
from penstock.kernel.leases import PROMOTE_BATCH
from penstock.kernel.queue import JobQueue
from penstock.kernel.scheduler import PeriodicTask

EVERY_SECONDS = 2.0
PAGE = 500
PAGES_AT_ONCE = 20  # of one room in one turn; the others must not wait long for theirs
ROOMS_AT_ONCE = 100
ACTOR = "reconciler"


class Reconciler:
    """Walks through the backlog. Remembers only how far it came, so any process can take over."""

    def __init__(self, db: Db, queue: JobQueue, tickets: Tickets) -> None:
        self._db = db
        self._queue = queue
        self._tickets = tickets
        self._room: str | None = None
        self._cursors: dict[str, WaitingJob] = {}

    def duty(self) -> PeriodicTask:
        """The duty, for a timekeeper."""
        return PeriodicTask(name="reconcile-tickets", every_seconds=EVERY_SECONDS, run=self.run)

    async def run(self) -> None:
        """Take one turn."""
        await self._promote()
        async with self._db.read() as tx:
            waiting = await list_module_backlogs(tx, after=self._room, limit=ROOMS_AT_ONCE)
        for found in waiting:
            if await self._walk(found.module):
                self._db.wakeups.wake(ticket_channel(found.module))
        self._room = waiting[-1].module if len(waiting) == ROOMS_AT_ONCE else None

    async def _promote(self) -> None:
        """Let in what has come due. Claims by id do not need it, but here only what was let in is seen."""
        for _ in range(PAGES_AT_ONCE):
            async with self._db.tx(actor=ACTOR) as tx:
                promoted = await self._queue.leases.promote(tx)
            if promoted < PROMOTE_BATCH:
                return

    async def _walk(self, room: str) -> int:
        """The front of a room, then on from where the last turn ended, as long as tickets are missing."""
        page, total = await self._give_tickets(room, None)
        after = self._cursors.pop(room, None)
        for _ in range(PAGES_AT_ONCE):
            if len(page) < PAGE:
                return total
            page, added = await self._give_tickets(room, after or page[-1])
            total, after = total + added, None
            if not added:
                break
        if len(page) == PAGE:
            self._cursors[room] = page[-1]
        return total

    async def _give_tickets(self, room: str, after: WaitingJob | None) -> tuple[list[WaitingJob], int]:
        async with self._db.read() as tx:
            page = await list_waiting_jobs(tx, room, after=after, limit=PAGE)
        return page, await self._tickets.push(page)
