"""The cache: expiry, bounds, shared loads, and what a clear does to a load in progress."""

import asyncio
from datetime import timedelta

import pytest

from penstock.kernel.cache import Cache
from penstock.kernel.clock import ManualClock

TEN = timedelta(seconds=10)


class Counting:
    """Loads how often it was called; it can block or fail."""

    def __init__(self) -> None:
        self.times = 0
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.begun = asyncio.Event()
        self.fails = False

    async def load(self) -> int:
        self.times += 1
        number = self.times
        self.begun.set()
        await self.go_on.wait()
        if self.fails:
            raise OSError("away")
        return number


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture
def cache(clock: ManualClock) -> Cache[str, int]:
    return Cache(clock, max_entries=3, ttl=TEN, ttl_factor=20)


async def get(cache: Cache[str, int], counting: Counting, key: str = "k") -> int:
    return (await cache.get(key, counting.load)).value


class TestExpiry:
    async def test_a_value_is_cached_until_it_expires(
        self, cache: Cache[str, int], counting: Counting, clock: ManualClock
    ):
        assert await get(cache, counting) == 1
        clock.advance(seconds=9.9)
        assert await get(cache, counting) == 1
        clock.advance(seconds=0.1)
        assert await get(cache, counting) == 2

    async def test_an_entry_says_when_its_load_began(
        self, cache: Cache[str, int], counting: Counting, clock: ManualClock
    ):
        loaded_at = clock.now()
        await get(cache, counting)
        clock.advance(seconds=5)
        entry = await cache.get("k", counting.load)
        assert (entry.loaded_at, entry.expires_at) == (loaded_at, loaded_at + TEN)

    async def test_a_slow_value_is_cached_longer(self, cache: Cache[str, int], counting: Counting, clock: ManualClock):
        counting.go_on.clear()
        slow = asyncio.create_task(get(cache, counting))
        await counting.begun.wait()
        clock.advance(seconds=5)
        counting.go_on.set()
        assert await slow == 1
        clock.advance(seconds=94)  # 99 since the load began
        assert await get(cache, counting) == 1
        clock.advance(seconds=1)
        assert await get(cache, counting) == 2

    async def test_zero_seconds_disables_the_cache(self, counting: Counting, clock: ManualClock):
        cache: Cache[str, int] = Cache(clock, max_entries=3, ttl=timedelta(), ttl_factor=20)
        assert [await get(cache, counting) for _ in range(3)] == [1, 2, 3]
        assert len(cache) == 0

    async def test_without_a_ttl_an_entry_stays(self, counting: Counting, clock: ManualClock):
        cache: Cache[str, int] = Cache(clock, max_entries=3)
        await get(cache, counting)
        clock.advance(seconds=10**9)
        assert await get(cache, counting) == 1

    async def test_an_entry_from_the_future_is_not_used(self, counting: Counting, clock: ManualClock):
        """The clock was set back."""
        cache: Cache[str, int] = Cache(clock, max_entries=3, ttl=TEN)
        await get(cache, counting)
        clock.advance(seconds=-3600)
        assert await get(cache, counting) == 2


class TestBounds:
    async def test_each_key_has_its_own_value(self, cache: Cache[str, int], counting: Counting):
        assert [await get(cache, counting, key) for key in "aba"] == [1, 2, 1]

    async def test_the_least_recently_used_entry_is_evicted_first(self, cache: Cache[str, int], counting: Counting):
        for key in ("a", "b", "c", "a", "one too many"):
            await get(cache, counting, key)
        assert len(cache) == 3
        assert await get(cache, counting, "a") == 1
        assert await get(cache, counting, "b") == 5

    async def test_a_value_that_was_put_is_found_and_replaced(self, cache: Cache[str, int]):
        cache.put("k", 1)
        cache.put("k", 2)
        found = cache.find("k")
        assert found is not None
        assert (found.value, len(cache)) == (2, 1)
        assert cache.find("other") is None

    async def test_made_up_keys_evict_no_real_one_and_are_bounded(self, clock: ManualClock):
        cache: Cache[str, str | None] = Cache(clock, max_entries=10, max_missing=10, ttl=TEN)
        loads: list[str] = []

        async def find(key: str) -> str | None:
            async def load() -> str | None:
                loads.append(key)
                return "real" if key == "real" else None

            return (await cache.get(key, load)).value

        await find("real")
        for number in range(30):
            assert await find(f"made up {number}") is None
        assert await find("real") == "real"
        await find("made up 29")
        await find("made up 19")
        assert [loads.count(key) for key in ("real", "made up 29", "made up 19")] == [1, 1, 2]
        assert len(cache) == 11

    async def test_a_key_that_appears_is_no_longer_missing(self, clock: ManualClock):
        cache: Cache[str, int | None] = Cache(clock, max_entries=3, max_missing=3)
        for value in (None, 1, None):
            cache.put("k", value)
            found = cache.find("k")
            assert found is not None
            assert (found.value, len(cache)) == (value, 1)

    async def test_without_space_for_them_missing_values_are_not_cached(self, clock: ManualClock):
        cache: Cache[str, int | None] = Cache(clock, max_entries=3)
        cache.put("k", None)
        assert (cache.find("k"), len(cache)) == (None, 0)


class TestLoads:
    async def test_concurrent_calls_share_one_load(self, cache: Cache[str, int], counting: Counting):
        counting.go_on.clear()
        crowd = [asyncio.create_task(get(cache, counting)) for _ in range(300)]
        await asyncio.sleep(0)
        counting.go_on.set()
        assert await asyncio.gather(*crowd) == [1] * 300
        assert counting.times == 1

    async def test_a_cancelled_caller_does_not_affect_the_others(self, cache: Cache[str, int], counting: Counting):
        counting.go_on.clear()
        first = asyncio.create_task(get(cache, counting))
        await counting.begun.wait()
        second = asyncio.create_task(get(cache, counting))
        await asyncio.sleep(0)
        first.cancel()
        counting.go_on.set()
        assert await second == 1

    async def test_an_error_reaches_every_caller_and_is_not_cached(self, cache: Cache[str, int], counting: Counting):
        counting.fails = True
        counting.go_on.clear()
        crowd = [asyncio.create_task(get(cache, counting)) for _ in range(3)]
        await counting.begun.wait()
        counting.go_on.set()
        errors = await asyncio.gather(*crowd, return_exceptions=True)
        assert [str(error) for error in errors] == ["away"] * 3
        counting.fails = False
        assert await get(cache, counting) == 2

    async def test_a_load_that_began_before_a_clear_is_neither_cached_nor_shared(
        self, cache: Cache[str, int], counting: Counting
    ):
        counting.go_on.clear()
        before = asyncio.create_task(get(cache, counting))
        await counting.begun.wait()
        cache.clear()
        after = asyncio.create_task(get(cache, counting))
        await asyncio.sleep(0)
        counting.go_on.set()
        assert (await before, await after) == (1, 2)
        assert await get(cache, counting) == 2

    async def test_a_clear_removes_every_entry(self, clock: ManualClock, counting: Counting):
        cache: Cache[str, int | None] = Cache(clock, max_entries=3, max_missing=3)
        cache.put("found", 1)
        cache.put("missing", None)
        cache.clear()
        assert len(cache) == 0

    async def test_a_put_wins_over_a_load_in_progress(self, cache: Cache[str, int], counting: Counting):
        counting.go_on.clear()
        loading = asyncio.create_task(get(cache, counting))
        await counting.begun.wait()
        cache.put("k", 7)
        counting.go_on.set()
        assert await loading == 1
        assert await get(cache, counting) == 7
