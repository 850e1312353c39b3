"""The room with those who work in it, without HTTP: submit, let work be done, look at what became of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import delete, func, select

from penstock.access.domain import Caller, Scope
from penstock.adapters.arq_queue import ArqWorkers, Tickets
from penstock.adapters.arq_queue import Reconciler as TicketReconciler
from penstock.adapters.disk import DiskBlobs
from penstock.adapters.redis.link import RedisLink
from penstock.adapters.redis.runs import RedisRunState
from penstock.adapters.s3 import S3Blobs, S3Place
from penstock.documents.ocr.provider import OCRProvider
from penstock.documents.postprocessor import PostProcessor
from penstock.etl import track, worker
from penstock.etl.deps import Deps, Terms
from penstock.etl.domain import EtlTask, Mode, Status
from penstock.etl.reconcile import Reconciler
from penstock.etl.runs import Standing, find, key
from penstock.etl.store import tasks
from penstock.etl.submit import NewTask, submit
from penstock.kernel.clock import ManualClock, SystemClock
from penstock.kernel.events import event
from penstock.kernel.job_dispatch import dispatch_by_outbox
from penstock.kernel.outbox import Carrier, Relay
from penstock.kernel.queue import Job, JobQueue, get_job
from penstock.kernel.retry import Backoff
from penstock.kernel.runner import Runner
from penstock.kernel.runstate import SqlRunState, run_state
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.transitions import list_transitions
from penstock.kernel.workers import Settle, Workers
from tests.conftest import open_db
from tests.fakes.ocr import EchoOcr, EchoShaper, NoOcr, OcrThatWaits

ANNA = Caller(name="anna", user_id=5, scope=Scope.WRITE, key_id="k-anna")
BERT = Caller(name="bert", user_id=6, scope=Scope.WRITE, key_id="k-bert")
ROOT = Caller(name="root", user_id=1, scope=Scope.ADMIN, key_id="k-root")

PAGES = "first page\fsecond page\fthird page"
LIVE_SECONDS, FINAL_SECONDS = 86400.0, 3600.0
LEASE_SECONDS = 60
BACKOFF = Backoff(first_seconds=5, most_seconds=12, jitter=0)
TERMS = Terms(backoff=BACKOFF, ocr_attempts=3, postprocess_attempts=2, task_timeout=600)


class Workshop:
    """The room in one of its set-ups. Jobs are run when a test says so."""

    def __init__(self, tools: Deps, clock: ManualClock, link: RedisLink | None = None) -> None:
        self.tools = tools
        self.db = tools.db
        self.clock = clock
        self.link = link
        self.ocr = EchoOcr(tools.blobs)
        self.shaper = EchoShaper()
        self.set(provider=self.ocr, shaper=self.shaper)
        self._tickets = Tickets(link, clock) if link else None

    def set(self, *, provider: OCRProvider | None = None, shaper: PostProcessor | None = None, **terms: Any) -> None:
        """Let others read or shape, or let other terms hold."""
        shapers = dict.fromkeys((Mode.SKIP, Mode.FIELDS), shaper) if shaper else self.tools.shapers
        self.tools = replace(
            self.tools,
            provider=provider or self.tools.provider,
            shapers=shapers,
            terms=replace(self.tools.terms, **terms),
        )
        self._reconciler = Reconciler(self.tools)

    async def put(self, name: str = "a.txt", text: str = PAGES, *, user_id: int = 5) -> str:
        """A document in the store."""
        where = f"users/{user_id}/raw/3/{name}"
        await self.tools.blobs.put(where, text.encode())
        return where

    async def submit(self, name: str = "a.txt", *, by: Caller = ANNA, text: str = "", **more: Any) -> EtlTask:
        """A document and a task for it. Documents of other names are others, unless their text is given."""
        await self.put(name, text or f"{PAGES} of {name}", user_id=by.user_id)
        return await submit(self.tools, by, NewTask(project_id=3, filename=name, **more))

    def crew(self, owner: str = "worker-1") -> Workers | ArqWorkers:
        """Workers that do the jobs of the room."""
        handlers, retries = worker.handlers(self.tools), worker.retries(self.tools)
        if self.link is None:
            return Workers(
                self.db, self.tools.queue, handlers, owner=owner, modules=["etl"], lease_seconds=LEASE_SECONDS,
                retries=retries,
            )  # fmt: skip
        runner = Runner(self.db, self.tools.queue, handlers, owner=owner, lease_seconds=LEASE_SECONDS, retries=retries)
        return ArqWorkers(self.link, runner, modules=["etl"])

    async def work(self) -> int:
        """Do what is due, and tell what is to be told, until there is nothing left; returns how many jobs ran."""
        done = 0
        while True:
            await self.deliver()
            if self._tickets is not None:
                await TicketReconciler(self.db, self.tools.queue, self._tickets).run()
            ran = await self.crew().run_until_empty()
            done += ran
            await self.deliver()
            if not ran:
                return done

    async def deliver(self) -> None:
        """What the relay does."""
        carriers: list[Carrier] = [worker.RunStateCarrier(self.tools)]
        if self._tickets is not None:
            carriers.append(self._tickets)
        relay = Relay(self.db, {}, carriers=carriers, owner="relay")
        while await relay.deliver():
            pass

    async def reconcile(self) -> None:
        """One turn of the duty, and what follows from it."""
        await self._reconciler.run()
        await self.deliver()

    def begin(self) -> asyncio.Task[int]:
        """Workers that go on while the test does something else."""
        return asyncio.create_task(self.crew().run_until_empty())

    async def caught(self, *, before_page: int) -> tuple[OcrThatWaits, EtlTask, asyncio.Task[int]]:
        """A task whose worker waits before it reads a page; what waits, the task, and the workers."""
        ocr = OcrThatWaits(self.tools.blobs, before_page=before_page)
        self.set(provider=ocr)
        task = await self.submit()
        await self.deliver()
        working = self.begin()
        await ocr.waits.wait()
        return ocr, task, working

    async def do(self, job: Job) -> Settle | None:
        """What a worker does with a job, without settling it."""
        return await worker.handlers(self.tools)[job.kind](job)

    async def settle(self, job: Job, settle: Settle | None) -> None:
        """What a worker does last: the mark and what it made, in one transaction."""
        async with self.db.tx(actor="worker-2") as tx:
            await self.tools.queue.finish(tx, job)
            if settle is not None:
                await settle(tx)

    async def claim(self) -> Job:
        """What a worker does first, for tests in which it then goes its own way."""
        async with self.db.tx(actor="worker-2") as tx:
            [job] = await self.tools.queue.claim(tx, owner="worker-2", seconds=LEASE_SECONDS, limit=1, module="etl")
        return job

    async def rescue(self) -> None:
        """A worker that held something has fallen silent."""
        self.clock.advance(seconds=LEASE_SECONDS + 1)
        async with self.db.tx(actor="reaper") as tx:
            await self.tools.queue.rescue(tx)

    async def row(self, task: EtlTask) -> EtlTask:
        """What the database knows."""
        async with self.db.read() as tx:
            found = await tasks.find_task(tx, task.id)
        assert found is not None
        return found

    async def shown(self, task: EtlTask) -> Standing:
        """What run state knows."""
        found = await find(self.tools, task.id)
        assert found is not None
        return found

    async def status(self, task: EtlTask, *, by: Caller = ANNA) -> Status:
        """What a caller sees."""
        return (await track.get_task(self.tools, by, task.id)).status

    async def job(self, task: EtlTask, phase: str, *, run: int = 1) -> Job:
        """A job of the ledger."""
        async with self.db.read() as tx:
            return await get_job(tx, f"etl:{task.id}:{run}:{phase}")

    async def life(self, task: EtlTask) -> list[str]:
        """The verbs that were recorded."""
        async with self.db.read() as tx:
            return [step.trigger for step in await list_transitions(tx, "etl task", str(task.id))]

    async def told(self, task: EtlTask) -> list[str]:
        """The events that were told."""
        e = event.c
        async with self.db.read() as tx:
            rows = await tx.conn.execute(select(e.kind).where(e.topic == f"etl:{task.id}").order_by(e.id))
            return [row.kind for row in rows]

    async def count(self, table: Any) -> int:
        """How many rows a table has."""
        async with self.db.read() as tx:
            return await tx.conn.scalar(select(func.count()).select_from(table)) or 0

    async def keys(self, prefix: str = "users/") -> list[str]:
        """What lies in the store."""
        return [blob.key for blob in (await self.tools.blobs.list(prefix)).blobs]

    async def lose_run_state(self, task: EtlTask) -> None:
        """What a flushed Redis leaves: nothing."""
        if self.link is not None:
            await self.link.client.flushdb()
            return
        async with self.db.tx() as tx:
            await tx.conn.execute(delete(run_state).where(run_state.c.key == key(self.tools, task.id)))


@dataclass(frozen=True, kw_only=True)
class Grounds:
    """Where a room is set up: a database, and at scale also a Redis and a bucket."""

    database: str
    scratch: Path
    redis: str | None = None
    bucket: S3Place | None = None


@asynccontextmanager
async def open_workshop(grounds: Grounds, clock: ManualClock) -> AsyncIterator[Workshop]:
    """The room on these grounds: jobs go by ARQ where there is a Redis."""
    db = open_db(grounds.database, clock)
    link = RedisLink(grounds.redis) if grounds.redis else None
    seconds = {"live_seconds": LIVE_SECONDS, "final_seconds": FINAL_SECONDS}
    tools = Deps(
        db=db,
        queue=JobQueue(dispatch=dispatch_by_outbox) if link else JobQueue(),
        runs=RedisRunState(link, clock, **seconds) if link else SqlRunState(db, **seconds),
        blobs=S3Blobs(grounds.bucket, clock=SystemClock()) if grounds.bucket else DiskBlobs(grounds.scratch / "blobs"),
        sandbox=Sandbox(),
        provider=NoOcr(),
        shapers={},
        scratch=grounds.scratch,
        terms=TERMS,
    )
    try:
        yield Workshop(tools, clock, link)
    finally:
        if link is not None:
            await link.close()
        await db.close()
