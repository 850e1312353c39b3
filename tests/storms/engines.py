"""A storm over the engines of scale: PostgreSQL, Redis with ARQ, and S3, each taken away while work goes on.

Every job does what real ones will do: it takes from a rate, tells how far it is in the run state, writes a blob, and
settles its effect. Workers are processes with a runtime of their own, as `penstock work` opens it.
"""

import asyncio
from contextlib import suppress

from sqlalchemy import Column, Integer, MetaData, String, Table, func, select

from penstock.kernel.db import Db, Tx
from penstock.kernel.dialect.sql import upsert
from penstock.kernel.migrations import migrate
from penstock.kernel.processes import ProcessKind
from penstock.kernel.queue import Job, JobState, NewJob
from penstock.kernel.queue import job as jobs
from penstock.kernel.rate_limits import Bucket
from penstock.kernel.runstate import RunMovedOn, RunSnapshot
from penstock.kernel.workers import Settle
from penstock.settings import Settings, child_environment
from penstock.wiring import Runtime, open_database, open_runtime

MODULE = "storm"
KIND = "storm.touch"
EVERY = Bucket(per_second=10_000, burst=10_000)  # never refuses: it is the way there that counts

effect = Table("storm_effect", MetaData(), Column("job_id", String, primary_key=True), Column("times", Integer))


def blob_key(job_id: str) -> str:
    """Where a job leaves its result."""
    return f"storm/{job_id}"


class Toucher:
    """The handler of the storm's jobs."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def touch(self, job: Job) -> Settle:
        """Touch every engine once, then settle the effect."""
        await self._runtime.limits.take("storm", EVERY)
        await self._tell(RunSnapshot(key=f"storm:{job.id}", run=1, order=1, status="running"))
        await self._runtime.blobs.put(blob_key(job.id), job.id.encode())
        await self._tell(RunSnapshot(key=f"storm:{job.id}", run=1, order=2, status="done", final=True))

        async def settle(tx: Tx) -> None:
            once = upsert(effect).values(job_id=job.id, times=1)
            await tx.conn.execute(
                once.on_conflict_do_update(index_elements=["job_id"], set_={"times": effect.c.times + 1})
            )

        return settle

    async def _tell(self, entry: RunSnapshot) -> None:
        with suppress(RunMovedOn):  # an earlier try got further
            await self._runtime.runs.put(entry)


def work(settings: Settings) -> None:
    """A worker process: until it is killed."""
    asyncio.run(_work(settings))


async def _work(settings: Settings) -> None:
    async with open_runtime(settings) as runtime, asyncio.TaskGroup() as tasks:
        tasks.create_task(runtime.run_background(kind=ProcessKind.WORK, modules=[MODULE]))
        tasks.create_task(runtime.workers({KIND: Toucher(runtime).touch}, [MODULE]).run())


def migrate_all(settings: Settings) -> None:
    """Bring the database up to date."""
    asyncio.run(_migrate(settings))


async def _migrate(settings: Settings) -> None:
    db = open_database(settings)
    await migrate(db)
    await db.close()


async def make_table(db: Db) -> None:
    """The table that counts effects."""
    async with db.tx() as tx:
        await tx.conn.run_sync(effect.create, checkfirst=True)


async def add_jobs(runtime: Runtime, numbers: range) -> None:
    """Enqueue jobs as a module does: in a transaction, with ids of their own."""
    async with runtime.db.tx(actor="storm") as tx:
        await runtime.queue.enqueue(tx, *(NewJob(kind=KIND, id=f"job-{number}", module=MODULE) for number in numbers))


async def count_done(db: Db) -> int:
    """How many jobs are done."""
    async with db.read() as tx:
        done = select(func.count()).where(jobs.c.kind == KIND, jobs.c.state == JobState.DONE)
        return await tx.conn.scalar(done) or 0


async def wrongs(runtime: Runtime, total: int) -> dict[str, object]:
    """What is wrong at the end: empty when every job was done, its effect is there once, and its blob too."""
    async with runtime.db.read() as tx:
        by_state = await tx.conn.execute(select(jobs.c.state, func.count()).group_by(jobs.c.state))
        states = {row[0]: row[1] for row in by_state}
        counted = (await tx.conn.execute(select(effect.c.job_id, effect.c.times))).all()
    doubled = [row.job_id for row in counted if row.times != 1]
    blobs = {number for number in range(total) if await _whole(runtime, f"job-{number}")}
    found = {
        "states": states if states != {JobState.DONE: total} else None,
        "doubled": doubled,
        "without effect": total - len(counted),
        "without blob": total - len(blobs),
    }
    return {name: wrong for name, wrong in found.items() if wrong}


async def _whole(runtime: Runtime, job_id: str) -> bool:
    return await runtime.blobs.get(blob_key(job_id)) == job_id.encode()


def as_environment(settings: Settings) -> dict[str, str]:
    """The settings that differ from the defaults, for a command."""
    defaults = child_environment(Settings())
    return {env: value for env, value in child_environment(settings).items() if value != defaults[env]}
