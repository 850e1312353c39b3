"""Coalescer that many callers share."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.kernel import coalescer
from penstock.kernel.coalescer import Coalescer
from penstock.kernel.errors import Unavailable


class Ferry:
    """Takes wishes along, waits to be let off, and answers each with itself doubled."""

    def __init__(self, *, moored: bool = False) -> None:
        self.trips: list[list[Any]] = []
        self.left = asyncio.Event()  # set while a trip is under way
        self.free = asyncio.Event()
        self.error: BaseException | None = None
        if not moored:
            self.free.set()

    async def run(self, wishes: Sequence[Any]) -> Sequence[Any]:
        self.trips.append(list(wishes))
        self.left.set()
        await self.free.wait()
        if self.error is not None:
            raise self.error
        return [wish * 2 for wish in wishes]


@pytest.fixture
def trips() -> Coalescer:
    return Coalescer()


async def under_way(trips: Coalescer, ferry: Ferry, *wishes: int, key: str = "k") -> list[asyncio.Task[Any]]:
    """The first wish is on its trip, and the others wait for the next."""
    first = asyncio.create_task(trips.submit(key, wishes[0], ferry.run))
    await ferry.left.wait()
    others = [asyncio.create_task(trips.submit(key, wish, ferry.run)) for wish in wishes[1:]]
    await asyncio.sleep(0)
    return [first, *others]


async def at_home(trips: Coalescer) -> None:
    """Every trip is over, and nothing is kept of it."""
    await trips.drain()
    assert trips._pending == {}
    assert trips._running == set()


class TestTogether:
    async def test_one_caller_travels_at_once(self, trips: Coalescer):
        ferry = Ferry()
        assert await trips.submit("k", 21, ferry.run) == 42
        assert ferry.trips == [[21]]
        await at_home(trips)

    async def test_those_who_come_during_a_trip_share_the_next(self, trips: Coalescer):
        ferry = Ferry(moored=True)
        asked = await under_way(trips, ferry, 1, 2, 3, 4)
        ferry.free.set()
        assert await asyncio.gather(*asked) == [2, 4, 6, 8]
        assert ferry.trips == [[1], [2, 3, 4]]
        await at_home(trips)

    async def test_other_keys_do_not_wait(self, trips: Coalescer):
        moored, free = Ferry(moored=True), Ferry()
        [stuck] = await under_way(trips, moored, 1, key="stuck")
        assert await trips.submit("free", 5, free.run) == 10
        moored.free.set()
        assert await stuck == 2

    async def test_a_trip_takes_no_more_than_it_holds(self, trips: Coalescer, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(coalescer, "MAX_BATCH", 2)
        ferry = Ferry(moored=True)
        asked = await under_way(trips, ferry, *range(6))
        ferry.free.set()
        assert await asyncio.gather(*asked) == [0, 2, 4, 6, 8, 10]
        assert ferry.trips == [[0], [1, 2], [3, 4], [5]]

    async def test_who_comes_after_the_last_trip_starts_a_new_one(self, trips: Coalescer):
        ferry = Ferry()
        for wish in range(3):
            assert await trips.submit("k", wish, ferry.run) == wish * 2
            await at_home(trips)
        assert ferry.trips == [[0], [1], [2]]

    async def test_a_crowd_is_answered_each_with_its_own(self, trips: Coalescer):
        ferry = Ferry()
        asked = await asyncio.gather(*(trips.submit(f"k{wish % 3}", wish, ferry.run) for wish in range(1000)))
        assert asked == [wish * 2 for wish in range(1000)]
        assert len(ferry.trips) < 20
        await at_home(trips)


class TestCallersWhoLeave:
    async def test_a_caller_who_left_before_the_trip_is_not_taken_along(self, trips: Coalescer):
        ferry = Ferry(moored=True)
        first, gone, last = await under_way(trips, ferry, 1, 2, 3)
        gone.cancel()
        await asyncio.wait([gone])
        ferry.free.set()
        assert [await first, await last] == [2, 6]
        assert ferry.trips == [[1], [3]]
        assert gone.cancelled()

    async def test_a_caller_who_leaves_during_a_trip_does_not_stop_it_for_others(self, trips: Coalescer):
        ferry = Ferry(moored=True)
        first, second = await under_way(trips, ferry, 1, 2)
        first.cancel()
        await asyncio.wait([first])
        ferry.free.set()
        assert await second == 4
        await at_home(trips)

    async def test_when_all_have_left_there_is_no_trip_for_nobody(self, trips: Coalescer):
        ferry = Ferry(moored=True)
        asked = await under_way(trips, ferry, 1, 2, 3)
        for one in asked:
            one.cancel()
        await asyncio.wait(asked)
        ferry.free.set()
        await at_home(trips)
        assert ferry.trips == [[1]]


class TestFailures:
    async def test_what_goes_wrong_on_a_trip_is_raised_for_all_aboard(self, trips: Coalescer):
        ferry = Ferry(moored=True)
        asked = await under_way(trips, ferry, 1, 2, 3)
        ferry.error = Unavailable(reason="no water")
        ferry.free.set()
        ended = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(error) for error in ended] == [Unavailable] * 3
        await at_home(trips)

    async def test_after_a_failure_the_next_trip_is_made(self, trips: Coalescer):
        ferry = Ferry()
        ferry.error = Unavailable(reason="no water")
        with pytest.raises(Unavailable):
            await trips.submit("k", 1, ferry.run)
        ferry.error = None
        assert await trips.submit("k", 1, ferry.run) == 2

    async def test_a_failure_that_nobody_waits_for_is_no_stray_error(self, trips: Coalescer):
        ferry = Ferry(moored=True)
        [asked] = await under_way(trips, ferry, 1)
        asked.cancel()
        await asyncio.wait([asked])
        ferry.error = Unavailable(reason="no water")
        ferry.free.set()
        await at_home(trips)

    async def test_too_few_answers_are_an_error_and_leave_nobody_waiting(self, trips: Coalescer):
        async def forget_one(wishes: Sequence[Any]) -> Sequence[Any]:
            return wishes[1:]

        async with asyncio.timeout(10):
            asked = [trips.submit("k", wish, forget_one) for wish in range(3)]
            ended = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(error) for error in ended] == [ValueError] * 3
        await at_home(trips)


class TestStopping:
    async def test_a_stop_in_the_middle_leaves_nobody_waiting(self, trips: Coalescer):
        ferry = Ferry(moored=True)
        asked = await under_way(trips, ferry, 1, 2, 3)
        for trip in trips._running:
            trip.cancel()
        async with asyncio.timeout(10):
            await asyncio.wait(asked)
        assert all(one.cancelled() for one in asked)
        assert ferry.trips == [[1]]
        await at_home(trips)

    async def test_whoever_waits_for_all_to_be_home_waits_for_a_trip_that_nobody_wants_any_more(self, trips: Coalescer):
        ferry = Ferry(moored=True)
        [asked] = await under_way(trips, ferry, 1)
        asked.cancel()
        waiting = asyncio.create_task(trips.drain())
        await asyncio.wait({asked})
        assert not waiting.done()
        ferry.free.set()
        async with asyncio.timeout(10):
            await waiting

    def test_a_loop_that_ends_takes_its_trips_with_it(self):
        ended: list[str] = []

        async def endless(_wishes: Sequence[Any]) -> Sequence[Any]:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("stopped")
            raise AssertionError

        async def main() -> None:
            asked = asyncio.create_task(Coalescer().submit("k", 1, endless))
            await asyncio.sleep(0.01)
            assert not asked.done()

        asyncio.run(main())
        assert ended == ["stopped"]
