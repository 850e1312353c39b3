"""How a hub bounds its watchers, how it ends, and how it gets over a database that is away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from penstock.kernel.db import Db
from penstock.kernel.events import EVERYTHING, Interest
from penstock.kernel.hub import Hub, NoLiveEvents, TooManyStreams
from penstock.kernel.migrations import migrate
from tests.conftest import open_db
from tests.fakes.sse import parse_all
from tests.kernel.test_hub import PATIENT_SECONDS, hear, numbers, running, tell, watching
from tests.servers.postgres import PostgresServer


@pytest.fixture
async def db(db_url: str) -> AsyncIterator[Db]:
    """On the machine's own clock: a hub waits and looks again by itself."""
    db = open_db(db_url)
    yield db
    await db.close()


class TestLimits:
    async def test_one_instance_takes_only_so_many(self, db: Db):
        async with running(Hub(db, max_streams=2)) as hub, watching(hub), hub.subscribed(EVERYTHING, tenant="b"):
            with pytest.raises(TooManyStreams, match="limit of 2 live streams of this process") as raised:
                async with hub.subscribed(EVERYTHING, tenant="c"):
                    pass
        assert raised.value.wait_seconds > 0
        assert raised.value.in_chinese().startswith("此处已打开 2 个实时流")

    async def test_one_tenant_takes_only_its_share(self, db: Db):
        async with running(Hub(db, max_per_tenant=1)) as hub, hub.subscribed(EVERYTHING, tenant="a"):
            with pytest.raises(TooManyStreams, match="for a"):
                async with hub.subscribed(EVERYTHING, tenant="a"):
                    pass
            async with hub.subscribed(EVERYTHING, tenant="b"):
                assert hub.streams == 2

    async def test_whoever_leaves_gives_the_place_back_and_leaves_nothing_behind(self, db: Db):
        mine = Interest(topic="job:1", audiences=frozenset({"user:1", "merchant:1"}))
        async with running(Hub(db, max_streams=1)) as hub:
            for _ in range(3):
                async with watching(hub, mine):
                    assert hub.streams == 1
            assert (hub.streams, len(hub._subscriptions), len(hub._interests), len(hub._tenants)) == (0, 0, 0, 0)


class TestEnding:
    async def test_when_the_hub_ends_its_watchers_end_at_once(self, db: Db):
        hub = Hub(db)
        async with AsyncExitStack() as stack:
            async with running(hub):
                watcher = await stack.enter_async_context(watching(hub))
                taking = asyncio.create_task(watcher.take(seconds=PATIENT_SECONDS))
                await asyncio.sleep(0)
            assert await asyncio.wait_for(taking, 1) is None
            assert watcher.closed
        with pytest.raises(NoLiveEvents):
            async with watching(hub):
                pass

    async def test_a_hub_that_never_looked_tells_so(self, db: Db):
        with pytest.raises(NoLiveEvents):
            async with watching(Hub(db)):
                pass


@pytest.mark.timeout(180)
async def test_a_database_that_was_away_costs_only_time():
    """One watcher is caught up by the hub, the other has to read from the table."""
    with PostgresServer.start() as server:
        server.create_database("away")
        db = open_db(server.url("away"))
        await migrate(db)
        async with running(Hub(db, max_queued=1)) as hub, watching(hub) as quick, watching(hub) as slow:
            await tell(db, 0)
            assert numbers(await hear(quick, 1)) == [0]
            await tell(db, 1, 2, 3)
            await hear(quick, 3)
            server.kill()
            assert await slow.take(seconds=0.1) is None
            server.start_again()
            await tell(db, 4)
            heard: list[int] = []
            while len(heard) < 5:
                batch = await slow.take(seconds=PATIENT_SECONDS)
                heard += numbers(parse_all(batch.text)) if batch is not None else []
            assert heard == [0, 1, 2, 3, 4]
            assert numbers(await hear(quick, 1)) == [4]
        await db.close()
