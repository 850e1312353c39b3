"""The Redis client when Redis is up, down, silent, returns errors, or is not Redis."""

import asyncio
import random
import time
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from penstock.adapters.redis import client
from penstock.adapters.redis.client import (
    ANSWER_SECONDS,
    CONNECTIONS,
    REST_SECONDS,
    BadRedisUrl,
    RedisClient,
    RedisUnavailable,
    Script,
)
from penstock.kernel.clock import ManualClock
from tests.servers.valkey import ValkeyServer

SLACK_SECONDS = 5.0  # for a machine that is busy with other things
ADD = Script("return redis.call('INCRBY', KEYS[1], ARGV[1])")


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer.start() as started:
        yield started


@pytest.fixture
async def redis_client(server: ValkeyServer, clock: ManualClock) -> AsyncIterator[RedisClient]:
    redis_client = RedisClient(server.url, clock)
    yield redis_client
    await redis_client.close()


@asynccontextmanager
async def linked(url: str) -> AsyncIterator[RedisClient]:
    redis_client = RedisClient(url)
    try:
        yield redis_client
    finally:
        await redis_client.close()


def tell(server: ValkeyServer, *command: str) -> object:
    """A command by another client."""
    with Redis.from_url(server.url, decode_responses=True) as client:
        return client.execute_command(*command)


async def turns() -> None:
    """Let the event loop send and receive."""
    for _ in range(100):
        await asyncio.sleep(0)


async def refused(redis_client: RedisClient, *command: str) -> RedisUnavailable:
    with pytest.raises(RedisUnavailable) as caught:
        await redis_client.execute(*(command or ("PING",)))
    return caught.value


async def open_breaker(redis_client: RedisClient) -> None:
    """Let three calls fail at once, so that a silent server costs one timeout."""
    results = await asyncio.gather(*(redis_client.execute("PING") for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [RedisUnavailable] * 3
    assert redis_client.breaker.open


class TestWhenAllIsWell:
    async def test_a_command_is_answered_in_bytes(self, redis_client: RedisClient):
        await redis_client.execute("SET", "word", "第1页")
        assert await redis_client.execute("GET", "word") == "第1页".encode()

    async def test_a_script_runs_and_runs_again_after_a_flush_made_it_unknown(
        self, redis_client: RedisClient, server: ValkeyServer
    ):
        assert [await redis_client.run_script(ADD, ["n"], 2) for _ in range(2)] == [2, 4]
        server.flush()
        assert [await redis_client.run_script(ADD, ["n"], 2) for _ in range(2)] == [2, 4]

    async def test_the_raw_client_works_inside_mapped_errors(self, redis_client: RedisClient):
        with redis_client.mapped_errors():
            assert await redis_client.raw.set("word", "kept")
            assert await redis_client.raw.get("word") == b"kept"

    async def test_nothing_is_connected_before_the_first_use(self, redis_client: RedisClient, server: ValkeyServer):
        server.kill()
        RedisClient(server.url)
        assert not redis_client.breaker.open

    async def test_an_invalid_command_is_no_outage(self, redis_client: RedisClient):
        await redis_client.execute("SET", "word", "no number")
        for _ in range(5):
            with pytest.raises(ResponseError, match="not an integer"):
                await redis_client.execute("INCR", "word")
        assert not redis_client.breaker.open


class TestWhenItIsDown:
    async def test_a_call_says_so_at_once_and_without_an_address(self, redis_client: RedisClient, server: ValkeyServer):
        server.kill()
        error = await refused(redis_client)
        assert error.values["reason"] == "Connection refused"
        assert (error.code, error.internal_outage, error.retryable) == ("REDIS_UNAVAILABLE", True, True)

    async def test_the_raw_client_inside_mapped_errors_raises_the_same(
        self, redis_client: RedisClient, server: ValkeyServer
    ):
        server.kill()
        with pytest.raises(RedisUnavailable, match="Connection refused"), redis_client.mapped_errors():
            await redis_client.raw.get("word")

    async def test_a_host_that_does_not_exist_is_named_so(self):
        async with linked("redis://user:s3cret@no-such-host.invalid:6379/0") as redis_client:
            error = await refused(redis_client)
        assert "s3cret" not in str(error)
        assert "no-such-host" not in str(error)

    async def test_the_breaker_opens_and_closes_by_itself(
        self, redis_client: RedisClient, server: ValkeyServer, clock: ManualClock
    ):
        assert await redis_client.execute("PING")
        server.kill()
        await open_breaker(redis_client)
        server.start_again()
        assert (await refused(redis_client)).values["reason"] == redis_client.breaker.reason != ""
        clock.advance(seconds=REST_SECONDS)
        assert await redis_client.execute("PING")
        assert (redis_client.breaker.open, redis_client.breaker.reason) == (False, "")

    async def test_stale_connections_are_replaced_after_a_restart(
        self, redis_client: RedisClient, server: ValkeyServer
    ):
        await asyncio.gather(*(redis_client.execute("PING") for _ in range(10)))
        server.kill()
        server.start_again()
        await turns()
        assert all(await asyncio.gather(*(redis_client.execute("PING") for _ in range(10))))


class TestWhenItIsSilent:
    async def test_a_call_ends_in_time_and_afterwards_calls_cost_nothing(
        self, redis_client: RedisClient, server: ValkeyServer
    ):
        server.pause()
        began = time.monotonic()
        await open_breaker(redis_client)
        assert ANSWER_SECONDS <= time.monotonic() - began < ANSWER_SECONDS + SLACK_SECONDS
        assert redis_client.breaker.reason == "timed out"
        began, cpu_began = time.monotonic(), time.process_time()
        for _ in range(1000):
            await refused(redis_client)
        assert time.process_time() - cpu_began < ANSWER_SECONDS
        assert time.monotonic() - began < ANSWER_SECONDS + SLACK_SECONDS  # one call that waits takes longer

    async def test_it_is_found_back_when_it_answers_again(
        self, redis_client: RedisClient, server: ValkeyServer, clock: ManualClock
    ):
        assert await redis_client.execute("PING")
        server.pause()
        await open_breaker(redis_client)
        server.resume()
        clock.advance(seconds=REST_SECONDS)
        assert await redis_client.execute("ECHO", "mine") == b"mine"

    async def test_while_one_call_probes_the_others_fail_at_once(
        self, redis_client: RedisClient, server: ValkeyServer, clock: ManualClock
    ):
        server.pause()
        await open_breaker(redis_client)
        clock.advance(seconds=REST_SECONDS)
        looking = asyncio.create_task(redis_client.execute("PING"))
        await asyncio.sleep(0)
        await refused(redis_client)
        assert not looking.done()
        server.resume()
        assert await looking
        assert await redis_client.execute("PING")

    async def test_those_who_wait_for_a_free_connection_wait_no_longer(self, redis_client: RedisClient):
        began = time.monotonic()
        waits = [redis_client.execute("BLPOP", "nothing", 0) for _ in range(CONNECTIONS * 2)]
        results = await asyncio.gather(*waits, return_exceptions=True)
        assert {type(result) for result in results} == {RedisUnavailable}
        assert time.monotonic() - began < ANSWER_SECONDS + SLACK_SECONDS

    async def test_a_client_can_be_closed_during_a_large_command(self, redis_client: RedisClient, server: ValkeyServer):
        assert await redis_client.execute("PING")
        server.pause()
        large = asyncio.create_task(redis_client.execute("SET", "word", "x" * 10_000_000))
        await turns()
        async with asyncio.timeout(SLACK_SECONDS):
            await redis_client.close()
        with pytest.raises(RedisUnavailable):
            await large
        server.kill()
        await turns()  # the rest of the command has nowhere to go now, and its socket is closed


class TestErrorReplies:
    async def test_a_wrong_password_is_named_and_not_shown(self, server: ValkeyServer):
        tell(server, "CONFIG", "SET", "requirepass", "r1ght-s3cret")
        async with linked(f"{server.url}?password=wr0ng-s3cret") as redis_client:
            error = await refused(redis_client)
        assert error.values["reason"] == "authentication failed"
        assert "s3cret" not in "".join(traceback.format_exception(error))

    async def test_a_missing_password_is_named(self, redis_client: RedisClient, server: ValkeyServer):
        tell(server, "CONFIG", "SET", "requirepass", "r1ght-s3cret")
        assert (await refused(redis_client)).values["reason"] == "authentication failed"

    async def test_what_the_user_may_not_do_is_named(self, server: ValkeyServer):
        tell(server, "ACL", "SETUSER", "reader", "on", ">s3cret", "~*", "+get")
        async with linked(f"{server.url}?username=reader&password=s3cret") as redis_client:
            assert await redis_client.execute("GET", "word") is None
            error = await refused(redis_client, "SET", "word", "kept")
        assert error.values["reason"] == "the ACL does not allow this command"

    async def test_a_full_memory_is_named_and_reading_goes_on(self, redis_client: RedisClient, server: ValkeyServer):
        tell(server, "CONFIG", "SET", "maxmemory", "1")
        for _ in range(5):
            assert (await refused(redis_client, "SET", "word", "kept")).values[
                "reason"
            ] == "the server is out of memory"
            with pytest.raises(RedisUnavailable, match="out of memory"):
                await redis_client.run_script(ADD, ["n"], 1)
        assert await redis_client.execute("GET", "word") is None

    async def test_a_replica_is_named_and_reading_goes_on(self, redis_client: RedisClient, server: ValkeyServer):
        tell(server, "REPLICAOF", "127.0.0.1", "1")
        for _ in range(5):
            error = await refused(redis_client, "SET", "word", "kept")
            assert error.values["reason"] == "the server is a read-only replica"
        assert await redis_client.execute("GET", "word") is None
        tell(server, "REPLICAOF", "NO", "ONE")
        assert await redis_client.execute("SET", "word", "kept")

    async def test_after_a_failover_the_new_primary_is_found_behind_the_same_address(
        self, server: ValkeyServer, tmp_path: Path
    ):
        address = tmp_path / "redis"
        address.symlink_to(server.url.removeprefix("unix://"))
        with ValkeyServer.start() as new_primary:
            async with linked(f"unix://{address}") as redis_client:
                assert await redis_client.execute("SET", "word", "old")
                tell(server, "REPLICAOF", "127.0.0.1", "1")
                address.unlink()
                address.symlink_to(new_primary.url.removeprefix("unix://"))
                assert await redis_client.execute("SET", "word", "new")
            assert tell(new_primary, "GET", "word") == "new"

    async def test_a_replica_without_its_primary_is_unavailable(self, redis_client: RedisClient, server: ValkeyServer):
        tell(server, "CONFIG", "SET", "replica-serve-stale-data", "no")
        tell(server, "REPLICAOF", "127.0.0.1", "1")
        assert "MASTERDOWN" in str(await refused(redis_client, "GET", "word"))

    async def test_a_server_that_loads_its_data_is_named(self, redis_client: RedisClient, server: ValkeyServer):
        tell(server, "DEBUG", "POPULATE", "2000", "key", "100")
        tell(server, "CONFIG", "SET", "loading-process-events-interval-bytes", "1024")
        tell(server, "CONFIG", "SET", "key-load-delay", "1000")
        reload = asyncio.create_task(asyncio.to_thread(tell, server, "DEBUG", "RELOAD"))
        reasons = set()
        async with asyncio.timeout(SLACK_SECONDS * 4):
            while "the server is still loading its data" not in reasons:
                with suppress(RedisUnavailable):
                    await redis_client.execute("GET", "word")
                reasons.add(redis_client.breaker.reason)
        await reload

    async def test_a_server_blocked_by_a_script_is_unavailable(self, redis_client: RedisClient, server: ValkeyServer):
        tell(server, "CONFIG", "SET", "busy-reply-threshold", "1")
        endless = asyncio.create_task(asyncio.to_thread(tell, server, "EVAL", "while true do end", "0"))
        try:
            async with asyncio.timeout(SLACK_SECONDS * 4):
                while True:
                    try:
                        await redis_client.execute("GET", "word")
                    except RedisUnavailable as error:
                        if "BUSY" in str(error):
                            break
        finally:
            tell(server, "SCRIPT", "KILL")
            with pytest.raises(ResponseError, match="killed"):
                await endless
        assert await redis_client.execute("GET", "word") is None

    @pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n"])
    async def test_what_is_not_redis_is_named(self, greeting: bytes):
        async with stranger(greeting) as url, linked(url) as redis_client:
            error = await refused(redis_client)
        assert error.values["reason"] == "the server does not speak the Redis protocol"

    async def test_a_closed_connection_is_unavailable(self):
        async with stranger(b"") as url, linked(url) as redis_client:
            assert "connection" in str(await refused(redis_client)).lower()


class TestWhenCancelled:
    @pytest.mark.parametrize("way", ["call", "client"])
    async def test_nobody_gets_an_answer_that_was_meant_for_someone_who_left(
        self, redis_client: RedisClient, server: ValkeyServer, way: str
    ):
        echo = _echo(redis_client, way)
        await asyncio.gather(*(echo("connected") for _ in range(CONNECTIONS)))
        server.pause()
        left = [asyncio.create_task(echo(f"left {number}")) for number in range(CONNECTIONS)]
        await turns()
        for task in left:
            task.cancel()
        await asyncio.wait(left)
        server.resume()
        assert not redis_client.breaker.open
        answers = await asyncio.gather(*(echo(f"new {number}") for number in range(CONNECTIONS * 2)))
        assert answers == [f"new {number}".encode() for number in range(CONNECTIONS * 2)]

    @pytest.mark.parametrize("way", ["call", "client"])
    async def test_cancels_at_any_moment_cost_no_connection(
        self, redis_client: RedisClient, way: str, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(client, "ANSWER_SECONDS", 60)  # hundreds of calls at once, on a machine that may be busy
        echo, chance = _echo(redis_client, way), random.Random(11)

        async def one(number: int) -> None:
            task = asyncio.create_task(echo(str(number)))
            for _ in range(chance.randrange(30)):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                assert await task == str(number).encode()

        for start in range(0, 1000, 20):
            await asyncio.gather(*(one(start + number) for number in range(20)))
        answers = await asyncio.gather(*(echo(f"new {number}") for number in range(CONNECTIONS)))
        assert answers == [f"new {number}".encode() for number in range(CONNECTIONS)]


class TestAddress:
    @pytest.mark.parametrize(
        "url",
        [
            "",
            "localhost:6379",
            "http://:s3cret@localhost",
            "redis://:s3cr/et@localhost",
            "redis://localhost:s3cret",
            "redis://localhost?s3cret=1",
            "redis://localhost?socket_timeout=s3cret",
        ],
    )
    def test_one_that_cannot_be_read_is_refused_and_not_shown(self, url: str):
        with pytest.raises(BadRedisUrl) as caught:
            RedisClient(url)
        assert "s3cr" not in "".join(traceback.format_exception(caught.value)).replace("s3cret@", "")


def _echo(redis_client: RedisClient, way: str) -> Callable[[str], Coroutine[Any, Any, object]]:
    async def by_client(text: str) -> object:
        with redis_client.mapped_errors():
            return await redis_client.raw.echo(text)

    async def by_call(text: str) -> object:
        return await redis_client.execute("ECHO", text)

    return by_client if way == "client" else by_call


@asynccontextmanager
async def stranger(greeting: bytes) -> AsyncIterator[str]:
    """Another kind of server at the address: sends one reply and closes the connection."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(greeting)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as listening:
        host, port = listening.sockets[0].getsockname()
        yield f"redis://{host}:{port}"
