"""The job queue on ARQ in real time, while its Redis is killed, flushed or paused."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import pytest
from sqlalchemy import func, select

from penstock.adapters.arq_queue import ArqEnqueuer, ArqReconciler, ArqWorkers
from penstock.adapters.redis.client import RedisClient
from penstock.adapters.redis.messages import RedisNotifier
from penstock.kernel.clock import SystemClock
from penstock.kernel.db import Db, Tx
from penstock.kernel.job_dispatch import dispatch_by_outbox
from penstock.kernel.maintenance import Maintenance
from penstock.kernel.notifier import run_notifier
from penstock.kernel.queue import Job, JobQueue, JobState, NewJob, get_job, job
from penstock.kernel.rate_limits import SqlRateLimits
from penstock.kernel.relay import Relay
from penstock.kernel.runner import JobHandler, Runner, Settle
from penstock.kernel.runstate import SqlRunState
from penstock.kernel.scheduler import Scheduler
from tests.conftest import open_db
from tests.fakes.blocking_handler import BlockingHandler, wait_until
from tests.servers.valkey import ValkeyServer
from tests.storms.kills import storm_effect

pytestmark = pytest.mark.storm

JOBS = 300


class Runtime:
    """What one process runs."""

    def __init__(self, url: str, redis_url: str, handler: JobHandler, *, owner: str = "host:1:a") -> None:
        self.db, self.redis_client = open_db(url), RedisClient(redis_url)
        self.queue = JobQueue(dispatch=dispatch_by_outbox)
        tickets = ArqEnqueuer(self.redis_client, self.db.clock)
        relay = Relay(self.db, {}, sinks=[tickets], owner=owner)
        runner = Runner(self.db, self.queue, {"k": handler}, owner=owner, grace_seconds=0)
        day = timedelta(days=1)
        upkeep = Maintenance(self.db, jobs=self.queue, relay=relay, history=day, dead_letters=day)
        periodic_tasks = upkeep.periodic_tasks(
            SqlRunState(self.db, live_seconds=60, final_seconds=60), SqlRateLimits(self.db)
        )
        periodic_tasks.append(ArqReconciler(self.db, self.queue, tickets).periodic_task())
        self._parts = (
            relay.run,
            ArqWorkers(self.redis_client, runner, slots=4, result_seconds=0).run,
            Scheduler(self.db, periodic_tasks, owner=owner).run,
            lambda: run_notifier(self.db.wakeups, RedisNotifier(self.redis_client, owner=owner)),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Runtime"]:
        """Runs everything during the block; nothing of it may end by itself."""
        tasks = [asyncio.create_task(part()) for part in self._parts]
        try:
            yield self
            assert not [task for task in tasks if task.done()]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self.db.close()
            await self.redis_client.close()

    async def add(self, *jobs: NewJob) -> None:
        async with self.db.tx() as tx:
            await self.queue.enqueue(tx, *jobs)

    async def is_done(self, job_id: str) -> bool:
        async with self.db.read() as tx:
            return (await get_job(tx, job_id)).state is JobState.DONE


@pytest.fixture
def redis() -> Iterator[ValkeyServer]:
    with ValkeyServer.start() as server:
        yield server


async def test_a_deferred_job_comes_when_it_is_due_and_not_before(db_url: str, redis_url: str):
    clock, began = SystemClock(), asyncio.get_running_loop().create_future()

    async def note(job: Job) -> None:
        began.set_result(clock.now() - job.scheduled_at)

    async with Runtime(db_url, redis_url, note).running() as runtime:
        await runtime.add(NewJob(kind="k", id="a", delay_seconds=0.7))
        late = await asyncio.wait_for(began, 20)
        await wait_until(lambda: runtime.is_done("a"))
    assert timedelta(0) <= late < timedelta(seconds=1.5)


async def test_a_job_that_runs_when_redis_dies_ends_well_and_the_next_comes_when_redis_is_back(
    db_url: str, redis: ValkeyServer
):
    gate = BlockingHandler()
    async with Runtime(db_url, redis.url, gate).running() as runtime:
        await runtime.add(NewJob(kind="k", id="running"))
        await wait_until(lambda: gate.entered == ["running"])
        redis.kill()
        gate.opened.set()
        await runtime.add(NewJob(kind="k", id="next"))
        await wait_until(lambda: runtime.is_done("running"))
        redis.start_again()
        await wait_until(lambda: runtime.is_done("next"))


class Disturbance:
    """What happens to Redis during the work."""

    def __init__(self, server: ValkeyServer) -> None:
        self._server = server

    async def killed(self) -> None:
        self._server.kill()
        await asyncio.sleep(0.5)  # real time: everyone must have met the dead server
        self._server.start_again()

    async def flushed(self) -> None:
        for _ in range(3):
            self._server.flush()
            await asyncio.sleep(0.1)  # real time: what was pushed again is lost again

    async def paused(self) -> None:
        self._server.pause()
        await asyncio.sleep(3)  # real time: longer than anyone waits for an answer
        self._server.resume()


@pytest.mark.parametrize("what", ["killed", "flushed", "paused"])
async def test_every_job_is_done_once_whatever_happens_to_redis(postgres_url: str, redis: ValkeyServer, what: str):
    async def work(held: Job) -> Settle:
        await asyncio.sleep(0.01)

        async def settle(tx: Tx) -> None:
            await tx.conn.execute(storm_effect.insert().values(job_id=held.id, worker=held.worker))

        return settle

    async with AsyncExitStack() as stack:
        runtimes = [Runtime(postgres_url, redis.url, work, owner=f"host:{n}:x") for n in (1, 2)]
        db = runtimes[0].db
        async with db.tx() as tx:
            await tx.conn.run_sync(storm_effect.metadata.create_all)
        for runtime in runtimes:
            await stack.enter_async_context(runtime.running())
        await runtimes[0].add(*(NewJob(kind="k") for _ in range(JOBS // 2)))
        await wait_until(lambda: count_done(db, at_least=30))
        disturbing = asyncio.create_task(getattr(Disturbance(redis), what)())
        await runtimes[1].add(*(NewJob(kind="k") for _ in range(JOBS // 2)))
        await wait_until(lambda: count_done(db, at_least=JOBS), seconds=60)
        await disturbing
        async with db.read() as tx:
            effects = (await tx.conn.execute(select(storm_effect))).all()
        await wait_until(
            lambda: has_few_left(runtimes[0].redis_client), seconds=20
        )  # tickets of jobs that are done go, too
    assert set(Counter(row.job_id for row in effects).values()) == {1}
    assert len(effects) == JOBS
    assert {row.worker for row in effects} == {"host:1:x", "host:2:x"}


async def has_few_left(redis_client: RedisClient) -> bool:
    """Whether nothing is left but in-progress marks, which expire by themselves."""
    await asyncio.sleep(0.02)
    return int(await redis_client.raw.dbsize()) < JOBS / 10


async def count_done(db: Db, *, at_least: int) -> bool:
    async with db.read() as tx:
        done = await tx.conn.scalar(select(func.count()).select_from(job).where(job.c.state == JobState.DONE))
    await asyncio.sleep(0.02)
    return (done or 0) >= at_least
