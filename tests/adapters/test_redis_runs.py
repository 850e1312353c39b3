"""Run state in Redis, beyond the suite in tests/conformance."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest

from penstock.adapters.redis.client import ANSWER_SECONDS, REST_SECONDS, RedisClient, RedisUnavailable
from penstock.adapters.redis.runs import BATCH, RedisRunState
from penstock.kernel.clock import ManualClock
from penstock.kernel.runstate import RunMovedOn, RunSnapshot
from tests.servers.valkey import ValkeyServer

LIVE_SECONDS, FINAL_SECONDS = 600, 60
KEY = "etl:task:7"


@pytest.fixture
async def redis_client(redis_url: str, clock: ManualClock) -> AsyncIterator[RedisClient]:
    redis_client = RedisClient(redis_url, clock)
    yield redis_client
    await redis_client.close()


@pytest.fixture
def runs(redis_client: RedisClient, clock: ManualClock) -> RedisRunState:
    return RedisRunState(redis_client, clock, live_seconds=LIVE_SECONDS, final_seconds=FINAL_SECONDS)


def entry(order: int = 1, *, key: str = KEY, status: str = "running", final: bool = False) -> RunSnapshot:
    return RunSnapshot(key=key, run=1, order=order, status=status, final=final)


async def keys_with(runs: RedisRunState, status: str = "running", limit: int = 100) -> list[str]:
    return [found.key for found in await runs.list_by_status(status, limit=limit)]


async def size(redis_client: RedisClient) -> int:
    return int(await redis_client.execute("DBSIZE"))


class TestStoredFormat:
    async def test_an_entry_is_a_hash_at_its_key(self, runs: RedisRunState, redis_client: RedisClient):
        await runs.put(RunSnapshot(key=KEY, run=2, order=9, status="ocr", fields={"phase": "ocr", "page": 3}))
        found = await redis_client.execute("HGETALL", KEY)
        assert (found[b"run"], found[b"order"], found[b"status"], found[b"final"]) == (b"2", b"9", b"ocr", b"0")
        assert msgspec.json.decode(found[b"fields"]) == {"phase": "ocr", "page": 3}

    async def test_texts_and_numbers_can_be_read_by_their_names(self, runs: RedisRunState, redis_client: RedisClient):
        said = {"phase": "ocr", "progress": 40, "share": 0.5, "held": True, "error": None, "pages": [1], "place": "x"}
        await runs.put(RunSnapshot(key=KEY, run=1, order=1, status="ocr", fields=said))
        found = await redis_client.execute("HGETALL", KEY)
        shown = {name: found.get(name.encode()) for name in said if name != "place"}
        assert shown == {
            "phase": b"ocr",
            "progress": b"40",
            "share": b"0.5",
            "held": b"true",
            "error": None,
            "pages": None,
        }
        assert found[b"place"].isdigit()  # no field takes the place of what is the entry's own
        known = await runs.get(KEY)
        assert known is not None
        assert known.fields == said

    async def test_what_a_later_entry_does_not_say_is_gone(self, runs: RedisRunState, redis_client: RedisClient):
        await runs.put(RunSnapshot(key=KEY, run=1, order=1, status="ocr", fields={"error_code": "X", "progress": 40}))
        await runs.put(RunSnapshot(key=KEY, run=1, order=2, status="ocr", fields={"error_code": None, "progress": 50}))
        assert await redis_client.execute("HMGET", KEY, "error_code", "progress") == [None, b"50"]

    @pytest.mark.parametrize(("final", "seconds"), [(False, LIVE_SECONDS), (True, FINAL_SECONDS)])
    async def test_redis_expires_it(self, runs: RedisRunState, redis_client: RedisClient, final: bool, seconds: int):
        await runs.put(entry(final=final))
        assert (seconds - 30) * 1000 < await redis_client.execute("PTTL", KEY) <= seconds * 1000

    async def test_a_get_is_one_round_trip(self, runs: RedisRunState, redis_client: RedisClient):
        await runs.put(entry())
        await redis_client.execute("CONFIG", "RESETSTAT")
        assert await runs.get(KEY) == entry()
        commands = await redis_client.execute("INFO", "commandstats")
        assert {name: of["calls"] for name, of in commands.items() if "config" not in name} == {"cmdstat_hmget": 1}

    async def test_nothing_is_left_of_a_status_that_nobody_has_any_more(
        self, runs: RedisRunState, redis_client: RedisClient
    ):
        await runs.put(entry(1, status="waiting"))
        await runs.put(entry(2, status="running"))
        assert await redis_client.execute("EXISTS", "penstock:runs:waiting") == 0
        assert await redis_client.execute("ZCARD", "penstock:run-ends") == 1


class TestExpiredInRedis:
    """A key that Redis expired is deleted here by hand, so that tests do not wait for it."""

    async def test_a_list_drops_it_and_its_page_is_still_full(self, runs: RedisRunState, redis_client: RedisClient):
        for number in range(10):
            await runs.put(entry(key=f"k{number}"))
        await redis_client.execute("DEL", "k1", "k2", "k4")
        assert await keys_with(runs, limit=4) == ["k0", "k3", "k5", "k6"]
        assert await redis_client.execute("ZCARD", "penstock:runs:running") == 7

    async def test_a_long_list_goes_on_over_all_that_is_gone(self, runs: RedisRunState, redis_client: RedisClient):
        keys = [f"k{number:04}" for number in range(2 * BATCH + 50)]
        for key in keys:  # one by one: all at once would be too many for a slow machine to answer in time
            await runs.put(entry(key=key))
        assert await keys_with(runs, limit=1000) == keys
        await redis_client.execute("DEL", *keys[10:-10])
        assert await keys_with(runs, limit=15) == keys[:10] + keys[-10:-5]

    async def test_it_can_be_put_again_under_another_status(self, runs: RedisRunState, redis_client: RedisClient):
        await runs.put(entry(9, status="waiting"))
        await redis_client.execute("DEL", KEY)
        await runs.put(entry(1, status="running"))
        assert (await keys_with(runs, "waiting"), await keys_with(runs, "running")) == ([], [KEY])

    async def test_a_sweep_drops_what_is_still_said_about_it(
        self, runs: RedisRunState, redis_client: RedisClient, clock: ManualClock
    ):
        for number in range(5):
            await runs.put(entry(key=f"k{number}", status=f"status {number % 2}"))
        await redis_client.execute("DEL", *(f"k{number}" for number in range(5)))
        clock.advance(seconds=LIVE_SECONDS)
        assert await runs.sweep() == 5
        assert await size(redis_client) == 0


class TestSweep:
    async def test_what_is_over_goes_and_no_more_than_the_limit(
        self, runs: RedisRunState, redis_client: RedisClient, clock: ManualClock
    ):
        for number in range(5):
            await runs.put(entry(key=f"over {number}", final=True))
        await runs.put(entry(key="live"))
        assert await runs.sweep() == 0
        clock.advance(seconds=FINAL_SECONDS)
        assert [await runs.sweep(limit=3) for _ in range(3)] == [3, 2, 0]
        assert (await runs.get("live"), await keys_with(runs)) == (entry(key="live"), ["live"])
        clock.advance(seconds=LIVE_SECONDS)
        assert await runs.sweep() == 1
        assert await size(redis_client) == 0

    async def test_more_than_one_batch_is_swept_at_once(
        self, runs: RedisRunState, redis_client: RedisClient, clock: ManualClock
    ):
        for number in range(BATCH * 2 + 1):
            await runs.put(entry(key=f"k{number}"))
        clock.advance(seconds=LIVE_SECONDS)
        assert await runs.sweep() == BATCH * 2 + 1
        assert await size(redis_client) == 0

    async def test_an_entry_that_moved_on_to_another_status_stays(
        self, runs: RedisRunState, redis_client: RedisClient, clock: ManualClock
    ):
        await runs.put(entry(1, status="done", final=True))
        await redis_client.execute("DEL", KEY)
        await runs.put(entry(2, status="running"))
        clock.advance(seconds=FINAL_SECONDS)
        assert await runs.sweep() == 1
        assert (await runs.get(KEY), await keys_with(runs)) == (entry(2), [KEY])

    async def test_an_entry_that_was_put_again_in_time_stays(self, runs: RedisRunState, clock: ManualClock):
        await runs.put(entry(1))
        clock.advance(seconds=LIVE_SECONDS - 1)
        await runs.put(entry(2))
        clock.advance(seconds=LIVE_SECONDS - 1)
        assert await runs.sweep() == 0
        assert (await runs.get(KEY), await keys_with(runs)) == (entry(2), [KEY])


@pytest.mark.storm
class TestStorms:
    @pytest.fixture
    def server(self) -> Iterator[ValkeyServer]:
        with ValkeyServer.start(appendonly=True) as started:
            yield started

    @pytest.fixture
    def redis_url(self, server: ValkeyServer) -> str:
        return server.url

    async def test_flushed_it_knows_nothing_and_takes_puts_again(self, runs: RedisRunState, server: ValkeyServer):
        await runs.put(entry(5))
        server.flush()
        assert (await runs.get(KEY), await keys_with(runs)) == (None, [])
        await runs.put(entry(1))
        assert (await runs.get(KEY), await keys_with(runs)) == (entry(1), [KEY])

    async def test_killed_and_started_again_it_goes_on_where_it_was(
        self, runs: RedisRunState, server: ValkeyServer, clock: ManualClock
    ):
        await runs.put(entry(5))
        server.kill()
        for _ in range(5):
            with pytest.raises(RedisUnavailable):
                await runs.get(KEY)
        server.start_again()
        clock.advance(seconds=REST_SECONDS)
        assert await runs.get(KEY) == entry(5)
        with pytest.raises(RunMovedOn):
            await runs.put(entry(4))
        await runs.put(entry(6))

    async def test_a_paused_redis_is_unavailable_and_used_again_later(
        self, runs: RedisRunState, server: ValkeyServer, clock: ManualClock
    ):
        await runs.put(entry(1))
        server.pause()
        asked = (runs.get(KEY), runs.put(entry(2)), runs.list_by_status("running"), runs.sweep())
        began = time.monotonic()
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(result) for result in results] == [RedisUnavailable] * 4
        assert time.monotonic() - began < ANSWER_SECONDS * 2
        server.resume()
        clock.advance(seconds=REST_SECONDS)
        assert await runs.get(KEY) in (entry(1), entry(2))  # "away" does not say whether the put came through
        await runs.put(entry(3))
        assert await keys_with(runs) == [KEY]

    async def test_puts_while_it_is_killed_again_and_again_leave_the_last_that_counted(
        self, runs: RedisRunState, server: ValkeyServer, clock: ManualClock
    ):
        counted = -1
        for order in range(200):
            if order % 50 == 25:
                server.kill()
                server.start_again()
            clock.advance(seconds=REST_SECONDS)
            try:
                await runs.put(entry(order))
                counted = order
            except RedisUnavailable:
                continue
            found = await runs.get(KEY)
            assert found == entry(counted)
        assert counted == 199
