"""What every job queue does with whole modules and with jobs from outside: hold them back, stop and revoke them."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.leases import LeaseLost
from penstock.kernel.partitions import pause, resume, set_ceiling
from penstock.kernel.queue import Job, JobState, NewJob
from tests.conformance.shop import IMPLEMENTATIONS, OpenShop, Shop
from tests.fakes.blocking_handler import TIMEOUT_SECONDS, BlockingHandler, wait_until


@pytest.fixture(params=IMPLEMENTATIONS)
async def shop(db: Db, request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    open_shop: OpenShop = request.param
    async with open_shop(db, request) as shop:
        yield shop


class TestPartitions:
    async def test_a_paused_module_waits_until_it_is_resumed_and_holds_nobody_else_up(self, shop: Shop):
        await shop.add(*(NewJob(kind="note", module=module) for module in ("closed", "open", "closed")))
        async with shop.db.tx() as tx:
            await pause(tx, "job", "closed")
        assert await shop.run(modules=("closed", "open")) == 1
        async with shop.db.tx() as tx:
            await resume(tx, "job", "closed")
        assert await shop.run(modules=("closed", "open")) == 2

    async def test_no_more_jobs_of_a_module_are_held_than_its_ceiling(self, shop: Shop):
        most, inside = 0, 0

        async def count(job: Job) -> None:
            nonlocal most, inside
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

        shop.handlers["count"] = count
        await shop.add(*(NewJob(kind="count", module="narrow") for _ in range(7)))
        async with shop.db.tx() as tx:
            await set_ceiling(tx, "job", "narrow", 2)
        assert await shop.run(modules=("narrow",), slots=5) == 7
        assert most == 2


class TestSlots:
    async def test_the_modules_of_one_process_share_its_slots(self, shop: Shop):
        gate = shop.handlers["wait"] = BlockingHandler()
        await shop.add(*(NewJob(kind="wait", module=module) for module in ("etl", "gateway", "etl", "gateway", "etl")))
        await shop.deliver()
        async with shop.working(modules=("etl", "gateway"), slots=3):
            await wait_until(lambda: len(gate.entered) == 3)
            gate.opened.set()
            await wait_until(lambda: len(gate.left) == 5)
        assert gate.most_inside == 3


class TestStop:
    async def test_running_jobs_may_end_within_the_grace(self, shop: Shop):
        gate = shop.handlers["wait"] = BlockingHandler()
        await shop.add(NewJob(kind="wait", id="a"))
        await shop.deliver()
        async with shop.working(grace_seconds=TIMEOUT_SECONDS):
            await wait_until(lambda: gate.entered == ["a"])
            asyncio.get_running_loop().call_soon(gate.opened.set)
        assert (await shop.get("a")).state is JobState.DONE

    async def test_what_does_not_end_in_time_is_handed_back_and_another_takes_it(self, shop: Shop):
        gate = shop.handlers["wait"] = BlockingHandler()
        await shop.add(*(NewJob(kind="wait", id=name, max_attempts=1) for name in ("a", "b")))
        await shop.deliver()
        async with shop.working(slots=2, grace_seconds=0):
            await wait_until(lambda: len(gate.entered) == 2)
        for name in ("a", "b"):
            job = await shop.get(name)
            assert (job.state, job.attempts, job.token) == (JobState.WAITING, 0, None)
        gate.opened.set()
        assert await shop.run() == 2
        assert await shop.life("a") == ["claim", "release", "claim", "finish"]


class TestRevoke:
    async def test_a_revoked_job_is_refused_to_the_worker_that_ran_it(self, shop: Shop, clock: ManualClock):
        await shop.add(NewJob(kind="note", id="a"), NewJob(kind="note", id="b"))
        held, other = await shop.claim(seconds=60)
        clock.advance(seconds=10)
        async with shop.db.tx(actor="ann") as tx:
            [was] = await shop.queue.revoke(tx, ["a", "gone"])
        assert (was.state, was.token) == (JobState.RUNNING, held.token)
        job = await shop.get("a")
        assert (job.state, job.token, job.finished_at) == (JobState.CANCELLED, None, clock.now())
        assert (job.scheduled_at - clock.now()).total_seconds() == 50  # when its lease would have ended
        async with shop.db.tx() as tx:
            assert not await shop.queue.leases.is_held(tx, "a", held.token or "")
            assert await shop.queue.leases.is_held(tx, "b", other.token or "")
            assert await shop.queue.leases.renew(tx, ["a", "b"], held.token or "", seconds=60) == {"b"}
        with pytest.raises(LeaseLost):
            async with shop.db.tx() as tx:
                await shop.queue.finish(tx, held)
        clock.advance(seconds=60)
        assert await shop.rescue() == ["b"]
        assert await shop.life("a") == ["claim", "revoke"]

    async def test_a_waiting_job_is_revoked_and_one_that_is_done_is_not(self, shop: Shop):
        await shop.add(NewJob(kind="note", id="done"))
        assert await shop.run() == 1
        await shop.add(NewJob(kind="note", id="waiting", delay_seconds=100))
        async with shop.db.tx(actor="ann") as tx:
            assert [job.id for job in await shop.queue.revoke(tx, ["done", "waiting"])] == ["waiting"]
            assert await shop.queue.revoke(tx, ["done", "waiting"]) == []
        assert [(await shop.get(name)).state for name in ("done", "waiting")] == [JobState.DONE, JobState.CANCELLED]
        async with shop.db.tx() as tx:
            await shop.queue.revive(tx, "waiting")
        assert await shop.run() == 1
