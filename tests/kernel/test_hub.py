"""What `hub.py` and `subscription.py` promise: every watcher is told everything it wants once and in order, at its own
pace, and no watcher is another's business."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta

import pytest
from sqlalchemy import delete

from penstock.kernel import events
from penstock.kernel.db import Db
from penstock.kernel.dialect.bulk import insert_rows
from penstock.kernel.events import EVERYTHING, Interest
from penstock.kernel.hub import PAGE, Hub
from penstock.kernel.message import Event
from penstock.kernel.subscription import MAX_QUEUE_BYTES, Subscription
from tests.conftest import open_db, sequence
from tests.fakes.sse import Heard, parse_all
from tests.plans import recorded

PATIENT_SECONDS = 30


@pytest.fixture
async def db(db_url: str) -> AsyncIterator[Db]:
    """On the machine's own clock: a hub waits and looks again by itself."""
    db = open_db(db_url)
    yield db
    await db.close()


@asynccontextmanager
async def running(hub: Hub) -> AsyncIterator[Hub]:
    task = asyncio.create_task(hub.run())
    try:
        yield hub
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def hub(db: Db) -> AsyncIterator[Hub]:
    async with running(Hub(db)) as hub:
        yield hub


def watching(
    hub: Hub, interest: Interest = EVERYTHING, after: int | None = None
) -> AbstractAsyncContextManager[Subscription]:
    return hub.subscribed(interest, tenant="user:1", after=after)


async def tell(db: Db, *numbers: int, topic: str = "job:1", audience: str = "user:1", padding: str = "") -> None:
    async with db.tx() as tx:
        for number in numbers:
            data = {"n": number, "padding": padding} if padding else {"n": number}
            tx.publish(Event(topic=topic, kind="counted", audience=audience, data=data))


async def newest(db: Db) -> int:
    await sequence(db)
    async with db.read() as tx:
        return await events.latest_id(tx)


async def ids_after(db: Db, after: int) -> list[int]:
    await sequence(db)
    async with db.read() as tx:
        return [told.id for told in await events.list_events(tx, after=after, limit=100_000)]


async def hear(watcher: Subscription, count: int) -> list[Heard]:
    """The next events, at least so many."""
    heard: list[Heard] = []
    async with asyncio.timeout(PATIENT_SECONDS):
        while len(heard) < count:
            batch = await watcher.take(seconds=PATIENT_SECONDS)
            assert batch is not None
            heard += parse_all(batch.text)
    return heard


async def hear_up_to(watcher: Subscription, last: int) -> list[int]:
    """The ids of events up to this one."""
    heard = [0]
    while heard[-1] < last:
        heard += [one.id or 0 for one in await hear(watcher, 1)]
    return heard[1:]


def numbers(heard: list[Heard]) -> list[int]:
    return [one.data["n"] for one in heard]


async def silent(watcher: Subscription) -> bool:
    """Nothing comes, although the hub has looked."""
    return await watcher.take(seconds=0.2) is None


class TestTelling:
    async def test_a_watcher_hears_what_is_told_from_now_on_in_order(self, db: Db, hub: Hub):
        await tell(db, 0)
        async with watching(hub, after=await newest(db)) as watcher:
            await tell(db, 1, 2)
            await tell(db, 3)
            heard = await hear(watcher, 3)
        assert numbers(heard) == [1, 2, 3]
        assert heard[0].kind == "counted"
        assert heard[0].data["topic"] == "job:1"

    async def test_what_another_process_told_is_heard_too(self, db: Db, db_url: str, hub: Hub):
        other = open_db(db_url)
        async with watching(hub) as watcher:
            await tell(other, 1)
            assert numbers(await hear(watcher, 1)) == [1]
        await other.close()

    @pytest.mark.parametrize(
        ("interest", "expected"),
        [
            (EVERYTHING, [1, 2, 3, 4, 5]),
            (Interest(topic="job:1"), [1, 3, 5]),
            (Interest(audiences=frozenset({"user:1"})), [1, 4]),
            (Interest(audiences=frozenset({"user:1", "merchant:1"})), [1, 2, 4]),
            (Interest(topic="job:1", audiences=frozenset({"user:1", "merchant:1"})), [1]),
        ],
        ids=["everything", "topic", "audience", "audiences", "topic and audiences"],
    )
    async def test_a_watcher_hears_only_what_concerns_it(
        self, db: Db, hub: Hub, interest: Interest, expected: list[int]
    ):
        told = [("job:1", "user:1"), ("job:2", "merchant:1"), ("job:1", ""), ("job:3", "user:1"), ("job:1", "user:2")]
        async with watching(hub, interest) as watcher:
            for number, (topic, audience) in enumerate(told, start=1):
                await tell(db, number, topic=topic, audience=audience)
            assert numbers(await hear(watcher, len(expected))) == expected
            assert await silent(watcher)

    async def test_those_who_want_the_same_share_one_text(self, db: Db, hub: Hub):
        async with watching(hub) as first, watching(hub) as second:
            await tell(db, 1, 2, 3)
            one, two = await first.take(seconds=PATIENT_SECONDS), await second.take(seconds=PATIENT_SECONDS)
        assert one is not None
        assert one is two

    async def test_while_nobody_watches_a_commit_is_not_worth_a_look(self, db: Db, hub: Hub):
        with recorded(db, "event") as statements:
            for number in range(20):
                await tell(db, number)
            async with watching(hub, after=await newest(db)) as watcher:
                await tell(db, 20)
                assert numbers(await hear(watcher, 1)) == [20]
        looks = [text for text, _ in statements if text.startswith("SELECT")]  # not what was told
        assert len(looks) < 20, "it looked at every commit"


class TestGoingOn:
    async def test_a_watcher_that_comes_back_hears_what_it_missed_and_then_what_is_new(self, db: Db, hub: Hub):
        await tell(db, *range(3 * PAGE))
        first = (await ids_after(db, 0))[0]
        async with watching(hub, after=first) as watcher:
            missed = await hear_up_to(watcher, await newest(db))
            await tell(db, 1)
            live = await hear_up_to(watcher, await newest(db))
        assert missed + live == await ids_after(db, first)

    async def test_nothing_is_lost_or_doubled_whenever_watchers_come(self, db: Db, hub: Hub):
        """They come while events are told, from ids of the past and of right now, and go on to live ones."""
        chance = random.Random(7)

        async def write() -> None:
            for _ in range(60):
                await tell(db, *range(chance.randint(1, 12)))
                await asyncio.sleep(chance.uniform(0, 0.01))

        async def watch() -> tuple[int, list[int]]:
            await asyncio.sleep(chance.uniform(0, 0.5))
            after = chance.randint(0, await newest(db))
            async with watching(hub, after=after) as watcher:
                heard: list[int] = []
                while not writing.done() or heard[-1:] != [await newest(db)]:
                    batch = await watcher.take(seconds=0.05)
                    heard += [one.id or 0 for one in parse_all(batch.text)] if batch is not None else []
            return after, heard

        await tell(db, 0)
        writing = asyncio.ensure_future(write())
        async with asyncio.timeout(PATIENT_SECONDS):
            watched = await asyncio.gather(*(watch() for _ in range(20)))
        for after, heard in watched:
            assert heard == await ids_after(db, after)

    async def test_nothing_is_lost_when_the_first_watcher_comes_while_the_hub_skips(self, db: Db):
        """With nobody watching, the hub goes to the newest event without reading the others."""
        hub = Hub(db)
        await hub._poll()
        for turns in range(40):
            before = await newest(db)
            await tell(db, turns)
            looking = asyncio.create_task(hub._poll())
            for _ in range(turns):
                await asyncio.sleep(0)
            async with watching(hub, after=before) as watcher:
                await looking
                await hub._poll()
                assert numbers(await hear(watcher, 1)) == [turns]
            await hub._poll()

    async def test_a_watcher_that_is_ahead_of_this_process_hears_nothing_twice(self, db: Db):
        """It comes from another process that has looked already, and it saw half of what the next look finds here."""
        await tell(db, 0)
        hub = Hub(db)
        await hub._poll()
        async with watching(hub) as other:
            await tell(db, *range(10))
            halfway = await newest(db) - 5
            async with watching(hub, after=halfway) as watcher:
                await hub._poll()
                assert await hear_up_to(watcher, await newest(db)) == await ids_after(db, halfway)
            assert len(await hear(other, 10)) == 10

    async def test_a_watcher_told_everything_elsewhere_waits_for_what_is_new(self, db: Db):
        hub = Hub(db)
        await hub._poll()
        async with watching(hub):
            await tell(db, 1, 2)
            async with watching(hub, after=await newest(db)) as watcher:
                await hub._poll()
                await tell(db, 3)
                await hub._poll()
                assert numbers(await hear(watcher, 1)) == [3]


class TestSlowWatchers:
    async def test_a_slow_watcher_loses_nothing_and_holds_little(self, db: Db):
        async with running(Hub(db, max_queued=10)) as hub, watching(hub) as slow, watching(hub) as quick:
            began = await newest(db)
            for number in range(50):
                await tell(db, number)
                assert numbers(await hear(quick, 1)) == [number]
                assert slow._queued_events <= 10
            assert slow.dropped == hub.dropped == 40
            assert quick.dropped == 0
            assert await hear_up_to(slow, await newest(db)) == await ids_after(db, began)

    async def test_a_queue_smaller_than_a_page_only_means_reading_from_the_table(self, db: Db):
        async with running(Hub(db, max_queued=1)) as hub, watching(hub) as watcher:
            began = await newest(db)
            await tell(db, *range(PAGE + 5))
            assert await hear_up_to(watcher, await newest(db)) == await ids_after(db, began)

    async def test_a_queue_is_bounded_in_bytes_too(self, db: Db):
        async with running(Hub(db, max_queued=10_000)) as hub, watching(hub) as slow, watching(hub) as quick:
            began = await newest(db)
            for _ in range(12):
                await tell(db, *range(10), padding="x" * 15_000)
                await hear_up_to(quick, await newest(db))
            assert slow._queued_bytes <= MAX_QUEUE_BYTES
            assert slow.dropped > 0
            assert await hear_up_to(slow, await newest(db)) == await ids_after(db, began)

    async def test_those_who_fell_behind_together_read_together(self, db: Db):
        crowd = 40
        async with running(Hub(db, max_queued=1)) as hub, AsyncExitStack() as stack:
            watchers = [await stack.enter_async_context(watching(hub)) for _ in range(crowd)]
            with recorded(db, "event") as statements:
                await tell(db, *range(3 * PAGE))
                heard = await asyncio.gather(*(hear(watcher, 3 * PAGE) for watcher in watchers))
        assert all(numbers(one) == list(range(3 * PAGE)) for one in heard)
        assert len(statements) < crowd


class TestMissing:
    async def test_who_comes_back_too_late_is_told_so_and_gets_what_is_kept(self, db: Db, hub: Hub):
        await tell(db, *range(5))
        kept = await ids_after(db, 0)
        async with db.tx() as tx:
            await tx.conn.execute(delete(events.event).where(events.event.c.id < kept[3]))
        async with watching(hub, after=kept[0]) as watcher:
            reset, *rest = await hear(watcher, 3)
        assert (reset.kind, reset.id, reset.data) == ("reset", kept[3] - 1, {"oldest": kept[3]})
        assert [one.id for one in rest] == kept[3:]

    async def test_who_has_seen_all_that_was_deleted_has_missed_nothing(self, db: Db, hub: Hub):
        await tell(db, *range(5))
        kept = await ids_after(db, 0)
        async with db.tx() as tx:
            await tx.conn.execute(delete(events.event).where(events.event.c.id < kept[3]))
        async with watching(hub, after=kept[2]) as watcher:
            assert [one.id for one in await hear(watcher, 2)] == kept[3:]

    async def test_who_knows_an_id_that_was_never_given_out_is_told_so(self, db: Db, hub: Hub):
        await tell(db, 1, 2)
        kept = await ids_after(db, 0)
        async with watching(hub, after=kept[-1] + 1000) as watcher:
            reset, *rest = await hear(watcher, 3)
        assert (reset.kind, reset.data) == ("reset", {"oldest": kept[0]})
        assert [one.id for one in rest] == kept

    async def test_the_same_while_nothing_was_ever_told(self, db: Db, hub: Hub):
        async with watching(hub, after=1000) as watcher:
            [reset] = await hear(watcher, 1)
            await tell(db, 1)
            assert numbers(await hear(watcher, 1)) == [1]
        assert (reset.kind, reset.id, reset.data) == ("reset", 0, {"oldest": 0})

    async def test_what_was_deleted_before_the_hub_read_it_is_missed_aloud(self, db: Db, db_url: str, hub: Hub):
        elsewhere = open_db(db_url)
        await tell(db, 0)
        async with watching(hub, after=await newest(db)) as watcher:
            async with elsewhere.tx() as tx:  # in one transaction, so that the hub cannot look in between
                rows = [("job:1", "counted", "", {"n": number}, tx.now) for number in range(3)]
                await insert_rows(tx, events.event, events.COLUMNS, rows)
                later = tx.now + timedelta(seconds=1)
                assert await events.delete_events(tx, before=later) == 3
                tx.wake(events.CHANNEL)
            reset, last = await hear(watcher, 2)
        await elsewhere.close()
        assert (reset.kind, reset.data) == ("reset", {"oldest": last.id})
        assert last.data["n"] == 2

    async def test_a_watcher_so_slow_that_its_events_were_deleted_is_told_so(self, db: Db):
        async with running(Hub(db, max_queued=2)) as hub, watching(hub) as slow, watching(hub) as quick:
            await tell(db, 0)
            assert numbers(await hear(slow, 1)) == numbers(await hear(quick, 1)) == [0]
            for number in range(1, 6):
                await tell(db, number)
                await hear(quick, 1)
            kept = await ids_after(db, 0)
            async with db.tx() as tx:
                await tx.conn.execute(delete(events.event).where(events.event.c.id < kept[-1]))
            heard = await hear(slow, 3)
        assert [one.kind for one in heard] == ["reset", "counted", "counted"]
        assert numbers(heard[1:]) == [4, 5], "what waits in memory need not be in the table"
