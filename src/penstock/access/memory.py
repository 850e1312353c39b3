"""A cache of lookups, so that a busy caller does not cost one read per request.

Entries live for a few seconds at most, and `forget` clears the cache at once. Misses are cached too, separately and in
a smaller space: made-up keys can neither reach the database each time nor evict valid ones.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from penstock.kernel.clock import Clock

T = TypeVar("T")

MAX_FOUND, MAX_MISSING = 10_000, 1_000


class CredentialCache(Generic[T]):
    """Keys or sessions by hash."""

    def __init__(
        self, clock: Clock, *, seconds: float, max_found: int = MAX_FOUND, max_missing: int = MAX_MISSING
    ) -> None:
        self._clock = clock
        self._max_found = max_found
        self._max_missing = max_missing
        self._ttl = timedelta(seconds=seconds)
        self._found: OrderedDict[str, tuple[T, datetime]] = OrderedDict()
        self._missing: OrderedDict[str, datetime] = OrderedDict()
        self._generation = 0

    async def get(self, hashed: str, load: Callable[[str], Awaitable[T | None]]) -> T | None:
        """The cached value, or the loaded one."""
        now = self._clock.now()
        known = self._found.get(hashed)
        if known is not None and now < known[1]:
            self._found.move_to_end(hashed)
            return known[0]
        if now < self._missing.get(hashed, now):
            return None
        before = self._generation
        loaded = await load(hashed)
        if before == self._generation:  # otherwise the value may be older than the change that cleared the cache
            self._put(hashed, loaded, now + self._ttl)
        return loaded

    def forget(self) -> None:
        """Clear the cache."""
        self._generation += 1
        self._found.clear()
        self._missing.clear()

    def _put(self, hashed: str, loaded: T | None, until: datetime) -> None:
        if loaded is None:
            self._found.pop(hashed, None)
            _put_bounded(self._missing, hashed, until, limit=self._max_missing)
        else:
            _put_bounded(self._found, hashed, (loaded, until), limit=self._max_found)


V = TypeVar("V")


def _put_bounded(entries: OrderedDict[str, V], hashed: str, value: V, *, limit: int) -> None:
    """Add an entry and evict the least recently used one if there are too many."""
    entries[hashed] = value
    entries.move_to_end(hashed)
    if len(entries) > limit:
        entries.popitem(last=False)
