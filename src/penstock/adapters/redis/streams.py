"""Redis Streams: messages of the house for whoever reads them from outside, one stream per class of message.

A stream keeps about `length` entries, each with the fields `id`, `key`, `at` and `payload` (JSON). The ids of as many
messages are remembered beside it, so that one that is carried twice, because its relay died before it could say so,
is there once.
"""

from collections.abc import Collection

from penstock.adapters.redis.link import RedisLink, Script
from penstock.kernel.columns import to_json
from penstock.kernel.outbox import Parcel

ADD = Script("""
local stream, seen, length, id = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local now = redis.call("TIME")
if redis.call("ZADD", seen, "NX", now[1] .. "." .. string.format("%06d", now[2]), id) == 0 then
    return 0
end
redis.call("ZREMRANGEBYRANK", seen, 0, -1 - length)
redis.call("XADD", stream, "MAXLEN", "~", length, "*", "id", id, "key", ARGV[3], "at", ARGV[4], "payload", ARGV[5])
return 1
""")


def stream_name(channel: str) -> str:
    """The stream of a class of messages."""
    return f"penstock:stream:{channel}"


class StreamCarrier:
    """Takes messages of these channels to their streams."""

    def __init__(self, link: RedisLink, channels: Collection[str], *, length: int) -> None:
        self.channels = channels
        self._link = link
        self._length = length

    async def carry(self, parcel: Parcel) -> None:
        """Add a message to its stream, unless it is there."""
        stream = stream_name(parcel.channel)
        fields = (parcel.id, parcel.dedup_key, parcel.created_at.isoformat(), to_json(parcel.payload))
        await self._link.run(ADD, [stream, f"{stream}:seen"], self._length, *fields)
