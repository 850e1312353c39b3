"""The watchdog: ends the waits of requests for a PostgreSQL server that has stopped answering.

A statement may take long for a good reason, such as a lock, so a short timeout of statements would refuse work that
only has to wait its turn. Instead, a request that has waited for a while makes the watchdog connect to the server and
ask something trivial. If the server answers, the request waits on; if not, all requests that were waiting before are
ended. Workers are not: they have time, and `command_timeout` ends their waits.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine

log = logging.getLogger(__name__)

# Together less than the ten seconds within which a request is answered; closing a connection may take two of them.
PATIENCE_SECONDS = 2.0
PING_SECONDS = 4.0

in_request: ContextVar[bool] = ContextVar("in_request", default=False)  # set while an HTTP request is handled


class ServerSilent(TimeoutError):
    """The server did not answer, and the wait of a request was ended."""


class Watchdog:
    """Watches the waits of one process for one server. `ping` raises if the server does not answer."""

    def __init__(self, ping: Callable[[], Awaitable[None]]) -> None:
        self._ping = ping
        self._waits: dict[asyncio.Timeout, float] = {}  # with the time at which each began
        self._watching: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """A block that waits for the server; raises `ServerSilent` when the server has stopped answering."""
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._waits[limit] = asyncio.get_running_loop().time()
                if self._watching is None or self._watching.done():
                    self._watching = asyncio.create_task(self._watch())
                try:
                    yield
                finally:
                    del self._waits[limit]
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ServerSilent from error

    async def close(self) -> None:
        """Stop watching."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    async def _watch(self) -> None:
        """Ping while a wait is older than the patience; end when there is none to watch."""
        loop = asyncio.get_running_loop()
        while self._waits:
            left = min(self._waits.values()) + PATIENCE_SECONDS - loop.time()
            await asyncio.sleep(max(left, PATIENCE_SECONDS / 4))
            began = loop.time()
            if not self._waits or began - min(self._waits.values()) < PATIENCE_SECONDS:
                continue
            try:
                async with asyncio.timeout(PING_SECONDS):
                    await self._ping()
            except (OSError, asyncpg.InterfaceError) as error:  # a timeout is an OSError
                log.warning("the database does not answer; ending the requests that wait for it: %r", error)
                self._end_waits(before=began)
            except asyncpg.PostgresError:
                continue  # it refuses, so it answers

    def _end_waits(self, *, before: float) -> None:
        for limit, began in list(self._waits.items()):
            if began <= before and not limit.expired():
                limit.reschedule(0)


def ping_postgres(engine: AsyncEngine) -> Callable[[], Awaitable[None]]:
    """A ping by a connection of its own: those of the pool may all be waiting."""

    async def ping() -> None:
        _, options = engine.dialect.create_connect_args(engine.url)
        connection: Any = await asyncpg.connect(**options, timeout=PING_SECONDS)
        try:
            await connection.execute("SELECT 1")  # a pooler may accept connections while its server is silent
        finally:
            connection.terminate()

    return ping
