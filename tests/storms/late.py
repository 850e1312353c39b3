"""One worker that is frozen in the middle of its work and comes back when another has long finished it."""

import asyncio
import logging
from pathlib import Path

from penstock.kernel.db import Db, Tx
from penstock.kernel.queue import Job, JobQueue, JobState, NewJob, get_job
from penstock.kernel.workers import Settle, Workers
from tests.conftest import open_db
from tests.storms import processes
from tests.storms.kills import storm_effect

LEASE_SECONDS = 1.0


async def come_late(url: str, folder: Path) -> tuple[list[str], str]:
    """Freeze the first worker in its work, let the second finish; returns whose effects count, and the first's log."""
    db, queue = open_db(url), JobQueue()
    async with db.tx() as tx:
        await tx.conn.run_sync(storm_effect.metadata.create_all)
        await queue.enqueue(tx, NewJob(id="a", kind="slow"))
    first = processes.start(run_worker, url, "first", str(folder))
    await _until(folder / "first.working")
    await processes.freeze_between_writes(first, db)
    second = processes.start(run_worker, url, "second", str(folder))
    await _until_done(db, queue)
    (folder / "second.done").touch()
    processes.thaw(first)
    await _until(folder / "first.log", holds="lease")
    for worker in (first, second):
        processes.kill(worker)
    async with db.read() as tx:
        workers = [row.worker for row in await tx.conn.execute(storm_effect.select())]
    await db.close()
    return workers, (folder / "first.log").read_text()


def run_worker(url: str, owner: str, folder: str) -> None:
    """The life of one worker process; it says when it is in the middle of its work."""
    logging.basicConfig(filename=f"{folder}/{owner}.log", level=logging.WARNING, force=True)
    asyncio.run(_work(url, owner, Path(folder)))


async def _work(url: str, owner: str, folder: Path) -> None:
    async def slow(held: Job) -> Settle:
        if owner == "first":
            (folder / "first.working").touch()
            await _until(folder / "second.done")

        async def settle(tx: Tx) -> None:
            await tx.conn.execute(storm_effect.insert().values(job_id=held.id, worker=owner))

        return settle

    await Workers(open_db(url), JobQueue(), {"slow": slow}, owner=owner, lease_seconds=LEASE_SECONDS).run()


async def _until_done(db: Db, queue: JobQueue) -> None:
    async with asyncio.timeout(30):
        while True:
            async with db.tx(actor="timekeeper") as tx:
                await queue.rescue(tx)
                if (await get_job(tx, "a")).state is JobState.DONE:
                    return
            await asyncio.sleep(0.1)  # the workers are other processes


async def _until(path: Path, *, holds: str = "") -> None:
    async with asyncio.timeout(30):
        while not (path.exists() and holds in path.read_text()):  # noqa: ASYNC110  (another process writes it)
            await asyncio.sleep(0.02)
