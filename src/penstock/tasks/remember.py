"""Cache of statistics.

Concurrent requests for the same statistics compute them once: they are coalesced into one query. A slow query is cached
longer, so that counting never takes more than a small part of the time. The cache is bounded and evicts the least
recently used entry.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from penstock.kernel.clock import Clock
from penstock.kernel.coalescer import Coalescer

T = TypeVar("T")
MAX_ENTRIES = 1_000
TTL_FACTOR = 20  # a value is cached at least this many times as long as its query took


@dataclass(frozen=True, kw_only=True)
class CachedStats(Generic[T]):
    """A cached value, and when it was counted."""

    at: datetime
    until: datetime  # when it becomes stale
    value: T


class StatsCache:
    """A cache of statistics in this process."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, CachedStats[Any]] = OrderedDict()
        self._coalescer = Coalescer()

    async def recall(
        self, key: Hashable, count: Callable[[], Awaitable[T]], *, clock: Clock, seconds: float
    ) -> CachedStats[T]:
        """The cached value, counted again after `seconds`; 0 disables the cache. Errors are not cached."""

        async def refresh(requests: Sequence[None]) -> Sequence[CachedStats[T]]:
            cached = self._find(key, clock.now()) or self._keep(key, await _count(count, clock, seconds))
            return [cached] * len(requests)

        cached: CachedStats[T] = self._find(key, clock.now()) or await self._coalescer.submit(key, None, refresh)
        return cached

    def _find(self, key: Hashable, now: datetime) -> CachedStats[Any] | None:
        cached = self._entries.get(key)
        if cached is None or not cached.at <= now < cached.until:
            return None
        self._entries.move_to_end(key)
        return cached

    def _keep(self, key: Hashable, cached: CachedStats[T]) -> CachedStats[T]:
        self._entries[key] = cached
        self._entries.move_to_end(key)
        if len(self._entries) > MAX_ENTRIES:
            self._entries.popitem(last=False)
        return cached


async def _count(count: Callable[[], Awaitable[T]], clock: Clock, seconds: float) -> CachedStats[T]:
    at = clock.now()
    value = await count()
    ttl = max(timedelta(seconds=seconds), TTL_FACTOR * (clock.now() - at)) if seconds else timedelta()
    return CachedStats(at=at, until=at + ttl, value=value)
