"""The etl module with its workers, without HTTP: submit tasks, run jobs, inspect the outcome."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, func, select

from penstock.access.domain import Caller, Scope
from penstock.adapters.arq_queue import ArqEnqueuer, ArqQueuePositions, ArqWorkers
from penstock.adapters.arq_queue import ArqReconciler as TicketReconciler
from penstock.adapters.disk import DiskBlobs
from penstock.adapters.redis.client import RedisClient
from penstock.adapters.redis.runs import RedisRunState
from penstock.adapters.s3 import S3Blobs, S3Bucket
from penstock.documents.ocr.provider import OCRProvider
from penstock.documents.postprocessor import PostProcessor
from penstock.etl import worker
from penstock.etl.api import actions, status
from penstock.etl.deps import Config, Deps
from penstock.etl.domain import EtlTask, Mode, Phase, Status
from penstock.etl.run_state import TaskRun, find, key
from penstock.etl.stage_context import EtlStageContext
from penstock.etl.store import tasks
from penstock.etl.submit import NewTask
from penstock.kernel.backlog import SqlQueuePositions
from penstock.kernel.clock import ManualClock, SystemClock
from penstock.kernel.events import event
from penstock.kernel.job_dispatch import dispatch_by_outbox
from penstock.kernel.queue import Job, JobQueue, get_job
from penstock.kernel.relay import Relay, Sink
from penstock.kernel.retry import Backoff
from penstock.kernel.runner import Runner
from penstock.kernel.runstate import SqlRunState, run_state
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.stages.run_handle import HeldLease
from penstock.kernel.stages.run_waits import RunWaits
from penstock.kernel.transitions import list_transitions
from penstock.kernel.workers import Settle, Workers
from tests.conftest import open_db, sequence
from tests.fakes.ocr import EchoOcr, EchoPostProcessor, NoOcr, OcrThatWaits

ANNA = Caller(name="anna", user_id=5, scope=Scope.WRITE, key_id="k-anna")
BERT = Caller(name="bert", user_id=6, scope=Scope.WRITE, key_id="k-bert")
ROOT = Caller(name="root", user_id=1, scope=Scope.ADMIN, key_id="k-root")

# For validation and response shapes, which do not depend on the database.
on_sqlite = pytest.mark.parametrize("db_url", ["sqlite"], indirect=True)
# For locks, races, run state and blobs, which each profile implements in its own way.
on_both_profiles = pytest.mark.parametrize("profile", ["sqlite", "scale"], indirect=True)
on_scale = pytest.mark.parametrize("profile", ["scale"], indirect=True)
on_all_profiles = pytest.mark.parametrize("profile", ["sqlite", "postgres", "scale"], indirect=True)

PAGES = "first page\fsecond page\fthird page"
LIVE_SECONDS, FINAL_SECONDS = 86400.0, 3600.0
LEASE_SECONDS = 60
BACKOFF = Backoff(first_seconds=5, max_seconds=12, jitter=0)
TERMS = Config(
    ocr_backoff=BACKOFF, postprocess_backoff=BACKOFF, ocr_attempts=3, postprocess_attempts=2, task_timeout=600
)


class EtlHarness:
    """The etl module on one profile. Jobs run when a test says so."""

    def __init__(self, deps: Deps, clock: ManualClock, link: RedisClient | None = None) -> None:
        self.deps = deps
        self.db = deps.db
        self.clock = clock
        self.link = link
        self.ocr = EchoOcr(deps.blobs)
        self.post_processor = EchoPostProcessor()
        self.set(provider=self.ocr, post_processor=self.post_processor)
        self._tickets = ArqEnqueuer(link, clock, functions=worker.arq_functions(deps)) if link else None

    def set(
        self, *, provider: OCRProvider | None = None, post_processor: PostProcessor | None = None, **config: Any
    ) -> None:
        """Replace the OCR provider, the post-processor or settings."""
        post_processors = (
            dict.fromkeys((Mode.SKIP, Mode.FIELDS), post_processor) if post_processor else self.deps.post_processors
        )
        self.deps = replace(
            self.deps,
            provider=provider or self.deps.provider,
            post_processors=post_processors,
            config=replace(self.deps.config, **config),
        )
        self._reconciler = worker.build_reconciler(self.deps)

    async def put(self, name: str = "a.txt", text: str = PAGES, *, user_id: int = 5) -> str:
        """Store a document."""
        where = f"users/{user_id}/raw/3/{name}"
        await self.deps.blobs.put(where, text.encode())
        return where

    async def submit(self, name: str = "a.txt", *, by: Caller = ANNA, text: str = "", **more: Any) -> EtlTask:
        """Store a document and submit a task for it. Each name has its own text by default."""
        await self.put(name, text or f"{PAGES} of {name}", user_id=by.user_id)
        return await actions.submit_task(self.deps, by, NewTask(project_id=3, filename=name, **more))

    def workers(self, owner: str = "worker-1") -> Workers | ArqWorkers:
        """Workers for the jobs of the etl module."""
        handlers, retries = worker.handlers(self.deps), worker.retries(self.deps)
        if self.link is None:
            return Workers(
                self.db, self.deps.queue, handlers, owner=owner, modules=["etl"], lease_seconds=LEASE_SECONDS,
                retries=retries,
            )  # fmt: skip
        runner = Runner(self.db, self.deps.queue, handlers, owner=owner, lease_seconds=LEASE_SECONDS, retries=retries)
        return ArqWorkers(self.link, runner, modules=["etl"], functions=worker.arq_functions(self.deps))

    async def work(self) -> int:
        """Run due jobs and deliver messages until none is left; returns how many jobs ran."""
        done = 0
        while True:
            await self.deliver()
            if self._tickets is not None:
                await TicketReconciler(self.db, self.deps.queue, self._tickets).run()
            ran = await self.workers().run_until_empty()
            done += ran
            await self.deliver()
            if not ran:
                return done

    async def deliver(self) -> None:
        """Deliver outbox messages, as the relay does."""
        sinks: list[Sink] = [worker.RunStateSink(self.deps)]
        if self._tickets is not None:
            sinks.append(self._tickets)
        relay = Relay(self.db, {}, sinks=sinks, owner="relay")
        while await relay.deliver():
            pass

    async def reconcile(self) -> None:
        """One turn of the reconciler, and delivery of its messages."""
        await self._reconciler.run()
        await self.deliver()

    def begin(self) -> asyncio.Task[int]:
        """Start workers in the background."""
        return asyncio.create_task(self.workers().run_until_empty())

    async def paused(self, *, before_page: int) -> tuple[OcrThatWaits, EtlTask, asyncio.Task[int]]:
        """A task whose worker is blocked before a page: the provider, the task, and the workers."""
        ocr = OcrThatWaits(self.deps.blobs, before_page=before_page)
        self.set(provider=ocr)
        task = await self.submit()
        await self.deliver()
        working = self.begin()
        await ocr.waits.wait()
        return ocr, task, working

    async def do(self, job: Job) -> Settle | None:
        """Run the handler of a job without settling it."""
        return await worker.handlers(self.deps)[job.kind](job)

    async def settle(self, job: Job, settle: Settle | None) -> None:
        """Settle a job as a worker does: finish it and store its outcome in one transaction."""
        async with self.db.tx(actor="worker-2") as tx:
            await self.deps.queue.finish(tx, job)
            if settle is not None:
                await settle(tx)

    async def claim(self) -> Job:
        """Claim a job as a worker does."""
        async with self.db.tx(actor="worker-2") as tx:
            [job] = await self.deps.queue.claim(tx, owner="worker-2", seconds=LEASE_SECONDS, limit=1, module="etl")
        return job

    async def context(self, held: Job, task: EtlTask) -> EtlStageContext:
        """The context of a claimed OCR job, as its worker opens it."""
        lease = HeldLease(db=self.db, leases=self.deps.queue.leases, row_id=held.id, token=held.token or "")
        return await EtlStageContext.open(self.deps, lease, task, Phase.OCR, attempt=held.attempts)

    async def rescue(self) -> None:
        """Let leases expire, and rescue their jobs."""
        self.clock.advance(seconds=LEASE_SECONDS + 1)
        async with self.db.tx(actor="reaper") as tx:
            await self.deps.queue.rescue(tx)

    async def row(self, task: EtlTask) -> EtlTask:
        """The row of a task."""
        async with self.db.read() as tx:
            found = await tasks.find_task(tx, task.id)
        assert found is not None
        return found

    async def shown(self, task: EtlTask) -> TaskRun:
        """The run state of a task."""
        found = await find(self.deps, task.id)
        assert found is not None
        return found

    async def status(self, task: EtlTask, *, by: Caller = ANNA) -> Status:
        """The status that a caller sees."""
        return (await status.get_status(self.deps, by, task.id)).status

    async def job(self, task: EtlTask, phase: str, *, run: int = 1) -> Job:
        """The job of one phase of a task."""
        async with self.db.read() as tx:
            return await get_job(tx, f"etl:{task.id}:{run}:{phase}")

    async def transitions(self, task: EtlTask) -> list[str]:
        """The verbs of the recorded transitions."""
        async with self.db.read() as tx:
            return [step.trigger for step in await list_transitions(tx, "etl task", str(task.id))]

    async def events(self, task: EtlTask) -> list[str]:
        """The kinds of the recorded events."""
        await sequence(self.db)
        e = event.c
        async with self.db.read() as tx:
            rows = await tx.conn.execute(select(e.kind).where(e.topic == f"etl:{task.id}").order_by(e.id))
            return [row.kind for row in rows]

    async def count(self, table: Any) -> int:
        """How many rows a table has."""
        async with self.db.read() as tx:
            return await tx.conn.scalar(select(func.count()).select_from(table)) or 0

    async def keys(self, prefix: str = "users/") -> list[str]:
        """The blob keys with a prefix."""
        return [blob.key for blob in (await self.deps.blobs.list(prefix)).blobs]

    async def lose_run_state(self, task: EtlTask) -> None:
        """Flush the run state."""
        if self.link is not None:
            await self.link.raw.flushdb()
            return
        async with self.db.tx() as tx:
            await tx.conn.execute(delete(run_state).where(run_state.c.key == key(self.deps, task.id)))


@dataclass(frozen=True, kw_only=True)
class EtlProfile:
    """Backends of the module: a database, and in the scale profile also Redis and a bucket."""

    database: str
    scratch: Path
    redis: str | None = None
    bucket: S3Bucket | None = None


@asynccontextmanager
async def open_harness(profile: EtlProfile, clock: ManualClock) -> AsyncIterator[EtlHarness]:
    """The etl module on a profile; with Redis, jobs go through ARQ."""
    db = open_db(profile.database, clock)
    link = RedisClient(profile.redis) if profile.redis else None
    seconds = {"live_seconds": LIVE_SECONDS, "final_seconds": FINAL_SECONDS}
    runs = RedisRunState(link, clock, **seconds) if link else SqlRunState(db, **seconds)
    deps = Deps(
        db=db,
        queue=JobQueue(dispatch=dispatch_by_outbox) if link else JobQueue(),
        runs=runs,
        blobs=S3Blobs(profile.bucket, clock=SystemClock()) if profile.bucket else DiskBlobs(profile.scratch / "blobs"),
        sandbox=Sandbox(),
        provider=NoOcr(),
        post_processors={},
        scratch=profile.scratch,
        config=TERMS,
        waits=RunWaits(runs, db.wakeups),
        positions=ArqQueuePositions(link) if link else SqlQueuePositions(db),
    )
    try:
        yield EtlHarness(deps, clock, link)
    finally:
        if link is not None:
            await link.close()
        await db.close()
