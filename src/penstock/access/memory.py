"""What was looked up a moment ago, so that a busy caller does not cost a read per request.

Nothing is remembered for longer than a few seconds, and `forget` empties it at once. What was not found is remembered
too, in a small place of its own: made-up keys can neither reach the database each time nor push out the real ones.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from penstock.kernel.clock import Clock

T = TypeVar("T")

MOST_FOUND, MOST_MISSING = 10_000, 1_000


class Memory(Generic[T]):
    """Remembers by hash."""

    def __init__(
        self, clock: Clock, *, seconds: float, most_found: int = MOST_FOUND, most_missing: int = MOST_MISSING
    ) -> None:
        self._clock = clock
        self._most_found = most_found
        self._most_missing = most_missing
        self._lasts = timedelta(seconds=seconds)
        self._found: OrderedDict[str, tuple[T, datetime]] = OrderedDict()
        self._missing: OrderedDict[str, datetime] = OrderedDict()
        self._times_forgotten = 0

    async def get(self, hashed: str, look: Callable[[str], Awaitable[T | None]]) -> T | None:
        """What is remembered, or what a look finds."""
        now = self._clock.now()
        known = self._found.get(hashed)
        if known is not None and now < known[1]:
            self._found.move_to_end(hashed)
            return known[0]
        if now < self._missing.get(hashed, now):
            return None
        before = self._times_forgotten
        found = await look(hashed)
        if before == self._times_forgotten:  # else what was seen may be what was to be forgotten
            self._keep(hashed, found, now + self._lasts)
        return found

    def forget(self) -> None:
        """Remember nothing."""
        self._times_forgotten += 1
        self._found.clear()
        self._missing.clear()

    def _keep(self, hashed: str, found: T | None, until: datetime) -> None:
        if found is None:
            self._found.pop(hashed, None)
            _put(self._missing, hashed, until, most=self._most_missing)
        else:
            _put(self._found, hashed, (found, until), most=self._most_found)


V = TypeVar("V")


def _put(kept: OrderedDict[str, V], hashed: str, value: V, *, most: int) -> None:
    kept[hashed] = value
    kept.move_to_end(hashed)
    if len(kept) > most:
        kept.popitem(last=False)
