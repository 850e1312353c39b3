"""What every job queue does with whole modules, whatever runs the jobs: hold them back, and stop in good order."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.kernel.db import Db
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
        assert await shop.life("a") == ["claim", "hand_back", "claim", "finish"]
