"""Waking those who wait for work, so that nobody has to poll to be quick.

Inside one process a commit that made work wakes the waiters at once. What is woken here can be told to the other
processes by a bell (`bell.py`). That is a courtesy and may be lost: every waiter also looks by itself each second.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from penstock.kernel.clock import Clock

MOST_CALLS = 1000  # channels that wait for the bell; those past it are found by the look of each second


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


class Reflex(Ear):
    """An ear that acts at once: whoever rings has what follows behind them when they go on."""

    def __init__(self, clock: Clock, act: Callable[[], None]) -> None:
        super().__init__(clock)
        self._act = act

    def ring(self) -> None:
        """Called by the one who made the change."""
        self._act()


class Calls:
    """What was woken here and is still to be told to the other processes, each channel once."""

    def __init__(self) -> None:
        self._channels: set[str] = set()
        self._some = asyncio.Event()

    def add(self, channel: str) -> None:
        """Remember a channel, unless far too many wait already."""
        if len(self._channels) < MOST_CALLS:
            self._channels.add(channel)
            self._some.set()

    async def take(self) -> set[str]:
        """Everything since the last time, as soon as there is something."""
        await self._some.wait()
        self._some.clear()
        taken, self._channels = self._channels, set()
        return taken


class Wakeups:
    """Who listens to which channel."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._ears: defaultdict[str, set[Ear]] = defaultdict(set)
        self._calls: Calls | None = None

    def listen(self, channels: Iterable[str]) -> Ear:
        """A new ear for these channels, until `forget`."""
        ear = Ear(self.clock)
        for channel in channels:
            self._ears[channel].add(ear)
        return ear

    @contextmanager
    def reflex(self, channel: str, act: Callable[[], None]) -> Iterator[None]:
        """Do this whenever a channel is rung, while the block runs."""
        ear = Reflex(self.clock, act)
        self._ears[channel].add(ear)
        try:
            yield
        finally:
            self.forget(ear)

    def forget(self, ear: Ear) -> None:
        """Stop ringing this ear."""
        for ears in self._ears.values():
            ears.discard(ear)
        for channel in [channel for channel, ears in self._ears.items() if not ears]:
            del self._ears[channel]

    @contextmanager
    def calls(self) -> Iterator[Calls]:
        """Collect what is woken while the block runs, for the one who carries it to the other processes."""
        self._calls = Calls()
        try:
            yield self._calls
        finally:
            self._calls = None

    def wake(self, channel: str) -> None:
        """Ring every ear on a channel, here and, where a bell is carried, elsewhere."""
        if self._calls is not None:
            self._calls.add(channel)
        self.wake_here(channel)

    def wake_here(self, channel: str) -> None:
        """Ring every ear of this process on a channel."""
        for ear in self._ears.get(channel, ()):
            ear.ring()
