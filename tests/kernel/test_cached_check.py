"""A cached check of something that may hang."""

import asyncio

import pytest

from penstock.kernel import cache
from penstock.kernel.cache import CachedCheck, CheckTimedOut


class Thing:
    """Something to check: it answers with how often it was asked, fails, or is silent until it is let go."""

    def __init__(self) -> None:
        self.asked = 0
        self.stopped = 0
        self.error: Exception | None = None
        self.free = asyncio.Event()
        self.free.set()

    async def check(self) -> int:
        self.asked += 1
        try:
            await self.free.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        if self.error:
            raise self.error
        return self.asked


@pytest.fixture
def thing() -> Thing:
    return Thing()


async def test_an_answer_is_kept_for_a_moment(thing: Thing):
    check = CachedCheck(thing.check, ttl_seconds=0.05, timeout_seconds=1)
    assert [await check.result() for _ in range(5)] == [1] * 5
    async with asyncio.timeout(5):
        while await check.result() == 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert thing.asked == 2


async def test_a_thousand_who_ask_at_once_share_one_check(thing: Thing):
    check = CachedCheck(thing.check, ttl_seconds=10, timeout_seconds=1)
    assert await asyncio.gather(*(check.result() for _ in range(1000))) == [1] * 1000


async def test_an_error_is_kept_as_well(thing: Thing):
    thing.error = ValueError("odd")
    check = CachedCheck(thing.check, ttl_seconds=10, timeout_seconds=1)
    for _ in range(3):
        with pytest.raises(ValueError, match="odd"):
            await check.result()
    assert thing.asked == 1


async def test_what_is_silent_is_given_up_on_and_then_nobody_waits_again(thing: Thing):
    thing.free.clear()
    check = CachedCheck(thing.check, ttl_seconds=10, timeout_seconds=0.05)
    began = asyncio.get_running_loop().time()
    for _ in range(100):
        with pytest.raises(CheckTimedOut):
            await check.result()
    assert asyncio.get_running_loop().time() - began < 2
    await asyncio.sleep(0)
    assert (thing.asked, thing.stopped) == (1, 1)


async def test_it_is_seen_when_the_silence_ends(thing: Thing):
    thing.free.clear()
    check = CachedCheck(thing.check, ttl_seconds=0.02, timeout_seconds=0.02)
    with pytest.raises(CheckTimedOut):
        await check.result()
    thing.free.set()
    async with asyncio.timeout(5):
        while True:
            try:
                assert await check.result() >= 2
            except CheckTimedOut:
                await asyncio.sleep(0.01)
                continue
            break


async def test_a_check_that_cannot_be_stopped_is_left_behind_after_a_while(
    thing: Thing, monkeypatch: pytest.MonkeyPatch
):
    stuck = asyncio.Event()

    async def check() -> int:
        thing.asked += 1
        while thing.asked == 1 and not stuck.is_set():
            try:
                await stuck.wait()
            except asyncio.CancelledError:
                thing.stopped += 1
        return thing.asked

    monkeypatch.setattr(cache, "GIVE_UP_SECONDS", 0.05)
    once = CachedCheck(check, ttl_seconds=10, timeout_seconds=0.01)
    with pytest.raises(CheckTimedOut):
        await once.result()
    await asyncio.sleep(0)
    with pytest.raises(CheckTimedOut):
        await once.result()
    assert thing.asked == 1
    async with asyncio.timeout(5):
        while thing.asked == 1:
            try:
                await once.result()
            except CheckTimedOut:
                await asyncio.sleep(0.01)
    assert (thing.asked, thing.stopped) == (2, 1)
    stuck.set()


async def test_who_asks_may_leave(thing: Thing):
    thing.free.clear()
    check = CachedCheck(thing.check, ttl_seconds=10, timeout_seconds=5)
    asking = asyncio.create_task(check.result())
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    thing.free.set()
    assert await check.result() == 1
