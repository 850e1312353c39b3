"""The writers of this process: renewed together once a second, and stopped when they lost their upload."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from penstock.gateway import store, write
from penstock.gateway.deps import Deps
from penstock.gateway.domain import Upload
from penstock.gateway.errors import UploadTakenOver
from penstock.kernel.errors import Unavailable

log = logging.getLogger(__name__)

RENEW_SECONDS = 1.0  # at most; several times before a writer counts as silent
RENEWALS = 4


@dataclass(eq=False)
class LiveWriter:
    """A request that writes to an upload."""

    upload: Upload
    task: asyncio.Task[Any]
    stored: Callable[[], int]
    received: int = 0  # bytes, of which some may not be stored yet
    renewed: int = 0  # bytes that had been received at the last renewal
    lost: bool = False


class LiveWriters:
    """Keeps the leases of all writers of one process. It runs while there are any."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._writers: set[LiveWriter] = set()
        self._running: asyncio.Task[None] | None = None
        self._every_seconds = min(RENEW_SECONDS, deps.config.takeover_seconds / RENEWALS)

    @asynccontextmanager
    async def writing(self, upload: Upload, stored: Callable[[], int]) -> AsyncIterator[LiveWriter]:
        """Keep the lease while the block runs. If it is lost, the block is cancelled and `UploadTakenOver` raised."""
        task = asyncio.current_task()
        assert task is not None
        writer = LiveWriter(upload=upload, task=task, stored=stored)
        self._writers.add(writer)
        self._deps.metrics.active += 1
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        try:
            yield writer
        except asyncio.CancelledError:
            if not writer.lost:
                raise
            task.uncancel()
            raise UploadTakenOver(upload_id=upload.id) from None
        finally:
            self._writers.discard(writer)
            self._deps.metrics.active -= 1
            if not self._writers:
                await self._stop()

    async def _stop(self) -> None:
        """End the renewal with the last writer: it must not use a database that is being closed."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _run(self) -> None:
        listener = self._deps.db.wakeups.listen([write.CHANNEL])
        try:
            while True:
                await listener.wait(seconds=self._every_seconds)
                try:
                    await self._renew()
                except Unavailable as error:  # leases lapse by themselves; a writer notices at its end
                    log.warning("uploads: cannot renew writers: %s", error)
        finally:
            self._deps.db.wakeups.unlisten(listener)

    async def _renew(self) -> None:
        writers = [writer for writer in self._writers if not writer.lost]
        lost: list[LiveWriter] = []
        async with self._deps.db.tx(actor="gateway") as tx:
            tokens = await store.list_writers(tx, [writer.upload.id for writer in writers])
            for writer in writers:
                if tokens.get(writer.upload.id) != writer.upload.writer:
                    lost.append(writer)
                elif writer.received != writer.renewed:
                    writer.renewed = writer.received
                    if not await write.renew(tx, self._deps, writer.upload, offset=writer.stored()):
                        lost.append(writer)
        for writer in lost:
            log.info("upload %s was taken from its writer", writer.upload.id)
            writer.lost = True
            writer.task.cancel()
