"""The statistics cache: one query for concurrent requests, expiry, and a bound."""

import asyncio

import pytest

from penstock.kernel.clock import ManualClock
from penstock.tasks.remember import MAX_ENTRIES, StatsCache


class Counting:
    """Counts its calls; it can block or fail."""

    def __init__(self) -> None:
        self.times = 0
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.begun = asyncio.Event()
        self.fails = False

    async def count(self) -> int:
        self.times += 1
        self.begun.set()
        await self.go_on.wait()
        if self.fails:
            raise OSError("away")
        return self.times


async def recall(
    memory: StatsCache, counting: Counting, clock: ManualClock, key: str = "k", seconds: float = 10
) -> int:
    return (await memory.recall(key, counting.count, clock=clock, seconds=seconds)).value


async def test_a_value_is_cached_until_it_is_stale(clock: ManualClock):
    memory, counting = StatsCache(), Counting()
    assert await recall(memory, counting, clock) == 1
    clock.advance(seconds=9.9)
    assert await recall(memory, counting, clock) == 1
    clock.advance(seconds=0.1)
    assert await recall(memory, counting, clock) == 2


async def test_each_key_has_its_own_value(clock: ManualClock):
    memory, counting = StatsCache(), Counting()
    assert await recall(memory, counting, clock, "a") == 1
    assert await recall(memory, counting, clock, "b") == 2
    assert await recall(memory, counting, clock, "a") == 1


async def test_concurrent_requests_are_counted_once(clock: ManualClock):
    memory, counting = StatsCache(), Counting()
    counting.go_on.clear()
    crowd = [asyncio.create_task(recall(memory, counting, clock)) for _ in range(300)]
    await asyncio.sleep(0)
    counting.go_on.set()
    assert await asyncio.gather(*crowd) == [1] * 300
    assert counting.times == 1


async def test_a_cancelled_request_does_not_affect_the_others(clock: ManualClock):
    memory, counting = StatsCache(), Counting()
    counting.go_on.clear()
    first = asyncio.create_task(recall(memory, counting, clock))
    await counting.begun.wait()
    second = asyncio.create_task(recall(memory, counting, clock))
    await asyncio.sleep(0)
    first.cancel()
    counting.go_on.set()
    assert await second == 1


async def test_an_error_is_not_cached(clock: ManualClock):
    memory, counting = StatsCache(), Counting()
    counting.fails = True
    with pytest.raises(OSError, match="away"):
        await recall(memory, counting, clock)
    counting.fails = False
    assert await recall(memory, counting, clock) == 2


async def test_a_slow_value_is_cached_longer(clock: ManualClock):
    memory, counting = StatsCache(), Counting()
    counting.go_on.clear()
    slow = asyncio.create_task(recall(memory, counting, clock))
    await counting.begun.wait()
    clock.advance(seconds=5)
    counting.go_on.set()
    assert await slow == 1
    clock.advance(seconds=94)  # 99 since it was begun
    assert await recall(memory, counting, clock) == 1
    clock.advance(seconds=1)
    assert await recall(memory, counting, clock) == 2


async def test_zero_seconds_disables_the_cache(clock: ManualClock):
    memory, counting = StatsCache(), Counting()
    assert [await recall(memory, counting, clock, seconds=0) for _ in range(3)] == [1, 2, 3]


async def test_the_least_recently_used_entry_is_evicted_first(clock: ManualClock):
    memory, counting = StatsCache(), Counting()
    for number in range(MAX_ENTRIES):
        await recall(memory, counting, clock, f"k{number}")
    await recall(memory, counting, clock, "k0")
    await recall(memory, counting, clock, "one too many")
    assert await recall(memory, counting, clock, "k0") == 1
    assert await recall(memory, counting, clock, "k1") == MAX_ENTRIES + 2
