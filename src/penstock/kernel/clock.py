"""The clock: time is read in one place, so that tests can control it.

Leases and rate limits use the machine's own clock, so the clocks of a cluster must be synchronised (NTP).
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Protocol


def iso_millis(moment: datetime) -> str:
    """A time as people and machines are shown it everywhere: `2026-01-01T00:00:00.000Z`, in UTC with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Clock(Protocol):
    """Tells the time and sleeps."""

    def now(self) -> datetime:
        """The current time in UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return when that many seconds have passed on this clock."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """The current time in UTC, with microseconds."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Sleep on the event loop."""
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock that moves only by `advance`, for tests and dry runs."""

    def __init__(self, start: datetime) -> None:
        if start.tzinfo is None:
            raise ValueError("the start time needs a time zone")
        self._now = start.astimezone(UTC)
        self._moved = asyncio.Event()

    def now(self) -> datetime:
        """The time it was last set to."""
        return self._now

    def advance(self, *, seconds: float) -> None:
        """Move the clock forward and wake everything that sleeps on it."""
        self._now += timedelta(seconds=seconds)
        self._moved.set()
        self._moved = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Return once `advance` has moved the clock far enough."""
        until = self._now + timedelta(seconds=seconds)
        while self._now < until:
            await self._moved.wait()
