"""The lease renewer: extends leases while their work runs, and cancels the work when a lease is lost."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from penstock.kernel.db import Db
from penstock.kernel.leases import Leases

log = logging.getLogger(__name__)

RENEWALS_PER_LEASE = 3  # two renewals may fail before the lease expires


class LeaseRenewer:
    """Renews the registered leases of one table. `run` must be running."""

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
