"""Racers for one key, in one process, take turns.

SeaweedFS lets those who want a key at the same time wait in line, for about a second each. Who comes alone is answered
at once, so we send one of them at a time; how many processes we are is then all that can make a line.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from penstock.kernel.blobs import BlobsUnavailable


class Turns:
    """One lock per key that somebody wants now."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        """Run the block when nobody else does for this key; the wait is bounded."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with asyncio.timeout(self._seconds):
                await lock.acquire()
        except TimeoutError as error:
            raise BlobsUnavailable(reason="it did not answer in time") from error
        try:
            yield
        finally:
            lock.release()
