"""Waking those who wait for work, so that nobody has to poll to be quick.

Inside one process a commit that made work wakes the waiters at once. Between processes the waiters look by
themselves every second.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable

from penstock.kernel.clock import Clock


class Ear:
    """One waiter's own ear: what rang since it last waited is heard at once, so no call is missed in between."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rang = asyncio.Event()

    def ring(self) -> None:
        """Called by the one who made work."""
        self._rang.set()

    async def wait(self, *, seconds: float) -> None:
        """Return at the first ring, or when the time is over."""
        ring = asyncio.ensure_future(self._rang.wait())
        timer = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((ring, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ring.cancel()
            timer.cancel()
            await asyncio.wait((ring, timer))  # awaiting them one by one would swallow a cancel meant for the caller
        self._rang.clear()


class Wakeups:
    """Who listens to which channel."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ears: defaultdict[str, set[Ear]] = defaultdict(set)

    def listen(self, channels: Iterable[str]) -> Ear:
        """A new ear for these channels, until `forget`."""
        ear = Ear(self._clock)
        for channel in channels:
            self._ears[channel].add(ear)
        return ear

    def forget(self, ear: Ear) -> None:
        """Stop ringing this ear."""
        for ears in self._ears.values():
            ears.discard(ear)
        for channel in [channel for channel, ears in self._ears.items() if not ears]:
            del self._ears[channel]

    def wake(self, channel: str) -> None:
        """Ring every ear on a channel."""
        for ear in self._ears.get(channel, ()):
            ear.ring()
