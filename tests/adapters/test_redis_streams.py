"""Messages in Redis Streams: all of them, each once, a bounded number."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from penstock.adapters.redis.client import RedisClient, RedisUnavailable
from penstock.adapters.redis.messages import RedisStreamSink, stream_name
from penstock.kernel.clock import ManualClock, SystemClock
from penstock.kernel.db import Db
from penstock.kernel.message import Message
from penstock.kernel.outbox import OutboxMessage
from penstock.kernel.relay import Relay
from tests.conftest import open_db
from tests.servers.valkey import ValkeyServer
from tests.storms import processes
from tests.storms.relays import deliver_and_die

CHANNEL = "PageDone"


@dataclass(frozen=True, kw_only=True)
class PageDone(Message):
    """A message."""

    page: int
    words: str = ""

    def dedup_key(self) -> str:
        return f"page-{self.page}"


MESSAGE = OutboxMessage(
    id="msg_1", channel=CHANNEL, dedup_key="k", payload={"a": 1}, created_at=datetime(2026, 1, 1, tzinfo=UTC)
)


@pytest.fixture
async def redis_client(redis_url: str) -> AsyncIterator[RedisClient]:
    redis_client = RedisClient(redis_url)
    yield redis_client
    await redis_client.close()


async def entries(redis_client: RedisClient) -> list[dict[str, str]]:
    found = await redis_client.raw.xrange(stream_name(CHANNEL))
    return [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in found]


async def tell(db: Db, *messages: Message) -> None:
    async with db.tx() as tx:
        for message in messages:
            tx.send(message)


async def test_a_message_is_in_its_stream_with_all_that_the_outbox_knows(
    db: Db, redis_client: RedisClient, clock: ManualClock
):
    await tell(db, PageDone(page=1, words="ü中\n"), PageDone(page=2))
    relay = Relay(db, {}, sinks=[RedisStreamSink(redis_client, [CHANNEL], length=100)], owner="relay")
    assert await relay.deliver() == 2
    first, second = await entries(redis_client)
    assert first.keys() == {"id", "key", "at", "payload"}
    assert (first["key"], second["key"]) == ("page-1", "page-2")
    assert datetime.fromisoformat(first["at"]) == clock.now()
    assert json.loads(first["payload"]) == {"page": 1, "words": "ü中\n"}
    assert first["id"] < second["id"]


async def test_a_message_that_is_delivered_twice_is_added_once(redis_client: RedisClient):
    sink = RedisStreamSink(redis_client, [CHANNEL], length=100)
    for _ in range(3):
        await sink.deliver_many([MESSAGE])
    await sink.deliver_many([replace(MESSAGE, id="msg_2")])
    assert [entry["id"] for entry in await entries(redis_client)] == ["msg_1", "msg_2"]


async def test_a_stream_and_its_dedup_set_are_bounded(redis_client: RedisClient):
    sink = RedisStreamSink(redis_client, [CHANNEL], length=200)
    for number in range(1000):
        await sink.deliver_many([replace(MESSAGE, id=f"msg_{number:04}")])
    kept = [entry["id"] for entry in await entries(redis_client)]
    assert 200 <= len(kept) <= 400  # Redis cuts whole blocks of a hundred
    assert kept[-1] == "msg_0999"
    assert await redis_client.raw.zcard(f"{stream_name(CHANNEL)}:seen") == 200
    await sink.deliver_many([replace(MESSAGE, id="msg_0990")])
    assert len(await entries(redis_client)) == len(kept)


@pytest.mark.storm
async def test_a_relay_that_is_killed_after_the_entry_and_before_its_mark_leaves_one_entry(
    db_url: str, redis_url: str, redis_client: RedisClient
):
    db = open_db(db_url)
    await tell(db, PageDone(page=1))
    victim = processes.start(deliver_and_die, db_url, redis_url, CHANNEL)
    await asyncio.to_thread(victim.join)
    assert len(await entries(redis_client)) == 1
    await db.close()
    later = open_db(db_url, ManualClock(SystemClock().now() + timedelta(hours=1)))
    relay = Relay(later, {}, sinks=[RedisStreamSink(redis_client, [CHANNEL], length=100)], owner="relay")
    async with later.tx() as tx:
        await relay.rescue(tx)
    assert await relay.deliver() == 1
    assert await relay.deliver() == 0
    assert len(await entries(redis_client)) == 1
    await later.close()


@pytest.mark.storm
async def test_while_redis_is_unavailable_messages_wait_and_lose_no_attempt(db: Db, clock: ManualClock):
    with ValkeyServer.start() as server:
        redis_client = RedisClient(server.url)
        sink = RedisStreamSink(redis_client, [CHANNEL], length=100)
        relay = Relay(db, {}, sinks=[sink], owner="relay", max_attempts=1)
        await tell(db, PageDone(page=1))
        server.kill()
        with pytest.raises(RedisUnavailable):
            await sink.deliver_many([MESSAGE])
        for _ in range(5):
            assert await relay.deliver() == 1
            clock.advance(seconds=10)
        server.start_again()
        async with asyncio.timeout(20):
            while not await entries(redis_client):  # the redis_client leaves a server alone for a second that was away
                await relay.deliver()
                clock.advance(seconds=10)
                await asyncio.sleep(0.05)
        assert [entry["key"] for entry in await entries(redis_client)] == ["page-1"]
        await redis_client.close()
