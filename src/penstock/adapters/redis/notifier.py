"""The bell on Redis: one pub/sub channel, on which every process says what was woken in it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import aclosing
from typing import Any

import msgspec
from redis.exceptions import RedisError

from penstock.adapters.redis.link import RedisAway, RedisLink

log = logging.getLogger(__name__)

CHANNEL = "penstock:bell"
SILENT_SECONDS = 10.0  # after that long without a word we ask whether the connection still stands


class RedisNotifier:
    """Rings in every process that uses the same Redis. `owner` names this process, so that it does not hear itself."""

    def __init__(self, link: RedisLink, *, owner: str) -> None:
        self._link = link
        self._owner = owner

    async def notify(self, channels: Collection[str]) -> None:
        """Say that these were woken here."""
        words = [self._owner, *map(str, channels)]  # a table's name is a kind of text that JSON does not know
        await self._link.call("PUBLISH", CHANNEL, msgspec.json.encode(words))

    async def listen(self) -> AsyncIterator[str]:
        """The channels that were woken in other processes."""
        await self._link.call("PING")  # a server that is gone is found by the breaker, which this connection is not
        async with aclosing(self._link.client.pubsub()) as heard:
            try:
                await heard.subscribe(CHANNEL)
                while True:
                    for channel in self._read(await self._next(heard)):
                        yield channel
            except (RedisError, OSError) as error:
                raise RedisAway(reason="the bell's connection broke") from error

    async def _next(self, heard: Any) -> dict[str, Any]:
        """The next message. When nobody says anything for long, the server at least has to answer."""
        _raise_if_cancelled()
        message = await heard.get_message(timeout=SILENT_SECONDS)
        if message is None:
            await heard.ping()
            _raise_if_cancelled()
            message = await heard.get_message(timeout=SILENT_SECONDS)
        if message is None:
            raise RedisAway(reason="the bell's connection is dead")
        return dict(message)

    def _read(self, message: dict[str, Any]) -> list[str]:
        if message["type"] != "message":
            return []
        try:
            owner, *channels = msgspec.json.decode(message["data"], type=list[str])
        except (msgspec.DecodeError, ValueError) as error:
            log.warning("a ring was not understood: %s", error)
            return []
        return [] if owner == self._owner else channels

    async def close(self) -> None:
        """The connections are the link's."""


def _raise_if_cancelled() -> None:
    """On a connection with a socket timeout the driver sends by `asyncio.wait_for`, which on Python 3.11 returns its
    result when a cancel comes just as it is done. We would go on listening for ever."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
