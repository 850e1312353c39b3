"""Rate limit of a model server: all workers together make at most `calls_per_second` calls in any second.

The limit holds for every second, wherever it begins, so there is no burst: calls are spaced evenly, one token at a
time, at an interval at which one call more than the limit does not fit into a second. A tenth of a second is added,
because the delay between taking a token and the arrival of its call varies. A fractional limit is rounded up for a
single second and holds exactly in the long run.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.documents.chat_model import ModelRateLimited
from penstock.kernel.clock import Clock
from penstock.kernel.errors import Unavailable
from penstock.kernel.rate_limits import Bucket, RateLimits

log = logging.getLogger(__name__)

SLACK_SECONDS = 0.1
MAX_STALE_TOKENS = 3  # if every token comes late, all are equally late and the interval between them holds
MAX_SLEEP_SECONDS = 60.0  # for a longer wait, raise and let the worker do other work
MAX_WAIT_SECONDS = 600.0  # in total, while other workers take one token after the other


def interval_seconds(calls_per_second: float) -> float:
    """The interval between two calls."""
    return max(1 / calls_per_second, (1 + SLACK_SECONDS) / math.ceil(calls_per_second))


def max_token_age_seconds(calls_per_second: float) -> float:
    """How late a call may be without more calls than allowed following within a second."""
    return math.ceil(calls_per_second) * interval_seconds(calls_per_second) - 1


class CallRateLimiter:
    """The rate limiter of one server in one process."""

    def __init__(self, limits: RateLimits, clock: Clock, *, key: str, calls_per_second: float) -> None:
        self._limits = limits
        self._clock = clock
        self._key = key
        self._bucket = Bucket(per_second=1 / interval_seconds(calls_per_second), burst=1)
        self._max_token_age_seconds = max_token_age_seconds(calls_per_second)
        self._queue = asyncio.Lock()  # one waiter of this process asks for tokens; the others queue in order

    @asynccontextmanager
    async def acquire(self, slots: asyncio.Semaphore) -> AsyncIterator[None]:
        """Hold a token and a concurrency slot for one call. Raises `ModelRateLimited` if that would take long."""
        async with self._queue:
            await self._wait_for_token(slots)
        try:
            yield
        finally:
            slots.release()

    async def pause(self, seconds: float) -> None:
        """Issue no token to any process for that long (the Retry-After of a busy server)."""
        try:
            await self._limits.cool(self._key, self._bucket, seconds=seconds)
        except Unavailable as error:
            log.warning("cannot pause %s for %.1f s in other processes: %s", self._key, seconds, error)

    async def _wait_for_token(self, slots: asyncio.Semaphore) -> None:
        """Return with a slot and a token. A slot is not held while waiting: other servers may have a token left."""
        waited, late = 0.0, 0
        while True:
            await slots.acquire()
            try:
                began = time.perf_counter()
                grant = await self._limits.take(self._key, self._bucket)
            except BaseException:
                slots.release()
                raise
            took = time.perf_counter() - began
            if grant.allowed and (took <= self._max_token_age_seconds or late >= MAX_STALE_TOKENS):
                return
            slots.release()
            if grant.allowed:  # a stale token: its call would come too close to the next one
                late += 1
                continue
            waited += grant.wait_seconds
            if grant.wait_seconds > MAX_SLEEP_SECONDS or waited > MAX_WAIT_SECONDS:
                raise ModelRateLimited(wait_seconds=grant.wait_seconds)
            await self._clock.sleep(grant.wait_seconds)
