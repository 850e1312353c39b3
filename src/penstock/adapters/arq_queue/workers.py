"""Workers that receive job ids through ARQ.

One script takes ARQ jobs in ARQ's own format: it removes them from the queue and marks them as in progress; one
statement claims their rows. `arq.Worker` is not used: it needs six round trips per job, polls while this loop is woken,
has slots per queue while our modules share them, and exits when Redis fails while this loop waits and continues.

An ARQ job whose row cannot be claimed (leased, finished or not due) is dropped. A module that is paused or at its
concurrency limit is skipped for a second. When a job ends, ARQ's result of it is written with the next call, so ARQ's
`Job` shows it as queued, in progress and complete. `calls.py` handles ARQ jobs that other programs enqueued.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import cycle, islice

import msgspec
from arq.constants import in_progress_key_prefix, job_key_prefix, result_key_prefix
from arq.utils import timestamp_ms

from penstock.adapters.arq_queue.calls import ArqCalls
from penstock.adapters.arq_queue.enqueue import (
    NO_FUNCTIONS,
    NO_NAMES,
    OWN,
    ArqFunctions,
    QueueNames,
    queue_name,
    wake_channel,
)
from penstock.adapters.redis.client import Argument, RedisClient, RedisUnavailable, Script
from penstock.kernel.json_object import JsonObject
from penstock.kernel.lease_renewer import RELEASE_SECONDS
from penstock.kernel.leases import POLL_SECONDS
from penstock.kernel.queue import Job
from penstock.kernel.retry import poll_forever
from penstock.kernel.runner import Runner

log = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0  # how long a module is skipped after a refused claim, unless one of its jobs ends here
MARK_SECONDS = 86400  # of a job whose worker died; the next attempt of the job clears it
CALL_SECONDS = 60  # how long an ARQ job of another program belongs to the worker that handles it
RESULT_SECONDS = 3600.0  # ARQ's default
MAX_ENDED = 1000  # results kept for a Redis that is down; what exceeds it is not shown

# First the jobs that have ended: pairs of an id and ARQ's result, which is empty if there is none. Then the due jobs.
# Ours leave the queue. Those of other programs stay until they are handled, since nothing else knows of them.
# Returns the score of the next job that is not due yet, then the id and content of each job.
TAKE = Script("""
local queue, jobs, marks, results = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local now, most, own, mark_ms, call_ms, result_ms = ARGV[4], tonumber(ARGV[5]), ARGV[6], ARGV[7], ARGV[8], ARGV[9]
for at = 10, #ARGV, 2 do
    local name, result = ARGV[at], ARGV[at + 1]
    redis.call("ZREM", queue, name)
    redis.call("DEL", jobs .. name, marks .. name)
    if result ~= "" then
        redis.call("SET", results .. name, result, "PX", result_ms)
    end
end
local later = redis.call("ZRANGEBYSCORE", queue, "(" .. now, "+inf", "WITHSCORES", "LIMIT", 0, 1)
local found = {later[2] or ""}
if most == 0 then
    return found
end
for _, name in ipairs(redis.call("ZRANGEBYSCORE", queue, "-inf", now, "LIMIT", 0, most)) do
    local job = redis.call("GET", jobs .. name)
    if not job then
        redis.call("ZREM", queue, name)
    elseif string.find(job, own, 1, true) then
        redis.call("ZREM", queue, name)
        redis.call("SET", marks .. name, "1", "PX", mark_ms)
        found[#found + 1], found[#found + 2] = name, job
    elseif redis.call("SET", marks .. name, "1", "NX", "PX", call_ms) then
        found[#found + 1], found[#found + 2] = name, job
    end
end
return found
""")
OWN_MARK = msgspec.json.encode({OWN: 1})[1:-1]  # as `enqueue.py` writes it
PREFIXES = (job_key_prefix, in_progress_key_prefix, result_key_prefix)


@dataclass(frozen=True, kw_only=True)
class TakenJob:
    """The ARQ job of a row that was claimed: its content, and when it was taken."""

    module: str
    content: bytes
    began_ms: int


class ArqWorkers:
    """The worker slots of one process, with the interface of `kernel.workers.Workers`."""

    def __init__(
        self,
        redis: RedisClient,
        runner: Runner,
        *,
        modules: Sequence[str] = ("",),
        slots: int = 4,
        names: QueueNames = NO_NAMES,
        functions: ArqFunctions = NO_FUNCTIONS,
        result_seconds: float = RESULT_SECONDS,
    ) -> None:
        self.owner = runner.owner
        self._redis = redis
        self._runner = runner
        self._db = runner.db
        self._modules = cycle(modules)
        self._module_count = len(modules)
        self._slots = slots
        self._names = names
        self._calls = ArqCalls(functions)
        self._result_ms = int(result_seconds * 1000)
        self._paused_until: dict[str, datetime] = {}
        self._next_due_ms: float | None = None
        self._may_have_more = True  # whether jobs may have been left for lack of a free slot
        self._claimed = 0
        self._taken: dict[str, TakenJob] = {}  # of the jobs that run, by id
        self._ended: defaultdict[str, dict[str, bytes]] = defaultdict(dict)  # by module, to be written
        self._taking: asyncio.Task[int] | None = None
        self._listener = self._db.wakeups.listen(map(wake_channel, modules))
        runner.on_ended = self._note_ended

    async def run(self) -> None:
        """Work until cancelled; then let running jobs finish within the grace period and release the others."""
        try:
            async with self._runner.renewing_leases():
                try:
                    await poll_forever(
                        self._db.clock, self.start_some, self._wait, warning="no jobs are claimed for now"
                    )
                finally:
                    await self._finish_taking()
        finally:
            self._db.wakeups.unlisten(self._listener)
            await self._write_ended()

    async def _wait(self, found: int) -> None:
        if not found or len(self._runner.running) >= self._slots:
            await self._listener.wait(seconds=self._poll_seconds())

    async def _finish_taking(self) -> None:
        """Let a claim in progress complete, so that its jobs can be released. A shutdown does not wait long for it."""
        if self._taking is None:
            return
        await asyncio.wait([self._taking], timeout=RELEASE_SECONDS)
        if self._taking.done() and not self._taking.cancelled() and (error := self._taking.exception()):
            log.warning("ARQ jobs that were taken are left to the reconciler: %s", error)

    async def run_until_empty(self) -> int:
        """Process the jobs that are due now; returns how many were claimed. For tests and tools."""
        before = self._claimed
        while await self.start_some():
            await asyncio.gather(*self._runner.running)
        await self._write_ended()
        return self._claimed - before

    async def start_some(self) -> int:
        """Take ARQ jobs for the free slots, module by module; returns how many were taken."""
        if not self._runner.handlers:
            return 0
        taken, self._next_due_ms, self._may_have_more = 0, None, False
        for module in islice(self._modules, self._module_count):
            free = self._slots - len(self._runner.running)
            if free < 1:
                self._may_have_more = True
                break
            if not self._is_paused(module):
                # A task of its own: if cancelled midway, it would leave jobs taken that nobody claims.
                self._taking = asyncio.create_task(self._take_and_claim(module, free))
                found = await asyncio.shield(self._taking)
                taken, self._may_have_more = taken + found, self._may_have_more or found == free
        next(self._modules)  # the next pass begins with another module
        return taken

    async def _take_and_claim(self, module: str, most: int) -> int:
        """Take ARQ jobs and claim their rows. Those of other programs are handled; a job of ours may come of it."""
        found = await self._take(module, most)
        own = {name: content for name, content in found.items() if OWN_MARK in content}
        if own:
            await self._claim(module, own)
        for name in found.keys() - own.keys():
            self._ended[module][name] = await self._calls.handle(queue_name(module, self._names), name, found[name])
        return len(found)

    async def _take(self, module: str, most: int) -> dict[str, bytes]:
        """Write the results of jobs that have ended, and take jobs: their contents by id."""
        ended = self._ended.pop(module, {})
        pairs: list[Argument] = [part for pair in ended.items() for part in pair]
        now_ms = timestamp_ms()
        times = (MARK_SECONDS * 1000, CALL_SECONDS * 1000, self._result_ms)
        try:
            later, *found = await self._redis.run_script(
                TAKE, [queue_name(module, self._names)], *PREFIXES, now_ms, most, OWN_MARK, *times, *pairs
            )
        except RedisUnavailable:
            self._ended[module] = ended
            raise
        if later:
            self._next_due_ms = min(float(later), self._next_due_ms or float(later))
        return {name.decode(): content for name, content in zip(found[::2], found[1::2], strict=True)}

    async def _claim(self, module: str, own: dict[str, bytes]) -> None:
        """Claim rows and start their jobs. A row that cannot be claimed is held by another worker or comes up again."""
        queue, seconds = self._runner.queue, self._runner.lease_seconds
        async with self._db.tx(actor=self.owner) as tx:
            jobs = await queue.claim_ids(tx, list(own), owner=self.owner, seconds=seconds, module=module)
            refused = len(jobs) < len(own) and await queue.leases.is_restricted(tx, module)
        if refused:
            self._paused_until[module] = self._db.clock.now() + timedelta(seconds=PAUSE_SECONDS)
        self._claimed += len(jobs)
        self._ended[module] |= dict.fromkeys(own.keys() - {held.id for held in jobs}, b"")
        began_ms = timestamp_ms()
        for held in jobs:
            self._taken[held.id] = TakenJob(module=module, content=own[held.id], began_ms=began_ms)
            self._runner.start(held).add_done_callback(lambda task: self._job_stopped(module, task.get_name()))

    def _note_ended(self, held: Job, error: str | None) -> None:
        """Keep the result of a job that is done or has failed, in ARQ's format, until it is written."""
        taken = self._taken.get(held.id)
        if taken is not None and len(self._ended[taken.module]) < MAX_ENDED:
            self._ended[taken.module][held.id] = self._result(held, taken, error) if self._result_ms else b""

    def _result(self, held: Job, taken: TakenJob, error: str | None) -> bytes:
        outcome: JsonObject = {"s": error is None, "r": error, "st": taken.began_ms, "ft": timestamp_ms()}
        place = {"q": queue_name(taken.module, self._names), "id": held.id}
        return msgspec.json.encode({**msgspec.json.decode(taken.content), "t": held.attempts, **outcome, **place})

    async def _write_ended(self) -> None:
        """Write what no further call would write. It is a courtesy to ARQ's users, so an outage is no error."""
        try:
            for module in list(self._ended):
                await self._take(module, 0)
        except RedisUnavailable as error:
            log.warning("the results of ARQ jobs that ended are not shown: %s", error)

    def _job_stopped(self, module: str, job_id: str) -> None:
        self._taken.pop(job_id, None)
        if self._paused_until.pop(module, None) is not None or self._may_have_more:
            self._listener.notify()

    def _is_paused(self, module: str) -> bool:
        known = (self._paused_until.get(module), self._runner.paused_until.get(module))
        return any(until is not None and self._db.clock.now() < until for until in known)

    def _poll_seconds(self) -> float:
        """Seconds until the next deferred job is due, one at most: others may enqueue without a wake-up."""
        if self._next_due_ms is None:
            return POLL_SECONDS
        return max(0.0, min(POLL_SECONDS, (self._next_due_ms - timestamp_ms()) / 1000))
