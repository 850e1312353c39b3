"""Heartbeats while waiting for MinerU, and detection of stalled jobs."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from penstock.adapters.mineru.errors import MineruStalled
from penstock.kernel.clock import Clock

T = TypeVar("T")

Heartbeat = Callable[[], Awaitable[None]]  # raises if the run was cancelled


class StallDetector:
    """Detects that nothing has changed for too long. Errors do not count as a change."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._sign: object = None
        self._since = clock.now()

    def see(self, fingerprint: object) -> None:
        """Record what was seen; any difference to the last time is progress."""
        if fingerprint != self._sign:
            self._sign, self._since = fingerprint, self._clock.now()

    def check(self, job: str, reason: str) -> None:
        """Raise `MineruStalled` after `seconds` without progress."""
        if self._clock.now() - self._since >= timedelta(seconds=self._seconds):
            raise MineruStalled(job=job, seconds=self._seconds, reason=reason)


async def with_heartbeat(work: Coroutine[Any, Any, T], heartbeat: Heartbeat, clock: Clock, seconds: float) -> T:
    """Await `work` and call `heartbeat` every `seconds` meanwhile, which may raise and so cancel the work."""
    working = asyncio.create_task(work)
    try:
        while not working.done():
            await _pause(working, clock, seconds)
            if not working.done():
                await heartbeat()
        return working.result()
    finally:
        working.cancel()
        await asyncio.wait({working})
        if not working.cancelled():
            working.exception()  # retrieved, or asyncio logs that it never was


async def _pause(working: asyncio.Task[Any], clock: Clock, seconds: float) -> None:
    pausing = asyncio.create_task(clock.sleep(seconds))
    try:
        await asyncio.wait({working, pausing}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        pausing.cancel()
