"""What `backlog.py` promises: rooms and jobs that are due, in order, page by page."""

from datetime import timedelta

from penstock.kernel.announce import Waiting
from penstock.kernel.backlog import RoomWaiting, list_rooms_waiting, list_waiting
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.queue import NewJob, Queue


async def add(db: Db, *jobs: NewJob) -> None:
    async with db.tx() as tx:
        await Queue().enqueue(tx, *jobs)


async def rooms(db: Db, after: str | None = None, limit: int = 100) -> list[RoomWaiting]:
    async with db.read() as tx:
        return await list_rooms_waiting(tx, after=after, limit=limit)


class TestRooms:
    async def test_an_empty_ledger_has_no_room_with_due_work(self, db: Db):
        assert await rooms(db) == []

    async def test_each_room_is_listed_once_with_the_time_since_its_next_job_is_due(self, db: Db, clock: ManualClock):
        started = clock.now()
        await add(db, NewJob(kind="k", room="etl"), NewJob(kind="k"), NewJob(kind="k", room="a: ü"))
        clock.advance(seconds=60)
        await add(db, *(NewJob(kind="k", room=room) for room in ("", "etl", "tasks", "tasks")))
        assert [(found.room, found.since - started) for found in await rooms(db)] == [
            ("", timedelta(0)),
            ("a: ü", timedelta(0)),
            ("etl", timedelta(0)),
            ("tasks", timedelta(seconds=60)),
        ]

    async def test_a_room_whose_work_is_held_over_or_not_due_yet_is_not_listed(self, db: Db, clock: ManualClock):
        queue = Queue()
        async with db.tx() as tx:
            await queue.enqueue(tx, NewJob(kind="k", room="held"), NewJob(kind="k", room="later", delay_seconds=60))
            await queue.enqueue(tx, NewJob(kind="k", room="over", id="over"), NewJob(kind="k", room="due"))
            await queue.claim(tx, owner="w", seconds=60, limit=1, room="held")
            await queue.cancel(tx, "over")
        assert [found.room for found in await rooms(db)] == ["due"]
        clock.advance(seconds=60)
        async with db.tx() as tx:
            await queue.leases.promote(tx)
        assert [found.room for found in await rooms(db)] == ["due", "later"]

    async def test_rooms_come_in_pages(self, db: Db):
        names = [f"room {number}" for number in range(7)]
        await add(db, *(NewJob(kind="k", room=name) for name in names))
        pages = [await rooms(db, limit=3)]
        while pages[-1]:
            pages.append(await rooms(db, after=pages[-1][-1].room, limit=3))
        assert [[found.room for found in page] for page in pages] == [names[:3], names[3:6], names[6:], []]


class TestJobs:
    async def test_due_jobs_of_a_room_come_in_the_order_of_their_turns_page_by_page(self, db: Db, clock: ManualClock):
        await add(db, NewJob(kind="k", id="c"), NewJob(kind="k", id="urgent", priority=-1), NewJob(kind="k", id="b"))
        clock.advance(seconds=1)
        await add(db, NewJob(kind="k", id="a"), NewJob(kind="k", id="elsewhere", room="etl"))
        await add(db, NewJob(kind="k", id="later", delay_seconds=1))
        pages: list[list[Waiting]] = []
        async with db.read() as tx:
            pages.append(await list_waiting(tx, "", limit=2))
            while pages[-1]:
                pages.append(await list_waiting(tx, "", after=pages[-1][-1], limit=2))
        assert [[job.id for job in page] for page in pages] == [["urgent", "b"], ["c", "a"], []]

    async def test_a_job_is_listed_with_what_its_turn_depends_on(self, db: Db, clock: ManualClock):
        queue = Queue()
        async with db.tx() as tx:
            await queue.enqueue(tx, NewJob(kind="k", id="a", room="etl", priority=3))
            [held] = await queue.claim(tx, owner="w", seconds=60, limit=1, room="etl")
            await queue.retry(tx, held, wait_seconds=0, code="X", error="x")
            found = await list_waiting(tx, "etl")
        assert found == [Waiting(id="a", attempt=1, room="etl", priority=3, due_at=clock.now())]
