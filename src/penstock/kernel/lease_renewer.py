"""Lease renewer: leases are renewed while the work runs, and the work is cancelled when its lease is lost.

It serves any table with leases: the runner starts jobs here, other modules the rows of their own tables.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from penstock.kernel.db import Db
from penstock.kernel.leases import LeaseLost, Leases

log = logging.getLogger(__name__)

RENEWALS_PER_LEASE = 3  # two renewals may fail before the lease expires
RELEASE_SECONDS = 5  # for cancelled work to release its row

Work = Callable[[], Awaitable[None]]


class LeaseRenewer:
    """Extends the registered leases of one table, three times per lease length. `run` must be running."""

    def __init__(self, db: Db, leases: Leases, *, lease_seconds: float) -> None:
        self._db = db
        self._leases = leases
        self._lease_seconds = lease_seconds
        self._tasks: dict[tuple[str, str], asyncio.Task[Any]] = {}
        self._lost: set[tuple[str, str]] = set()

    @asynccontextmanager
    async def renewing(self, row_id: str, token: str) -> AsyncIterator[None]:
        """Renew a lease while the block runs. If the lease is lost, the block is cancelled: see `was_lost`."""
        task = asyncio.current_task()
        assert task is not None, "leases are renewed for a task"
        self._tasks[row_id, token] = task
        try:
            yield
        finally:
            self._tasks.pop((row_id, token), None)

    def was_lost(self, row_id: str, token: str) -> bool:
        """Whether this lease was lost; the answer is forgotten when read."""
        try:
            self._lost.remove((row_id, token))
        except KeyError:
            return False
        return True

    async def run(self) -> None:
        """Renew all leases periodically, until cancelled."""
        while True:
            await self._db.clock.sleep(self._lease_seconds / RENEWALS_PER_LEASE)
            try:
                await self.renew_all()
            except Exception as error:  # noqa: BLE001  (whatever fails, the next renewal must be tried)
                log.warning("lease renewer: cannot renew leases on %s: %r", self._leases.table.name, error)

    async def renew_all(self) -> None:
        """Renew all leases once, and cancel the work of those that are lost."""
        by_token: defaultdict[str, list[str]] = defaultdict(list)
        for row_id, token in self._tasks:
            by_token[token].append(row_id)
        for token, ids in by_token.items():
            async with self._db.autocommit() as tx:
                renewed = await self._leases.renew(tx, ids, token, seconds=self._lease_seconds)
            for row_id in set(ids) - renewed:
                self._cancel(row_id, token)

    def _cancel(self, row_id: str, token: str) -> None:
        if task := self._tasks.pop((row_id, token), None):  # missing if it settled meanwhile
            self._lost.add((row_id, token))
            # Nobody calls `was_lost` when the work ignores the cancellation; then it is forgotten when the task ends.
            task.add_done_callback(lambda _: self._lost.discard((row_id, token)))
            log.warning("lost the lease on %s %s; cancelling its work", self._leases.table.name, row_id)
            task.cancel()


class LeasedTasks:
    """The work of one process on leased rows of one table, each row in its own asyncio task."""

    def __init__(self, db: Db, leases: Leases, *, lease_seconds: float, grace_seconds: float) -> None:
        self.running: set[asyncio.Task[None]] = set()
        self._grace_seconds = grace_seconds
        self._renewer = LeaseRenewer(db, leases, lease_seconds=lease_seconds)

    @asynccontextmanager
    async def renewing(self) -> AsyncIterator[None]:
        """Renew leases during the block; then wait for the work within the grace period and release the rest."""
        renewing = asyncio.create_task(self._renewer.run())
        try:
            yield
        finally:
            await self._drain()
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    def start(self, row_id: str, token: str, work: Work, *, release: Work) -> asyncio.Task[None]:
        """Start the work on a row that was just claimed; `release` is called if a shutdown interrupts it."""
        task = asyncio.create_task(self._run(row_id, token, work, release), name=row_id)
        self.running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def _run(self, row_id: str, token: str, work: Work, release: Work) -> None:
        try:
            async with self._renewer.renewing(row_id, token):
                await work()
        except asyncio.CancelledError:
            if self._renewer.was_lost(row_id, token):
                return
            await release()
            raise
        except LeaseLost as error:
            log.warning("%s", error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.running.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("%s could not be settled: %s", task.get_name(), error)

    async def _drain(self) -> None:
        if not self.running:
            return
        _, late = await asyncio.wait(self.running, timeout=self._grace_seconds)
        for task in late:
            task.cancel()
        if late:  # work that ignores the cancellation loses its lease soon
            await asyncio.wait(late, timeout=RELEASE_SECONDS)
