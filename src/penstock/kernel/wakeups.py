"""In-process wake-ups, so that waiters react at once without frequent polling.

A commit that creates work wakes the listeners of its process. `notifier.py` forwards the wake-up to other processes.
Wake-ups may be lost: every waiter also polls once a second.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from penstock.kernel.clock import Clock

MAX_PENDING_CHANNELS = 1000  # channels waiting to be sent to other processes; polling finds those beyond


class Listener:
    """One waiter. A notification that comes between two waits ends the next wait at once, so none is missed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._notified = asyncio.Event()

    def notify(self) -> None:
        """Wake the waiter."""
        self._notified.set()

    async def wait(self, *, seconds: float) -> None:
        """Return at the first notification, or after a timeout."""
        if self._notified.is_set():
            self._notified.clear()
            return
        notified = asyncio.ensure_future(self._notified.wait())
        timer = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((notified, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            notified.cancel()
            timer.cancel()
            await asyncio.wait(
                (notified, timer)
            )  # awaiting them one by one would swallow a cancel meant for the caller
        self._notified.clear()


class CallbackListener(Listener):
    """A listener that calls a function synchronously: it has run when `notify` returns."""

    def __init__(self, clock: Clock, callback: Callable[[], None]) -> None:
        super().__init__(clock)
        self._callback = callback

    def notify(self) -> None:
        """Call the function."""
        self._callback()


class PendingNotifications:
    """Channels woken in this process and not yet sent to the others, each once."""

    def __init__(self) -> None:
        self._channels: set[str] = set()
        self._some = asyncio.Event()

    def add(self, channel: str) -> None:
        """Add a channel, unless far too many are pending."""
        if len(self._channels) < MAX_PENDING_CHANNELS:
            self._channels.add(channel)
            self._some.set()

    async def take(self) -> set[str]:
        """Wait until something is pending, and take all of it."""
        await self._some.wait()
        self._some.clear()
        taken, self._channels = self._channels, set()
        return taken


class Wakeups:
    """The listeners of one process, by channel."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._listeners: defaultdict[str, set[Listener]] = defaultdict(set)
        self._pending: PendingNotifications | None = None

    def listen(self, channels: Iterable[str]) -> Listener:
        """A new listener on these channels, until `unlisten`."""
        listener = Listener(self.clock)
        for channel in channels:
            self._listeners[channel].add(listener)
        return listener

    @contextmanager
    def on_wake(self, channel: str, callback: Callable[[], None]) -> Iterator[None]:
        """Call a function whenever a channel is woken, while the block runs."""
        listener = CallbackListener(self.clock, callback)
        self._listeners[channel].add(listener)
        try:
            yield
        finally:
            self.unlisten(listener)

    def unlisten(self, listener: Listener) -> None:
        """Remove a listener."""
        for listeners in self._listeners.values():
            listeners.discard(listener)
        for channel in [channel for channel, listeners in self._listeners.items() if not listeners]:
            del self._listeners[channel]

    @contextmanager
    def pending_notifications(self) -> Iterator[PendingNotifications]:
        """Collect what is woken while the block runs, for the notifier to send to other processes."""
        self._pending = PendingNotifications()
        try:
            yield self._pending
        finally:
            self._pending = None

    def wake(self, channel: str) -> None:
        """Wake every listener on a channel, here and, where a notifier runs, in other processes."""
        if self._pending is not None:
            self._pending.add(channel)
        self.wake_local(channel)

    def wake_local(self, channel: str) -> None:
        """Wake the listeners of this process on a channel."""
        for listener in self._listeners.get(channel, ()):
            listener.notify()
