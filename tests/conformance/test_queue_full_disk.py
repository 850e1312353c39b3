"""A full disk is an outage that waits, whatever runs the jobs."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.errors import DiskFull
from penstock.kernel.queue import Job, JobState, NewJob
from penstock.kernel.runner import OUTAGE_WAIT_SECONDS
from tests.conformance.shop import IMPLEMENTATIONS, OpenShop, Shop, fails


@pytest.fixture(params=IMPLEMENTATIONS)
async def shop(db: Db, request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    open_shop: OpenShop = request.param
    async with open_shop(db, request) as shop:
        yield shop


async def test_a_full_store_uses_up_no_attempt(shop: Shop, clock: ManualClock):
    shop.handlers["stores"] = fails(DiskFull(what="a page"))
    await shop.add(NewJob(kind="stores", id="a", max_attempts=1))
    await shop.run()
    job = await shop.get("a")
    assert (job.state, job.attempts, job.error_code) == (JobState.WAITING, 0, "DISK_FULL")
    assert job.scheduled_at == clock.now() + timedelta(seconds=OUTAGE_WAIT_SECONDS)


async def test_a_worker_whose_own_disk_is_full_leaves_the_jobs_to_others(shop: Shop, clock: ManualClock):
    done: list[tuple[str, str | None]] = []

    async def write(job: Job) -> None:
        if job.worker == "full":
            Path("/dev/full").write_bytes(b"x")  # the operating system's own full disk
        done.append((job.id, job.worker))

    shop.handlers["writes"] = write
    full, healthy = shop.crew(owner="full"), shop.crew(owner="healthy")
    await shop.add(NewJob(kind="writes", id="a", max_attempts=1), NewJob(kind="writes", id="b", max_attempts=1))
    await shop.deliver()
    assert await full.run_until_empty() == 2
    job = await shop.get("a")
    assert (job.state, job.attempts, job.error_code) == (JobState.WAITING, 0, "DISK_FULL")
    assert job.scheduled_at == clock.now()
    await shop.deliver()
    assert await full.run_until_empty() == 0
    assert await healthy.run_until_empty() == 2
    assert sorted(done) == [("a", "healthy"), ("b", "healthy")]


async def test_a_worker_whose_own_disk_was_full_claims_again_after_a_while(shop: Shop, clock: ManualClock):
    full = [True]

    async def write(job: Job) -> None:
        if full[0]:
            Path("/dev/full").write_bytes(b"x")

    shop.handlers["writes"] = write
    crew = shop.crew()
    await shop.add(NewJob(kind="writes", id="a", max_attempts=1))
    await shop.deliver()
    await crew.run_until_empty()
    full[0] = False
    await shop.deliver()
    clock.advance(seconds=OUTAGE_WAIT_SECONDS)
    assert await crew.run_until_empty() == 1
    assert (await shop.get("a")).state is JobState.DONE
