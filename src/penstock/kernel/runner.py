"""The runner: what happens to one job that is held, whoever claimed it.

Its lease is kept, its handler runs within its time, and the end is written down: done, again later, put off, failed or
handed back. A handler gets the job and returns a `Settle` (or nothing to add); the settle runs in the transaction that
marks the job done. When the handler raises, the error decides: a part of our own house is away, again later with
backoff, or failed for good. A lease that is lost stops its handler, and whatever it still tries to settle is refused.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import TypedDict

from penstock.kernel.db import Db, Tx
from penstock.kernel.errors import PenstockError, Unavailable, in_words
from penstock.kernel.faults import DatabaseAway, DatabaseBusy
from penstock.kernel.lease_renewer import LeaseRenewer
from penstock.kernel.leases import LeaseLost
from penstock.kernel.patience import PATIENCE
from penstock.kernel.queue import Job, Queue
from penstock.kernel.retry import Backoff, wait_before_retry, worth_retrying

log = logging.getLogger(__name__)

Settle = Callable[[Tx], Awaitable[None]]
JobHandler = Callable[[Job], Awaitable[Settle | None]]

RETRIES = Backoff(first_seconds=1, most_seconds=300)
HAND_BACK_SECONDS = 5
SETTLE_ATTEMPTS = 60  # some five minutes; a settle that never gets through, whatever the reason, must free its slot
UNKNOWN_WAIT_SECONDS = 5  # leave a job that only another version knows to that version
OURS_WAIT_SECONDS = 10  # a store or a Redis that restarts is back by then, and a queue full of jobs does not spin


class JobTimedOut(Unavailable):
    """A job took longer than it may."""

    code = "JOB_TIMED_OUT"
    message = "The job did not end within {seconds:g} s."
    message_zh = "任务未在 {seconds:g} 秒内结束。"
    hint = "Give the job more time, or cut it into smaller ones."
    hint_zh = "请给任务更多时间，或把它拆成更小的任务。"


class RunnerOptions(TypedDict, total=False):
    """What may be said to a runner; `retries` are waits of their own for some kinds of jobs."""

    lease_seconds: float
    grace_seconds: float
    retries: Mapping[str, Backoff]


class Runner:
    """Runs the held jobs of one process, each in a task of its own."""

    def __init__(
        self,
        db: Db,
        queue: Queue,
        handlers: Mapping[str, JobHandler],
        *,
        owner: str,
        lease_seconds: float = 60,
        grace_seconds: float = 5,
        retries: Mapping[str, Backoff] = MappingProxyType({}),
    ) -> None:
        self.db = db
        self.queue = queue
        self.handlers = handlers
        self.owner = owner
        self.lease_seconds = lease_seconds
        self.running: set[asyncio.Task[None]] = set()
        self._grace_seconds = grace_seconds
        self._retries = retries
        self._keeper = LeaseRenewer(db, queue.leases, lease_seconds=lease_seconds)

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[None]:
        """Keep leases during the block; afterwards let jobs end within the grace, and hand the others back."""
        keeping = asyncio.create_task(self._keeper.run())
        try:
            yield
        finally:
            await self._drain()
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    def start(self, held: Job) -> asyncio.Task[None]:
        """Begin with a job that was just claimed."""
        task = asyncio.create_task(self._run(held), name=held.id)
        self.running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.running.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("job %s could not be settled: %s", task.get_name(), error)

    async def _run(self, held: Job) -> None:
        token = held.token or ""
        if held.kind not in self.handlers:
            log.warning("no handler is known here for jobs of the kind %s; %s is left to others", held.kind, held.id)
            await self._hand_back(held, wait_seconds=UNKNOWN_WAIT_SECONDS)
            return
        try:
            async with self._keeper.keeping(held.id, token):
                await self._work_and_settle(held)
        except asyncio.CancelledError:
            if self._keeper.was_lost(held.id, token):
                return
            await self._hand_back(held)
            raise
        except LeaseLost as error:
            log.warning("%s", error)

    async def _work_and_settle(self, held: Job) -> None:
        try:
            settle = await self._work(held)
            await self._settle(held, partial(self._settle_success, held, settle))
        except Exception as error:  # noqa: BLE001  (whatever a handler or its settle raises decides the job's fate)
            log.warning("job %s (%s) attempt %d: %r", held.id, held.kind, held.attempts, error)
            await self._settle(held, partial(self._settle_failure, held, error))

    async def _work(self, held: Job) -> Settle | None:
        limit = asyncio.timeout(held.timeout_seconds)
        try:
            async with limit:
                return await _guarded(self.handlers[held.kind], held)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise JobTimedOut(seconds=held.timeout_seconds) from error

    async def _settle_success(self, held: Job, settle: Settle | None, tx: Tx) -> None:
        await self.queue.finish(tx, held)  # first, so that a lost lease is found before anything is written
        if settle is not None:
            await settle(tx)

    async def _settle_failure(self, held: Job, error: Exception, tx: Tx) -> None:
        code = error.code if isinstance(error, PenstockError) else "INTERNAL"
        text = in_words(error)
        if isinstance(error, PenstockError) and error.ours:
            await self.queue.put_off(tx, held, wait_seconds=OURS_WAIT_SECONDS, code=code, error=text)
        elif worth_retrying(error) and held.attempts < held.most_attempts:
            backoff = self._retries.get(held.kind, RETRIES)
            wait = wait_before_retry(error, attempt=held.attempts, backoff=backoff)
            await self.queue.retry(tx, held, wait_seconds=wait, code=code, error=text)
        else:
            await self.queue.fail(tx, held, code=code, error=text)

    async def _settle(self, held: Job, settle: Settle) -> None:
        """Write the end down, patiently while the database is away. If the lease runs out meanwhile, it is refused."""
        for attempt in range(1, SETTLE_ATTEMPTS):
            try:
                return await self._settle_once(settle)
            except (DatabaseAway, DatabaseBusy) as error:
                log.warning("job %s is not settled yet: %s", held.id, error)
                await self.db.clock.sleep(PATIENCE.wait_seconds(attempt))
        return await self._settle_once(settle)

    async def _settle_once(self, settle: Settle) -> None:
        async with self.db.tx(actor=self.owner) as tx:
            await settle(tx)

    async def _hand_back(self, held: Job, *, wait_seconds: float = 0) -> None:
        """Tried once: a stop does not wait for a database that is away. The lease then runs out by itself."""
        try:
            async with self.db.tx(actor=self.owner) as tx:
                await self.queue.hand_back(tx, held, wait_seconds=wait_seconds)
        except Unavailable as error:
            log.warning("job %s could not be handed back: %s", held.id, error)

    async def _drain(self) -> None:
        if not self.running:
            return
        _, late = await asyncio.wait(self.running, timeout=self._grace_seconds)
        for task in late:
            task.cancel()
        if late:  # a handler that does not let itself be stopped loses its lease soon enough
            await asyncio.wait(late, timeout=HAND_BACK_SECONDS)


async def _guarded(handler: JobHandler, held: Job) -> Settle | None:
    """Odd endings (a CancelledError of the handler's own, SystemExit, a panic in native code) are failures like any
    other, not orders to us: taken as a stop, the job would be handed back and taken up again for ever."""
    try:
        return await handler(held)
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise RuntimeError(f"the handler ended with {error!r}") from error
