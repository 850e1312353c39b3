"""Workers that receive job ids through ARQ.

`arq.Worker` takes ARQ jobs: it marks each as in progress, calls our function and deletes it. Its main loop is not
used: it polls while ours is woken, it has slots per queue while our modules share them, and it exits when Redis fails
while ours waits and continues. An ARQ job whose row cannot be claimed (leased, finished or not due) is dropped. A
module that is paused or at its concurrency limit is skipped for a second.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import cycle, islice
from typing import Any

import msgspec
from arq.connections import ArqRedis
from arq.constants import in_progress_key_prefix
from arq.utils import timestamp_ms
from arq.worker import Worker, func
from redis.asyncio.client import Pipeline
from redis.exceptions import WatchError

from penstock.adapters.arq_queue.enqueue import FUNCTION, NO_NAMES, QueueNames, queue_name, wake_channel
from penstock.adapters.redis.client import RedisClient, RedisUnavailable, Script
from penstock.kernel.leases import POLL_SECONDS
from penstock.kernel.retry import poll_forever
from penstock.kernel.runner import HAND_BACK_SECONDS, Runner

log = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0  # how long a module is skipped after a refused claim, unless one of its jobs ends here

# Returns the score of the next job that is not due yet, then the first due jobs that are not in progress. Jobs marked
# by a worker that died stay in the queue for ten seconds, so the first page may not be enough.
FIND_DUE = Script("""
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


class ReleasingPipeline(Pipeline):
    """Always releases its connection. redis-py's own pipeline leaks it when the server stops answering while keys are
    watched, and the pool shrinks by one each time."""

    async def reset(self) -> None:
        """Drop the queued commands and release the connection."""
        try:
            await super().reset()  # type: ignore[no-untyped-call]  # redis-py's gap
        finally:
            if (stuck := self.connection) is not None:
                self.connection = None
                await stuck.disconnect(nowait=True)
                await self.connection_pool.release(stuck)


class ArqClient(ArqRedis):
    """The Redis pool for `arq.Worker`, on the connections of `RedisClient`."""

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        """A pipeline that leaks no connection."""
        return ReleasingPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)


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
    ) -> None:
        self.owner = runner.owner
        self._redis = redis
        self._runner = runner
        self._db = runner.db
        self._modules = cycle(modules)
        self._module_count = len(modules)
        self._slots = slots
        self._names = names
        self._arq_workers: dict[str, Worker] = {}
        self._paused_until: dict[str, datetime] = {}
        self._next_due_ms: float | None = None
        self._claimed = 0
        self._pending_ids: list[str] = []
        self._claim_lock = asyncio.Lock()
        self._errors: list[Exception] = []  # of the ARQ jobs in flight
        self._dispatching: asyncio.Task[None] | None = None
        self._listener = self._db.wakeups.listen(map(wake_channel, modules))
        # ARQ logs two lines per job, which add nothing to the job table.
        logging.getLogger("arq.worker").setLevel(logging.WARNING)

    async def run(self) -> None:
        """Work until cancelled; then let running jobs finish within the grace period and release the others."""
        try:
            async with self._runner.renewing_leases():
                try:
                    await poll_forever(
                        self._db.clock, self.start_some, self._wait, warning="no jobs are claimed for now"
                    )
                finally:
                    await self._finish_dispatch()
        finally:
            self._db.wakeups.unlisten(self._listener)

    async def _wait(self, found: int) -> None:
        if not found or len(self._runner.running) >= self._slots:
            await self._listener.wait(seconds=self._poll_seconds())

    async def _finish_dispatch(self) -> None:
        """Let a claim in progress complete, so that its jobs can be released. A shutdown does not wait long for it."""
        if self._dispatching is None:
            return
        await asyncio.wait([self._dispatching], timeout=HAND_BACK_SECONDS)
        if self._dispatching.done() and not self._dispatching.cancelled() and (error := self._dispatching.exception()):
            log.warning("ARQ jobs in flight were left behind: %s", error)

    async def run_until_empty(self) -> int:
        """Process the jobs that are due now; returns how many were claimed. For tests and tools."""
        before = self._claimed
        while await self.start_some():
            await asyncio.gather(*self._runner.running)
        return self._claimed - before

    async def start_some(self) -> int:
        """Take ARQ jobs for the free slots, module by module; returns how many were taken."""
        if not self._runner.handlers:
            return 0
        taken, self._next_due_ms = 0, None
        for module in islice(self._modules, self._module_count):
            free = self._slots - len(self._runner.running)
            if free < 1:
                break
            if not self._is_paused(module):
                taken += await self._take(module, free)
        next(self._modules)  # the next pass begins with another module
        return taken

    async def _take(self, module: str, most: int) -> int:
        queue, now_ms = queue_name(module, self._names), timestamp_ms()
        later, *names = await self._redis.run_script(FIND_DUE, [queue], in_progress_key_prefix, now_ms, most)
        if later:
            self._next_due_ms = min(float(later), self._next_due_ms or float(later))
        if names:
            # A task of its own: if cancelled midway, it would leave jobs marked that nobody processes.
            self._dispatching = asyncio.create_task(self._dispatch(module, names))
            await asyncio.shield(self._dispatching)
        return len(names)

    async def _dispatch(self, module: str, names: Sequence[bytes]) -> None:
        """Claim the row of every ARQ job, or find it obsolete, and delete the ARQ job."""
        self._errors.clear()
        arq_worker = self._arq_worker(module)
        try:
            async with self._claim_lock:  # so that they are claimed together
                with self._mapped_errors():
                    await arq_worker.start_jobs(list(names))
        except Exception:
            await self._drain(arq_worker)
            del self._arq_workers[module]  # it failed midway and has lost count of its slots
            raise
        await self._drain(arq_worker)
        if self._errors:
            with self._mapped_errors():
                raise self._errors[0]

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        """Map errors as `RedisClient` does. A connection that breaks while ARQ watches a key raises WatchError."""
        try:
            with self._redis.mapped_errors():
                yield
        except WatchError as error:
            raise RedisUnavailable(reason="the connection broke") from error

    async def _drain(self, arq_worker: Worker) -> None:
        """Wait for the ARQ jobs in flight and collect their errors in `_errors`."""
        in_flight = list(arq_worker.tasks.values())
        if in_flight:
            await asyncio.wait(in_flight)
        arq_worker.tasks.clear()
        ended = (task.exception() for task in in_flight if not task.cancelled())
        self._errors += [error for error in ended if isinstance(error, Exception)]

    def _arq_worker(self, module: str) -> Worker:
        if module in self._arq_workers:
            return self._arq_workers[module]

        async def on_arq_job(ctx: dict[Any, Any], *args: Any, **kwargs: Any) -> None:  # noqa: ARG001  (ARQ's signature)
            await self._claim_with_others(module, *args)

        self._arq_workers[module] = Worker(
            [func(on_arq_job, name=FUNCTION)],
            queue_name=queue_name(module, self._names),
            redis_pool=ArqClient(self._redis.raw.connection_pool),
            handle_signals=False,
            max_jobs=self._slots,
            job_timeout=None,  # type: ignore[arg-type]  # no timeout: an ARQ job takes as long as its claim
            keep_result=0,
            retry_jobs=False,
            job_serializer=msgspec.json.encode,
            job_deserializer=msgspec.json.decode,
        )
        return self._arq_workers[module]

    async def _claim_with_others(self, module: str, job_id: str) -> None:
        """Claim the row of an ARQ job together with all others waiting for the lock."""
        self._pending_ids.append(job_id)
        async with self._claim_lock:
            if job_id not in self._pending_ids:
                return  # the previous holder of the lock claimed it too
            ids, self._pending_ids = self._pending_ids, []
            try:
                await self._claim(module, ids)
            except Exception as error:  # noqa: BLE001  (raised by the loop: ARQ would only count a failed job)
                self._errors.append(error)

    async def _claim(self, module: str, ids: Sequence[str]) -> None:
        """Claim rows and start their jobs. A row that cannot be claimed is held by another worker or comes up again."""
        queue, seconds = self._runner.queue, self._runner.lease_seconds
        async with self._db.tx(actor=self.owner) as tx:
            jobs = await queue.claim_ids(tx, ids, owner=self.owner, seconds=seconds, module=module)
            refused = len(jobs) < len(ids) and await queue.leases.is_restricted(tx, module)
        if refused:
            self._paused_until[module] = self._db.clock.now() + timedelta(seconds=PAUSE_SECONDS)
        for held in jobs:
            self._claimed += 1
            self._runner.start(held).add_done_callback(lambda _: self._job_ended(module))

    def _job_ended(self, module: str) -> None:
        self._paused_until.pop(module, None)
        self._listener.notify()

    def _is_paused(self, module: str) -> bool:
        until = self._paused_until.get(module)
        return until is not None and self._db.clock.now() < until

    def _poll_seconds(self) -> float:
        """Seconds until the next deferred job is due, one at most: others may enqueue without a wake-up."""
        if self._next_due_ms is None:
            return POLL_SECONDS
        return max(0.0, min(POLL_SECONDS, (self._next_due_ms - timestamp_ms()) / 1000))
