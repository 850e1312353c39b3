"""The notifier on PostgreSQL: LISTEN/NOTIFY on a dedicated connection.

Not for use through a transaction pooler: it assigns a server connection per transaction, so the LISTEN would be lost.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from typing import Any

from penstock.kernel.database_errors import DatabaseUnavailable, translate_database_errors
from penstock.kernel.dialect.engines import DatabaseEngines, checked_out, driver_connection
from penstock.kernel.wakeups import PendingNotifications

CHANNEL = "penstock_bell"
MAX_PAYLOAD_BYTES = 7900  # a NOTIFY payload is limited to 7999; a longer channel is found by polling each second
CHECK_SECONDS = 1.0  # the driver does not report a broken connection, so we check
CHECKS_PER_PING = 10  # silent checks until the server is pinged
TIMEOUT_SECONDS = 5.0


class PostgresNotifier:
    """Wakes waiters in every process on the same database. `owner` is this process, which ignores its own."""

    def __init__(self, url: str, *, owner: str) -> None:
        self._engine = DatabaseEngines.open(url, pooled=False, connections=1).writer
        self._owner = owner
        self._driver: Any = None
        self._listening = asyncio.Event()
        self._turn = asyncio.Lock()  # a connection runs one statement at a time

    async def notify(self, channels: Collection[str]) -> None:
        """Publish that these channels were woken here, on the listening connection."""
        payloads = [
            payload
            for channel in channels
            if len((payload := f"{self._owner} {channel}").encode()) <= MAX_PAYLOAD_BYTES
        ]
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await self._listening.wait()
        except TimeoutError as error:
            raise DatabaseUnavailable(reason="the notifier has no connection") from error
        await self._execute("SELECT pg_notify($1, payload) FROM unnest($2::text[]) payload", CHANNEL, payloads)

    async def listen(self) -> AsyncIterator[str]:
        """Yield the channels woken in other processes."""
        pending = PendingNotifications()
        with translate_database_errors():
            async with checked_out(self._engine) as conn:
                self._driver = driver = driver_connection(conn)
                await driver.add_listener(CHANNEL, lambda _driver, _pid, _channel, payload: pending.add(payload))
                self._listening.set()
                try:
                    while not driver.is_closed():
                        for channel in await self._take(pending):
                            yield channel
                finally:
                    self._listening.clear()
                    driver.terminate()  # a listening connection must not return to the pool
        raise DatabaseUnavailable(reason="the notifier's connection broke")

    async def _take(self, pending: PendingNotifications) -> list[str]:
        """The next channels from other processes; empty after a silent interval or when the connection broke."""
        for _ in range(CHECKS_PER_PING):
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS):
                    payloads = [payload.partition(" ") for payload in await pending.take()]
                return [channel for owner, _, channel in payloads if owner != self._owner]
            if self._driver.is_closed():
                return []
        await self._execute("SELECT 1")
        return []

    async def _execute(self, statement: str, *values: object) -> None:
        with translate_database_errors():
            async with self._turn:
                await self._driver.execute(statement, *values, timeout=TIMEOUT_SECONDS)

    async def close(self) -> None:
        """Close the connection."""
        await self._engine.dispose()
