"""The connection to Redis, shared by everything that uses it. Whatever fails is `RedisAway`."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import RedisError

from penstock.kernel.errors import Unavailable

CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 2.0  # scripts of ours take microseconds; a server that is this late is away
CONNECTIONS = 50


class RedisAway(Unavailable):
    """Redis cannot be reached or does not answer."""

    code = "REDIS_UNAVAILABLE"
    message = "Redis does not answer: {reason}."
    hint = "Check that Redis runs and that PENSTOCK_REDIS_URL is right; it is tried again by itself."
    message_zh = "Redis 没有响应：{reason}。"
    hint_zh = "请检查 Redis 是否在运行、PENSTOCK_REDIS_URL 是否正确；系统会自动重试。"
    ours = True


class RedisLink:
    """One process's connections to one Redis. Nothing is connected before the first use."""

    def __init__(self, url: str) -> None:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=ANSWER_SECONDS,  # for a free connection
            socket_connect_timeout=CONNECT_SECONDS,
            socket_timeout=ANSWER_SECONDS,
        )
        self.client: Redis = Redis(connection_pool=pool)

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Give what goes wrong inside the block its name."""
        try:
            yield
        except (RedisError, OSError, asyncio.IncompleteReadError) as error:
            raise RedisAway(reason=str(error) or type(error).__name__) from error

    async def close(self) -> None:
        """Give every connection back."""
        await self.client.aclose(close_connection_pool=True)
