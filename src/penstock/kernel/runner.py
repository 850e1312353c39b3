"""The runner: executes a claimed job and records how it ended.

The runner renews the lease, runs the handler within its timeout, and settles the job: done, retried, put off, failed or
handed back (released). A handler gets the job and returns a `Settle` or None; the settle runs in the transaction that
marks the job done. If the handler raises, the error decides: put off on an internal outage, retried with backoff, or
failed for good. If the lease is lost, the handler is cancelled, and anything it still tries to settle is refused.

Some outcomes cost no attempt: an unavailable dependency (database, Redis, object store), after which the job is
rescheduled; a shutdown, which releases unfinished jobs; and a job kind that only a newer version knows.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import TypedDict

from penstock.kernel.database_errors import DatabaseBusy, DatabaseUnavailable
from penstock.kernel.db import Db, Tx
from penstock.kernel.errors import PenstockError, Unavailable, error_text
from penstock.kernel.lease_renewer import LeaseRenewer
from penstock.kernel.leases import LeaseLost
from penstock.kernel.queue import Job, JobQueue
from penstock.kernel.retry import OUTAGE_BACKOFF, Backoff, wait_before_retry, worth_retrying

log = logging.getLogger(__name__)

Settle = Callable[[Tx], Awaitable[None]]
JobHandler = Callable[[Job], Awaitable[Settle | None]]

RETRIES = Backoff(first_seconds=1, max_seconds=300)
HAND_BACK_SECONDS = 5
SETTLE_ATTEMPTS = 60  # about five minutes; a settle that never succeeds must free its slot
UNKNOWN_KIND_WAIT_SECONDS = 5  # leaves a job of another version's kind to that version
OUTAGE_WAIT_SECONDS = 10  # time for a blob store or Redis to restart; a full queue of jobs does not spin


class JobTimedOut(Unavailable):
    """A job exceeded its timeout."""

    code = "JOB_TIMED_OUT"
    message = "The job did not finish within {seconds:g} s."
    message_zh = "任务未在 {seconds:g} 秒内结束。"
    hint = "Give the job a longer timeout, or split it into smaller jobs."
    hint_zh = "请为任务设置更长的超时，或把它拆成更小的任务。"


class RunnerOptions(TypedDict, total=False):
    """Options of a runner; `retries` overrides the backoff for some kinds of jobs."""

    lease_seconds: float
    grace_seconds: float
    retries: Mapping[str, Backoff]


class Runner:
    """Runs the claimed jobs of one process, each in its own task."""

    def __init__(
        self,
        db: Db,
        queue: JobQueue,
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
        self._renewer = LeaseRenewer(db, queue.leases, lease_seconds=lease_seconds)

    @asynccontextmanager
    async def renewing_leases(self) -> AsyncIterator[None]:
        """Renew leases during the block; then wait for jobs within the grace period and hand back the others."""
        renewing = asyncio.create_task(self._renewer.run())
        try:
            yield
        finally:
            await self._drain()
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    def start(self, held: Job) -> asyncio.Task[None]:
        """Start a job that was just claimed."""
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
            log.warning("no handler for jobs of kind %s here; handing back %s", held.kind, held.id)
            await self._hand_back(held, wait_seconds=UNKNOWN_KIND_WAIT_SECONDS)
            return
        try:
            async with self._renewer.renewing(held.id, token):
                await self._handle_and_settle(held)
        except asyncio.CancelledError:
            if self._renewer.was_lost(held.id, token):
                return
            await self._hand_back(held)
            raise
        except LeaseLost as error:
            log.warning("%s", error)

    async def _handle_and_settle(self, held: Job) -> None:
        try:
            settle = await self._handle(held)
            await self._settle(held, partial(self._settle_success, held, settle))
        except Exception as error:  # noqa: BLE001  (any error of a handler or its settle decides how the job ends)
            log.warning("job %s (%s) attempt %d: %r", held.id, held.kind, held.attempts, error)
            await self._settle(held, partial(self._settle_failure, held, error))

    async def _handle(self, held: Job) -> Settle | None:
        limit = asyncio.timeout(held.timeout_seconds)
        try:
            async with limit:
                return await _guarded(self.handlers[held.kind], held)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise JobTimedOut(seconds=held.timeout_seconds) from error

    async def _settle_success(self, held: Job, settle: Settle | None, tx: Tx) -> None:
        await self.queue.finish(tx, held)  # first, so that a lost lease is noticed before anything is written
        if settle is not None:
            await settle(tx)

    async def _settle_failure(self, held: Job, error: Exception, tx: Tx) -> None:
        code = error.code if isinstance(error, PenstockError) else "INTERNAL"
        text = error_text(error)
        if isinstance(error, PenstockError) and error.internal_outage:
            await self.queue.put_off(tx, held, wait_seconds=OUTAGE_WAIT_SECONDS, code=code, error=text)
        elif worth_retrying(error) and held.attempts < held.max_attempts:
            backoff = self._retries.get(held.kind, RETRIES)
            wait = wait_before_retry(error, attempt=held.attempts, backoff=backoff)
            await self.queue.retry(tx, held, wait_seconds=wait, code=code, error=text)
        else:
            await self.queue.fail(tx, held, code=code, error=text)

    async def _settle(self, held: Job, settle: Settle) -> None:
        """Settle the job, and retry while the database is down. If the lease expires meanwhile, it is refused."""
        for attempt in range(1, SETTLE_ATTEMPTS):
            try:
                return await self._settle_once(settle)
            except (DatabaseUnavailable, DatabaseBusy) as error:
                log.warning("job %s is not settled yet: %s", held.id, error)
                await self.db.clock.sleep(OUTAGE_BACKOFF.wait_seconds(attempt))
        return await self._settle_once(settle)

    async def _settle_once(self, settle: Settle) -> None:
        async with self.db.tx(actor=self.owner) as tx:
            await settle(tx)

    async def _hand_back(self, held: Job, *, wait_seconds: float = 0) -> None:
        """Hand back once: a stop does not wait for a database that is down. The lease then expires by itself."""
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
        if late:  # a handler that ignores the cancellation loses its lease soon
            await asyncio.wait(late, timeout=HAND_BACK_SECONDS)


async def _guarded(handler: JobHandler, held: Job) -> Settle | None:
    """Turn unusual exits (a CancelledError raised by the handler itself, SystemExit, a panic in native code) into
    failures. Taken for a stop of the process, the job would be handed back and claimed again forever."""
    try:
        return await handler(held)
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise RuntimeError(f"the handler ended with {error!r}") from error
