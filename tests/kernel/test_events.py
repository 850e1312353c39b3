"""What `events.py` promises: events are written with the change they report, read in order and deleted oldest first."""

from datetime import timedelta

import pytest
from sqlalchemy import insert

from penstock.kernel import events
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.events import (
    EVERYTHING,
    MAX_BYTES,
    MAX_KIND_LENGTH,
    MAX_NAME_LENGTH,
    BadEvent,
    EventTooLarge,
    Interest,
    StoredEvent,
    delete_events,
    latest_id,
    list_events,
    oldest_id,
)
from penstock.kernel.message import Event
from tests.conftest import rolled_back, sequence


def page_done(number: int = 1, *, topic: str = "job:1", audience: str = "user:1") -> Event:
    return Event(topic=topic, kind="page_done", audience=audience, data={"page": number})


async def publish(db: Db, *published: Event) -> None:
    async with db.tx() as tx:
        for one in published:
            tx.publish(one)


async def pages(db: Db, interest: Interest = EVERYTHING, **where: int) -> list[int]:
    """The page numbers of what is found."""
    await sequence(db)
    async with db.read() as tx:
        return [told.data["page"] for told in await list_events(tx, interest, **where)]


async def ids(db: Db) -> list[int]:
    await sequence(db)
    async with db.read() as tx:
        return [told.id for told in await list_events(tx)]


class TestPublishing:
    async def test_published_events_can_be_read_in_order(self, db: Db, clock: ManualClock):
        await publish(db, page_done(1), page_done(2))
        await publish(db, Event(topic="job:2", kind="done"))
        await sequence(db)
        async with db.read() as tx:
            first, second, third = await list_events(tx)
        assert first.id < second.id < third.id
        assert (first.topic, first.kind, first.audience, first.data) == ("job:1", "page_done", "user:1", {"page": 1})
        assert first.at == clock.now()
        assert (second.data, third.kind, third.audience, third.data) == ({"page": 2}, "done", "", {})

    async def test_a_rolled_back_transaction_publishes_nothing(self, db: Db):
        async with rolled_back(db) as tx:
            tx.publish(page_done())
        assert await ids(db) == []

    async def test_many_events_of_one_transaction_keep_their_order(self, db: Db):
        await publish(db, *(page_done(number) for number in range(300)))
        assert await pages(db, limit=1000) == list(range(300))

    async def test_the_commit_wakes_the_listeners(self, db: Db):
        listener = db.wakeups.listen([events.CHANNEL])
        async with db.tx() as tx:
            tx.publish(page_done())
            assert not listener._notified.is_set()
        await listener.wait(seconds=60)  # on a clock that does not move

    @pytest.mark.parametrize(
        "bad",
        [
            Event(topic="", kind="done"),
            Event(topic="x" * (MAX_NAME_LENGTH + 1), kind="done"),
            Event(topic="job:\0", kind="done"),
            Event(topic="job:\ud800", kind="done"),
            Event(topic="job:1", kind="done", audience="user:\n1"),
            Event(topic="job:1", kind=""),
            Event(topic="job:1", kind="x" * (MAX_KIND_LENGTH + 1)),
            Event(topic="job:1", kind="done\ndata: forged"),
            Event(topic="job:1", kind="reset"),
            Event(topic="job:1", kind="done", data={"at": 1}),
            Event(topic="job:1", kind="done", data={"said": "a\0b"}),
            Event(topic="job:1", kind="done", data={"said": "\ud800"}),
        ],
        ids=lambda bad: ascii(f"{bad.topic[:9]} {bad.kind[:9]} {bad.audience} {bad.data}"),
    )
    async def test_an_invalid_event_fails_its_transaction(self, db: Db, bad: Event):
        with pytest.raises(BadEvent) as raised:
            await publish(db, page_done(), bad)
        assert "无法发布" in raised.value.in_chinese()
        assert await ids(db) == []

    async def test_names_as_long_as_they_may_be_and_odd_characters_are_kept(self, db: Db):
        odd = Event(
            topic="x" * MAX_NAME_LENGTH,
            kind="k" * MAX_KIND_LENGTH,
            audience="页" * MAX_NAME_LENGTH,
            data={"said": "页 \\u0000 \u2028 \r\n"},
        )
        await publish(db, odd)
        await sequence(db)
        async with db.read() as tx:
            [told] = await list_events(tx)
        assert (told.topic, told.kind, told.audience, told.data) == (odd.topic, odd.kind, odd.audience, odd.data)

    async def test_data_over_the_bound_is_refused_and_just_under_it_is_not(self, db: Db):
        frame = len('{"x":""}')
        await publish(db, Event(topic="a", kind="done", data={"x": "y" * (MAX_BYTES - frame)}))
        with pytest.raises(EventTooLarge, match=f"{MAX_BYTES + 1} bytes"):
            await publish(db, Event(topic="a", kind="done", data={"x": "y" * (MAX_BYTES - frame + 1)}))
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
        await publish(db, *(page_done(n, topic=topic, audience=who) for n, (topic, who) in enumerate(told, start=1)))

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
        await publish(db, *(page_done(number) for number in range(1, 6)))
        clock.advance(seconds=60)
        await publish(db, page_done(6))
        await sequence(db)
        async with db.tx() as tx:
            assert await delete_events(tx, before=clock.now(), limit=3) == 3
            assert await delete_events(tx, before=clock.now(), limit=3) == 2
            assert await delete_events(tx, before=clock.now(), limit=3) == 0
        assert await pages(db) == [6]

    async def test_the_newest_stays_however_old_it_is(self, db: Db, clock: ManualClock):
        await publish(db, page_done(1), page_done(2))
        await sequence(db)
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
        await publish(db, page_done(1))
        [first] = await ids(db)
        async with db.tx() as tx:
            await tx.conn.execute(events.event.delete())
        await publish(db, page_done(2))
        assert await ids(db) > [first]
