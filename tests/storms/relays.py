"""A relay that is killed right after it delivered a message, before it marked the message as sent."""

import asyncio
import os
import signal

from penstock.adapters.redis.client import RedisClient
from penstock.adapters.redis.messages import StreamCarrier
from penstock.kernel.outbox import Parcel, Relay
from tests.conftest import open_db


class CarriesAndDies(StreamCarrier):
    """Adds one message to its stream and kills its process."""

    async def carry(self, parcel: Parcel) -> None:
        """Its last act."""
        await super().carry(parcel)
        os.kill(os.getpid(), signal.SIGKILL)


def carry_and_die(db_url: str, redis_url: str, channel: str) -> None:
    """The life of such a relay, in a process of its own."""
    carrier = CarriesAndDies(RedisClient(redis_url), [channel], length=100)
    asyncio.run(Relay(open_db(db_url), {}, carriers=[carrier], owner="victim").deliver())
