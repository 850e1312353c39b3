"""Jobs through ARQ: throughput and CPU. The reference is the same jobs claimed from the database by SQL.

A backlog is enqueued at once and drained. A chain enqueues each job when the previous one settles, so that with ARQ
every job goes through the outbox. Measured is all work of the process: relay, claims, handlers, settling.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from bench import databases
from bench.comparison import ROUNDS, Finding, summary
from penstock.adapters.arq_queue import ArqEnqueuer, ArqWorkers
from penstock.adapters.redis.client import RedisClient
from penstock.kernel.db import Db, Tx
from penstock.kernel.job_dispatch import dispatch_by_outbox
from penstock.kernel.queue import Job, JobQueue, NewJob
from penstock.kernel.relay import Relay
from penstock.kernel.runner import JobHandler, Runner, Settle
from penstock.kernel.workers import Workers
from tests.conftest import open_db
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyServer

BACKLOG = 2000
CHAINS, LINKS = 8, 60
SLOTS = 8
DATABASE = "arq"
LOOK_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Duration and CPU time of one drain."""

    jobs_per_second: float
    cpu_ms_per_job: float


class Work:
    """Does nothing, and enqueues the next job of a chain."""

    def __init__(self, queue: JobQueue) -> None:
        self.settled = 0
        self._queue = queue

    async def __call__(self, job: Job) -> Settle:
        """The handler."""
        return partial(self._settle, job.payload["links"])

    async def _settle(self, links: int, tx: Tx) -> None:
        if links > 1:
            await self._queue.enqueue(tx, NewJob(kind="k", payload={"links": links - 1}))
        tx.after_commit.append(self._count)

    def _count(self) -> None:
        self.settled += 1


def run() -> list[Finding]:
    """Measure both in turn, three times."""
    with databases.postgres() as server, ValkeyServer.start() as redis:
        return asyncio.run(_run(server, redis))


async def _run(server: PostgresServer, redis: ValkeyServer) -> list[Finding]:
    await databases.new_database(server, DATABASE)
    backlog = [NewJob(kind="k", payload={"links": 1})] * BACKLOG
    chains = [NewJob(kind="k", payload={"links": LINKS})] * CHAINS
    findings = []
    for what, jobs in ((f"a backlog of {BACKLOG:,} jobs", backlog), (f"{CHAINS} chains of {LINKS} jobs", chains)):
        rounds = [(await _on_database(server, jobs), await _on_arq(server, redis, jobs)) for _ in range(ROUNDS)]
        findings += _findings(what, rounds)
    return findings


def _findings(what: str, rounds: list[tuple[Pace, Pace]]) -> list[Finding]:
    """ARQ adds the outbox and two calls of Redis for each batch."""
    speed = [(ledger.jobs_per_second, arq.jobs_per_second) for ledger, arq in rounds]
    cost = [(ledger.cpu_ms_per_job, arq.cpu_ms_per_job) for ledger, arq in rounds]
    return [
        summary(f"{what} through ARQ beside SQL claims, PostgreSQL", "jobs/s", speed, at_least=0.2),
        summary(f"CPU of {what} through ARQ beside SQL claims", "ms/job", cost, at_most=2.0),
    ]


async def _on_database(server: PostgresServer, jobs: Sequence[NewJob]) -> Pace:
    await databases.refill(server.dsn(DATABASE), 0)
    db, queue = open_db(server.url(DATABASE)), JobQueue()
    work = Work(queue)
    workers = Workers(db, queue, _handlers(work), owner="bench", slots=SLOTS)
    pace = await _measure(db, queue, work, jobs, [workers])
    await db.close()
    return pace


async def _on_arq(server: PostgresServer, redis: ValkeyServer, jobs: Sequence[NewJob]) -> Pace:
    await databases.refill(server.dsn(DATABASE), 0)
    redis.flush()
    db, link, queue = open_db(server.url(DATABASE)), RedisClient(redis.url), JobQueue(dispatch=dispatch_by_outbox)
    work = Work(queue)
    workers = ArqWorkers(link, Runner(db, queue, _handlers(work), owner="bench"), slots=SLOTS)
    relay = Relay(db, {}, sinks=[ArqEnqueuer(link, db.clock)], owner="bench")
    pace = await _measure(db, queue, work, jobs, [workers, relay])
    await link.close()
    await db.close()
    return pace


def _handlers(work: Work) -> dict[str, JobHandler]:
    return {"k": work}


async def _measure(
    db: Db, queue: JobQueue, work: Work, jobs: Sequence[NewJob], parts: Sequence[Workers | ArqWorkers | Relay]
) -> Pace:
    total = sum(job.payload["links"] for job in jobs)
    async with db.tx() as tx:
        await queue.enqueue(tx, *jobs)
    began, cpu = time.perf_counter(), time.process_time()
    async with AsyncExitStack() as stack:
        tasks = [asyncio.create_task(part.run()) for part in parts]
        stack.push_async_callback(asyncio.wait, tasks)
        for task in tasks:
            stack.callback(task.cancel)
        while work.settled < total:  # noqa: ASYNC110  (polling is cheap; an event would cost as much)
            await asyncio.sleep(LOOK_SECONDS)
        took, used = time.perf_counter() - began, time.process_time() - cpu
    return Pace(jobs_per_second=total / took, cpu_ms_per_job=used * 1000 / total)
