"""How long to wait for a job, and how to let others know that somebody waits."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from penstock.adapters.mineru.errors import MineruStalled
from penstock.kernel.clock import Clock

T = TypeVar("T")

Alive = Callable[[], Awaitable[None]]  # a sign of life; raises when the work is not wanted any more


class Patience:
    """Ends when nothing has changed for too long. Trouble on the way is no change."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._sign: object = None
        self._since = clock.now()

    def see(self, sign: object) -> None:
        """What was seen now; whatever differs from the last time is progress."""
        if sign != self._sign:
            self._sign, self._since = sign, self._clock.now()

    def check(self, job: str, reason: str) -> None:
        """`MineruStalled` when it is at its end."""
        if self._clock.now() - self._since >= timedelta(seconds=self._seconds):
            raise MineruStalled(job=job, seconds=self._seconds, reason=reason)


async def while_alive(work: Coroutine[Any, Any, T], alive: Alive, clock: Clock, seconds: float) -> T:
    """What the work returns; meanwhile a sign of life is given every so many seconds, and may end it."""
    working = asyncio.create_task(work)
    try:
        while not working.done():
            await _pause(working, clock, seconds)
            if not working.done():
                await alive()
        return working.result()
    finally:
        working.cancel()
        await asyncio.wait({working})
        if not working.cancelled():
            working.exception()  # looked at, or asyncio complains that nobody did


async def _pause(working: asyncio.Task[Any], clock: Clock, seconds: float) -> None:
    pausing = asyncio.create_task(clock.sleep(seconds))
    try:
        await asyncio.wait({working, pausing}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        pausing.cancel()
