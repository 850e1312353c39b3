"""A relay that is killed right after it delivered a message, before it marked the message as sent."""

import asyncio
import os
import signal
from collections.abc import Sequence

from penstock.adapters.redis.client import RedisClient
from penstock.adapters.redis.messages import RedisStreamSink
from penstock.kernel.outbox import OutboxMessage
from penstock.kernel.relay import Relay, SinkResult
from tests.conftest import open_db


class DeliversAndDies(RedisStreamSink):
    """Adds one message to its stream and kills its process."""

    async def deliver_many(self, messages: Sequence[OutboxMessage]) -> SinkResult:
        """Its last act."""
        await super().deliver_many(messages)
        os.kill(os.getpid(), signal.SIGKILL)
        return SinkResult()


def deliver_and_die(db_url: str, redis_url: str, channel: str) -> None:
    """The life of such a relay, in a process of its own."""
    sink = DeliversAndDies(RedisClient(redis_url), [channel], length=100)
    asyncio.run(Relay(open_db(db_url), {}, sinks=[sink], owner="victim").deliver())
