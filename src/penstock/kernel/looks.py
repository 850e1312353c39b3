"""Cached checks of something that may hang: one check runs for all callers, and its result is cached for a moment.

A paused database does not refuse connections, it hangs, and even cancelling a query can take long. So a check runs in
its own task: callers wait for it a short time, then get `LookTimedOut`. Concurrent callers share one check.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")

GIVE_UP_SECONDS = 30  # after which a new check starts although the last one never ended


class LookTimedOut(Exception):
    """The check did not finish in time."""

    def __init__(self) -> None:
        super().__init__("no answer came in time")


class Look(Generic[T]):
    """A cached check, used from one event loop."""

    def __init__(
        self, ask: Callable[[], Coroutine[Any, Any, T]], *, fresh_seconds: float, patience_seconds: float
    ) -> None:
        self._ask = ask
        self._fresh_seconds = fresh_seconds
        self._patience_seconds = patience_seconds
        self._asking: asyncio.Task[T] | None = None
        self._began_at = 0.0
        self._late_at: float | None = None  # when callers stopped waiting for the running check
        self._seen_at = 0.0

    async def answer(self) -> T:
        """The cached or a new result. Raises what the check raised, or `LookTimedOut`."""
        now = asyncio.get_running_loop().time()
        asking = self._asking
        if asking is None or self._is_old(asking, now):
            asking = self._begin(now)
        elif not asking.done() and self._late_at is not None:
            raise LookTimedOut
        await asyncio.wait([asking], timeout=self._patience_seconds)
        if asking.done() and not asking.cancelled():
            return asking.result()
        if asking is self._asking and self._late_at is None:
            self._late_at = asyncio.get_running_loop().time()
            asking.cancel()  # frees its resources if it can; nobody waits for that
        raise LookTimedOut

    def _is_old(self, asking: asyncio.Task[T], now: float) -> bool:
        if not asking.done():
            return now - self._began_at > GIVE_UP_SECONDS
        return now - max(self._seen_at, self._late_at or 0.0) > self._fresh_seconds

    def _begin(self, now: float) -> asyncio.Task[T]:
        self._began_at, self._late_at = now, None
        self._asking = asyncio.create_task(self._ask())
        self._asking.add_done_callback(self._seen)
        return self._asking

    def _seen(self, asking: asyncio.Task[T]) -> None:
        self._seen_at = asyncio.get_running_loop().time()
        if not asking.cancelled():
            asking.exception()  # marks it retrieved: the caller may be gone, and asyncio would log a warning
