"""Workers killed and frozen at random points under load.

Every job is the first of a chain of two. Its settle writes one row into `storm_effect`, a table without any unique
constraint: a job settled twice would show as two rows. The moves are read back from `state_transitions`.
"""

import asyncio
import logging
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from sqlalchemy import Column, MetaData, Row, String, Table, func, select

from penstock.kernel.db import Db, Tx
from penstock.kernel.errors import Unavailable
from penstock.kernel.queue import Job, JobQueue, NewJob, job
from penstock.kernel.scheduler import PeriodicTask, Scheduler
from penstock.kernel.transitions import state_transitions
from penstock.kernel.workers import Settle, Workers
from tests.conftest import open_db
from tests.storms import processes

LEASE_SECONDS = 1.5
FREEZE_SECONDS = LEASE_SECONDS * 2
WORKERS = 3
WAITING = 100
ATTEMPTS = 1000  # a storm may hit one job many times; giving up is another test's subject

storm_effect = Table("storm_effect", MetaData(), Column("job_id", String), Column("worker", String))


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a storm left behind."""

    jobs: int
    not_done: int
    without_effect: int
    with_two_effects: int
    wrong_histories: list[str]
    kills: int
    freezes: int
    late_workers_refused: int


async def storm(url: str, folder: Path, *, kills: int, freezes: int, seed: int) -> Verdict:
    """Run chains under workers that are killed and frozen, and fed so that they are never idle, until all are done."""
    db, queue, chance = open_db(url), JobQueue(), random.Random(seed)
    async with db.tx() as tx:
        await tx.conn.run_sync(storm_effect.metadata.create_all)
    rescue = PeriodicTask(name="rescue", every_seconds=0.2, run=lambda: _rescue(db, queue))
    keeping = asyncio.create_task(Scheduler(db, [rescue], owner="timekeeper").run())
    crew = Crew(url, folder, chance)
    harassing = asyncio.create_task(crew.harass(kills=kills, freezes=freezes))
    fed = await _feed(db, queue, harassing)
    await _until_done(db, 2 * fed)
    crew.dismiss()
    keeping.cancel()
    with suppress(asyncio.CancelledError):
        await keeping
    verdict = await _judge(db, folder, jobs=2 * fed, kills=kills, freezes=freezes)
    await db.close()
    return verdict


async def _feed(db: Db, queue: JobQueue, harassing: asyncio.Task[None]) -> int:
    """Keep jobs waiting as long as workers are being killed; returns how many chains were begun."""
    fed = 0
    while not harassing.done():
        if await _count(db, job.c.state == "waiting") < WAITING:
            async with db.tx() as tx:
                wave = range(fed, fed + WAITING)
                await queue.enqueue(tx, *(NewJob(id=f"a{n}", kind="first", max_attempts=ATTEMPTS) for n in wave))
            fed += WAITING
        await asyncio.sleep(0.05)  # the workers are other processes
    await harassing
    return fed


class Crew:
    """The workers of a storm, and what is done to them."""

    def __init__(self, url: str, folder: Path, chance: random.Random) -> None:
        self._url = url
        self._folder = folder
        self._chance = chance
        self._started = 0
        self._workers = [self._start() for _ in range(WORKERS)]

    async def harass(self, *, kills: int, freezes: int) -> None:
        """Kill and freeze workers in random order, at random moments."""
        deeds = ["kill"] * kills + ["freeze"] * freezes
        self._chance.shuffle(deeds)
        thawing = []
        for deed in deeds:
            await asyncio.sleep(self._chance.uniform(0.01, 0.25))
            place = self._chance.randrange(WORKERS)
            victim, self._workers[place] = self._workers[place], self._start()
            if deed == "kill":
                await asyncio.to_thread(processes.kill, victim)
            else:
                thawing.append(asyncio.create_task(self._freeze(victim)))
        await asyncio.gather(*thawing)

    def dismiss(self) -> None:
        """End the workers that are left."""
        for worker in self._workers:
            processes.kill(worker)

    async def _freeze(self, victim: ForkServerProcess) -> None:
        processes.freeze(victim)
        await asyncio.sleep(FREEZE_SECONDS)  # real time: the victim's lease must really run out
        processes.thaw(victim)
        await asyncio.sleep(1)  # time enough to settle late, if it were let
        await asyncio.to_thread(processes.kill, victim)

    def _start(self) -> ForkServerProcess:
        self._started += 1
        log = self._folder / f"worker-{self._started}.log"
        return processes.start(run_worker, self._url, f"worker-{self._started}", str(log), self._chance.random())


def run_worker(url: str, owner: str, log: str, seed: float) -> None:
    """The life of one worker process: it works until it is killed."""
    logging.basicConfig(filename=log, level=logging.WARNING, force=True)
    asyncio.run(_work(url, owner, random.Random(seed)))


async def _work(url: str, owner: str, chance: random.Random) -> None:
    db, queue = open_db(url), JobQueue()

    async def first(held: Job) -> Settle:
        await asyncio.sleep(chance.uniform(0, 0.02))

        async def settle(tx: Tx) -> None:
            await tx.conn.execute(storm_effect.insert().values(job_id=held.id, worker=owner))
            await queue.enqueue(tx, NewJob(id=f"b{held.id[1:]}", kind="second", max_attempts=ATTEMPTS))

        return settle

    async def second(held: Job) -> Settle:
        await asyncio.sleep(chance.uniform(0, 0.02))

        async def settle(tx: Tx) -> None:
            await tx.conn.execute(storm_effect.insert().values(job_id=held.id, worker=owner))

        return settle

    handlers = {"first": first, "second": second}
    await Workers(db, queue, handlers, owner=owner, slots=8, lease_seconds=LEASE_SECONDS).run()


async def _rescue(db: Db, queue: JobQueue) -> None:
    with suppress(Unavailable):
        async with db.tx(actor="timekeeper") as tx:
            await queue.rescue(tx)


async def _until_done(db: Db, jobs: int) -> None:
    async with asyncio.timeout(110):
        while await _count(db, job.c.state == "done") < jobs:  # noqa: ASYNC110  (the workers are other processes)
            await asyncio.sleep(0.2)


async def _count(db: Db, condition: object) -> int:
    async with db.read() as tx:
        return await tx.conn.scalar(select(func.count()).select_from(job).where(condition)) or 0  # type: ignore[arg-type]  # a column condition


async def _judge(db: Db, folder: Path, *, jobs: int, kills: int, freezes: int) -> Verdict:
    t = state_transitions.c
    async with db.tx() as tx:
        effects = Counter((await tx.conn.scalars(select(storm_effect.c.job_id))).all())
        not_done = await tx.conn.scalars(select(job.c.id).where(job.c.state != "done"))
        moves = (await tx.conn.execute(select(t.entity_id, t.trigger, t.actor).order_by(t.id))).all()
        unfinished = not_done.all()
        ids = (await tx.conn.scalars(select(job.c.id))).all()
    logs = "".join(path.read_text() for path in folder.glob("worker-*.log"))
    return Verdict(
        jobs=jobs,
        not_done=len(unfinished) + jobs - len(ids),
        without_effect=sum(1 for job_id in ids if effects[job_id] == 0),
        with_two_effects=sum(1 for count in effects.values() if count > 1),
        wrong_histories=_wrong(moves),
        kills=kills,
        freezes=freezes,
        late_workers_refused=logs.count("is no longer held") + logs.count("cancelling its work"),
    )


def _wrong(moves: Sequence[Row[str, str, str]]) -> list[str]:
    """Histories that are no walk of the machine, or in which someone finished what another held."""
    by_job = defaultdict(list)
    for job_id, trigger, actor in moves:
        by_job[job_id].append((trigger, actor))
    return [f"{job_id}: {history}" for job_id, history in by_job.items() if not _is_right(history)]


def _is_right(history: list[tuple[str, str]]) -> bool:
    holder: str | None = None
    finished = 0
    for trigger, actor in history:
        if trigger == "claim":
            if holder is not None:
                return False
            holder = actor
        elif trigger == "expire":
            if holder is None:
                return False
            holder = None
        elif trigger == "finish":
            if holder != actor:
                return False
            holder, finished = None, finished + 1
    return finished == 1
