"""What the ARQ adapter adds to the queue: enqueuing, taking and reconciling ARQ jobs."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from arq.jobs import serialize_job

from penstock.adapters.arq_queue import ArqEnqueuer
from penstock.adapters.arq_queue.enqueue import queue_name, score
from penstock.adapters.arq_queue.reconciler import PAGE
from penstock.adapters.redis.client import RedisClient
from penstock.kernel.clock import ManualClock, SystemClock
from penstock.kernel.database_errors import DatabaseUnavailable
from penstock.kernel.db import Db, Tx
from penstock.kernel.job_dispatch import JobsWaiting, WaitingJob, dispatch_by_outbox
from penstock.kernel.outbox import OutboxMessage
from penstock.kernel.partitions import pause, resume
from penstock.kernel.queue import Job, JobQueue, JobState, NewJob
from tests.conformance.shop import ArqShop
from tests.fakes.blocking_handler import BlockingHandler, wait_until

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOB = WaitingJob(id="a", attempt=0, module="", priority=5, due_at=NOW)
ODD_IDS = ["a:1", "a:1:0", "a", " ", "ü 中 😀", 'it\'s "x" \\ %s {} *', "x" * 500]


@pytest.fixture
def db_url(postgres_url: str) -> str:
    """One database: the conformance suite runs ARQ on both."""
    return postgres_url


@pytest.fixture
async def redis_client(redis_url: str) -> AsyncIterator[RedisClient]:
    redis_client = RedisClient(redis_url)
    yield redis_client
    await redis_client.close()


@pytest.fixture
def shop(db: Db, redis_client: RedisClient) -> ArqShop:
    return ArqShop(db, redis_client)


async def arq_jobs_in(redis_client: RedisClient, module: str = "") -> list[str]:
    return [name.decode() for name in await redis_client.raw.zrange(queue_name(module), 0, -1)]


def message(*jobs: WaitingJob) -> OutboxMessage:
    payload = {"jobs": JobsWaiting.of(jobs).jobs}
    return OutboxMessage(id="msg_1", channel="JobsWaiting", dedup_key="k", payload=payload, created_at=NOW)


class TestEnqueue:
    async def test_enqueuing_twice_adds_one_arq_job(self, redis_client: RedisClient):
        enqueuer = ArqEnqueuer(redis_client, ManualClock(NOW))
        assert await enqueuer.push([JOB]) == 1
        assert await enqueuer.push([JOB]) == 0
        await enqueuer.deliver_many([message(JOB)])
        assert await arq_jobs_in(redis_client) == ["a"]
        assert await redis_client.raw.keys("arq:*") == [b"arq:job:a"]

    async def test_a_module_may_have_a_queue_by_another_name(self, redis_client: RedisClient):
        names = {"etl": "my-documents"}
        job = replace(JOB, module="etl")
        await ArqEnqueuer(redis_client, ManualClock(NOW), names=names).push([JOB, job])
        assert await redis_client.raw.zrange("my-documents", 0, -1) == [b"a"]
        assert await arq_jobs_in(redis_client) == ["a"]
        assert await arq_jobs_in(redis_client, "etl") == []

    async def test_urgent_jobs_come_first_then_older_ones_and_none_is_lost_in_rounding(self):
        moments = [NOW - timedelta(days=900), NOW - timedelta(milliseconds=1), NOW]
        order = [replace(JOB, priority=p, due_at=at) for p in (-32768, -1, 0, 1, 5, 32766, 32767) for at in moments]
        scores = [score(job, NOW) for job in order]
        assert scores == sorted(set(scores))
        assert [int(float(one)) for one in scores] == scores
        assert max(scores) < 0

    async def test_a_deferred_job_waits_in_arq_until_it_is_due(self, redis_client: RedisClient):
        due_at = NOW + timedelta(seconds=1, microseconds=1)
        assert score(replace(JOB, due_at=due_at), NOW) == due_at.timestamp() // 0.001 + 1
        far = SystemClock().now() + timedelta(days=3)
        await ArqEnqueuer(redis_client, SystemClock()).push([replace(JOB, due_at=far)])
        days = await redis_client.raw.pttl("arq:job:a") / 86_400_000
        assert 3.9 < days <= 4

    async def test_ids_of_any_characters_run_once_each(self, shop: ArqShop):
        await shop.add(*(NewJob(kind="note", id=name, module="a room: 中") for name in ODD_IDS))
        await shop.deliver()
        assert await shop.crew(modules=("a room: 中",)).run_until_empty() == len(ODD_IDS)
        assert sorted(shop.noted) == sorted(ODD_IDS)

    async def test_a_thousand_jobs_go_out_in_two_round_trips(self, shop: ArqShop):
        await shop.add(*(NewJob(kind="note") for _ in range(1000)))
        before = (await shop.redis_client.raw.info("commandstats")).get("cmdstat_evalsha", {}).get("calls", 0)
        await shop.deliver()
        after = (await shop.redis_client.raw.info("commandstats"))["cmdstat_evalsha"]["calls"]
        assert after - before <= 2
        assert len(await arq_jobs_in(shop.redis_client)) == 1000

    async def test_nothing_but_results_is_left_in_redis_when_all_is_done(self, shop: ArqShop):
        ids = await shop.add(*(NewJob(kind="note", module=module) for module in ("", "etl") * 20))
        await shop.run(modules=("", "etl"))
        left = await shop.redis_client.raw.keys("*")
        assert sorted(left) == sorted(f"arq:result:{name}".encode() for name in ids)
        assert 0 < await shop.redis_client.raw.pttl(left[0]) <= 3_600_000

    async def test_without_results_nothing_is_left_in_redis_when_all_is_done(self, shop: ArqShop):
        await shop.add(*(NewJob(kind="note") for _ in range(20)))
        await shop.run(result_seconds=0)
        assert await shop.redis_client.raw.keys("*") == []


class TestTakingJobs:
    async def test_an_arq_job_whose_row_cannot_be_claimed_is_dropped(self, shop: ArqShop):
        await shop.add(*(NewJob(kind="note", id=name) for name in ("taken", "gone", "here")))
        await shop.deliver()
        async with shop.db.tx() as tx:
            await shop.queue.claim_ids(tx, ["taken"], owner="another", seconds=60)
            await shop.queue.cancel(tx, "gone")
        assert await shop.crew().run_until_empty() == 1
        assert shop.noted == ["here"]
        assert await arq_jobs_in(shop.redis_client) == []

    async def test_an_arq_job_that_comes_too_early_costs_nothing(self, shop: ArqShop, clock: ManualClock):
        await shop.add(NewJob(kind="note", id="a", delay_seconds=60))  # for ARQ that was long ago
        await shop.deliver()
        assert await shop.crew().run_until_empty() == 0
        clock.advance(seconds=60)
        await shop.reconciler.run()
        assert await shop.crew().run_until_empty() == 1
        assert (await shop.get("a")).attempts == 1

    async def test_an_arq_job_without_content_is_dropped(self, shop: ArqShop):
        await shop.add(*(NewJob(kind="note", id=name) for name in ("lost", "here")))
        await shop.deliver()
        await shop.redis_client.raw.delete("arq:job:lost")
        assert await shop.crew().run_until_empty() == 1
        assert await arq_jobs_in(shop.redis_client) == []
        await shop.run()
        assert sorted(shop.noted) == ["here", "lost"]

    async def test_arq_jobs_of_earlier_versions_are_dropped_and_their_rows_run(self, shop: ArqShop):
        await shop.add(NewJob(kind="note", id="a"))
        content = serialize_job("penstock.job", ("a",), {}, None, 1, serializer=msgspec.json.encode)
        await shop.redis_client.raw.set("arq:job:a:0", content)
        await shop.redis_client.raw.zadd(queue_name(""), {"a:0": 1})
        await shop.run()
        assert shop.noted == ["a"]
        assert await arq_jobs_in(shop.redis_client) == []

    async def test_a_restricted_module_is_skipped_and_its_jobs_run_when_it_opens(
        self, shop: ArqShop, clock: ManualClock
    ):
        await shop.add(*(NewJob(kind="note", module="closed") for _ in range(50)))
        await shop.deliver()
        async with shop.db.tx() as tx:
            await pause(tx, "job", "closed")
        crew = shop.crew(modules=("closed",), slots=2)
        assert await crew.run_until_empty() == 0
        assert len(await arq_jobs_in(shop.redis_client, "closed")) == 48  # as many as there are slots were tried
        async with shop.db.tx() as tx:
            await resume(tx, "job", "closed")
        clock.advance(seconds=1)
        await shop.reconciler.run()
        assert await crew.run_until_empty() == 50

    async def test_a_worker_without_handlers_takes_no_job(self, shop: ArqShop):
        await shop.add(NewJob(kind="note"))
        await shop.deliver()
        shop.handlers.clear()
        assert await shop.crew().run_until_empty() == 0
        assert len(await arq_jobs_in(shop.redis_client)) == 1


class QueueThatDawdles(JobQueue):
    """Claims, and returns only when released."""

    def __init__(self) -> None:
        super().__init__(dispatch=dispatch_by_outbox)
        self.claimed, self.let = asyncio.Event(), asyncio.Event()

    async def claim_ids(self, tx: Tx, ids: Sequence[str], *, owner: str, seconds: float, module: str = "") -> list[Job]:
        jobs = await super().claim_ids(tx, ids, owner=owner, seconds=seconds, module=module)
        self.claimed.set()
        await self.let.wait()
        return jobs


class TestStop:
    async def test_a_job_that_is_being_claimed_at_shutdown_is_released(self, shop: ArqShop):
        shop.queue = slow = QueueThatDawdles()
        shop.handlers["wait"] = BlockingHandler()
        await shop.add(NewJob(kind="wait", id="a"))
        await shop.deliver()
        task = asyncio.create_task(shop.crew(grace_seconds=0).run())
        await slow.claimed.wait()
        task.cancel()
        await asyncio.sleep(0)
        slow.let.set()
        await asyncio.wait([task])
        job = await shop.get("a")
        assert (job.state, job.attempts) == (JobState.WAITING, 0)
        assert await arq_jobs_in(shop.redis_client) == []

    async def test_a_worker_can_be_stopped_at_whatever_moment(self, shop: ArqShop):
        await shop.add(*(NewJob(kind="note") for _ in range(300)))
        await shop.deliver()
        for steps in range(120):
            task = asyncio.create_task(shop.crew(slots=2).run())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=5)
            assert done, f"a cancel after {steps} steps got lost"
        await shop.run()
        assert len(set(shop.noted)) == 300

    async def test_while_the_database_is_down_the_worker_waits_and_continues_later(
        self, shop: ArqShop, clock: ManualClock, monkeypatch
    ):
        await shop.add(NewJob(kind="note", id="a"))
        await shop.deliver()
        async with shop.working():
            with monkeypatch.context() as patched:
                patched.setattr(shop.db, "tx", refuses)
                await wait_until(lambda: no_arq_jobs(shop.redis_client))
            assert shop.noted == []

            async def worked_off() -> bool:
                clock.advance(seconds=1)
                await shop.reconciler.run()
                return shop.noted == ["a"]

            await wait_until(worked_off)


def refuses(*, actor: str = "") -> AbstractAsyncContextManager[Tx]:
    raise DatabaseUnavailable(reason="gone fishing")


async def no_arq_jobs(redis_client: RedisClient) -> bool:
    return await arq_jobs_in(redis_client) == []


class TestReconciling:
    async def test_a_flushed_redis_is_refilled_in_one_pass(self, shop: ArqShop):
        ids = await shop.add(*(NewJob(kind="note") for _ in range(3 * PAGE + 7)))
        await shop.deliver()
        await shop.redis_client.raw.flushall()
        await shop.reconciler.run()
        assert await arq_jobs_in(shop.redis_client) == ids

    async def test_a_long_backlog_is_walked_in_passes_and_its_front_in_each(self, shop: ArqShop):
        ids = await shop.add(*(NewJob(kind="note") for _ in range(4 * PAGE)))
        await shop.deliver()
        first, last = ids[0], ids[-1]
        for turn in range(4):
            if turn == 1:
                await forget(shop.redis_client, last)
            await forget(shop.redis_client, first)
            await shop.reconciler.run()
            assert first in await arq_jobs_in(shop.redis_client)
        assert last in await arq_jobs_in(shop.redis_client)
        assert len(await arq_jobs_in(shop.redis_client)) == 4 * PAGE

    async def test_a_pass_that_finds_nothing_missing_changes_nothing(self, shop: ArqShop):
        await shop.add(*(NewJob(kind="note", module=module) for module in ("", "etl", "")))
        await shop.deliver()
        before = {module: await arq_jobs_in(shop.redis_client, module) for module in ("", "etl")}
        await shop.reconciler.run()
        assert {module: await arq_jobs_in(shop.redis_client, module) for module in ("", "etl")} == before

    async def test_an_urgent_job_that_was_deferred_goes_before_the_backlog_when_it_is_due(
        self, shop: ArqShop, clock: ManualClock
    ):
        await shop.add(NewJob(kind="note", id="urgent", priority=1, delay_seconds=60))
        await shop.add(*(NewJob(kind="note") for _ in range(10)))
        await shop.deliver()
        assert (await arq_jobs_in(shop.redis_client))[-1] == "urgent"
        clock.advance(seconds=60)
        await shop.reconciler.run()
        assert (await arq_jobs_in(shop.redis_client))[0] == "urgent"


async def forget(redis_client: RedisClient, name: str) -> None:
    await redis_client.raw.delete(f"arq:job:{name}")
    await redis_client.raw.zrem(queue_name(""), name)
