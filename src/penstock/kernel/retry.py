"""Retries: how long to wait, which errors are worth another attempt, and the loops that wait out an outage."""

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from penstock.kernel.clock import Clock
from penstock.kernel.errors import PenstockError, TooMany, Unavailable

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Exponential backoff: delays double from `first_seconds` up to `max_seconds`, with jitter."""

    first_seconds: float = 1.0
    max_seconds: float = 300.0
    jitter: float = 0.2  # 20 % either way, so that callers that failed together do not retry together

    def wait_seconds(self, attempt: int, *, chance: float | None = None) -> float:
        """How long to wait after that many failed attempts (the first is 1)."""
        doublings = min(max(attempt, 1) - 1, 32)  # the cap applies long before 2**32, and floats stay finite
        middle = min(self.max_seconds, self.first_seconds * 2.0**doublings)
        chance = random.random() if chance is None else chance  # noqa: S311  (spread, not secrecy)
        return max(0.0, middle * (1 + self.jitter * (2 * chance - 1)))


OUTAGE_BACKOFF = Backoff(first_seconds=0.2, max_seconds=5)  # while the database, Redis or the blob store is down


def worth_retrying(error: BaseException) -> bool:
    """Whether the same call may succeed later. Unknown errors are bugs or outages, so they are retried."""
    return error.retryable if isinstance(error, PenstockError) else True


def wait_before_retry(error: BaseException, *, attempt: int, backoff: Backoff) -> float:
    """The wait before the next attempt, at least as long as a `TooMany` asks for."""
    wait = backoff.wait_seconds(attempt)
    if not isinstance(error, TooMany):
        return wait
    spread = random.random() * backoff.jitter  # noqa: S311  (never earlier than asked, and not all at once)
    return max(wait, error.wait_seconds * (1 + spread))


async def poll_forever(
    clock: Clock, poll: Callable[[], Awaitable[int]], wait: Callable[[int], Awaitable[object]], *, warning: str
) -> NoReturn:
    """Poll, wait depending on how many items were found, and poll again, until cancelled."""
    while True:
        await wait(await retry_while_unavailable(clock, poll, warning=warning))


async def retry_while_unavailable(clock: Clock, call: Callable[[], Awaitable[T]], *, warning: str) -> T:
    """Retry a call with backoff while it raises `Unavailable`, and log `warning` for each failure."""
    failures = 0
    while True:
        try:
            return await call()
        except Unavailable as error:
            failures += 1
            log.warning("%s: %s", warning, error)
            await clock.sleep(OUTAGE_BACKOFF.wait_seconds(failures))
