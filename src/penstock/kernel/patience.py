"""Patience with what is away: the one loop of everything that does something by itself."""

import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeVar

from penstock.kernel.clock import Clock
from penstock.kernel.errors import Unavailable
from penstock.kernel.retry import Backoff

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE = Backoff(first_seconds=0.2, most_seconds=5)  # with a part of the house that is away


async def look_for_ever(
    clock: Clock, look: Callable[[], Awaitable[int]], rest: Callable[[int], Awaitable[object]], *, away: str
) -> NoReturn:
    """Look, rest by how much was found, and look again, until cancelled. `away` says what does not happen meanwhile."""
    while True:
        await rest(await until_there(clock, look, away=away))


async def until_there(clock: Clock, do: Callable[[], Awaitable[T]], *, away: str) -> T:
    """Do it, again and again while what it needs is away; returns what it returned."""
    failures = 0
    while True:
        try:
            return await do()
        except Unavailable as error:
            failures += 1
            log.warning("%s: %s", away, error)
            await clock.sleep(PATIENCE.wait_seconds(failures))
