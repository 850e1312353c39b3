"""What `sequencer.py` promises: ids become visible in order, writers wait for nobody, and an open transaction delays
its own events only."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg
import pytest
from sqlalchemy import insert, select, text

from penstock.kernel import events
from penstock.kernel.clock import SystemClock
from penstock.kernel.database_errors import DatabaseUnavailable
from penstock.kernel.db import Db, Tx
from penstock.kernel.dialect.bulk import insert_rows
from penstock.kernel.events import EVERYTHING, StoredEvent, event_inbox, latest_id, list_events
from penstock.kernel.hub import Hub
from penstock.kernel.ids import TimeIds
from penstock.kernel.message import Event
from penstock.kernel.migrations import migrate
from penstock.kernel.sequencer import BATCH, LOCK, PASS, Sequencer
from tests.conftest import open_db, sequence
from tests.fakes.pooler import TransactionPooler
from tests.kernel.test_hub import hear, numbers, running
from tests.plans import Work, measure, measure_kept, recorded
from tests.servers.postgres import PostgresServer

WRITERS, EACH = 10, 10
LIVE = 30  # events of others while a transaction is open


@pytest.fixture
async def postgres(postgres_url: str) -> AsyncIterator[Db]:
    db = open_db(postgres_url)
    yield db
    await db.close()


def counted(number: int, *, topic: str = "job:1") -> Event:
    return Event(topic=topic, kind="counted", audience="user:1", data={"n": number})


async def publish(db: Db, *values: int, topic: str = "job:1") -> None:
    async with db.tx() as tx:
        for number in values:
            tx.publish(counted(number, topic=topic))


async def read(db: Db, after: int = 0, *, limit: int = 100_000) -> list[StoredEvent]:
    async with db.read() as tx:
        return await list_events(tx, after=after, limit=limit)


async def stored(db: Db) -> list[int]:
    return [event.data["n"] for event in await read(db)]


def open_slow(url: str, chance: random.Random) -> Db:
    """Its transactions commit a random while after their events were inserted, as they do on a busy server."""

    async def insert_slowly(tx: Tx, published: Sequence[Event]) -> None:
        await events.insert_events(tx, published)
        await asyncio.sleep(chance.uniform(0, 0.01))

    clock = SystemClock()
    return Db.open(url, clock=clock, ids=TimeIds(clock), publish=insert_slowly, connections=WRITERS)


@asynccontextmanager
async def session(db: Db) -> AsyncIterator[asyncpg.Connection]:
    """A connection with an open transaction that is rolled back in the end, unless it was committed."""
    url = db._writer.url.set(drivername="postgresql").render_as_string(hide_password=False)
    connection = await asyncpg.connect(url)
    await connection.execute("BEGIN")
    try:
        yield connection
    finally:
        await connection.close()


class TestOrder:
    async def test_a_reader_that_continues_after_the_last_id_sees_every_event_once_and_in_order(self, db_url: str):
        """Two processes sequence at once, in batches so small that they are always behind."""
        chance = random.Random(2026)
        writers, reader = open_slow(db_url, chance), open_db(db_url)
        sequencers = [Sequencer(reader, batch=3), Sequencer(reader, batch=5)]

        async def write(writer: int) -> None:
            for number in range(EACH):
                async with writers.tx() as tx:
                    await asyncio.sleep(chance.uniform(0, 0.005))
                    for _ in range(chance.randint(1, 3)):
                        tx.publish(counted(number, topic=f"job:{writer}"))

        writing = asyncio.gather(*(write(writer) for writer in range(WRITERS)))
        seen: list[StoredEvent] = []
        while True:
            over = writing.done()  # asked before the pass, so that the last page misses nothing
            complete = await asyncio.gather(*(sequencer.run_pass() for sequencer in sequencers))
            page = await read(reader, seen[-1].id if seen else 0, limit=7)
            seen += page
            if over and any(complete) and not page:
                break
        await writing
        await sequence(reader)
        assert [event.id for event in seen] == [event.id for event in await read(reader)]
        for writer in range(WRITERS):
            mine = [event.data["n"] for event in seen if event.topic == f"job:{writer}"]
            assert (sorted(mine), set(mine)) == (mine, set(range(EACH)))
        await writers.close()
        await reader.close()

    async def test_a_dependent_transaction_keeps_its_place_even_if_it_began_first(self, postgres: Db):
        """Its transaction id is the smaller one."""
        async with postgres.tx() as second:
            await second.conn.execute(text("SELECT pg_current_xact_id()"))
            await publish(postgres, 1)
            second.publish(counted(2))
        await sequence(postgres)
        assert await stored(postgres) == [1, 2]

    async def test_a_backlog_keeps_its_order_over_many_batches(self, postgres: Db):
        await publish(postgres, *range(40))
        await publish(postgres, *range(40, 50))
        sequencer, passes = Sequencer(postgres, batch=7), 1
        while not await sequencer.run_pass():
            passes += 1
        assert (await stored(postgres), passes) == (list(range(50)), 8)

    async def test_ids_continue_after_the_events_of_an_earlier_version(self, postgres: Db):
        async with postgres.tx() as tx:
            rows = [("job:1", "counted", "user:1", {"n": number}, tx.now) for number in range(3)]
            await insert_rows(tx, events.event, events.COLUMNS, rows)
        old = [event.id for event in await read(postgres)]
        async with running(Hub(postgres)) as hub, hub.subscribed(EVERYTHING, tenant="a", after=old[1]) as subscription:
            await publish(postgres, 3)
            assert numbers(await hear(subscription, 2)) == [2, 3]

    async def test_a_writer_of_an_earlier_version_is_waited_for(self, postgres: Db):
        """It holds the lock from before its ids are drawn until its commit."""
        sequencer = Sequencer(postgres)
        async with session(postgres) as earlier:
            await earlier.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
            await earlier.execute(
                "INSERT INTO event (topic, kind, audience, data, at) VALUES ('job:1', 'x', '', '{\"n\": 1}', now())"
            )
            await publish(postgres, 2)
            assert not await sequencer.run_pass()
            assert await stored(postgres) == []
            await earlier.execute("COMMIT")
        assert await sequencer.run_pass()
        assert await stored(postgres) == [1, 2]


class TestOpenTransactions:
    async def test_writers_do_not_wait_for_each_other(self, postgres: Db):
        async with postgres.tx() as first:
            await events.insert_events(first, [counted(1)])
            await publish(postgres, 2)
            await sequence(postgres)
            assert await stored(postgres) == [2]
            async with postgres.read() as tx:
                last = await latest_id(tx)
        await sequence(postgres)
        assert [event.data["n"] for event in await read(postgres, last)] == [1]

    async def test_forgotten_transactions_do_not_stop_live_events(self, postgres: Db):
        """One has written events, one has merely a transaction id, one holds a snapshot."""
        async with (
            running(Hub(postgres)) as hub,
            hub.subscribed(EVERYTHING, tenant="a") as live,
            session(postgres) as writer,
            session(postgres) as writes_nothing,
            session(postgres) as reader,
        ):
            await writer.execute(FORGOTTEN)
            await writes_nothing.execute("SELECT pg_current_xact_id()")
            await reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            await reader.execute("SELECT count(*) FROM event")
            for number in range(LIVE):
                await publish(postgres, number)
                assert numbers(await hear(live, 1)) == [number]
            last = (await read(postgres))[-1].id
            await writer.execute("COMMIT")
            postgres.wakeups.wake(events.CHANNEL)
            [late] = await hear(live, 1)
            assert (late.data["n"], late.id) == (-1, last + 1)
            await publish(postgres, LIVE)
            assert numbers(await hear(live, 1)) == [LIVE]
            async with hub.subscribed(EVERYTHING, tenant="a", after=last) as resumed:
                assert numbers(await hear(resumed, 2)) == [-1, LIVE]
            async with hub.subscribed(EVERYTHING, tenant="a", after=late.id) as resumed:
                assert numbers(await hear(resumed, 1)) == [LIVE]

    async def test_a_pass_does_not_read_what_was_moved_while_an_open_snapshot_blocks_vacuum(self, postgres: Db):
        sequencer = Sequencer(postgres)
        async with session(postgres) as reader, session(postgres) as late:
            await reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            await reader.execute("SELECT count(*) FROM event")
            await late.execute(FORGOTTEN)
            few = await work_of_a_pass(postgres, sequencer)
            for _ in range(10):
                await publish(postgres, *range(1000))
                assert await sequencer.run_pass()
            many = await work_of_a_pass(postgres, sequencer)
            assert max(one.pages for one in many) <= max(one.pages for one in few) + 10
            await late.execute("COMMIT")
            await sequencer.run_pass()
            assert (await read(postgres))[-1].data == {"n": -1}


FORGOTTEN = (
    "INSERT INTO event_inbox (topic, kind, audience, data, at) "
    "VALUES ('job:9', 'counted', 'user:9', '{\"n\": -1}', now())"
)


async def work_of_a_pass(db: Db, sequencer: Sequencer) -> list[Work]:
    """What a pass does under a plan for its parameters and under one for any."""
    with recorded(db, "event_inbox") as statements:
        assert await sequencer.run_pass()
    statement, parameters = statements[-1]
    return [await measure(db, statement, parameters), await measure_kept(db, statement, parameters)]


class TestPasses:
    async def test_nobody_waits_while_another_process_runs_a_pass(self, postgres: Db):
        await publish(postgres, 1)
        sequencer = Sequencer(postgres)
        async with session(postgres) as other:
            await other.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
            assert not await sequencer.run_pass()
            assert await stored(postgres) == []
        assert await sequencer.run_pass()
        assert await stored(postgres) == [1]

    async def test_a_hub_retries_soon_while_another_process_runs_a_pass(self, postgres: Db):
        async with running(Hub(postgres)) as hub, hub.subscribed(EVERYTHING, tenant="a") as subscription:
            async with session(postgres) as other:
                await other.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
                await publish(postgres, 1)
                assert await subscription.take(seconds=0.2) is None
                assert not hub._is_sequenced
            assert numbers(await hear(subscription, 1)) == [1]

    async def test_a_process_that_freezes_before_it_commits_a_pass_is_disconnected(
        self, postgres: Db, postgres_url: str
    ):
        """Behind a pooler a pass is not a single statement."""
        other = open_db(postgres_url)
        await publish(postgres, 1)

        async def freeze_before_the_commit() -> None:
            async with postgres.tx() as tx:
                await tx.conn.execute(PASS, {"xmax": 0, "running": [], "batch": BATCH})
                await Sequencer(other).catch_up()  # until the server has ended the first

        with pytest.raises(DatabaseUnavailable):
            await freeze_before_the_commit()
        assert await stored(other) == [1]
        await other.close()

    async def test_concurrent_callers_share_a_pass(self, postgres: Db):
        sequencer = Sequencer(postgres)
        with recorded(postgres, "event_inbox") as statements:
            assert all(await asyncio.gather(*(sequencer.run_pass() for _ in range(50))))
        assert len(statements) == 2, "one runs a pass, and those who came meanwhile share the next"

    async def test_what_another_database_remembers_is_forgotten_with_it(self, postgres: Db):
        """As after a restore, when transaction ids are smaller than before."""
        sequencer = Sequencer(postgres)
        sequencer._xmax = 2**60
        await publish(postgres, 1)
        await sequencer.catch_up(max_passes=2)
        assert await stored(postgres) == [1]

    async def test_catching_up_is_bounded(self, postgres: Db):
        await publish(postgres, *range(30))
        await Sequencer(postgres, batch=10).catch_up(max_passes=2)
        assert await stored(postgres) == list(range(20))
        await Sequencer(postgres).catch_up()
        assert await stored(postgres) == list(range(30))

    async def test_a_large_transaction_is_moved_in_several_passes(self, postgres: Db):
        await publish(postgres, *range(2 * BATCH + 1))
        await sequence(postgres)
        assert await stored(postgres) == list(range(2 * BATCH + 1))
        async with postgres.read() as tx:
            assert (await tx.conn.execute(select(event_inbox))).all() == []

    async def test_the_inbox_refuses_what_the_log_would_refuse(self, postgres: Db):
        """Otherwise such a row would fail every pass."""
        good = {"topic": "job:1", "kind": "done", "audience": "", "data": {}}
        for bad in ({"topic": ""}, {"kind": "x" * 65}, {"audience": "x" * 256}):
            async with postgres.tx() as tx:
                with pytest.raises(Exception, match="ck_event_inbox"):
                    await tx.conn.execute(insert(event_inbox).values(at=tx.now, **good | bad))
                await tx.conn.execute(text("ROLLBACK"))

    async def test_sqlite_needs_no_pass(self, sqlite_url: str):
        db = open_db(sqlite_url)
        await publish(db, 1)
        with recorded(db, "event") as statements:
            assert await Sequencer(db).run_pass()
        assert (await stored(db), statements) == ([1], [])
        await db.close()

    async def test_it_works_behind_a_transaction_pooler(self):
        with PostgresServer.start() as server:
            server.create_database("pooled")
            async with TransactionPooler(server.socket_folder, "pooled", size=3) as pooler:
                db = open_db(pooler.url, pooled=True)
                await migrate(db)
                async with running(Hub(db)) as hub, hub.subscribed(EVERYTHING, tenant="a") as subscription:
                    await asyncio.gather(*(publish(db, number) for number in range(20)))
                    assert sorted(numbers(await hear(subscription, 20))) == list(range(20))
                await db.close()
