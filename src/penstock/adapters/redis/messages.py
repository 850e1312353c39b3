"""Messages through Redis: the notifier, for our own processes, and streams, for external consumers.

The notifier is one pub/sub channel on which every process publishes the channels it woke.

There is one Redis Stream per message class. It keeps about `length` entries, each with the fields `id`, `key`, `at` and
`payload` (JSON). A sorted set beside it remembers as many message ids, so a message delivered twice, because the relay
died before it could record the delivery, is added once.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from redis.exceptions import RedisError

from penstock.adapters.redis.client import RedisClient, RedisUnavailable, Script
from penstock.kernel.columns import to_json
from penstock.kernel.outbox import OutboxMessage
from penstock.kernel.relay import SinkResult

log = logging.getLogger(__name__)

CHANNEL = "penstock:bell"
SILENT_SECONDS = 10.0  # without a message for this long, ping to check the connection

# Ids with equal scores are ordered by id, and a message is added once, so a batch may share one time.
ADD = Script("""
local stream, seen, length = KEYS[1], KEYS[2], ARGV[1]
local time = redis.call("TIME")
local now, added = time[1] .. "." .. string.format("%06d", time[2]), 0
for at = 2, #ARGV, 4 do
    local id, key, created_at, payload = unpack(ARGV, at, at + 3)
    if redis.call("ZADD", seen, "NX", now, id) == 1 then
        redis.call(
            "XADD", stream, "MAXLEN", "~", length, "*", "id", id, "key", key, "at", created_at, "payload", payload
        )
        added = added + 1
    end
end
redis.call("ZREMRANGEBYRANK", seen, 0, -1 - length)
return added
""")


class RedisNotifier:
    """Wakes waiters in every process on the same Redis. `owner` identifies this one, so it ignores its own messages."""

    def __init__(self, redis: RedisClient, *, owner: str) -> None:
        self._redis = redis
        self._owner = owner

    async def notify(self, channels: Collection[str]) -> None:
        """Publish that these channels were woken here."""
        words = [self._owner, *map(str, channels)]  # str: msgspec cannot encode SQLAlchemy's quoted_name
        await self._redis.execute("PUBLISH", CHANNEL, msgspec.json.encode(words))

    async def listen(self) -> AsyncIterator[str]:
        """Yield the channels woken in other processes."""
        await self._redis.execute("PING")  # through the breaker, which the pub/sub connection bypasses
        async with aclosing(self._redis.raw.pubsub()) as heard:
            try:
                await heard.subscribe(CHANNEL)
                while True:
                    for channel in self._read(await self._next(heard)):
                        yield channel
            except (RedisError, OSError) as error:
                raise RedisUnavailable(reason="the notifier's connection broke") from error

    async def _next(self, heard: Any) -> dict[str, Any]:
        """The next message. After a silent interval the server must at least answer a ping."""
        _raise_if_cancelled()
        message = await heard.get_message(timeout=SILENT_SECONDS)
        if message is None:
            await heard.ping()
            _raise_if_cancelled()
            message = await heard.get_message(timeout=SILENT_SECONDS)
        if message is None:
            raise RedisUnavailable(reason="the notifier's connection is dead")
        return dict(message)

    def _read(self, message: dict[str, Any]) -> list[str]:
        if message["type"] != "message":
            return []
        try:
            owner, *channels = msgspec.json.decode(message["data"], type=list[str])
        except (msgspec.DecodeError, ValueError) as error:
            log.warning("ignored a malformed notification: %s", error)
            return []
        return [] if owner == self._owner else channels

    async def close(self) -> None:
        """Nothing to close: the connections belong to `RedisClient`."""


def stream_name(channel: str) -> str:
    """The stream of a message class."""
    return f"penstock:stream:{channel}"


class RedisStreamSink:
    """Delivers messages of these channels to their streams."""

    def __init__(self, redis: RedisClient, channels: Collection[str], *, length: int) -> None:
        self.channels = channels
        self._redis = redis
        self._length = length

    async def deliver_many(self, messages: Sequence[OutboxMessage]) -> SinkResult:
        """Add messages to their streams, one call per stream, unless they were added before."""
        by_stream: defaultdict[str, list[str]] = defaultdict(list)
        for new in messages:
            fields = (new.id, new.dedup_key, new.created_at.isoformat(), to_json(new.payload))
            by_stream[stream_name(new.channel)] += fields
        for stream, entries in by_stream.items():
            await self._redis.run_script(ADD, [stream, f"{stream}:seen"], self._length, *entries)
        return SinkResult()


def _raise_if_cancelled() -> None:
    """With a socket timeout the driver sends through `asyncio.wait_for`, which on Python 3.11 can swallow a cancel that
    arrives just as it completes. We would then listen for ever."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
