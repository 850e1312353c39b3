"""What `backlog.py` promises: modules and jobs that are due, in order, page by page."""

from datetime import timedelta

from penstock.kernel.backlog import ModuleBacklog, list_module_backlogs, list_waiting_jobs
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.job_dispatch import WaitingJob
from penstock.kernel.queue import JobQueue, NewJob


async def add(db: Db, *jobs: NewJob) -> None:
    async with db.tx() as tx:
        await JobQueue().enqueue(tx, *jobs)


async def backlogs(db: Db, after: str | None = None, limit: int = 100) -> list[ModuleBacklog]:
    async with db.read() as tx:
        return await list_module_backlogs(tx, after=after, limit=limit)


class TestModules:
    async def test_an_empty_table_has_no_module_with_due_jobs(self, db: Db):
        assert await backlogs(db) == []

    async def test_each_module_is_listed_once_with_the_time_since_its_next_job_is_due(self, db: Db, clock: ManualClock):
        started = clock.now()
        await add(db, NewJob(kind="k", module="etl"), NewJob(kind="k"), NewJob(kind="k", module="a: ü"))
        clock.advance(seconds=60)
        await add(db, *(NewJob(kind="k", module=module) for module in ("", "etl", "tasks", "tasks")))
        assert [(found.module, found.since - started) for found in await backlogs(db)] == [
            ("", timedelta(0)),
            ("a: ü", timedelta(0)),
            ("etl", timedelta(0)),
            ("tasks", timedelta(seconds=60)),
        ]

    async def test_a_module_whose_work_is_held_over_or_not_due_yet_is_not_listed(self, db: Db, clock: ManualClock):
        queue = JobQueue()
        async with db.tx() as tx:
            await queue.enqueue(tx, NewJob(kind="k", module="held"), NewJob(kind="k", module="later", delay_seconds=60))
            await queue.enqueue(tx, NewJob(kind="k", module="over", id="over"), NewJob(kind="k", module="due"))
            await queue.claim(tx, owner="w", seconds=60, limit=1, module="held")
            await queue.cancel(tx, "over")
        assert [found.module for found in await backlogs(db)] == ["due"]
        clock.advance(seconds=60)
        async with db.tx() as tx:
            await queue.leases.promote(tx)
        assert [found.module for found in await backlogs(db)] == ["due", "later"]

    async def test_modules_come_in_pages(self, db: Db):
        names = [f"module {number}" for number in range(7)]
        await add(db, *(NewJob(kind="k", module=name) for name in names))
        pages = [await backlogs(db, limit=3)]
        while pages[-1]:
            pages.append(await backlogs(db, after=pages[-1][-1].module, limit=3))
        assert [[found.module for found in page] for page in pages] == [names[:3], names[3:6], names[6:], []]


class TestJobs:
    async def test_due_jobs_of_a_module_come_in_the_order_of_their_turns_page_by_page(self, db: Db, clock: ManualClock):
        await add(db, NewJob(kind="k", id="c"), NewJob(kind="k", id="urgent", priority=-1), NewJob(kind="k", id="b"))
        clock.advance(seconds=1)
        await add(db, NewJob(kind="k", id="a"), NewJob(kind="k", id="elsewhere", module="etl"))
        await add(db, NewJob(kind="k", id="later", delay_seconds=1))
        pages: list[list[WaitingJob]] = []
        async with db.read() as tx:
            pages.append(await list_waiting_jobs(tx, "", limit=2))
            while pages[-1]:
                pages.append(await list_waiting_jobs(tx, "", after=pages[-1][-1], limit=2))
        assert [[job.id for job in page] for page in pages] == [["urgent", "b"], ["c", "a"], []]

    async def test_a_job_is_listed_with_what_its_turn_depends_on(self, db: Db, clock: ManualClock):
        queue = JobQueue()
        async with db.tx() as tx:
            await queue.enqueue(tx, NewJob(kind="k", id="a", module="etl", priority=3))
            [held] = await queue.claim(tx, owner="w", seconds=60, limit=1, module="etl")
            await queue.retry(tx, held, wait_seconds=0, code="X", error="x")
            found = await list_waiting_jobs(tx, "etl")
        assert found == [WaitingJob(id="a", attempt=1, module="etl", priority=3, due_at=clock.now(), kind="k")]
