"""The rate limit: all workers together never make more calls in any second than allowed."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.adapters.llm import ChatCompletions
from penstock.adapters.llm.rate_limit import (
    MAX_SLEEP_SECONDS,
    SLACK_SECONDS,
    interval_seconds,
    max_token_age_seconds,
)
from penstock.adapters.redis.client import RedisClient, RedisUnavailable
from penstock.adapters.redis.rate_limits import RedisRateLimits
from penstock.documents.chat_model import ChatReply, ModelBusy, ModelChoice, ModelRateLimited
from penstock.kernel.clock import Clock, ManualClock, SystemClock
from penstock.kernel.rate_limits import Bucket, RateLimitResult, RateLimits, SqlRateLimits
from tests.adapters.llm.conftest import Open
from tests.adapters.llm.questions import OpenLimits, asking, server_at
from tests.conftest import open_db
from tests.fakes.blocking_handler import wait_until
from tests.fakes.llm_server import LlmServer

WORKERS, CALLS, LIMIT = 4, 16, 10

Connect = Callable[[Clock], RateLimits]


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def urls(request: pytest.FixtureRequest) -> tuple[str, str | None]:
    """The URLs of a database and, where rate limits are in Redis, of a Redis."""
    with_redis = request.param == "redis"
    database_url: str = request.getfixturevalue("sqlite_url" if with_redis else f"{request.param}_url")
    return database_url, request.getfixturevalue("redis_url") if with_redis else None


@pytest.fixture
async def connect(urls: tuple[str, str | None]) -> AsyncIterator[Connect]:
    """Opens the same limits several times, as several processes would."""
    database_url, redis_url = urls
    async with AsyncExitStack() as closing:

        def open_one(clock: Clock) -> RateLimits:
            db = open_db(database_url, clock, connections=2)
            closing.push_async_callback(db.close)
            if redis_url is None:
                return SqlRateLimits(db)
            redis_client = RedisClient(redis_url)
            closing.push_async_callback(redis_client.close)
            return RedisRateLimits(redis_client, clock, SqlRateLimits(db))

        yield open_one


async def as_time_goes_by(clock: ManualClock, *asked: Awaitable[ChatReply], step_seconds: float = 0.05) -> None:
    """Advance the clock until all have their replies. A slow machine needs longer: stale tokens are not used."""
    replies = asyncio.gather(*asked)

    def answered() -> bool:
        clock.advance(seconds=step_seconds)
        return replies.done()

    await wait_until(answered)
    await replies


class Watched:
    """Rate limits that record when each token was requested and granted."""

    def __init__(self, limits: RateLimits, tokens: list[tuple[float, float]]) -> None:
        self._limits = limits
        self._tokens = tokens

    def __getattr__(self, name: str) -> object:
        return getattr(self._limits, name)

    async def take(self, key: str, bucket: Bucket, *, amount: float = 1) -> RateLimitResult:
        asked = time.perf_counter()
        grant = await self._limits.take(key, bucket, amount=amount)
        if grant.allowed:
            self._tokens.append((asked, time.perf_counter()))
        return grant


def spans(tokens: list[tuple[float, float]], number: int) -> list[float]:
    """The longest time it took to grant that many consecutive tokens."""
    tokens.sort(key=lambda token: token[1])
    rows = [tokens[start : start + number] for start in range(len(tokens) - number + 1)]
    assert rows
    return [max(came for _, came in row) - min(asked for asked, _ in row) for row in rows]


class TestInterval:
    @given(st.floats(0.01, 1000))
    def test_one_more_than_the_limit_does_not_fit_into_a_second(self, limit: float):
        whole = -(-limit // 1)
        assert whole * interval_seconds(limit) >= 1 + SLACK_SECONDS * 0.999

    @pytest.mark.parametrize(("limit", "seconds"), [(5, 0.1), (1, 0.1), (2.5, 0.2), (0.02, 49)])
    def test_with_a_longer_interval_a_token_stays_valid_longer(self, limit: float, seconds: float):
        assert max_token_age_seconds(limit) == pytest.approx(seconds)

    @given(st.floats(0.01, 1000))
    def test_in_the_long_run_the_limit_holds_and_most_of_it_is_used(self, limit: float):
        assert 0.9 * limit < 1 / interval_seconds(limit) <= limit * 1.000001


class TestWorkers:
    async def test_four_workers_together_keep_the_limit(self, opened: Open, server: LlmServer, connect: Connect):
        """Judged by the tokens, whose times do not depend on the load; the bench measures the arrivals."""
        tokens: list[tuple[float, float]] = []
        clock = SystemClock()
        workers = [opened(at=Watched(connect(clock), tokens), by=clock, calls_per_second=LIMIT) for _ in range(WORKERS)]
        began = time.perf_counter()
        await asyncio.gather(*(workers[number % WORKERS].complete(asking("good")) for number in range(CALLS)))
        ended = time.perf_counter()
        assert len(server.calls) == CALLS <= len(tokens)
        assert ended - began >= (CALLS - 1) * interval_seconds(LIMIT)
        assert [span for span in spans(tokens, LIMIT + 1) if span < 1] == []

    async def test_a_429_pauses_every_worker(
        self, opened: Open, server: LlmServer, connect: Connect, clock: ManualClock
    ):
        first, second = (opened(at=connect(clock), calls_per_second=100) for _ in range(2))
        server.retry_after = "90"
        with pytest.raises(ModelBusy):
            await as_time_goes_by(clock, first.complete(asking("busy")))
        with pytest.raises(ModelRateLimited) as held_up:
            await second.complete(asking("good"))
        assert 80 < held_up.value.wait_seconds <= 90
        assert held_up.value.internal_outage  # nothing was asked
        assert len(server.calls) == 1
        clock.advance(seconds=90)
        await as_time_goes_by(clock, second.complete(asking("good")))
        assert len(server.calls) == 2


class TestWaiting:
    @pytest.fixture
    async def one(self, sqlite_url: str, clock: ManualClock, opened: Open) -> AsyncIterator[ChatCompletions]:
        db = open_db(sqlite_url, clock)
        yield opened(at=SqlRateLimits(db), calls_per_second=0.02)
        await db.close()

    async def test_a_token_that_comes_within_a_minute_is_waited_for(
        self, one: ChatCompletions, server: LlmServer, clock: ManualClock
    ):
        """At a call every fifty seconds."""
        await as_time_goes_by(clock, one.complete(asking("good")))
        began = clock.now()
        await as_time_goes_by(clock, one.complete(asking("good")))
        assert (clock.now() - began).total_seconds() > 40
        assert len(server.calls) == 2

    async def test_a_longer_wait_raises_with_its_seconds(self, opened: Open, server: LlmServer):
        shut = LimitsThatRefuse(seconds=MAX_SLEEP_SECONDS + 1)
        with pytest.raises(ModelRateLimited) as refused:
            await opened(at=shut).complete(asking("good"))
        assert refused.value.wait_seconds == MAX_SLEEP_SECONDS + 1
        assert server.calls == []

    async def test_the_total_wait_is_bounded(self, opened: Open, clock: ManualClock):
        shut = LimitsThatRefuse(seconds=50)
        with pytest.raises(ModelRateLimited):
            await as_time_goes_by(clock, opened(at=shut).complete(asking("good")), step_seconds=50)
        assert shut.asked == 13

    async def test_waiters_of_one_process_are_served_in_order(
        self, opened: Open, server: LlmServer, connect: Connect, clock: ManualClock
    ):
        chat = opened(at=connect(clock), calls_per_second=2, concurrency=10)
        await as_time_goes_by(clock, *(chat.complete(asking("good", text=f"{number}")) for number in range(5)))
        assert [call.prompt for call in server.calls] == ["0", "1", "2", "3", "4"]

    async def test_waiting_for_one_server_occupies_no_slot(self, opened: Open, server: LlmServer):
        servers = server_at(server.base_url, "shut"), server_at(server.base_url, "open")
        chat = opened(*servers, at=LimitsThatRefuse("llm:shut", seconds=50), concurrency=1)
        waiting = asyncio.create_task(chat.complete(asking(which=ModelChoice(server="shut"))))
        await asyncio.sleep(0)
        await chat.complete(asking(which=ModelChoice(server="open")))
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])

    async def test_a_stale_token_is_not_used(self, opened: Open, server: LlmServer):
        slow = LimitsThatAreSlow(times=1)
        await opened(at=slow).complete(asking("good"))
        assert (len(slow.taken), len(server.calls)) == (2, 1)

    async def test_tokens_that_are_all_stale_are_used_in_the_end(self, opened: Open, server: LlmServer):
        slow = LimitsThatAreSlow(times=100)
        await opened(at=slow).complete(asking("good"))
        assert (len(slow.taken), len(server.calls)) == (4, 1)

    async def test_a_pause_that_cannot_be_shared_still_reaches_the_caller(self, opened: Open):
        with pytest.raises(ModelBusy):
            await opened(at=LimitsThatCannotCool()).complete(asking("busy"))


class LimitsThatRefuse(OpenLimits):
    """Grants a token only after so many seconds, for this key or for any."""

    def __init__(self, key: str = "", *, seconds: float) -> None:
        super().__init__()
        self.asked = 0
        self._key = key
        self._seconds = seconds

    async def take(self, key: str, bucket: Bucket, *, amount: float = 1) -> RateLimitResult:
        if self._key not in key:
            return await super().take(key, bucket, amount=amount)
        self.asked += 1
        return RateLimitResult(allowed=False, remaining=0, wait_seconds=self._seconds)


class LimitsThatAreSlow(OpenLimits):
    """Takes longer than a token stays valid, so many times."""

    def __init__(self, *, times: int) -> None:
        super().__init__()
        self._times = times

    async def take(self, key: str, bucket: Bucket, *, amount: float = 1) -> RateLimitResult:
        if len(self.taken) < self._times:
            await asyncio.sleep(SLACK_SECONDS * 1.1)
        return await super().take(key, bucket, amount=amount)


class LimitsThatCannotCool(OpenLimits):
    """Rate limits in a Redis that is down."""

    async def cool(self, key: str, bucket: Bucket, *, seconds: float) -> None:
        raise RedisUnavailable(reason="it is gone")
