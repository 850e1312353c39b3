"""Keeps leases alive while their work goes on, and stops the work when a lease is lost all the same."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from penstock.kernel.db import Db
from penstock.kernel.leases import Leases

log = logging.getLogger(__name__)

RENEWALS_PER_LEASE = 3  # two renewals may fail before the lease runs out


class LeaseRenewer:
    """Renews what is entered in it, for one table. `run` must be running."""

    def __init__(self, db: Db, leases: Leases, *, lease_seconds: float) -> None:
        self._db = db
        self._leases = leases
        self._lease_seconds = lease_seconds
        self._kept: dict[tuple[str, str], asyncio.Task[Any]] = {}
        self._lost: set[tuple[str, str]] = set()

    @asynccontextmanager
    async def keeping(self, row_id: str, token: str) -> AsyncIterator[None]:
        """Renew this lease while the block runs. The block is cancelled when the lease is lost: see `was_lost`."""
        task = asyncio.current_task()
        assert task is not None, "leases are kept for a task"
        self._kept[row_id, token] = task
        try:
            yield
        finally:
            self._kept.pop((row_id, token), None)

    def was_lost(self, row_id: str, token: str) -> bool:
        """Whether this lease was found lost; asking forgets it."""
        try:
            self._lost.remove((row_id, token))
        except KeyError:
            return False
        return True

    async def run(self) -> None:
        """Renew, again and again, until cancelled."""
        while True:
            await self._db.clock.sleep(self._lease_seconds / RENEWALS_PER_LEASE)
            try:
                await self.renew_all()
            except Exception as error:  # noqa: BLE001  (whatever it is, the next renewal must be tried)
                log.warning("leases on %s were not renewed this time: %r", self._leases.table.name, error)

    async def renew_all(self) -> None:
        """Renew everything once, and cancel the work on what is lost."""
        by_token: defaultdict[str, list[str]] = defaultdict(list)
        for row_id, token in self._kept:
            by_token[token].append(row_id)
        for token, ids in by_token.items():
            async with self._db.once() as tx:
                renewed = await self._leases.renew(tx, ids, token, seconds=self._lease_seconds)
            for row_id in set(ids) - renewed:
                self._stop(row_id, token)

    def _stop(self, row_id: str, token: str) -> None:
        if task := self._kept.pop((row_id, token), None):  # gone: it settled while we renewed
            self._lost.add((row_id, token))
            # Nobody asks `was_lost` when the work does not let itself be stopped; then its end forgets it.
            task.add_done_callback(lambda _: self._lost.discard((row_id, token)))
            log.warning("the lease on %s %s was lost; its work stops", self._leases.table.name, row_id)
            task.cancel()
