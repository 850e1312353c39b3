"""The shop: a queue with someone who works it off, for each implementation of the job queue."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import pytest

from penstock.adapters.arq_queue import ArqEnqueuer, ArqReconciler, ArqWorkers
from penstock.adapters.arq_queue.enqueue import NO_FUNCTIONS, ArqFunctions
from penstock.adapters.redis.client import RedisClient
from penstock.kernel.db import Db
from penstock.kernel.job_dispatch import dispatch_by_outbox
from penstock.kernel.queue import Job, JobQueue, NewJob, get_job
from penstock.kernel.relay import Relay
from penstock.kernel.runner import JobHandler, Runner
from penstock.kernel.transitions import list_transitions
from penstock.kernel.workers import Workers

RUNNER_OPTIONS = {"lease_seconds", "grace_seconds", "retries"}


class Crew(Protocol):
    """What every implementation can do."""

    async def run(self) -> None:
        """Work until cancelled."""
        ...

    async def run_until_empty(self) -> int:
        """Work off what is due now."""
        ...


class Shop:
    """A queue whose workers poll the job table: `run` does what is due now."""

    def __init__(self, db: Db) -> None:
        self.db = db
        self.queue = JobQueue()
        self.handlers: dict[str, JobHandler] = {"note": self.note}
        self.noted: list[str] = []

    async def note(self, job: Job) -> None:
        """The plainest handler: remembers that it ran."""
        self.noted.append(job.id)

    async def add(self, *jobs: NewJob) -> list[str]:
        async with self.db.tx(actor="ann") as tx:
            return await self.queue.enqueue(tx, *jobs)

    def crew(self, **options: Any) -> Crew:
        return Workers(self.db, self.queue, self.handlers, **{"owner": "worker-1", **options})

    async def run(self, **options: Any) -> int:
        return await self.crew(**options).run_until_empty()

    async def deliver(self) -> None:
        """Bring to the workers what they do not find by themselves."""

    @asynccontextmanager
    async def working(self, **options: Any) -> AsyncIterator[None]:
        """Workers that run during the block and are stopped in good order at its end."""
        task = asyncio.create_task(self.crew(**options).run())
        try:
            yield
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    async def claim(self, *, seconds: float = 60, module: str = "") -> list[Job]:
        """What a worker does first; for tests in which that worker then falls silent."""
        async with self.db.tx(actor="worker-2") as tx:
            return await self.queue.claim(tx, owner="worker-2", seconds=seconds, limit=10, module=module)

    async def rescue(self) -> list[str]:
        async with self.db.tx(actor="reaper") as tx:
            return await self.queue.rescue(tx)

    async def get(self, job_id: str) -> Job:
        async with self.db.read() as tx:
            return await get_job(tx, job_id)

    async def life(self, job_id: str) -> list[str]:
        async with self.db.read() as tx:
            return [step.trigger for step in await list_transitions(tx, "job", job_id)]


class ArqShop(Shop):
    """A queue whose workers get tickets from ARQ. ARQ uses real time, the job table the test clock, which decides."""

    def __init__(self, db: Db, redis_client: RedisClient, functions: ArqFunctions = NO_FUNCTIONS) -> None:
        super().__init__(db)
        self.redis_client = redis_client
        self.functions = functions
        self.queue = JobQueue(dispatch=dispatch_by_outbox)
        self.tickets = ArqEnqueuer(redis_client, db.clock, functions=functions)
        self.relay = Relay(db, {}, sinks=[self.tickets], owner="relay")
        self.reconciler = ArqReconciler(db, self.queue, self.tickets)

    def crew(self, **options: Any) -> ArqWorkers:
        options = {"owner": "worker-1", **options}
        for_runner = {name: options.pop(name) for name in RUNNER_OPTIONS & options.keys()}
        runner = Runner(self.db, self.queue, self.handlers, owner=options.pop("owner"), **for_runner)
        return ArqWorkers(self.redis_client, runner, functions=self.functions, **options)

    async def deliver(self) -> None:
        while await self.relay.deliver():
            pass

    async def run(self, **options: Any) -> int:
        """Deliver, reconcile and work until a round finds nothing: what runs may enqueue more."""
        taken = 0
        while True:
            await self.deliver()
            await self.reconciler.run()
            if not (found := await super().run(**options)):
                return taken
            taken += found


def fails(error: Exception) -> JobHandler:
    """A handler that always raises this."""

    async def handler(job: Job) -> None:
        raise error

    return handler


@asynccontextmanager
async def ledger_shop(db: Db, _request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    """The workers of the kernel."""
    yield Shop(db)


@asynccontextmanager
async def arq_shop(db: Db, request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    """ARQ on a real Redis."""
    redis_client = RedisClient(request.getfixturevalue("redis_url"))
    yield ArqShop(db, redis_client)
    await redis_client.close()


OpenShop = Callable[[Db, pytest.FixtureRequest], AbstractAsyncContextManager[Shop]]
IMPLEMENTATIONS = [pytest.param(ledger_shop, id="workers"), pytest.param(arq_shop, id="arq")]
