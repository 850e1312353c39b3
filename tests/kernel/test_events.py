"""What `events.py` promises: written with the change they tell of, and visible in the order of their ids."""

import asyncio
import random
from collections.abc import Sequence
from datetime import timedelta

import pytest
from sqlalchemy import insert

from penstock.kernel import events
from penstock.kernel.clock import ManualClock, SystemClock
from penstock.kernel.database_errors import DatabaseUnavailable
from penstock.kernel.db import Db, Tx
from penstock.kernel.events import (
    EVERYTHING,
    LONGEST_KIND,
    LONGEST_NAME,
    MOST_BYTES,
    BadEvent,
    EventTooLarge,
    Interest,
    StoredEvent,
    delete_events,
    latest_id,
    list_events,
    oldest_id,
)
from penstock.kernel.ids import TimeIds
from penstock.kernel.message import Event
from penstock.kernel.migrations import migrate
from tests.conftest import open_db, rolled_back
from tests.fakes.pooler import TransactionPooler
from tests.servers.postgres import PostgresServer

WRITERS, EACH = 10, 10


def page_done(number: int = 1, *, topic: str = "job:1", audience: str = "user:1") -> Event:
    return Event(topic=topic, kind="page_done", audience=audience, data={"page": number})


async def tell(db: Db, *told: Event) -> None:
    async with db.tx() as tx:
        for one in told:
            tx.tell(one)


async def pages(db: Db, interest: Interest = EVERYTHING, **where: int) -> list[int]:
    """The page numbers of what is found."""
    async with db.read() as tx:
        return [told.data["page"] for told in await list_events(tx, interest, **where)]


async def ids(db: Db) -> list[int]:
    async with db.read() as tx:
        return [told.id for told in await list_events(tx)]


class TestTelling:
    async def test_what_was_told_can_be_read_in_its_order(self, db: Db, clock: ManualClock):
        await tell(db, page_done(1), page_done(2))
        await tell(db, Event(topic="job:2", kind="done"))
        async with db.read() as tx:
            first, second, third = await list_events(tx)
        assert first.id < second.id < third.id
        assert (first.topic, first.kind, first.audience, first.data) == ("job:1", "page_done", "user:1", {"page": 1})
        assert first.at == clock.now()
        assert (second.data, third.kind, third.audience, third.data) == ({"page": 2}, "done", "", {})

    async def test_a_rolled_back_transaction_told_nothing(self, db: Db):
        async with rolled_back(db) as tx:
            tx.tell(page_done())
        assert await ids(db) == []

    async def test_many_events_of_one_transaction_keep_their_order(self, db: Db):
        await tell(db, *(page_done(number) for number in range(300)))
        assert await pages(db, limit=1000) == list(range(300))

    async def test_the_commit_wakes_those_who_watch(self, db: Db):
        listener = db.wakeups.listen([events.CHANNEL])
        async with db.tx() as tx:
            tx.tell(page_done())
            assert not listener._notified.is_set()
        await listener.wait(seconds=60)  # on a clock that does not move

    @pytest.mark.parametrize(
        "bad",
        [
            Event(topic="", kind="done"),
            Event(topic="x" * (LONGEST_NAME + 1), kind="done"),
            Event(topic="job:\0", kind="done"),
            Event(topic="job:\ud800", kind="done"),
            Event(topic="job:1", kind="done", audience="user:\n1"),
            Event(topic="job:1", kind=""),
            Event(topic="job:1", kind="x" * (LONGEST_KIND + 1)),
            Event(topic="job:1", kind="done\ndata: forged"),
            Event(topic="job:1", kind="reset"),
            Event(topic="job:1", kind="done", data={"at": 1}),
            Event(topic="job:1", kind="done", data={"said": "a\0b"}),
            Event(topic="job:1", kind="done", data={"said": "\ud800"}),
        ],
        ids=lambda bad: ascii(f"{bad.topic[:9]} {bad.kind[:9]} {bad.audience} {bad.data}"),
    )
    async def test_an_event_that_cannot_be_told_fails_its_transaction(self, db: Db, bad: Event):
        with pytest.raises(BadEvent) as raised:
            await tell(db, page_done(), bad)
        assert "无法发布" in raised.value.in_chinese()
        assert await ids(db) == []

    async def test_names_as_long_as_they_may_be_and_odd_characters_are_kept(self, db: Db):
        odd = Event(
            topic="x" * LONGEST_NAME,
            kind="k" * LONGEST_KIND,
            audience="页" * LONGEST_NAME,
            data={"said": "页 \\u0000 \u2028 \r\n"},
        )
        await tell(db, odd)
        async with db.read() as tx:
            [told] = await list_events(tx)
        assert (told.topic, told.kind, told.audience, told.data) == (odd.topic, odd.kind, odd.audience, odd.data)

    async def test_data_over_the_bound_is_refused_and_just_under_it_is_not(self, db: Db):
        frame = len('{"x":""}')
        await tell(db, Event(topic="a", kind="done", data={"x": "y" * (MOST_BYTES - frame)}))
        with pytest.raises(EventTooLarge, match=f"{MOST_BYTES + 1} bytes"):
            await tell(db, Event(topic="a", kind="done", data={"x": "y" * (MOST_BYTES - frame + 1)}))
        assert len(await ids(db)) == 1


def test_on_a_stream_an_event_is_an_id_a_kind_and_one_line_of_json(clock: ManualClock):
    told = StoredEvent(
        id=7, topic="job:1", kind="said", audience="user:1", data={"words": "a\n\u2028页"}, at=clock.now()
    )
    lines = told.wire.decode().split("\n")
    assert lines[:2] == ["id: 7", "event: said"]
    assert lines[2] == 'data: {"words":"a\\n\u2028页","topic":"job:1","at":"2026-01-01T00:00:00Z"}'
    assert lines[3:] == ["", ""]


class TestReading:
    @pytest.fixture(autouse=True)
    async def some(self, db: Db) -> None:
        told = [("job:1", "user:1"), ("job:2", "user:2"), ("job:1", "user:1"), ("job:3", ""), ("job:1", "user:3")]
        await tell(db, *(page_done(n, topic=topic, audience=who) for n, (topic, who) in enumerate(told, start=1)))

    async def test_one_goes_on_after_the_last_id_seen(self, db: Db):
        seen = await ids(db)
        assert await pages(db, after=seen[1], limit=2) == [3, 4]
        assert await pages(db, after=seen[-1]) == []
        assert await pages(db, after=seen[0], upto=seen[2]) == [2, 3]

    @pytest.mark.parametrize(
        ("interest", "found"),
        [
            (Interest(topic="job:1"), [1, 3, 5]),
            (Interest(audiences=frozenset({"user:1"})), [1, 3]),
            (Interest(audiences=frozenset({"user:1", "user:2"})), [1, 2, 3]),
            (Interest(topic="job:1", audiences=frozenset({"user:1", "user:2"})), [1, 3]),
            (Interest(topic="job:2", audiences=frozenset({"user:1"})), []),
            (Interest(audiences=frozenset()), []),
        ],
    )
    async def test_only_what_is_of_interest_is_found(self, db: Db, interest: Interest, found: list[int]):
        assert await pages(db, interest) == found
        assert await pages(db, interest, limit=2) == found[:2]
        if found:
            assert await pages(db, interest, after=(await ids(db))[found[0] - 1]) == found[1:]

    async def test_the_oldest_and_the_latest_are_known(self, db: Db):
        seen = await ids(db)
        async with db.read() as tx:
            assert (await oldest_id(tx), await latest_id(tx)) == (seen[0], seen[-1])

    async def test_of_nothing_both_are_zero(self, db: Db):
        async with db.tx() as tx:
            await tx.conn.execute(events.event.delete())
            assert (await oldest_id(tx), await latest_id(tx)) == (0, 0)


class TestDeletion:
    async def test_the_old_are_deleted_a_bounded_number_at_a_time(self, db: Db, clock: ManualClock):
        await tell(db, *(page_done(number) for number in range(1, 6)))
        clock.advance(seconds=60)
        await tell(db, page_done(6))
        async with db.tx() as tx:
            assert await delete_events(tx, before=clock.now(), limit=3) == 3
            assert await delete_events(tx, before=clock.now(), limit=3) == 2
            assert await delete_events(tx, before=clock.now(), limit=3) == 0
        assert await pages(db) == [6]

    async def test_the_newest_stays_however_old_it_is(self, db: Db, clock: ManualClock):
        await tell(db, page_done(1), page_done(2))
        async with db.tx() as tx:
            assert await delete_events(tx, before=clock.now() + timedelta(days=1)) == 1
            assert await delete_events(tx, before=clock.now() + timedelta(days=1)) == 0
        assert await pages(db) == [2]

    async def test_of_nothing_nothing_is_deleted(self, db: Db, clock: ManualClock):
        async with db.tx() as tx:
            assert await delete_events(tx, before=clock.now()) == 0

    async def test_what_is_left_has_no_holes(self, db: Db, clock: ManualClock):
        """A transaction that was long under way has a time before that of the event before it."""
        async with db.tx() as tx:
            at = [tx.now, tx.now + timedelta(seconds=60), tx.now, tx.now + timedelta(seconds=60)]
            rows = [("job:1", "page_done", "", {"page": n}, moment) for n, moment in enumerate(at)]
            await tx.conn.execute(insert(events.event), [dict(zip(events.COLUMNS, r, strict=True)) for r in rows])
            assert await delete_events(tx, before=tx.now + timedelta(seconds=1)) == 1
        assert await pages(db) == [1, 2, 3]

    async def test_a_number_is_never_given_out_again(self, db: Db):
        await tell(db, page_done(1))
        [first] = await ids(db)
        async with db.tx() as tx:
            await tx.conn.execute(events.event.delete())
        await tell(db, page_done(2))
        assert await ids(db) > [first]


def open_slow(url: str, chance: random.Random) -> Db:
    """Its transactions commit a random while after their numbers were drawn, as they do on a busy server."""

    async def publish_slowly(tx: Tx, told: Sequence[Event]) -> None:
        await events.publish(tx, told)
        await asyncio.sleep(chance.uniform(0, 0.01))

    clock = SystemClock()
    return Db.open(url, clock=clock, ids=TimeIds(clock), publish=publish_slowly, connections=WRITERS)


class TestOrder:
    async def test_a_reader_that_goes_on_after_the_last_id_sees_every_event_once_and_in_order(self, db_url: str):
        chance = random.Random(2026)
        writers, reader = open_slow(db_url, chance), open_db(db_url)

        async def write(writer: int) -> None:
            for number in range(EACH):
                async with writers.tx() as tx:
                    await asyncio.sleep(chance.uniform(0, 0.005))
                    for _ in range(chance.randint(1, 3)):
                        tx.tell(page_done(number, topic=f"job:{writer}"))

        writing = asyncio.gather(*(write(writer) for writer in range(WRITERS)))
        seen: list[StoredEvent] = []
        while True:
            over = writing.done()  # asked before the look: the last look then misses nothing
            async with reader.read() as tx:
                page = await list_events(tx, after=seen[-1].id if seen else 0, limit=7)
            seen += page
            if over and not page:
                break
        await writing
        async with reader.read() as tx:
            everything = await list_events(tx, limit=10_000)
        assert [told.id for told in seen] == [told.id for told in everything]
        for writer in range(WRITERS):
            mine = [told.data["page"] for told in seen if told.topic == f"job:{writer}"]
            assert (sorted(mine), set(mine)) == (mine, set(range(EACH)))
        await writers.close()
        await reader.close()

    async def test_whoever_tells_second_commits_second(self, postgres_url: str):
        db = open_db(postgres_url)
        async with db.tx() as tx:
            await events.publish(tx, [page_done(1)])
            second = asyncio.create_task(tell(db, page_done(2)))
            assert await waiting_for_a_turn(db) == 1
            assert await pages(db) == []
        await second
        assert await pages(db) == [1, 2]
        await db.close()

    async def test_numbers_are_drawn_only_after_the_turn_was_taken(self, postgres_url: str):
        """Else the second would already hold a number when the first draws its last."""
        db = open_db(postgres_url)
        async with db.tx() as tx:
            await events.publish(tx, [page_done(1)])
            second = asyncio.create_task(tell(db, page_done(4)))
            assert await waiting_for_a_turn(db) == 1
            await events.publish(tx, [page_done(2), page_done(3)])
        await second
        assert await pages(db) == [1, 2, 3, 4]
        await db.close()

    async def test_transactions_that_tell_nothing_wait_for_nobody(self, postgres_url: str):
        db = open_db(postgres_url)
        async with db.tx() as holder:
            await events.publish(holder, [page_done()])
            async with db.tx() as tx:
                tx.wake("work")
        await db.close()

    async def test_a_process_that_freezes_in_its_turn_is_cut_off_and_the_others_go_on(self, postgres_url: str):
        frozen, db = open_db(postgres_url), open_db(postgres_url)

        async def freeze_in_the_middle() -> None:
            async with frozen.tx() as tx:
                await events.publish(tx, [page_done(1)])
                await tell(db, page_done(2))  # waits until the server has timed out the first

        with pytest.raises(DatabaseUnavailable):
            await freeze_in_the_middle()
        assert await pages(db) == [2]
        await frozen.close()
        await db.close()

    async def test_it_works_behind_a_transaction_pooler(self):
        with PostgresServer.start() as server:
            server.create_database("pooled")
            async with TransactionPooler(server.socket_folder, "pooled", size=3) as pooler:
                db = open_db(pooler.url, pooled=True)
                await migrate(db)
                await asyncio.gather(*(tell(db, page_done(number)) for number in range(20)))
                assert sorted(await pages(db)) == list(range(20))
                await db.close()


async def waiting_for_a_turn(db: Db) -> int:
    """How many wait for the lock, as soon as any does."""
    async with asyncio.timeout(20):
        while True:
            async with db.read() as tx:
                query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                if waiting := (await tx.conn.exec_driver_sql(query)).scalar_one():
                    return int(waiting)
            await asyncio.sleep(0.01)
