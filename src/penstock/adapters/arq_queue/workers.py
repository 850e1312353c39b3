"""Workers that are handed their jobs by ARQ.

ARQ's `Worker` takes tickets: it marks each, so that no two processes have it, calls our function and clears it away.
Its own loop is not used. That one looks every so often, while ours is woken; it has slots of its own for each queue,
while our rooms share them; and it ends when Redis does, while ours waits and goes on.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import cycle, islice
from typing import Any

import msgspec
from arq.constants import in_progress_key_prefix
from arq.utils import timestamp_ms
from arq.worker import Worker, func
from redis.exceptions import WatchError

from penstock.adapters.arq_queue.client import ArqClient
from penstock.adapters.arq_queue.tickets import FUNCTION, NO_NAMES, QueueNames, queue_name, ticket_channel
from penstock.adapters.redis.link import RedisAway, RedisLink, Script
from penstock.kernel.leases import POLL_SECONDS
from penstock.kernel.retry import poll_forever
from penstock.kernel.runner import HAND_BACK_SECONDS, Runner

log = logging.getLogger(__name__)

REST_SECONDS = 1.0  # how long a room is left alone whose tickets are refused, unless one of its jobs ends here

# The first tickets that are due and in nobody's hand, after the score of the next that is not due yet. Those that a
# worker had in its hand when it died stay in the queue for ten seconds, so the front page may not be enough.
LOOK = Script("""
local queue, marks, now, most = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local later = redis.call("ZRANGEBYSCORE", queue, "(" .. now, "+inf", "WITHSCORES", "LIMIT", 0, 1)
local found = {later[2] or ""}
for start = 0, 900, 100 do
    local page = redis.call("ZRANGEBYSCORE", queue, "-inf", now, "LIMIT", start, 100)
    for _, name in ipairs(page) do
        if redis.call("EXISTS", marks .. name) == 0 then
            found[#found + 1] = name
        end
        if #found > most then
            return found
        end
    end
    if #page < 100 then
        break
    end
end
return found
""")


class ArqWorkers:
    """The slots of one process. They have the face of `kernel.workers.Workers`."""

    def __init__(
        self,
        link: RedisLink,
        runner: Runner,
        *,
        modules: Sequence[str] = ("",),
        slots: int = 4,
        names: QueueNames = NO_NAMES,
    ) -> None:
        self.owner = runner.owner
        self._link = link
        self._runner = runner
        self._db = runner.db
        self._modules = cycle(modules)
        self._module_count = len(modules)
        self._slots = slots
        self._names = names
        self._takers: dict[str, Worker] = {}
        self._resting: dict[str, datetime] = {}
        self._next_due_ms: float | None = None
        self._claimed = 0
        self._asked: list[str] = []
        self._claiming = asyncio.Lock()
        self._faults: list[Exception] = []  # of the tickets in hand
        self._handing: asyncio.Task[None] | None = None
        self._listener = self._db.wakeups.listen(map(ticket_channel, modules))
        # Two lines per ticket, which say nothing that the ledger does not.
        logging.getLogger("arq.worker").setLevel(logging.WARNING)

    async def run(self) -> None:
        """Work until cancelled; then let running jobs end within the grace, and hand the others back."""
        try:
            async with self._runner.renewing_leases():
                try:
                    await poll_forever(self._db.clock, self.start_some, self._rest, warning="no jobs are taken for now")
                finally:
                    await self._let_go()
        finally:
            self._db.wakeups.unlisten(self._listener)

    async def _rest(self, found: int) -> None:
        if not found or len(self._runner.running) >= self._slots:
            await self._listener.wait(seconds=self._seconds_to_look())

    async def _let_go(self) -> None:
        """What is being claimed must be running before it can be handed back. A stop does not wait long for it."""
        if self._handing is None:
            return
        await asyncio.wait([self._handing], timeout=HAND_BACK_SECONDS)
        if self._handing.done() and not self._handing.cancelled() and (error := self._handing.exception()):
            log.warning("tickets in hand are left behind: %s", error)

    async def run_until_empty(self) -> int:
        """Work off the tickets that are due now; returns how many jobs were taken up. For tests and tools."""
        before = self._claimed
        while await self.start_some():
            await asyncio.gather(*self._runner.running)
        return self._claimed - before

    async def start_some(self) -> int:
        """Take tickets for the free slots, the rooms in turn; returns how many were taken."""
        if not self._runner.handlers:
            return 0
        taken, self._next_due_ms = 0, None
        for room in islice(self._modules, self._module_count):
            free = self._slots - len(self._runner.running)
            if free < 1:
                break
            if not self._rests(room):
                taken += await self._take(room, free)
        next(self._modules)  # another room begins the next time
        return taken

    async def _take(self, room: str, most: int) -> int:
        queue, now_ms = queue_name(room, self._names), timestamp_ms()
        later, *names = await self._link.run(LOOK, [queue], in_progress_key_prefix, now_ms, most)
        if later:
            self._next_due_ms = min(float(later), self._next_due_ms or float(later))
        if names:
            # A task of its own: stopped in the middle, it would leave tickets marked that nobody has in hand.
            self._handing = asyncio.create_task(self._hand_over(room, names))
            await asyncio.shield(self._handing)
        return len(names)

    async def _hand_over(self, room: str, names: Sequence[bytes]) -> None:
        """Have every ticket claimed, or found to be worth nothing, and cleared away."""
        self._faults.clear()
        taker = self._taker(room)
        try:
            async with self._claiming:  # so that they ask together
                with self._named_faults():
                    await taker.start_jobs(list(names))
        except Exception:
            await self._see_out(taker)
            del self._takers[room]  # it failed in the middle and has lost count of its slots
            raise
        await self._see_out(taker)
        if self._faults:
            with self._named_faults():
                raise self._faults[0]

    @contextmanager
    def _named_faults(self) -> Iterator[None]:
        """As the link names them. A connection that breaks while ARQ watches a key looks like a key that changed."""
        try:
            with self._link.faults():
                yield
        except WatchError as error:
            raise RedisAway(reason="the connection broke") from error

    async def _see_out(self, taker: Worker) -> None:
        """Wait for the tickets that are in hand; what went wrong with them is kept in `_faults`."""
        under_way = list(taker.tasks.values())
        if under_way:
            await asyncio.wait(under_way)
        taker.tasks.clear()
        ended = (task.exception() for task in under_way if not task.cancelled())
        self._faults += [error for error in ended if isinstance(error, Exception)]

    def _taker(self, room: str) -> Worker:
        if room in self._takers:
            return self._takers[room]

        async def on_ticket(ctx: dict[Any, Any], *args: Any, **kwargs: Any) -> None:  # noqa: ARG001  (ARQ's words)
            await self._ask_for(room, *args)

        self._takers[room] = Worker(
            [func(on_ticket, name=FUNCTION)],
            queue_name=queue_name(room, self._names),
            redis_pool=ArqClient(self._link.client.connection_pool),
            handle_signals=False,
            max_jobs=self._slots,
            job_timeout=None,  # type: ignore[arg-type]  # None is none: a ticket takes as long as its claim
            keep_result=0,
            retry_jobs=False,
            job_serializer=msgspec.json.encode,
            job_deserializer=msgspec.json.decode,
        )
        return self._takers[room]

    async def _ask_for(self, room: str, job_id: str) -> None:
        """Have a ticket's row claimed, together with all that were asked for meanwhile."""
        self._asked.append(job_id)
        async with self._claiming:
            if job_id not in self._asked:
                return  # whoever had the turn before us claimed it along
            asked, self._asked = self._asked, []
            try:
                await self._claim(room, asked)
            except Exception as error:  # noqa: BLE001  (told to the loop: to ARQ it would be one more failed job)
                self._faults.append(error)

    async def _claim(self, room: str, ids: Sequence[str]) -> None:
        """Claim rows and start with them. A row that is not to be had is another's, or will come again."""
        queue, seconds = self._runner.queue, self._runner.lease_seconds
        async with self._db.tx(actor=self.owner) as tx:
            jobs = await queue.claim_ids(tx, ids, owner=self.owner, seconds=seconds, module=room)
            refused = len(jobs) < len(ids) and await queue.leases.is_restricted(tx, room)
        if refused:
            self._resting[room] = self._db.clock.now() + timedelta(seconds=REST_SECONDS)
        for held in jobs:
            self._claimed += 1
            self._runner.start(held).add_done_callback(lambda _: self._ended(room))

    def _ended(self, room: str) -> None:
        self._resting.pop(room, None)
        self._listener.notify()

    def _rests(self, room: str) -> bool:
        until = self._resting.get(room)
        return until is not None and self._db.clock.now() < until

    def _seconds_to_look(self) -> float:
        """Until the next deferred ticket comes due, and a second at most: others may push without a ring."""
        if self._next_due_ms is None:
            return POLL_SECONDS
        return max(0.0, min(POLL_SECONDS, (self._next_due_ms - timestamp_ms()) / 1000))
