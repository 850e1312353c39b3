"""The gate before a server: all workers together make no more calls in a second than the settings allow.

The promise is about every second, wherever it begins, so there is no burst: tokens come one by one, at a distance at
which one more than the limit does not fit into a second. A tenth of a second is added to that second, because between
a token and the arrival of its call some time passes, and not always the same. A limit that is no whole number is
rounded up for one second, and holds as it is in the long run.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.documents.chat_model import ModelGateShut
from penstock.kernel.clock import Clock
from penstock.kernel.errors import Unavailable
from penstock.kernel.rate_limits import Bucket, RateLimits

log = logging.getLogger(__name__)

SLACK_SECONDS = 0.1
MOST_LATE_TOKENS = 3  # when each comes late, they are late alike, and the distance between them holds
LONGEST_SLEEP_SECONDS = 60.0  # whoever would have to wait longer does better to make room for other work
PATIENCE_SECONDS = 600.0  # at the head of the line, while workers elsewhere take one token after the other


def distance_seconds(calls_per_second: float) -> float:
    """How far apart two calls are."""
    return max(1 / calls_per_second, (1 + SLACK_SECONDS) / math.ceil(calls_per_second))


def fresh_seconds(calls_per_second: float) -> float:
    """How late a call may be and still leave room for as many as may follow within a second."""
    return math.ceil(calls_per_second) * distance_seconds(calls_per_second) - 1


class Gate:
    """The gate before one server, as one process sees it."""

    def __init__(self, limits: RateLimits, clock: Clock, *, key: str, calls_per_second: float) -> None:
        self._limits = limits
        self._clock = clock
        self._key = key
        self._bucket = Bucket(per_second=1 / distance_seconds(calls_per_second), burst=1)
        self._fresh_seconds = fresh_seconds(calls_per_second)
        self._line = asyncio.Lock()  # one of this process asks for tokens, and the others wait in the order they came

    @asynccontextmanager
    async def passing(self, places: asyncio.Semaphore) -> AsyncIterator[None]:
        """One call: it has a token and one of the process's places. `ModelGateShut` when that would take long."""
        async with self._line:
            await self._enter(places)
        try:
            yield
        finally:
            places.release()

    async def cool(self, seconds: float) -> None:
        """Let nobody through for that long, in no process."""
        try:
            await self._limits.cool(self._key, self._bucket, seconds=seconds)
        except Unavailable as error:
            log.warning("others cannot be told that %s wants a pause of %.1f s: %s", self._key, seconds, error)

    async def _enter(self, places: asyncio.Semaphore) -> None:
        """Return with a place and a token. A place is not kept while waiting: other servers may have a token left."""
        waited, late = 0.0, 0
        while True:
            await places.acquire()
            try:
                began = time.perf_counter()
                grant = await self._limits.take(self._key, self._bucket)
            except BaseException:
                places.release()
                raise
            took = time.perf_counter() - began
            if grant.allowed and (took <= self._fresh_seconds or late >= MOST_LATE_TOKENS):
                return
            places.release()
            if grant.allowed:  # it lay about, so its call would come too close to the next one
                late += 1
                continue
            waited += grant.wait_seconds
            if grant.wait_seconds > LONGEST_SLEEP_SECONDS or waited > PATIENCE_SECONDS:
                raise ModelGateShut(wait_seconds=grant.wait_seconds)
            await self._clock.sleep(grant.wait_seconds)
