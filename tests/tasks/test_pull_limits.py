"""Rate limits and quota of pulls per API key."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from penstock.adapters.redis.client import RedisClient
from penstock.adapters.redis.rate_limits import RedisRateLimits
from penstock.kernel.clock import ManualClock
from penstock.kernel.fallback_limits import FallbackLimits
from penstock.kernel.rate_limits import Bucket, RateLimitResult, RateLimits, SqlRateLimits
from penstock.tasks import pull_limits
from penstock.tasks.errors import PullQuotaSpent, TooManyPulls
from penstock.tasks.pull_limits import Allowance, BadRate, PullLimiter, Rate, read_rates
from tests.conftest import open_db
from tests.servers.valkey import ValkeyServer
from tests.tasks.conftest import PROJECT, TasksApi

ANNA, BERT = "key:anna", "key:bert"


class CountedLimits:
    """Rate limits that count calls, and yield to other tasks before they answer."""

    def __init__(self, engine: RateLimits) -> None:
        self.engine = engine
        self.takes = 0

    async def take(self, key: str, bucket: Bucket, *, amount: float = 1) -> RateLimitResult:
        self.takes += 1
        grant = await self.engine.take(key, bucket, amount=amount)
        await asyncio.sleep(0)
        return grant

    async def cool(self, key: str, bucket: Bucket, *, seconds: float) -> None:
        await self.engine.cool(key, bucket, seconds=seconds)

    async def reserve(self, key: str, *, until: datetime, limit: int, block: int) -> int:
        return await self.engine.reserve(key, until=until, limit=limit, block=block)

    async def give_back(self, key: str, *, until: datetime, amount: int) -> None:
        await self.engine.give_back(key, until=until, amount=amount)

    async def left(self, key: str, *, until: datetime, limit: int) -> int:
        return await self.engine.left(key, until=until, limit=limit)


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def urls(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A database, and Redis or none."""
    if request.param == "redis":
        return request.getfixturevalue("sqlite_url"), request.getfixturevalue("redis_url")
    return request.getfixturevalue(f"{request.param}_url"), ""


@pytest.fixture
async def limits(urls: tuple[str, str], clock: ManualClock) -> AsyncIterator[CountedLimits]:
    """The rate limits that all instances share."""
    database_url, redis_url = urls
    db = open_db(database_url, clock)
    link = RedisClient(redis_url) if redis_url else None
    yield CountedLimits(RedisRateLimits(link, clock, SqlRateLimits(db)) if link else SqlRateLimits(db))
    if link:
        await link.close()
    await db.close()


def limiter(
    limits: RateLimits, clock: ManualClock, rates: str = "", *, interval: float = 0, quota: int = 0
) -> PullLimiter:
    return PullLimiter(limits, clock, rates=read_rates(rates), min_interval=interval, quota=quota)


async def admitted(limiter: PullLimiter, actor: str = ANNA) -> bool:
    try:
        await limiter.admit(actor)
    except TooManyPulls:
        return False
    return True


async def allowance(limiter: PullLimiter) -> Allowance:
    told = await limiter.admit(ANNA)
    assert told is not None
    return told


class TestReadingRates:
    @pytest.mark.parametrize(
        ("text", "rates"),
        [
            ("60/minute", [("minute", 60)]),
            ("1000/hour", [("hour", 1000)]),
            ("60", [("minute", 60)]),
            (" 60 / minute , 1000 / hour ", [("minute", 60), ("hour", 1000)]),
            ("1000/hour,60/minute,", [("hour", 1000), ("minute", 60)]),
            ("0", []),
            ("0/minute,5/hour", [("hour", 5)]),
            ("", []),
        ],
    )
    def test_a_rate_is_a_number_and_a_unit(self, text: str, rates: list[tuple[str, int]]):
        assert read_rates(text) == [Rate(unit=unit, number=number) for unit, number in rates]

    @pytest.mark.parametrize(
        "text",
        ["often", "60/day", "60/", "/minute", "-1/minute", "1.5/minute", "6/minute 5/hour", "5,6/minute", "1234567890"],
    )
    def test_what_is_no_rate_is_refused_with_an_example(self, text: str):
        with pytest.raises(BadRate, match="Invalid rate") as refused:
            read_rates(text)
        assert "60/minute" in refused.value.hint


class TestRates:
    async def test_without_limits_everyone_passes_and_nobody_is_asked(self, limits: CountedLimits, clock: ManualClock):
        free = limiter(limits, clock)
        assert [await free.admit(ANNA) for _ in range(3)] == [None] * 3
        assert limits.takes == 0

    async def test_a_key_may_pull_so_often_in_a_minute(self, limits: CountedLimits, clock: ManualClock):
        three = limiter(limits, clock, "3/minute")
        assert [await admitted(three) for _ in range(4)] == [True, True, True, False]
        clock.advance(seconds=19)
        assert not await admitted(three)
        clock.advance(seconds=1)
        assert [await admitted(three) for _ in range(2)] == [True, False]

    async def test_a_key_may_pull_so_often_in_an_hour(self, limits: CountedLimits, clock: ManualClock):
        two = limiter(limits, clock, "2/hour")
        assert [await admitted(two) for _ in range(3)] == [True, True, False]
        clock.advance(seconds=1799)
        assert not await admitted(two)
        clock.advance(seconds=1)
        assert await admitted(two)

    async def test_of_two_limits_the_tighter_one_counts(self, limits: CountedLimits, clock: ManualClock):
        both = limiter(limits, clock, "2/minute,3/hour")
        assert [await admitted(both) for _ in range(3)] == [True, True, False]
        clock.advance(seconds=60)
        assert [await admitted(both) for _ in range(2)] == [True, False]

    async def test_a_pull_that_one_limit_refuses_costs_nothing_of_the_other(
        self, limits: CountedLimits, clock: ManualClock
    ):
        both = limiter(limits, clock, "4/minute,2/hour")
        assert [await admitted(both) for _ in range(9)] == [True, True] + [False] * 7
        alone = limiter(limits, clock, "4/minute")
        clock.advance(seconds=14)  # no token is refilled yet, and the first limiter still has one
        assert [await admitted(alone) for _ in range(2)] == [True, False]

    async def test_keys_are_counted_apart(self, limits: CountedLimits, clock: ManualClock):
        one = limiter(limits, clock, "1/minute")
        assert [await admitted(one, actor) for actor in (ANNA, BERT, ANNA)] == [True, True, False]

    async def test_a_refusal_says_when_to_retry(self, limits: CountedLimits, clock: ManualClock):
        three = limiter(limits, clock, "3/minute")
        for _ in range(3):
            await three.admit(ANNA)
        clock.advance(seconds=4.5)
        with pytest.raises(TooManyPulls, match="3 times per minute; retry in 16 s") as refused:
            await three.admit(ANNA)
        assert refused.value.wait_seconds == pytest.approx(15.5)
        assert refused.value.in_chinese() == "此密钥的拉取上限为 每分钟 3 次，请在 16 秒后重试。"
        assert refused.value.headers["X-RateLimit-Remaining"] == "0"
        clock.advance(seconds=15.5)
        assert await admitted(three)

    async def test_a_runaway_client_is_refused_without_a_round_trip_each_time(
        self, limits: CountedLimits, clock: ManualClock
    ):
        one = limiter(limits, clock, "1/minute")
        assert await admitted(one)
        before = limits.takes
        refusals = []
        for _ in range(100):
            clock.advance(seconds=0.005)
            refusals.append(await admitted(one))
        assert not any(refusals)
        assert limits.takes == before + 1


class TestInterval:
    async def test_two_pulls_of_a_key_keep_their_distance(self, limits: CountedLimits, clock: ManualClock):
        slow = limiter(limits, clock, interval=5)
        assert await admitted(slow)
        clock.advance(seconds=4)
        with pytest.raises(TooManyPulls, match="once per 5 s; retry in 1 s") as refused:
            await slow.admit(ANNA)
        assert refused.value.in_chinese() == "此密钥的拉取上限为 每 5 秒一次，请在 1 秒后重试。"
        assert await admitted(slow, BERT)
        clock.advance(seconds=1)
        assert await admitted(slow)

    async def test_two_instances_keep_it_together(self, limits: CountedLimits, clock: ManualClock):
        gates = [limiter(limits, clock, interval=5) for _ in range(2)]
        assert [await admitted(one) for one in gates] == [True, False]

    async def test_a_pull_that_comes_too_soon_costs_nothing_of_the_rate(
        self, limits: CountedLimits, clock: ManualClock
    ):
        both = limiter(limits, clock, "2/hour", interval=5)
        assert [await admitted(both) for _ in range(4)] == [True, False, False, False]
        clock.advance(seconds=5)
        assert await admitted(both)


class TestAllowance:
    async def test_a_response_reports_what_is_left(self, limits: CountedLimits, clock: ManualClock):
        three = limiter(limits, clock, "3/minute")
        assert (await allowance(three)).remaining == 2
        last = await allowance(three)
        assert last.headers == {
            "X-RateLimit-Limit": "3",
            "X-RateLimit-Remaining": "1",
            "X-RateLimit-Reset": "2026-01-01T00:00:41.000Z",
        }

    async def test_the_closest_limit_is_reported(self, limits: CountedLimits, clock: ManualClock):
        both = limiter(limits, clock, "10/minute,5/hour")
        told = await allowance(both)
        assert (told.limit, told.remaining) == (5, 4)

    async def test_refilled_tokens_are_reported_too(self, limits: CountedLimits, clock: ManualClock):
        many = limiter(limits, clock, "60000/minute")
        for _ in range(10):
            await many.admit(ANNA)
        assert (await allowance(many)).remaining == 59_989
        clock.advance(seconds=0.005)
        assert (await allowance(many)).remaining == 59_993
        clock.advance(seconds=30)
        assert (await allowance(many)).remaining == 59_999


class TestLocalTokens:
    @pytest.fixture
    def tenths(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A process takes a tenth of a bucket, so that few pulls show what many would."""
        monkeypatch.setattr(pull_limits, "BLOCKS", 10)

    async def test_a_large_limit_costs_few_round_trips(self, limits: CountedLimits, clock: ManualClock):
        many = limiter(limits, clock, "600000/minute")
        for _ in range(3000):
            await many.admit(ANNA)
        assert limits.takes == 5

    async def test_concurrent_pulls_cost_one_round_trip_and_waste_no_tokens(
        self, limits: CountedLimits, clock: ManualClock
    ):
        many = limiter(limits, clock, "600000/minute")
        await asyncio.gather(*(many.admit(ANNA) for _ in range(500)))
        assert limits.takes == 1
        assert (await allowance(many)).remaining == 600_000 - 501

    @pytest.mark.parametrize("rates", ["55/minute", "20/hour"])
    async def test_two_instances_together_give_the_limit_and_not_one_more(
        self, limits: CountedLimits, clock: ManualClock, tenths: None, rates: str
    ):
        gates = [limiter(limits, clock, rates) for _ in range(2)]
        [rate] = read_rates(rates)
        passed = 0
        for number in range(rate.number + 5):
            passed += await admitted(gates[number % 2])
        assert passed == rate.number

    async def test_two_instances_with_a_small_limit_give_the_same_answers(
        self, limits: CountedLimits, clock: ManualClock
    ):
        gates = [limiter(limits, clock, "4/minute") for _ in range(2)]
        told = [(await allowance(gates[number % 2])).remaining for number in range(4)]
        assert told == [3, 2, 1, 0]
        assert [await admitted(one) for one in gates] == [False, False]
        clock.advance(seconds=15)
        assert [await admitted(one) for one in gates] == [True, False]

    async def test_who_pulls_rarely_is_never_refused_however_many_instances_there_are(
        self, limits: CountedLimits, clock: ManualClock, tenths: None
    ):
        """100,000 per hour are 27 per second; five instances that keep ten thousand each must not use them up."""
        gates = [limiter(limits, clock, "100000/hour") for _ in range(5)]
        for _ in range(10):
            assert all([await admitted(one) for one in gates])
            clock.advance(seconds=1.1)

    async def test_local_tokens_do_not_raise_the_limit_when_the_bucket_is_full_again(
        self, limits: CountedLimits, clock: ManualClock, tenths: None
    ):
        gates = [limiter(limits, clock, "50/minute") for _ in range(2)]
        assert all([await admitted(one) for one in gates])
        clock.advance(seconds=60)
        assert sum([await admitted(gates[number % 2]) for number in range(55)]) == 50

    async def test_the_keys_that_a_process_knows_have_a_bound(
        self, limits: CountedLimits, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(pull_limits, "MAX_KEYS", 3)
        one = limiter(limits, clock, "1/minute")
        assert all([await admitted(one, f"key:{number}") for number in range(10)])
        assert len(one._local) == 3
        assert not await admitted(one, "key:0"), "what the process forgot, the bucket knows"


class TestQuota:
    async def test_a_key_may_pull_so_many_tasks_in_a_day(self, limits: CountedLimits, clock: ManualClock):
        ten = limiter(limits, clock, quota=10)
        assert [await ten.reserve(ANNA, 4) for _ in range(3)] == [4, 4, 2]
        clock.advance(seconds=3600)
        with pytest.raises(PullQuotaSpent, match="10 tasks per day") as refused:
            await ten.reserve(ANNA, 1)
        assert refused.value.wait_seconds == 23 * 3600, "until midnight UTC"
        assert await ten.reserve(BERT, 10) == 10
        clock.advance(seconds=23 * 3600)
        assert await ten.reserve(ANNA, 99) == 10

    async def test_a_key_gets_all_it_asks_for_while_there_is_enough(self, limits: CountedLimits, clock: ManualClock):
        assert await limiter(limits, clock, quota=100).reserve(ANNA, 100) == 100

    async def test_what_was_not_pulled_can_be_pulled_later(self, limits: CountedLimits, clock: ManualClock):
        ten = limiter(limits, clock, quota=10)
        assert await ten.reserve(ANNA, 10) == 10
        await ten.give_back(ANNA, 7)
        assert await ten.reserve(ANNA, 10) == 7

    async def test_without_a_quota_there_is_no_end_and_nothing_is_written(
        self, limits: CountedLimits, clock: ManualClock
    ):
        free = limiter(limits, clock)
        assert await free.reserve(ANNA, 1_000_000) == 1_000_000
        await free.give_back(ANNA, 1_000_000)

    async def test_two_instances_spend_it_together(self, limits: CountedLimits, clock: ManualClock):
        gates = [limiter(limits, clock, quota=25) for _ in range(2)]
        granted = await asyncio.gather(*(gates[number % 2].reserve(ANNA, 5) for number in range(5)))
        assert sum(granted) == 25
        for one in gates:
            with pytest.raises(PullQuotaSpent):
                await one.reserve(ANNA, 1)


class TestRedisUnavailable:
    async def test_pulls_continue_with_a_reduced_limit_while_redis_is_unavailable(
        self, sqlite_url: str, clock: ManualClock
    ):
        with ValkeyServer.start() as server:
            db, link = open_db(sqlite_url, clock), RedisClient(server.url)
            careful = FallbackLimits(RedisRateLimits(link, clock, SqlRateLimits(db)), clock=clock, share=0.25)
            eight = limiter(careful, clock, "8/minute", quota=3)
            assert await admitted(eight)
            server.kill()
            assert [await admitted(eight) for _ in range(3)] == [True, True, False], "a quarter of eight"
            assert await eight.reserve(ANNA, 3) == 3, "quotas are in the database"
            await link.close()
            await db.close()


class TestOverHttp:
    @pytest.fixture
    def with_limits(self, api: TasksApi) -> TasksApi:
        return api.with_limits("2/minute", quota=3)

    async def test_a_pull_reports_the_rate_and_is_refused_past_it(self, with_limits: TasksApi):
        first = await with_limits.call("GET", f"{PROJECT}/tasks/pull", key="anna")
        assert first.headers["x-ratelimit-limit"] == "2"
        assert first.headers["x-ratelimit-remaining"] == "1"
        assert datetime.fromisoformat(first.headers["x-ratelimit-reset"]) > datetime(2026, 1, 1, tzinfo=UTC)
        await with_limits.call("GET", f"{PROJECT}/tasks/pull", key="anna")
        refused = await with_limits.call("GET", f"{PROJECT}/tasks/pull", key="anna")
        assert (refused.status, refused.error["code"]) == (429, "RATE_LIMIT_EXCEEDED")
        assert refused.headers["retry-after"] == "30"
        assert (await with_limits.call("GET", f"{PROJECT}/tasks/pull", key="bert")).status == 200

    async def test_past_the_quota_a_pull_gets_fewer_and_then_none_until_midnight(
        self, with_limits: TasksApi, clock: ManualClock
    ):
        await with_limits.plan(*(f"t{number}" for number in range(5)))
        assert len(await with_limits.pull("limit=5", key="anna")) == 3
        clock.advance(seconds=60)
        refused = await with_limits.call("GET", f"{PROJECT}/tasks/pull", key="anna")
        assert (refused.status, refused.error["details"]["code"]) == (429, "PULL_QUOTA_SPENT")
        assert refused.headers["retry-after"] == str(86_400 - 60)
        assert len(await with_limits.pull("limit=5", key="bert")) == 2
