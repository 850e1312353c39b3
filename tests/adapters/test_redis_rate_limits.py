"""Rate limits in Redis, beyond the suite in tests/conformance."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.adapters.redis.client import REST_SECONDS, RedisClient, RedisUnavailable
from penstock.adapters.redis.rate_limits import MARGIN_MILLISECONDS, RedisRateLimits
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.fallback_limits import FallbackLimits
from penstock.kernel.rate_limits import Bucket, Quota, RateLimits, SqlRateLimits
from tests.servers.valkey import ValkeyServer

TWENTY = Bucket(per_second=4, burst=20)
TONIGHT = datetime(2026, 1, 2, tzinfo=UTC)
EXAMPLES = count()  # a fresh key per Hypothesis example: the limits are one for all of them


@pytest.fixture
async def redis_client(redis_url: str, clock: ManualClock) -> AsyncIterator[RedisClient]:
    redis_client = RedisClient(redis_url, clock)
    yield redis_client
    await redis_client.close()


@pytest.fixture
def limits(redis_client: RedisClient, clock: ManualClock, db: Db) -> RedisRateLimits:
    return RedisRateLimits(redis_client, clock, SqlRateLimits(db))


async def taken(limits: RateLimits, times: int) -> int:
    return sum([(await limits.take("k", TWENTY)).allowed for _ in range(times)])


takes = st.tuples(st.just("take"), st.floats(0, 1))
coolings = st.tuples(st.just("cool"), st.floats(0, 10_000))
waits = st.tuples(st.just("wait"), st.floats(0, 1000))
buckets = st.builds(Bucket, per_second=st.floats(0.001, 1e6), burst=st.floats(1, 10_000))


@given(buckets, st.lists(st.one_of(takes, takes, coolings, waits), min_size=1, max_size=20))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("db_url", ["sqlite"], indirect=True)
async def test_redis_and_the_table_agree_to_the_last_digit(
    limits: RedisRateLimits, db: Db, clock: ManualClock, bucket: Bucket, steps: list[tuple[str, float]]
):
    table, key = SqlRateLimits(db), f"example {next(EXAMPLES)}"
    for what, size in steps:
        if what == "wait":
            clock.advance(seconds=size)
        elif what == "cool":
            await limits.cool(key, bucket, seconds=size)
            await table.cool(key, bucket, seconds=size)
        else:
            amount = size * bucket.burst
            assert await limits.take(key, bucket, amount=amount) == await table.take(key, bucket, amount=amount)


@pytest.mark.parametrize("db_url", ["sqlite"], indirect=True)
class TestForgetting:
    async def test_redis_forgets_a_bucket_a_while_after_it_is_full(
        self, limits: RedisRateLimits, redis_client: RedisClient
    ):
        await limits.take("k", TWENTY, amount=10)
        full, now = 2500 + MARGIN_MILLISECONDS, await redis_client.execute("PTTL", "penstock:rate:k")
        assert full - 30_000 < now <= full

    async def test_redis_forgets_a_cooled_bucket_when_it_has_cooled_and_is_full(
        self, limits: RedisRateLimits, redis_client: RedisClient
    ):
        await limits.cool("k", TWENTY, seconds=100)
        full, now = 104_750 + MARGIN_MILLISECONDS, await redis_client.execute("PTTL", "penstock:rate:k")
        assert full - 30_000 < now <= full

    async def test_a_sweep_deletes_the_windows_that_are_over(self, limits: RedisRateLimits, clock: ManualClock):
        assert await limits.reserve("k", until=TONIGHT, limit=1, block=1) == 1
        assert await limits.sweep() == 0
        clock.advance(seconds=86_400)
        assert await limits.sweep() == 1


@pytest.mark.parametrize("db_url", ["sqlite"], indirect=True)
@pytest.mark.storm
class TestStorms:
    @pytest.fixture
    def server(self) -> Iterator[ValkeyServer]:
        with ValkeyServer.start() as started:
            yield started

    @pytest.fixture
    def redis_url(self, server: ValkeyServer) -> str:
        return server.url

    async def test_flushed_it_gives_full_buckets_but_no_quota_twice(
        self, limits: RedisRateLimits, server: ValkeyServer
    ):
        quota = Quota(limits, "k", limit=3, until=TONIGHT, block=1)
        assert (await taken(limits, 21), await quota.spend(3)) == (20, True)
        server.flush()
        assert (await taken(limits, 21), await quota.spend()) == (20, False)

    async def test_gone_it_says_so_and_quotas_go_on(self, limits: RedisRateLimits, server: ValkeyServer):
        server.kill()
        with pytest.raises(RedisUnavailable):
            await limits.take("k", TWENTY)
        with pytest.raises(RedisUnavailable):
            await limits.cool("k", TWENTY, seconds=1)
        assert await limits.reserve("k", until=TONIGHT, limit=1, block=1) == 1

    async def test_with_local_fallback_limits_go_on_at_a_share_until_redis_is_back(
        self, limits: RedisRateLimits, server: ValkeyServer, clock: ManualClock
    ):
        gate = FallbackLimits(limits, clock=clock)
        assert (await taken(gate, 21), gate.answered_locally) == (20, 0)
        server.kill()
        assert (await taken(gate, 10), gate.answered_locally) == (5, 10)
        server.start_again()
        assert await taken(gate, 1) == 0
        clock.advance(seconds=REST_SECONDS)
        assert (await taken(gate, 21), gate.answered_locally) == (20, 11)
