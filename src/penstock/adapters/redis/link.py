"""The connection to Redis, shared by everything that uses it. Whatever may pass by itself is `RedisAway`.

There are two ways to ask. `call` and `run` are for short commands and scripts: answered within ANSWER_SECONDS as a
whole, or not at all. Everything else takes `client` and works inside `faults()`. A breaker stands before both: while
Redis is gone, asking costs microseconds.
"""

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    InvalidResponse,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import TimeoutError as NoAnswer

from penstock.kernel.circuit_breaker import CircuitBreaker, CircuitBreakerOpen
from penstock.kernel.clock import Clock, SystemClock
from penstock.kernel.errors import Invalid, Unavailable

CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 2.0  # scripts of ours take microseconds; a server that is this late is away
CONNECTIONS = 50
REST_SECONDS = 1.0  # how late at most we see that Redis is back

Argument = str | bytes | int | float

# Nothing answers, or nothing that we can talk to. All other errors are answers, and do not open the breaker.
AWAY = (NotConnected, NoAnswer, InvalidResponse, OSError)
IN_OUR_WORDS: dict[type[Exception], str] = {
    AuthenticationError: "it refuses our password, or wants one",
    BusyLoadingError: "it is still loading its data",
    InvalidResponse: "what answers there does not speak Redis",
    NoAnswer: "no answer came in time",
    NoPermissionError: "its rules do not allow our user to do this",
    NoScriptError: "it has just forgotten our script",
    OutOfMemoryError: "it is out of memory",
    ReadOnlyError: "it is a replica, which takes no writes",
    TimeoutError: "no answer came in time",
}
# Answers that hold for a while, by their first word.
PASSING = frozenset({"BUSY", "CLUSTERDOWN", "MASTERDOWN", "MISCONF", "NOREPLICAS", "TRYAGAIN"})


class RedisAway(Unavailable):
    """Redis cannot be reached, does not answer, or cannot do its work for now."""

    code = "REDIS_UNAVAILABLE"
    message = "Redis does not answer: {reason}."
    hint = "Check that Redis runs and that PENSTOCK_REDIS_URL is right; it is tried again by itself."
    message_zh = "Redis 没有响应：{reason}。"
    hint_zh = "请检查 Redis 是否在运行、PENSTOCK_REDIS_URL 是否正确；系统会自动重试。"
    internal_outage = True


class BadRedisUrl(Invalid):
    """The address of Redis cannot be read. It may hold a password, so it is not shown."""

    code = "BAD_REDIS_URL"
    message = "The address of Redis cannot be used: it has to look like redis://[user:password@]host:port/number."
    hint = "Set PENSTOCK_REDIS_URL; in a password, write / as %2F, # as %23 and @ as %40. unix:///path works too."
    message_zh = "Redis 地址无法使用：格式应为 redis://[用户:密码@]主机:端口/编号。"
    hint_zh = "请设置 PENSTOCK_REDIS_URL；密码中的 / 写作 %2F，# 写作 %23，@ 写作 %40。也可用 unix:///路径。"


class Script:
    """A Lua script, sent by its hash; the text goes along only when Redis does not know it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class RedisLink:
    """One process's connections to one Redis. Nothing is connected before the first use."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self.client = _client(url, seconds=ANSWER_SECONDS)
        # For each command redis-py starts a task for the time limit of the socket: a third of what a command costs.
        # Here `_ask` limits the whole of it instead.
        self._quick = _client(url, seconds=None)
        self.breaker = CircuitBreaker("redis", clock or SystemClock(), reset_seconds=REST_SECONDS)

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Give what goes wrong inside the block its name, and end at once while Redis is known to be gone.

        Keep the block to a few commands: the breaker hears how they went when it ends.
        """
        try:
            with self.breaker.guard(*AWAY, describe=_reason):
                yield
        except CircuitBreakerOpen as error:
            raise RedisAway(reason=self.breaker.reason) from error
        except (RedisError, OSError) as error:
            if not _passes(error):
                raise
            raise RedisAway(reason=_reason(error)) from error

    async def call(self, *command: Argument) -> Any:
        """Redis's answer to one command; names and texts come as bytes."""
        with self.faults():
            return await self._ask(*command)

    async def run(self, script: Script, keys: Sequence[str], *arguments: Argument) -> Any:
        """What a script returns."""
        with self.faults():
            try:
                return await self._ask("EVALSHA", script.sha, len(keys), *keys, *arguments)
            except NoScriptError:  # a new server, or one that was flushed; this also makes it known there
                return await self._ask("EVAL", script.text, len(keys), *keys, *arguments)

    async def close(self) -> None:
        """Give every connection back."""
        for client in (self.client, self._quick):
            with suppress(RedisError):  # a server that is away is not there to say goodbye to
                await client.aclose(close_connection_pool=True)

    async def _ask(self, *command: Argument) -> Any:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await self._quick.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py's gap


def _client(url: str, *, seconds: float | None) -> Redis:
    """A client that waits that long for a free connection, and that long again for each answer."""
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=seconds,
            socket_connect_timeout=CONNECT_SECONDS,
            socket_timeout=seconds,
            retry_on_error=[ReadOnlyError],  # after a failover a new connection may lead to the new primary
        )
        pool.make_connection()  # type: ignore[no-untyped-call]  # redis-py's gap; reads the rest, connects nothing
    except (ValueError, TypeError):
        raise BadRedisUrl from None  # its cause may show a part of a password
    return Redis(connection_pool=pool)


def _passes(error: Exception) -> bool:
    """Whether the same call may succeed later. Other answers are about what we asked: a bug, and no outage."""
    if isinstance(error, (*AWAY, *IN_OUR_WORDS)):
        return True
    return isinstance(error, ResponseError) and str(error).split(" ")[0] in PASSING


def _reason(error: Exception) -> str:
    """In words that anyone may see: no address, no password."""
    for known in (error, error.__context__):  # redis-py wraps some of what happens while it connects
        for kind, words in IN_OUR_WORDS.items():
            if isinstance(known, kind):
                return words
        if isinstance(known, OSError):
            return known.strerror or "the connection broke"
    return str(error).rstrip(".") or "the connection broke"
