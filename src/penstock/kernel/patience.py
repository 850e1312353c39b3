"""Patience with what is away: the one loop of everything that looks for work by itself."""

import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from penstock.kernel.clock import Clock
from penstock.kernel.errors import Unavailable
from penstock.kernel.retry import Backoff

log = logging.getLogger(__name__)

PATIENCE = Backoff(first_seconds=0.2, most_seconds=5)  # with a part of the house that is away


async def look_for_ever(
    clock: Clock, look: Callable[[], Awaitable[int]], rest: Callable[[int], Awaitable[object]], *, away: str
) -> NoReturn:
    """Look, rest by how much was found, and look again, until cancelled. `away` says what does not happen meanwhile."""
    failures = 0
    while True:
        try:
            found = await look()
        except Unavailable as error:
            failures += 1
            log.warning("%s: %s", away, error)
            await clock.sleep(PATIENCE.wait_seconds(failures))
            continue
        failures = 0
        await rest(found)
