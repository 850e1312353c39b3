"""Jobs that failed, on every job queue: listed in pages, and revived in batches."""

from collections.abc import AsyncIterator

import pytest

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.errors import Invalid
from penstock.kernel.job_search import JobFilter, list_ended_jobs, position_of, revive_failed_jobs
from penstock.kernel.queue import NewJob
from tests.conformance.shop import IMPLEMENTATIONS, OpenShop, Shop, fails


@pytest.fixture(params=IMPLEMENTATIONS)
async def shop(db: Db, request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    open_shop: OpenShop = request.param
    async with open_shop(db, request) as shop:
        yield shop


async def test_failed_jobs_are_revived_in_batches_and_run_again(shop: Shop, clock: ManualClock):
    shop.handlers["bad"] = fails(Invalid(reason="no"))
    await shop.add(*(NewJob(kind="bad", id=str(number)) for number in range(5)), NewJob(kind="note", id="fine"))
    await shop.run()
    clock.advance(seconds=1)
    chosen, revived = JobFilter(kind="bad", until=clock.now()), []
    for _ in range(3):
        async with shop.db.tx() as tx:
            revived.append(await revive_failed_jobs(tx, shop.queue, chosen, limit=2))
    assert revived == [["0", "1"], ["2", "3"], ["4"]]
    assert await shop.run() == 5
    async with shop.db.tx() as tx:
        assert len(await list_ended_jobs(tx, JobFilter(error_code="INVALID"))) == 5
        assert await revive_failed_jobs(tx, shop.queue, chosen, limit=2) == []  # they failed after `until`
    assert await shop.life("0") == ["claim", "fail", "revive", "claim", "fail"]


async def test_failed_jobs_are_listed_latest_first_in_pages(shop: Shop, clock: ManualClock):
    shop.handlers["bad"] = fails(Invalid(reason="no"))
    for number in range(7):
        await shop.add(NewJob(kind="bad", id=str(number)))
        await shop.run()
        clock.advance(seconds=number % 2)  # some share a moment: then the id decides
    async with shop.db.read() as tx:
        pages = [await list_ended_jobs(tx, JobFilter(), limit=3)]
        while pages[-1]:
            pages.append(await list_ended_jobs(tx, JobFilter(), limit=3, after=position_of(pages[-1][-1])))
    assert [[job.id for job in page] for page in pages] == [["6", "5", "4"], ["3", "2", "1"], ["0"], []]
