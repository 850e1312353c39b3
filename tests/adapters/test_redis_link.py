"""What the link to Redis does when Redis is well, gone, silent, in trouble, or not Redis."""

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

from penstock.adapters.redis.link import (
    ANSWER_SECONDS,
    CONNECTIONS,
    REST_SECONDS,
    BadRedisUrl,
    RedisAway,
    RedisLink,
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
async def link(server: ValkeyServer, clock: ManualClock) -> AsyncIterator[RedisLink]:
    link = RedisLink(server.url, clock)
    yield link
    await link.close()


@asynccontextmanager
async def linked(url: str) -> AsyncIterator[RedisLink]:
    link = RedisLink(url)
    try:
        yield link
    finally:
        await link.close()


def tell(server: ValkeyServer, *command: str) -> object:
    """A command by someone else than the link."""
    with Redis.from_url(server.url, decode_responses=True) as client:
        return client.execute_command(*command)


async def turns() -> None:
    """Let the event loop send what is to be sent and see what has come."""
    for _ in range(100):
        await asyncio.sleep(0)


async def refused(link: RedisLink, *command: str) -> RedisAway:
    with pytest.raises(RedisAway) as caught:
        await link.call(*(command or ("PING",)))
    return caught.value


async def open_breaker(link: RedisLink) -> None:
    """Let three calls fail at once, so that a silent server costs the time of one."""
    results = await asyncio.gather(*(link.call("PING") for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [RedisAway] * 3
    assert link.breaker.open


class TestWhenAllIsWell:
    async def test_a_command_is_answered_in_bytes(self, link: RedisLink):
        await link.call("SET", "word", "第1页")
        assert await link.call("GET", "word") == "第1页".encode()

    async def test_a_script_runs_and_runs_again_after_a_flush_made_it_unknown(
        self, link: RedisLink, server: ValkeyServer
    ):
        assert [await link.run(ADD, ["n"], 2) for _ in range(2)] == [2, 4]
        server.flush()
        assert [await link.run(ADD, ["n"], 2) for _ in range(2)] == [2, 4]

    async def test_the_client_works_inside_faults(self, link: RedisLink):
        with link.faults():
            assert await link.client.set("word", "kept")
            assert await link.client.get("word") == b"kept"

    async def test_nothing_is_connected_before_the_first_use(self, link: RedisLink, server: ValkeyServer):
        server.kill()
        RedisLink(server.url)
        assert not link.breaker.open

    async def test_a_mistake_of_ours_is_no_outage(self, link: RedisLink):
        await link.call("SET", "word", "no number")
        for _ in range(5):
            with pytest.raises(ResponseError, match="not an integer"):
                await link.call("INCR", "word")
        assert not link.breaker.open


class TestWhenItIsGone:
    async def test_a_call_says_so_at_once_and_without_an_address(self, link: RedisLink, server: ValkeyServer):
        server.kill()
        error = await refused(link)
        assert error.values["reason"] == "Connection refused"
        assert (error.code, error.internal_outage, error.retryable) == ("REDIS_UNAVAILABLE", True, True)

    async def test_the_client_inside_faults_says_the_same(self, link: RedisLink, server: ValkeyServer):
        server.kill()
        with pytest.raises(RedisAway, match="Connection refused"), link.faults():
            await link.client.get("word")

    async def test_a_host_that_does_not_exist_is_named_so(self):
        async with linked("redis://user:s3cret@no-such-host.invalid:6379/0") as link:
            error = await refused(link)
        assert "s3cret" not in str(error)
        assert "no-such-host" not in str(error)

    async def test_it_is_left_alone_and_found_back_by_itself(
        self, link: RedisLink, server: ValkeyServer, clock: ManualClock
    ):
        assert await link.call("PING")
        server.kill()
        await open_breaker(link)
        server.start_again()
        assert (await refused(link)).values["reason"] == link.breaker.reason != ""
        clock.advance(seconds=REST_SECONDS)
        assert await link.call("PING")
        assert (link.breaker.open, link.breaker.reason) == (False, "")

    async def test_connections_from_before_a_restart_are_replaced_without_anyone_noticing(
        self, link: RedisLink, server: ValkeyServer
    ):
        await asyncio.gather(*(link.call("PING") for _ in range(10)))
        server.kill()
        server.start_again()
        await turns()
        assert all(await asyncio.gather(*(link.call("PING") for _ in range(10))))


class TestWhenItIsSilent:
    async def test_a_call_ends_in_time_and_afterwards_calls_cost_nothing(self, link: RedisLink, server: ValkeyServer):
        server.pause()
        began = time.monotonic()
        await open_breaker(link)
        assert ANSWER_SECONDS <= time.monotonic() - began < ANSWER_SECONDS + SLACK_SECONDS
        assert link.breaker.reason == "no answer came in time"
        began = time.monotonic()
        for _ in range(1000):
            await refused(link)
        assert time.monotonic() - began < ANSWER_SECONDS

    async def test_it_is_found_back_when_it_answers_again(
        self, link: RedisLink, server: ValkeyServer, clock: ManualClock
    ):
        assert await link.call("PING")
        server.pause()
        await open_breaker(link)
        server.resume()
        clock.advance(seconds=REST_SECONDS)
        assert await link.call("ECHO", "mine") == b"mine"

    async def test_while_one_call_looks_whether_it_is_back_the_others_do_not_wait(
        self, link: RedisLink, server: ValkeyServer, clock: ManualClock
    ):
        server.pause()
        await open_breaker(link)
        clock.advance(seconds=REST_SECONDS)
        looking = asyncio.create_task(link.call("PING"))
        await asyncio.sleep(0)
        await refused(link)
        assert not looking.done()
        server.resume()
        assert await looking
        assert await link.call("PING")

    async def test_those_who_wait_for_a_free_connection_wait_no_longer(self, link: RedisLink):
        began = time.monotonic()
        waits = [link.call("BLPOP", "nothing", 0) for _ in range(CONNECTIONS * 2)]
        results = await asyncio.gather(*waits, return_exceptions=True)
        assert {type(result) for result in results} == {RedisAway}
        assert time.monotonic() - began < ANSWER_SECONDS + SLACK_SECONDS

    async def test_a_link_to_it_can_be_closed_while_a_large_command_is_on_its_way(
        self, link: RedisLink, server: ValkeyServer
    ):
        assert await link.call("PING")
        server.pause()
        large = asyncio.create_task(link.call("SET", "word", "x" * 10_000_000))
        await turns()
        async with asyncio.timeout(SLACK_SECONDS):
            await link.close()
        with pytest.raises(RedisAway):
            await large
        server.kill()
        await turns()  # the rest of the command has nowhere to go now, and its socket is closed


class TestWhenItIsInTrouble:
    async def test_a_wrong_password_is_named_and_not_shown(self, server: ValkeyServer):
        tell(server, "CONFIG", "SET", "requirepass", "r1ght-s3cret")
        async with linked(f"{server.url}?password=wr0ng-s3cret") as link:
            error = await refused(link)
        assert error.values["reason"] == "it refuses our password, or wants one"
        assert "s3cret" not in "".join(traceback.format_exception(error))

    async def test_a_missing_password_is_named(self, link: RedisLink, server: ValkeyServer):
        tell(server, "CONFIG", "SET", "requirepass", "r1ght-s3cret")
        assert (await refused(link)).values["reason"] == "it refuses our password, or wants one"

    async def test_what_the_user_may_not_do_is_named(self, server: ValkeyServer):
        tell(server, "ACL", "SETUSER", "reader", "on", ">s3cret", "~*", "+get")
        async with linked(f"{server.url}?username=reader&password=s3cret") as link:
            assert await link.call("GET", "word") is None
            error = await refused(link, "SET", "word", "kept")
        assert error.values["reason"] == "its rules do not allow our user to do this"

    async def test_a_full_memory_is_named_and_reading_goes_on(self, link: RedisLink, server: ValkeyServer):
        tell(server, "CONFIG", "SET", "maxmemory", "1")
        for _ in range(5):
            assert (await refused(link, "SET", "word", "kept")).values["reason"] == "it is out of memory"
            with pytest.raises(RedisAway, match="out of memory"):
                await link.run(ADD, ["n"], 1)
        assert await link.call("GET", "word") is None

    async def test_a_replica_is_named_and_reading_goes_on(self, link: RedisLink, server: ValkeyServer):
        tell(server, "REPLICAOF", "127.0.0.1", "1")
        for _ in range(5):
            error = await refused(link, "SET", "word", "kept")
            assert error.values["reason"] == "it is a replica, which takes no writes"
        assert await link.call("GET", "word") is None
        tell(server, "REPLICAOF", "NO", "ONE")
        assert await link.call("SET", "word", "kept")

    async def test_after_a_failover_the_new_primary_is_found_behind_the_same_address(
        self, server: ValkeyServer, tmp_path: Path
    ):
        address = tmp_path / "redis"
        address.symlink_to(server.url.removeprefix("unix://"))
        with ValkeyServer.start() as new_primary:
            async with linked(f"unix://{address}") as link:
                assert await link.call("SET", "word", "old")
                tell(server, "REPLICAOF", "127.0.0.1", "1")
                address.unlink()
                address.symlink_to(new_primary.url.removeprefix("unix://"))
                assert await link.call("SET", "word", "new")
            assert tell(new_primary, "GET", "word") == "new"

    async def test_a_replica_that_lost_its_primary_is_away(self, link: RedisLink, server: ValkeyServer):
        tell(server, "CONFIG", "SET", "replica-serve-stale-data", "no")
        tell(server, "REPLICAOF", "127.0.0.1", "1")
        assert "MASTERDOWN" in str(await refused(link, "GET", "word"))

    async def test_a_server_that_loads_its_data_is_named(self, link: RedisLink, server: ValkeyServer):
        tell(server, "DEBUG", "POPULATE", "2000", "key", "100")
        tell(server, "CONFIG", "SET", "loading-process-events-interval-bytes", "1024")
        tell(server, "CONFIG", "SET", "key-load-delay", "1000")
        reload = asyncio.create_task(asyncio.to_thread(tell, server, "DEBUG", "RELOAD"))
        reasons = set()
        async with asyncio.timeout(SLACK_SECONDS * 4):
            while "it is still loading its data" not in reasons:
                with suppress(RedisAway):
                    await link.call("GET", "word")
                reasons.add(link.breaker.reason)
        await reload

    async def test_a_server_that_is_kept_busy_by_a_script_is_away(self, link: RedisLink, server: ValkeyServer):
        tell(server, "CONFIG", "SET", "busy-reply-threshold", "1")
        endless = asyncio.create_task(asyncio.to_thread(tell, server, "EVAL", "while true do end", "0"))
        try:
            async with asyncio.timeout(SLACK_SECONDS * 4):
                while True:
                    try:
                        await link.call("GET", "word")
                    except RedisAway as error:
                        if "BUSY" in str(error):
                            break
        finally:
            tell(server, "SCRIPT", "KILL")
            with pytest.raises(ResponseError, match="killed"):
                await endless
        assert await link.call("GET", "word") is None

    @pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n"])
    async def test_what_is_not_redis_is_named(self, greeting: bytes):
        async with stranger(greeting) as url, linked(url) as link:
            error = await refused(link)
        assert error.values["reason"] == "what answers there does not speak Redis"

    async def test_who_hangs_up_is_away(self):
        async with stranger(b"") as url, linked(url) as link:
            assert "connection" in str(await refused(link)).lower()


class TestWhenCancelled:
    @pytest.mark.parametrize("way", ["call", "client"])
    async def test_nobody_gets_an_answer_that_was_meant_for_someone_who_left(
        self, link: RedisLink, server: ValkeyServer, way: str
    ):
        echo = _echo(link, way)
        await asyncio.gather(*(echo("connected") for _ in range(CONNECTIONS)))
        server.pause()
        left = [asyncio.create_task(echo(f"left {number}")) for number in range(CONNECTIONS)]
        await turns()
        for task in left:
            task.cancel()
        await asyncio.wait(left)
        server.resume()
        assert not link.breaker.open
        answers = await asyncio.gather(*(echo(f"new {number}") for number in range(CONNECTIONS * 2)))
        assert answers == [f"new {number}".encode() for number in range(CONNECTIONS * 2)]

    @pytest.mark.parametrize("way", ["call", "client"])
    async def test_cancels_at_any_moment_cost_no_connection(self, link: RedisLink, way: str):
        echo, chance = _echo(link, way), random.Random(11)

        async def one(number: int) -> None:
            task = asyncio.create_task(echo(str(number)))
            for _ in range(chance.randrange(30)):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                assert await task == str(number).encode()

        for start in range(0, 1000, 20):
            await asyncio.gather(*(one(start + number) for number in range(20)))
        async with asyncio.timeout(ANSWER_SECONDS + SLACK_SECONDS):
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
            RedisLink(url)
        assert "s3cr" not in "".join(traceback.format_exception(caught.value)).replace("s3cret@", "")


def _echo(link: RedisLink, way: str) -> Callable[[str], Coroutine[Any, Any, object]]:
    async def by_client(text: str) -> object:
        with link.faults():
            return await link.client.echo(text)

    async def by_call(text: str) -> object:
        return await link.call("ECHO", text)

    return by_client if way == "client" else by_call


@asynccontextmanager
async def stranger(greeting: bytes) -> AsyncIterator[str]:
    """Someone else at the address: says one thing to whoever speaks, and hangs up."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(greeting)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as listening:
        host, port = listening.sockets[0].getsockname()
        yield f"redis://{host}:{port}"
