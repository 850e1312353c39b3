from collections import defaultdict
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.errors import Unavailable
from penstock.kernel.fallback_limits import EVICTION_TRIES, FallbackLimits
from penstock.kernel.rate_limits import Bucket, RateLimitResult, RateLimits, SqlRateLimits

TWENTY = Bucket(per_second=4, burst=20)  # here: 1 a second, 5 at once
TONIGHT = datetime(2026, 1, 2, tzinfo=UTC)


class EngineAway(Unavailable):
    """The engine of the limits cannot be reached."""

    internal_outage = True


class LimitsThatAreAway:
    """An engine that never answers."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error or EngineAway(reason="no water")

    async def take(self, key: str, bucket: Bucket, *, amount: float = 1) -> RateLimitResult:
        raise self.error

    async def cool(self, key: str, bucket: Bucket, *, seconds: float) -> None:
        raise self.error

    async def reserve(self, key: str, *, until: datetime, limit: int, block: int) -> int:
        raise self.error

    async def give_back(self, key: str, *, until: datetime, amount: int) -> None:
        raise self.error

    async def left(self, key: str, *, until: datetime, limit: int) -> int:
        raise self.error


class Wire:
    """A wire to one engine that can be cut and mended."""

    def __init__(self, engine: RateLimits) -> None:
        self.whole = self._end = engine
        self.coolings = 0

    def cut(self) -> None:
        self._end = LimitsThatAreAway()

    def mend(self) -> None:
        self._end = self.whole

    async def take(self, key: str, bucket: Bucket, *, amount: float = 1) -> RateLimitResult:
        return await self._end.take(key, bucket, amount=amount)

    async def cool(self, key: str, bucket: Bucket, *, seconds: float) -> None:
        await self._end.cool(key, bucket, seconds=seconds)
        self.coolings += 1

    async def reserve(self, key: str, *, until: datetime, limit: int, block: int) -> int:
        return await self._end.reserve(key, until=until, limit=limit, block=block)

    async def give_back(self, key: str, *, until: datetime, amount: int) -> None:
        await self._end.give_back(key, until=until, amount=amount)

    async def left(self, key: str, *, until: datetime, limit: int) -> int:
        return await self._end.left(key, until=until, limit=limit)


@pytest.fixture
def alone(clock: ManualClock) -> FallbackLimits:
    """A gate whose engine is away."""
    return FallbackLimits(LimitsThatAreAway(), clock=clock)


async def taken(limits: RateLimits, times: int, key: str = "k") -> int:
    return sum([(await limits.take(key, TWENTY)).allowed for _ in range(times)])


class TestAlone:
    async def test_it_gives_its_share_of_the_burst_and_counts_its_answers(self, alone: FallbackLimits):
        assert await taken(alone, 8) == 5
        assert alone.answered_locally == 8

    async def test_it_refills_at_its_share_of_the_rate(self, alone: FallbackLimits, clock: ManualClock):
        await taken(alone, 5)
        clock.advance(seconds=3)
        assert await taken(alone, 5) == 3

    async def test_it_gives_at_least_one_at_a_time(self, alone: FallbackLimits, clock: ManualClock):
        slow = Bucket(per_second=1, burst=1)
        grants = [await alone.take("k", slow) for _ in range(2)]
        assert [grant.allowed for grant in grants] == [True, False]
        assert grants[1].wait_seconds == 4
        clock.advance(seconds=4)
        assert (await alone.take("k", slow)).allowed

    async def test_more_than_its_share_is_let_through_when_full_and_paid_back(
        self, alone: FallbackLimits, clock: ManualClock
    ):
        whole = await alone.take("k", TWENTY, amount=20)
        assert (whole.allowed, whole.remaining) == (True, 0)
        refused = await alone.take("k", TWENTY)
        assert (refused.allowed, refused.remaining, refused.wait_seconds) == (False, 0, 16)
        clock.advance(seconds=16)
        assert await taken(alone, 2) == 1

    async def test_keys_are_apart(self, alone: FallbackLimits):
        assert (await taken(alone, 9, "a"), await taken(alone, 9, "b")) == (5, 5)

    async def test_an_outage_that_is_not_ours_passes_through(self, clock: ManualClock):
        upstream = Unavailable(reason="the upstream is away")
        with pytest.raises(Unavailable, match="upstream"):
            await FallbackLimits(LimitsThatAreAway(upstream), clock=clock).take("k", TWENTY)

    async def test_a_mistake_passes_through(self, clock: ManualClock):
        gate = FallbackLimits(LimitsThatAreAway(ValueError("never")), clock=clock)
        with pytest.raises(ValueError, match="never"):
            await gate.take("k", TWENTY, amount=99)
        with pytest.raises(ValueError, match="never"):
            await gate.cool("k", TWENTY, seconds=1)

    async def test_a_quota_has_no_local_answer(self, alone: FallbackLimits):
        with pytest.raises(EngineAway):
            await alone.reserve("k", until=TONIGHT, limit=10, block=1)
        with pytest.raises(EngineAway):
            await alone.give_back("k", until=TONIGHT, amount=1)

    @pytest.mark.parametrize("share", [0, -1, 1.5, float("nan")])
    def test_a_share_that_is_none_is_refused(self, clock: ManualClock, share: float):
        with pytest.raises(ValueError, match="the share"):
            FallbackLimits(LimitsThatAreAway(), clock=clock, share=share)


class TestCooling:
    async def test_a_cooling_asked_for_while_alone_holds(self, alone: FallbackLimits, clock: ManualClock):
        await alone.cool("k", TWENTY, seconds=30)
        await alone.cool("k", TWENTY, seconds=10)
        clock.advance(seconds=29.999999)
        refused = await alone.take("k", TWENTY)
        assert not refused.allowed
        assert refused.wait_seconds == pytest.approx(0.000001)
        clock.advance(seconds=0.000001)
        assert await taken(alone, 2) == 1

    async def test_it_touches_no_other_key(self, alone: FallbackLimits):
        await alone.cool("a", TWENTY, seconds=30)
        assert await taken(alone, 1, "b") == 1


@pytest.mark.parametrize("db_url", ["sqlite"], indirect=True)
class TestAnEngineThatComesAndGoes:
    @pytest.fixture
    def wire(self, db: Db) -> Wire:
        return Wire(SqlRateLimits(db))

    @pytest.fixture
    def gate(self, wire: Wire, clock: ManualClock) -> FallbackLimits:
        return FallbackLimits(wire, clock=clock)

    async def test_while_it_is_there_it_answers(self, gate: FallbackLimits):
        assert await taken(gate, 21) == 20
        assert gate.answered_locally == 0
        assert await gate.reserve("k", until=TONIGHT, limit=1, block=1) == 1
        await gate.give_back("k", until=TONIGHT, amount=1)
        assert await gate.reserve("k", until=TONIGHT, limit=1, block=1) == 1

    async def test_when_it_is_back_it_answers_again(self, gate: FallbackLimits, wire: Wire):
        wire.cut()
        assert await taken(gate, 10) == 5
        wire.mend()
        assert await taken(gate, 21) == 20
        assert gate.answered_locally == 10

    async def test_going_again_and_again_it_gives_no_new_burst_away(self, gate: FallbackLimits, wire: Wire):
        given = 0
        for _ in range(3):
            wire.cut()
            given += await taken(gate, 10)
            wire.mend()
            await taken(gate, 1)
        assert given == 5

    async def test_a_cooling_it_missed_is_told_once_before_it_gives_a_token(
        self, gate: FallbackLimits, wire: Wire, clock: ManualClock
    ):
        wire.cut()
        await gate.cool("k", TWENTY, seconds=30)
        clock.advance(seconds=10)
        wire.mend()
        assert (await taken(gate, 3), wire.coolings) == (0, 1)
        clock.advance(seconds=19)
        assert not (await wire.whole.take("k", TWENTY)).allowed
        clock.advance(seconds=1)
        assert (await gate.take("k", TWENTY)).allowed

    async def test_a_cooling_that_is_over_by_then_is_not_told(
        self, gate: FallbackLimits, wire: Wire, clock: ManualClock
    ):
        wire.cut()
        await gate.cool("k", TWENTY, seconds=30)
        wire.mend()
        clock.advance(seconds=30)
        assert await taken(gate, 21) == 20

    async def test_a_cooling_it_heard_of_holds_after_it_has_gone(
        self, gate: FallbackLimits, wire: Wire, clock: ManualClock
    ):
        await gate.cool("k", TWENTY, seconds=30)
        wire.cut()
        clock.advance(seconds=29)
        assert not (await gate.take("k", TWENTY)).allowed


class TestManyKeys:
    async def test_an_unknown_key_is_refused_when_there_is_no_room_to_count_it(self, clock: ManualClock):
        gate = FallbackLimits(LimitsThatAreAway(), clock=clock, max_keys=3)
        assert [await taken(gate, 1, key) for key in "abcd"] == [1, 1, 1, 0]
        refused = await gate.take("d", TWENTY)
        clock.advance(seconds=refused.wait_seconds)
        assert [await taken(gate, 1, key) for key in "def"] == [1, 1, 1]

    async def test_those_unused_for_long_are_looked_at_first(self, clock: ManualClock):
        gate = FallbackLimits(LimitsThatAreAway(), clock=clock, max_keys=3 * EVICTION_TRIES)
        for number in range(3 * EVICTION_TRIES):
            await taken(gate, 1, f"k{number}")
        clock.advance(seconds=1)
        for number in range(EVICTION_TRIES):
            await taken(gate, 1, f"k{number}")
        assert await taken(gate, 1, "new") == 1

    async def test_what_cools_is_not_forgotten_for_others(self, clock: ManualClock):
        gate = FallbackLimits(LimitsThatAreAway(), clock=clock, max_keys=3)
        await gate.cool("cooling", TWENTY, seconds=3600)
        for number in range(100):
            clock.advance(seconds=1)
            assert await taken(gate, 1, f"k{number}") == 1
        assert await taken(gate, 1, "cooling") == 0


@given(
    st.builds(Bucket, per_second=st.floats(0.1, 1000), burst=st.integers(1, 50)),
    st.floats(0.05, 1),
    st.lists(st.tuples(st.floats(0, 20), st.sampled_from("abcde"), st.integers(1, 50)), max_size=60),
)
async def test_over_any_time_no_key_gets_more_than_the_share(
    bucket: Bucket, share: float, steps: list[tuple[float, str, int]]
):
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    gate = FallbackLimits(LimitsThatAreAway(), clock=clock, share=share, max_keys=2)
    gifts: defaultdict[str, list[tuple[datetime, int]]] = defaultdict(list)
    for seconds, key, wanted in steps:
        clock.advance(seconds=seconds)
        amount = min(wanted, int(bucket.burst))
        if (await gate.take(key, bucket, amount=amount)).allowed:
            gifts[key].append((clock.now(), amount))
    for given_to_one in gifts.values():
        for number, (start, _) in enumerate(given_to_one):
            window = given_to_one[number:]
            at_once = max(1.0, bucket.burst * share, *(amount for _, amount in window))
            seconds = (window[-1][0] - start).total_seconds()
            assert sum(amount for _, amount in window) <= at_once + bucket.per_second * share * seconds + 0.001


@given(
    st.builds(Bucket, per_second=st.floats(0.1, 1000), burst=st.integers(1, 50)),
    st.floats(0.05, 1),
    st.lists(st.integers(1, 50), min_size=1, max_size=20),
)
async def test_waiting_as_told_suffices(bucket: Bucket, share: float, amounts: list[int]):
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    gate = FallbackLimits(LimitsThatAreAway(), clock=clock, share=share)
    for wanted in amounts:
        amount = min(wanted, int(bucket.burst))
        grant = await gate.take("k", bucket, amount=amount)
        if not grant.allowed:
            clock.advance(seconds=grant.wait_seconds)
            assert (await gate.take("k", bucket, amount=amount)).allowed
