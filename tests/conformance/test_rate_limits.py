"""What every implementation of the limits does, whatever holds the counts."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import partial
from itertools import count, product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from penstock.adapters.redis.client import RedisClient
from penstock.adapters.redis.rate_limits import RedisRateLimits
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.fallback_limits import FallbackLimits
from penstock.kernel.rate_limits import Bucket, Quota, RateLimits, SqlRateLimits
from tests.conformance.conftest import Closing
from tests.conftest import open_db

TEN = Bucket(per_second=2, burst=10)
TONIGHT, TOMORROW = datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC)
EXAMPLES = count()  # a fresh key per Hypothesis example: the limits are one for all of them
one_for_all = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SOMEONE_WAITS = text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


class SqlLimitsOfOneProcess(SqlRateLimits):
    """RateLimits in a database of this test's own."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        self.db = open_db(url, clock, connections=4)
        super().__init__(self.db)

    async def close(self) -> None:
        await self.db.close()


class RedisLimitsOfOneProcess(RedisRateLimits):
    """Rates in a Redis and quotas in a database of this test's own."""

    def __init__(self, url: str, database_url: str, clock: ManualClock) -> None:
        self.link, self.db = RedisClient(url), open_db(database_url, clock, connections=4)
        super().__init__(self.link, clock, SqlRateLimits(self.db))

    async def close(self) -> None:
        await self.link.close()
        await self.db.close()


class CarefulLimitsOfOneProcess(FallbackLimits):
    """The local gate before an engine that is there: nobody should notice it."""

    def __init__(self, url: str, database_url: str, clock: ManualClock) -> None:
        self.engine = RedisLimitsOfOneProcess(url, database_url, clock)
        super().__init__(self.engine, clock=clock)

    async def close(self) -> None:
        await self.engine.close()


# The fixtures that give the URLs, and what opens the limits there.
IMPLEMENTATIONS = [
    pytest.param((["sqlite_url"], SqlLimitsOfOneProcess), id="sqlite"),
    pytest.param((["postgres_url"], SqlLimitsOfOneProcess), id="postgres"),
    pytest.param((["redis_url", "sqlite_url"], RedisLimitsOfOneProcess), id="redis"),
    pytest.param((["redis_url", "sqlite_url"], CarefulLimitsOfOneProcess), id="careful"),
]
Connect = Callable[[], RateLimits]


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest, clock: ManualClock) -> Callable[[], Closing]:
    url_fixtures, opener = request.param
    return partial(opener, *map(request.getfixturevalue, url_fixtures), clock)


@pytest.fixture
def limits(connect: Connect) -> RateLimits:
    return connect()


async def taken(limits: RateLimits, bucket: Bucket = TEN, *, amount: float = 1, key: str = "k") -> bool:
    return (await limits.take(key, bucket, amount=amount)).allowed


class Model:
    """A bucket on paper: it fills with time and is never over full."""

    def __init__(self, bucket: Bucket, at: datetime) -> None:
        self.rate, self.burst = Fraction(bucket.per_second), Fraction(bucket.burst)
        self.level, self.at = self.burst, at

    def level_at(self, now: datetime) -> Fraction:
        passed = Fraction((now - self.at) // timedelta(microseconds=1), 1_000_000)
        return min(self.burst, self.level + passed * self.rate)

    def take(self, amount: float, now: datetime) -> None:
        self.level, self.at = self.level_at(now) - Fraction(amount), now


class TestTake:
    async def test_a_full_bucket_gives_its_burst_and_not_one_more(self, limits: RateLimits):
        rates = [0.01, 1 / 3, 1, 2, 3, 6, 7, 10, 100, 700, 30_000]
        for per_second, burst in [*product(rates, (1, 6)), *product((1 / 3, 7, 30_000), (50,))]:
            bucket, key = Bucket(per_second=per_second, burst=burst), f"{per_second} {burst}"
            allowed = [await taken(limits, bucket, key=key) for _ in range(burst + 1)]
            assert allowed == [True] * burst + [False], key

    async def test_a_take_is_all_or_nothing(self, limits: RateLimits):
        assert await taken(limits, amount=7)
        refused = await limits.take("k", TEN, amount=4)
        assert (refused.allowed, refused.remaining) == (False, 3)
        assert await taken(limits, amount=3)

    async def test_a_grant_says_what_is_left(self, limits: RateLimits):
        assert (await limits.take("k", TEN, amount=4)).remaining == 6
        assert (await limits.take("k", TEN, amount=6)).remaining == 0
        grant = await limits.take("k", TEN)
        assert (grant.allowed, grant.remaining) == (False, 0)

    async def test_an_allowed_take_waits_for_nothing(self, limits: RateLimits):
        assert (await limits.take("k", TEN)).wait_seconds == 0

    async def test_it_refills_at_the_rate(self, limits: RateLimits, clock: ManualClock):
        for per_second in (1 / 3, 1, 2, 3, 6, 7, 10, 100):
            bucket, key = Bucket(per_second=per_second, burst=100), f"{per_second}"
            assert await taken(limits, bucket, amount=100, key=key)
            clock.advance(seconds=12 / per_second + 0.000001)  # a fraction such as 12/7 has no exact microsecond
            assert [await taken(limits, bucket, key=key) for _ in range(13)] == [True] * 12 + [False], key

    async def test_over_a_long_time_it_gives_the_rate(self, limits: RateLimits, clock: ManualClock):
        bucket, allowed = Bucket(per_second=0.3, burst=5), 0
        for _ in range(200):
            allowed += await taken(limits, bucket)
            clock.advance(seconds=1)
        assert allowed in {5 + 59, 5 + 60}

    async def test_it_never_holds_more_than_its_burst(self, limits: RateLimits, clock: ManualClock):
        assert await taken(limits)
        clock.advance(seconds=3600)
        assert not await taken(limits, amount=4) or not await taken(limits, amount=7)

    @given(st.floats(0.01, 1000), st.integers(1, 20), st.data())
    @one_for_all
    async def test_waiting_as_told_suffices_and_a_little_less_does_not(
        self, limits: RateLimits, clock: ManualClock, per_second: float, burst: int, data: st.DataObject
    ):
        bucket, key = Bucket(per_second=per_second, burst=burst), f"example {next(EXAMPLES)}"
        assert await taken(limits, bucket, amount=burst, key=key)
        amount = data.draw(st.integers(1, burst))
        clock.advance(seconds=data.draw(st.floats(0, 0.9 * amount / per_second)))
        refused = await limits.take(key, bucket, amount=amount)
        assert not refused.allowed
        clock.advance(seconds=refused.wait_seconds - 0.000001)
        assert not await taken(limits, bucket, amount=amount, key=key)
        clock.advance(seconds=0.000001)
        assert await taken(limits, bucket, amount=amount, key=key)

    @given(
        st.builds(Bucket, per_second=st.floats(0.1, 10), burst=st.integers(1, 20)),
        st.lists(st.tuples(st.integers(0, 5_000_000), st.integers(1, 20)), min_size=1, max_size=15),
    )
    @one_for_all
    async def test_it_does_what_a_bucket_on_paper_does(
        self, limits: RateLimits, clock: ManualClock, bucket: Bucket, steps: list[tuple[int, int]]
    ):
        key, paper = f"example {next(EXAMPLES)}", Model(bucket, clock.now())
        for micros, wanted in steps:
            clock.advance(seconds=micros / 1_000_000)
            amount, level = min(wanted, bucket.burst), paper.level_at(clock.now())
            grant = await limits.take(key, bucket, amount=amount)
            # A token comes back in whole microseconds, rounded down: at most this much earlier than on paper.
            early = Fraction(bucket.burst) * Fraction(bucket.per_second) / 1_000_000
            assert grant.allowed or level < amount
            assert not grant.allowed or level >= amount - early * len(steps)
            if grant.allowed:
                paper.take(amount, clock.now())

    async def test_an_amount_that_no_bucket_gives_is_refused_and_takes_nothing(self, limits: RateLimits):
        for amount in (10.5, 11, 1e9, -1, float("nan")):
            with pytest.raises(ValueError, match="exceed the capacity of 10"):
                await limits.take("k", TEN, amount=amount)
        assert await taken(limits, amount=10)

    async def test_keys_are_apart(self, limits: RateLimits):
        assert await taken(limits, amount=10, key="a")
        assert await taken(limits, amount=10, key="A")
        assert not await taken(limits, key="a")

    async def test_fifty_takers_at_once_get_no_more_than_the_burst(self, connect: Connect):
        processes = [connect() for _ in range(5)]
        results = await asyncio.gather(*(taken(processes[number % 5]) for number in range(50)))
        assert sum(results) == 10

    @pytest.mark.parametrize(
        ("per_second", "burst"), [(0, 1), (-1, 1), (1, 0), (1, 0.5), (float("nan"), 1), (1, float("nan"))]
    )
    def test_a_bucket_that_would_never_give_is_no_bucket(self, per_second: float, burst: float):
        with pytest.raises(ValueError, match="a bucket"):
            Bucket(per_second=per_second, burst=burst)


class TestCool:
    async def test_a_cooled_bucket_gives_nothing_for_that_long(self, limits: RateLimits, clock: ManualClock):
        await limits.cool("k", TEN, seconds=30)
        clock.advance(seconds=29.999999)
        refused = await limits.take("k", TEN)
        assert not refused.allowed
        assert refused.wait_seconds == pytest.approx(0.000001)
        clock.advance(seconds=0.000001)
        assert await taken(limits)
        assert not await taken(limits)

    async def test_after_cooling_it_refills_at_its_rate(self, limits: RateLimits, clock: ManualClock):
        await limits.cool("k", TEN, seconds=30)
        clock.advance(seconds=32)
        assert [await taken(limits) for _ in range(6)] == [True] * 5 + [False]

    async def test_a_shorter_cooling_does_not_cut_a_longer_one(self, limits: RateLimits, clock: ManualClock):
        await limits.cool("k", TEN, seconds=30)
        await limits.cool("k", TEN, seconds=5)
        clock.advance(seconds=29)
        assert not await taken(limits)

    async def test_a_longer_cooling_replaces_a_shorter_one(self, limits: RateLimits, clock: ManualClock):
        await limits.cool("k", TEN, seconds=5)
        await limits.cool("k", TEN, seconds=30)
        clock.advance(seconds=29)
        assert not await taken(limits)

    async def test_cooling_one_key_leaves_the_others(self, limits: RateLimits):
        await limits.cool("a", TEN, seconds=30)
        assert await taken(limits, key="b", amount=10)


class TestQuota:
    async def test_what_is_left_can_be_asked_without_taking_any(self, limits: RateLimits):
        assert await limits.left("q", until=TONIGHT, limit=10) == 10
        taken = await limits.reserve("q", until=TONIGHT, limit=10, block=2)
        assert await limits.left("q", until=TONIGHT, limit=10) == 10 - taken
        assert await limits.left("q", until=TONIGHT, limit=1) == 0

    async def test_blocks_shrink_as_the_quota_runs_out_and_reach_its_end_exactly(self, limits: RateLimits):
        blocks = [await limits.reserve("k", until=TONIGHT, limit=100, block=20) for _ in range(30)]
        granted = [block for block in blocks if block]
        assert granted == sorted(granted, reverse=True)
        assert (granted[0], granted[-1], sum(granted)) == (20, 1, 100)
        assert blocks[-1] == 0

    async def test_windows_and_keys_are_counted_apart(self, limits: RateLimits):
        for key, until in (("a", TONIGHT), ("a", TOMORROW), ("b", TONIGHT)):
            assert await limits.reserve(key, until=until, limit=1, block=5) == 1
            assert await limits.reserve(key, until=until, limit=1, block=5) == 0

    async def test_units_given_back_can_be_taken_again(self, limits: RateLimits):
        assert await limits.reserve("k", until=TONIGHT, limit=4, block=1) == 1
        await limits.give_back("k", until=TONIGHT, amount=1)
        spent = [await limits.reserve("k", until=TONIGHT, limit=4, block=1) for _ in range(5)]
        assert spent == [1, 1, 1, 1, 0]

    async def test_giving_back_too_much_does_not_raise_the_limit(self, limits: RateLimits):
        await limits.reserve("k", until=TONIGHT, limit=2, block=1)
        await limits.give_back("k", until=TONIGHT, amount=99)
        await limits.give_back("never seen", until=TONIGHT, amount=99)
        assert [await limits.reserve("k", until=TONIGHT, limit=2, block=1) for _ in range(3)] == [1, 1, 0]

    async def test_a_lowered_limit_gives_nothing_more(self, limits: RateLimits):
        for _ in range(5):
            await limits.reserve("k", until=TONIGHT, limit=100, block=1)
        assert await limits.reserve("k", until=TONIGHT, limit=3, block=1) == 0

    async def test_processes_together_never_spend_more_than_the_limit(self, connect: Connect):
        processes = [connect() for _ in range(4)]

        async def spend_all(quota: Quota) -> int:
            spent = 0
            while await quota.spend():
                spent += 1
            return spent

        for limit in (0, 1, 37, 400):
            quotas = [Quota(limits, f"{limit}", limit=limit, until=TONIGHT, block=7) for limits in processes]
            # Two spenders share each process. The last ones find nothing left, so together they spend it exactly.
            assert sum(await asyncio.gather(*(spend_all(quota) for quota in quotas * 2))) == limit

    @given(st.integers(0, 60), st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), max_size=20))
    @one_for_all
    async def test_what_is_spent_stays_within_the_limit_and_the_rest_is_there_for_others(
        self, limits: RateLimits, limit: int, spends: list[tuple[int, int]]
    ):
        key, spent = f"example {next(EXAMPLES)}", 0
        quotas = [Quota(limits, key, limit=limit, until=TONIGHT, block=5) for _ in range(3)]
        for who, amount in spends:
            spent += amount if await quotas[who].spend(amount) else 0
        for quota in quotas:
            await quota.close()
        last = Quota(limits, key, limit=limit, until=TONIGHT)
        assert spent <= limit
        assert await last.spend(limit - spent)
        assert not await last.spend()

    async def test_a_spend_that_is_too_large_leaves_the_rest_to_others(self, connect: Connect):
        greedy, modest = (Quota(connect(), "k", limit=10, until=TONIGHT) for _ in range(2))
        assert not await greedy.spend(11)
        assert await modest.spend(10)

    async def test_a_closed_quota_gives_back_what_it_did_not_use(self, connect: Connect):
        first, second = (Quota(connect(), "k", limit=8, until=TONIGHT, block=8) for _ in range(2))
        assert await first.spend()
        await first.close()
        await first.close()
        assert [await second.spend() for _ in range(8)] == [True] * 7 + [False]


class TestSqlSweep:
    """Only the tables need a broom: Redis forgets by itself."""

    @pytest.fixture
    def table(self, db: Db) -> SqlRateLimits:
        return SqlRateLimits(db)

    async def test_full_buckets_go_and_emptier_ones_stay(self, table: SqlRateLimits, clock: ManualClock):
        assert await taken(table, key="soon full", amount=2)
        assert await taken(table, key="empty", amount=10)
        clock.advance(seconds=2)
        assert await table.sweep() == 1
        assert not await taken(table, key="empty", amount=5)

    async def test_windows_that_are_over_go_and_others_stay(self, table: SqlRateLimits, clock: ManualClock):
        for minute in range(5):
            until = clock.now() + timedelta(minutes=minute + 1)
            for key in ("a", "b"):
                assert await table.reserve(key, until=until, limit=1, block=1) == 1
        still_open = clock.now() + timedelta(minutes=5)
        clock.advance(seconds=240)
        assert await table.sweep() == 8
        assert await table.reserve("a", until=still_open, limit=1, block=1) == 0

    async def test_one_sweep_deletes_no_more_than_the_limit_of_each(self, table: SqlRateLimits, clock: ManualClock):
        for number in range(5):
            await taken(table, key=f"k{number}")
            await table.reserve(f"k{number}", until=TONIGHT, limit=1, block=1)
        clock.advance(seconds=86_401)
        assert [await table.sweep(limit=3) for _ in range(3)] == [6, 4, 0]

    @pytest.mark.parametrize("db_url", ["postgres"], indirect=True)
    async def test_a_bucket_that_is_used_during_the_sweep_stays(self, db: Db, table: SqlRateLimits, clock: ManualClock):
        assert await taken(table)
        clock.advance(seconds=1)
        async with db.tx() as using:
            await using.conn.execute(text("UPDATE rate_bucket SET full_at = full_at * 2"))
            sweep = asyncio.create_task(table.sweep())
            async with asyncio.timeout(20), db.read() as tx:
                while not await tx.conn.scalar(SOMEONE_WAITS):
                    pass
        assert await sweep == 0
        assert not await taken(table)
