"""Caches of one process, used from one event loop.

`Cache` keeps loaded values by key. `CachedCheck` keeps the result of one check that may hang: it also keeps errors, and
its callers stop waiting after a timeout, which a load has no use for.

They are ours because a library would replace only the bounded dictionary in them (docs/decisions/0016-one-cache.md).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from penstock.kernel.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

NEVER = datetime.max.replace(tzinfo=UTC)
GIVE_UP_SECONDS = 30  # after which a new check starts although the last one never ended


@dataclass(frozen=True)
class CacheEntry(Generic[V]):
    """A cached value."""

    value: V
    loaded_at: datetime  # when its load began
    expires_at: datetime


class Cache(Generic[K, V]):
    """A bounded cache that evicts the least recently used entry.

    Entries expire `ttl` after their load began, or later if the load was slow: they live at least `ttl_factor` times as
    long as it took. A `ttl` of zero disables the cache. Values of None are kept in a space of their own, of
    `max_missing` entries: lookups of made-up keys neither reach the database each time nor evict valid entries.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        max_entries: int,
        max_missing: int = 0,
        ttl: timedelta | None = None,
        ttl_factor: float = 0,
    ) -> None:
        self._clock = clock
        self._max_entries = max_entries
        self._max_missing = max_missing
        self._ttl = ttl
        self._ttl_factor = ttl_factor
        self._found: OrderedDict[K, CacheEntry[V]] = OrderedDict()  # least recently used first
        self._missing: OrderedDict[K, CacheEntry[V]] = OrderedDict()
        self._loading: dict[K, asyncio.Task[CacheEntry[V]]] = {}
        self._tasks: set[asyncio.Task[CacheEntry[V]]] = set()

    def __len__(self) -> int:
        """How many entries are kept, expired ones included."""
        return len(self._found) + len(self._missing)

    def find(self, key: K) -> CacheEntry[V] | None:
        """The entry of a key, if it is cached and has not expired."""
        entries = self._found if key in self._found else self._missing
        entry = entries.get(key)
        # An entry from the future is not used either: the clock was set back.
        if entry is None or not entry.loaded_at <= self._clock.now() < entry.expires_at:
            return None
        entries.move_to_end(key)
        return entry

    def put(self, key: K, value: V) -> None:
        """Cache a value."""
        self._loading.pop(key, None)
        self._keep(key, self._entry(value, self._clock.now()))

    async def get(self, key: K, load: Callable[[], Awaitable[V]]) -> CacheEntry[V]:
        """The cached entry, or a loaded one. Concurrent calls for a key share one load, and a caller that is cancelled
        does not cancel it. Errors are raised in every caller and not cached."""
        if self._ttl == timedelta():
            loaded_at = self._clock.now()
            return self._entry(await load(), loaded_at)
        entry = self.find(key)
        if entry is not None:
            return entry
        loading = self._loading.get(key)
        if loading is None:
            loading = self._loading[key] = asyncio.create_task(self._load(key, load))
            self._tasks.add(loading)
            loading.add_done_callback(self._tasks.discard)
        return await asyncio.shield(loading)

    def clear(self) -> None:
        """Remove every entry. A load in progress is neither cached nor shared with later callers: its value may be
        older than the change that cleared the cache."""
        self._loading.clear()
        self._found.clear()
        self._missing.clear()

    async def _load(self, key: K, load: Callable[[], Awaitable[V]]) -> CacheEntry[V]:
        loaded_at = self._clock.now()
        try:
            entry = self._entry(await load(), loaded_at)
            if self._loading.get(key) is asyncio.current_task():
                self._keep(key, entry)
            return entry
        finally:
            if self._loading.get(key) is asyncio.current_task():
                del self._loading[key]

    def _entry(self, value: V, loaded_at: datetime) -> CacheEntry[V]:
        if self._ttl is None:
            return CacheEntry(value, loaded_at, NEVER)
        took = self._clock.now() - loaded_at
        return CacheEntry(value, loaded_at, loaded_at + max(self._ttl, self._ttl_factor * took))

    def _keep(self, key: K, entry: CacheEntry[V]) -> None:
        self._found.pop(key, None)
        self._missing.pop(key, None)
        is_missing = entry.value is None
        entries, limit = (self._missing, self._max_missing) if is_missing else (self._found, self._max_entries)
        entries[key] = entry
        if len(entries) > limit:
            entries.popitem(last=False)


class CheckTimedOut(Exception):
    """The check did not finish in time."""

    def __init__(self) -> None:
        super().__init__("no answer came in time")


class CachedCheck(Generic[V]):
    """A check whose result, or error, is cached for `ttl_seconds`. Concurrent callers share one run.

    A paused database does not refuse connections, it hangs, and even cancelling a query can take long. So a check runs
    in its own task: callers wait for it `timeout_seconds`, then get `CheckTimedOut`. Times are real ones.
    """

    def __init__(
        self, check: Callable[[], Coroutine[Any, Any, V]], *, ttl_seconds: float, timeout_seconds: float
    ) -> None:
        self._check = check
        self._ttl_seconds = ttl_seconds
        self._timeout_seconds = timeout_seconds
        self._running: asyncio.Task[V] | None = None
        self._began_at = 0.0
        self._late_at: float | None = None  # when callers stopped waiting for the running check
        self._ended_at = 0.0

    async def result(self) -> V:
        """The cached or a new result. Raises what the check raised, or `CheckTimedOut`."""
        now = asyncio.get_running_loop().time()
        running = self._running
        if running is None or self._is_old(running, now):
            running = self._begin(now)
        elif not running.done() and self._late_at is not None:
            raise CheckTimedOut
        await asyncio.wait([running], timeout=self._timeout_seconds)
        if running.done() and not running.cancelled():
            return running.result()
        if running is self._running and self._late_at is None:
            self._late_at = asyncio.get_running_loop().time()
            running.cancel()  # frees its resources if it can; nobody waits for that
        raise CheckTimedOut

    def _is_old(self, running: asyncio.Task[V], now: float) -> bool:
        if not running.done():
            return now - self._began_at > GIVE_UP_SECONDS
        return now - max(self._ended_at, self._late_at or 0.0) > self._ttl_seconds

    def _begin(self, now: float) -> asyncio.Task[V]:
        self._began_at, self._late_at = now, None
        self._running = asyncio.create_task(self._check())
        self._running.add_done_callback(self._ended)
        return self._running

    def _ended(self, running: asyncio.Task[V]) -> None:
        self._ended_at = asyncio.get_running_loop().time()
        if not running.cancelled():
            running.exception()  # marks it retrieved: the caller may be gone, and asyncio would log a warning
