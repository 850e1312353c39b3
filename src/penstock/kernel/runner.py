"""The runner: executes a claimed job and records how it ended.

The runner renews the lease, runs the handler with no transaction open and within its timeout, and settles the job:
done, retried, put off, failed or released. A handler gets the job and returns a `Settle` or None; the settle runs in
the transaction that marks the job done. If the handler raises, the error decides: put off on an internal outage,
retried with backoff, or failed for good. If the lease is lost, the handler is cancelled, and anything it still tries to
settle is refused.

Some outcomes cost no attempt: an unavailable or full dependency (database, Redis, object store), after which the job is
rescheduled; a shutdown, which releases unfinished jobs; and a job kind that only a newer version knows. If the disk for
temporary files of this process is full, the job is available to others at once, and this process claims no jobs of its
module for a while.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import TypedDict

from penstock.kernel.database_errors import DatabaseBusy, DatabaseTimedOut, DatabaseUnavailable
from penstock.kernel.db import Db, Tx
from penstock.kernel.errors import DiskFull, FolderFull, PenstockError, Unavailable, error_text, folder_full_from
from penstock.kernel.lease_renewer import LeasedTasks
from penstock.kernel.queue import Job, JobQueue
from penstock.kernel.retry import OUTAGE_BACKOFF, Backoff, wait_before_retry, worth_retrying

log = logging.getLogger(__name__)

Settle = Callable[[Tx], Awaitable[None]]
JobHandler = Callable[[Job], Awaitable[Settle | None]]
JobEnded = Callable[[Job, str | None], None]  # called after the commit that ends a job, with the error of a failed one

RETRIES = Backoff(first_seconds=1, max_seconds=300)
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
        self._retries = retries
        self.paused_until: dict[str, datetime] = {}  # by module: its jobs are left to others, for this disk is full
        self._tasks = LeasedTasks(db, queue.leases, lease_seconds=lease_seconds, grace_seconds=grace_seconds)
        self.running = self._tasks.running
        self.on_ended: JobEnded | None = None

    def renewing_leases(self) -> AbstractAsyncContextManager[None]:
        """Renew leases during the block; then wait for jobs within the grace period and release the others."""
        return self._tasks.renewing()

    def start(self, held: Job) -> asyncio.Task[None]:
        """Start a job that was just claimed."""
        return self._tasks.start(
            held.id, held.token or "", partial(self._run, held), release=partial(self._release, held)
        )

    async def _run(self, held: Job) -> None:
        if held.kind not in self.handlers:
            log.warning("no handler for jobs of kind %s here; releasing %s", held.kind, held.id)
            await self._release(held, wait_seconds=UNKNOWN_KIND_WAIT_SECONDS)
            return
        try:
            settle = await self._handle(held)
            await self._settle(held, partial(self._settle_success, held, settle))
        except Exception as error:  # noqa: BLE001  (any error of a handler or its settle decides how the job ends)
            log.warning("job %s (%s) attempt %d: %r", held.id, held.kind, held.attempts, error)
            if isinstance(error, FolderFull):
                self._pause(held.module)
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
        except OSError as error:
            if (full := folder_full_from(error)) is None:
                raise
            raise full from error

    def _pause(self, module: str) -> None:
        log.warning("the disk for temporary files is full: no %s jobs for %d s", module or "more", OUTAGE_WAIT_SECONDS)
        self.paused_until[module] = self.db.clock.now() + timedelta(seconds=OUTAGE_WAIT_SECONDS)

    async def _settle_success(self, held: Job, settle: Settle | None, tx: Tx) -> None:
        await self.queue.finish(tx, held)  # first, so that a lost lease is noticed before anything is written
        if settle is not None:
            await settle(tx)
        self._note_ended(tx, held, None)

    async def _settle_failure(self, held: Job, error: Exception, tx: Tx) -> None:
        code = error.code if isinstance(error, PenstockError) else "INTERNAL"
        text = error_text(error)
        if isinstance(error, PenstockError) and error.internal_outage:
            put_off_seconds = 0 if isinstance(error, FolderFull) else OUTAGE_WAIT_SECONDS
            await self.queue.put_off(tx, held, wait_seconds=put_off_seconds, code=code, error=text)
        elif worth_retrying(error) and held.attempts < held.max_attempts:
            backoff = self._retries.get(held.kind, RETRIES)
            wait = wait_before_retry(error, attempt=held.attempts, backoff=backoff)
            await self.queue.retry(tx, held, wait_seconds=wait, code=code, error=text)
        else:
            await self.queue.fail(tx, held, code=code, error=text)
            self._note_ended(tx, held, text)

    def _note_ended(self, tx: Tx, held: Job, error: str | None) -> None:
        if self.on_ended is not None:
            tx.after_commit.append(partial(self.on_ended, held, error))

    async def _settle(self, held: Job, settle: Settle) -> None:
        """Settle the job, and retry while the database is down. If the lease expires meanwhile, it is refused."""
        for attempt in range(1, SETTLE_ATTEMPTS):
            try:
                return await self._settle_once(settle)
            except (DatabaseUnavailable, DatabaseTimedOut, DatabaseBusy, DiskFull) as error:
                log.warning("job %s is not settled yet: %s", held.id, error)
                await self.db.clock.sleep(OUTAGE_BACKOFF.wait_seconds(attempt))
        return await self._settle_once(settle)

    async def _settle_once(self, settle: Settle) -> None:
        async with self.db.tx(actor=self.owner) as tx:
            await settle(tx)

    async def _release(self, held: Job, *, wait_seconds: float = 0) -> None:
        """Release once: a stop does not wait for a database that is down. The lease then expires by itself."""
        try:
            async with self.db.tx(actor=self.owner) as tx:
                await self.queue.release(tx, held, wait_seconds=wait_seconds)
        except Unavailable as error:
            log.warning("job %s could not be released: %s", held.id, error)


async def _guarded(handler: JobHandler, held: Job) -> Settle | None:
    """Turn unusual exits (a CancelledError raised by the handler itself, SystemExit, a panic in native code) into
    failures. Taken for a stop of the process, the job would be released and claimed again forever."""
    try:
        return await handler(held)
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise RuntimeError(f"the handler ended with {error!r}") from error
