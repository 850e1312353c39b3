"""The Redis connection of a process. Transient failures raise `RedisUnavailable`.

Redis is a single server, 6.2 or newer, or Valkey; Redis Cluster is not supported, since scripts access keys that they
compute, and `maxmemory-policy` is `noeviction`. It need not be durable: the database is the record, and what a flush
removes is rebuilt. `execute` and `run_script` are for short commands and scripts and are bounded by ANSWER_SECONDS in
total. Everything else uses the redis-py client `raw` inside `mapped_errors()`. A circuit breaker guards both: while
Redis is down, a call fails within microseconds.
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
ANSWER_SECONDS = 2.0  # our scripts take microseconds; a server this late counts as down
CONNECTIONS = 50
REST_SECONDS = 1.0  # longest delay until we notice that Redis is back

Argument = str | bytes | int | float

# No answer, or none we can parse. All other errors are answers and do not open the breaker.
OUTAGE_ERRORS = (NotConnected, NoAnswer, InvalidResponse, OSError)
REASONS: dict[type[Exception], str] = {
    AuthenticationError: "authentication failed",
    BusyLoadingError: "the server is still loading its data",
    InvalidResponse: "the server does not speak the Redis protocol",
    NoAnswer: "timed out",
    NoPermissionError: "the ACL does not allow this command",
    NoScriptError: "the server lost our script",
    OutOfMemoryError: "the server is out of memory",
    ReadOnlyError: "the server is a read-only replica",
    TimeoutError: "timed out",
}
# Error codes (first word of the message) of conditions that pass by themselves.
TRANSIENT_CODES = frozenset({"BUSY", "CLUSTERDOWN", "MASTERDOWN", "MISCONF", "NOREPLICAS", "TRYAGAIN"})


class RedisUnavailable(Unavailable):
    """Redis is unreachable, does not answer, or cannot serve commands for now."""

    code = "REDIS_UNAVAILABLE"
    message = "Redis is unavailable: {reason}."
    hint = "Check that Redis is running and that PENSTOCK_REDIS_URL is correct. Retried automatically."
    message_zh = "Redis 不可用：{reason}。"
    hint_zh = "请检查 Redis 是否在运行、PENSTOCK_REDIS_URL 是否正确；系统会自动重试。"
    internal_outage = True


class BadRedisUrl(Invalid):
    """PENSTOCK_REDIS_URL cannot be parsed; it may contain a password, so it is not shown."""

    code = "BAD_REDIS_URL"
    message = "Invalid Redis URL: expected redis://[user:password@]host:port/number."
    hint = "Set PENSTOCK_REDIS_URL; in a password, write / as %2F, # as %23 and @ as %40. unix:///path works too."
    message_zh = "Redis 地址无效：格式应为 redis://[用户:密码@]主机:端口/编号。"
    hint_zh = "请设置 PENSTOCK_REDIS_URL；密码中的 / 写作 %2F，# 写作 %23，@ 写作 %40。也可用 unix:///路径。"


class Script:
    """A Lua script: an atomic operation, called by its hash (EVALSHA); its text is sent if the server lacks it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class RedisClient:
    """The connections of one process to one Redis. Connects on first use."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self.raw = _client(url, seconds=ANSWER_SECONDS)
        # redis-py starts a task per command for the socket timeout, a third of the cost of a command.
        # `_send` bounds the whole call instead.
        self._quick = _client(url, seconds=None)
        self.breaker = CircuitBreaker("redis", clock or SystemClock(), reset_seconds=REST_SECONDS)

    @contextmanager
    def mapped_errors(self) -> Iterator[None]:
        """Map errors inside the block to `RedisUnavailable`; fail at once while the breaker is open.

        Keep the block to a few commands: the breaker learns the outcome only when the block ends.
        """
        try:
            with self.breaker.guard(*OUTAGE_ERRORS, describe=_reason):
                yield
        except CircuitBreakerOpen as error:
            raise RedisUnavailable(reason=self.breaker.reason) from error
        except (RedisError, OSError) as error:
            if not _is_transient(error):
                raise
            raise RedisUnavailable(reason=_reason(error)) from error

    async def execute(self, *command: Argument) -> Any:
        """Run one command; strings come back as bytes."""
        with self.mapped_errors():
            return await self._send(*command)

    async def run_script(self, script: Script, keys: Sequence[str], *arguments: Argument) -> Any:
        """Run a script and return its result."""
        with self.mapped_errors():
            try:
                return await self._send("EVALSHA", script.sha, len(keys), *keys, *arguments)
            except NoScriptError:  # a new or flushed server; EVAL also loads the script
                return await self._send("EVAL", script.text, len(keys), *keys, *arguments)

    async def close(self) -> None:
        """Close all connections."""
        for client in (self.raw, self._quick):
            with suppress(RedisError):  # the server may be down
                await client.aclose(close_connection_pool=True)

    async def _send(self, *command: Argument) -> Any:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await self._quick.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py's gap


def _client(url: str, *, seconds: float | None) -> Redis:
    """A client that waits up to `seconds` for a free connection, and again for each answer."""
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=seconds,
            socket_connect_timeout=CONNECT_SECONDS,
            socket_timeout=seconds,
            retry_on_error=[ReadOnlyError],  # after a failover a new connection may reach the new primary
        )
        pool.make_connection()  # type: ignore[no-untyped-call]  # redis-py's gap; parses the URL options, connects nothing
    except (ValueError, TypeError):
        raise BadRedisUrl from None  # the cause may show part of a password
    return Redis(connection_pool=pool)


def _is_transient(error: Exception) -> bool:
    """Whether the same call may succeed later. Other error replies are bugs in our command, not outages."""
    if isinstance(error, (*OUTAGE_ERRORS, *REASONS)):
        return True
    return isinstance(error, ResponseError) and str(error).split(" ")[0] in TRANSIENT_CODES


def _reason(error: Exception) -> str:
    """The reason without addresses or passwords, safe to show to anyone."""
    for known in (error, error.__context__):  # redis-py wraps some of what happens while it connects
        for kind, words in REASONS.items():
            if isinstance(known, kind):
                return words
        if isinstance(known, OSError):
            return known.strerror or "the connection broke"
    return str(error).rstrip(".") or "the connection broke"
