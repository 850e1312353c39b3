"""The runtime: everything one process needs, built but not yet running."""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.adapters.arq_queue import ArqEnqueuer, ArqReconciler, ArqWorkers
from penstock.adapters.llm import ChatCompletions
from penstock.adapters.redis.client import RedisClient
from penstock.adapters.redis.messages import RedisStreamSink
from penstock.kernel.blobs import Blobs
from penstock.kernel.circuit_breaker import CircuitBreaker
from penstock.kernel.clock import Clock, SystemClock
from penstock.kernel.database_errors import DatabaseNotMigrated
from penstock.kernel.db import Db
from penstock.kernel.events import delete_events
from penstock.kernel.fallback_limits import FallbackLimits
from penstock.kernel.hub import Hub
from penstock.kernel.maintenance import ACTOR, CLEANUP_SECONDS, Maintenance, repeat_until_zero
from penstock.kernel.migrations import migrate, pending
from penstock.kernel.notifier import Notifier, run_notifier
from penstock.kernel.private_folder import warn_if_shared
from penstock.kernel.processes import Heartbeat, ProcessKind
from penstock.kernel.queue import JobQueue
from penstock.kernel.relay import Relay, Sink
from penstock.kernel.runner import Runner, RunnerOptions
from penstock.kernel.runstate import RunState
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.scheduler import PeriodicTask, Scheduler
from penstock.kernel.sequencer import Sequencer
from penstock.kernel.workers import JobHandler, Workers
from penstock.messages import PUBLIC
from penstock.settings import Settings
from penstock.wiring.backends import Backends, build_backends, open_db, uses_arq
from penstock.wiring.modules import MODULES, ModuleEntry, Modules, build_modules, migration_folders

if TYPE_CHECKING:
    from penstock.adapters.otel import OtelTracing

log = logging.getLogger(__name__)

DRAFT_AGE = timedelta(days=1)  # a blob write that stalls for a day is abandoned
SWEEP_SECONDS = 3600


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """Everything one process needs. `run_background` must run in every process that serves or works."""

    settings: Settings
    owner: str  # the name of this process in leases and state transitions
    clock: Clock
    db: Db
    redis: RedisClient | None
    blobs: Blobs
    queue: JobQueue
    runs: RunState
    limits: FallbackLimits
    relay: Relay
    scheduler: Scheduler
    notifier: Notifier | None
    hub: Hub
    sandbox: Sandbox
    models: ChatCompletions
    tracing: "OtelTracing | None"
    modules: Modules
    migrations: Sequence[Path]  # folders besides `kernel/migrations`

    @property
    def breakers(self) -> list[CircuitBreaker]:
        """The circuit breakers of this process."""
        return [*([self.redis.breaker] if self.redis else []), *self.models.breakers]

    async def work(self, modules: Sequence[str] | None = None) -> None:
        """Run the jobs of these modules, or of all, until cancelled. Modules share slots unless they have their own."""
        names = self.modules.with_jobs if modules is None else modules
        own = self.modules.slots
        shared = [name for name in names if name not in own]
        pools = [(shared, self.settings.workers)] if shared else []
        pools += [([name], own[name]) for name in names if name in own]
        self._log_start(pools)
        async with asyncio.TaskGroup() as running:
            for pool, slots in pools:
                running.create_task(self.workers(self.modules.jobs, pool, slots=slots).run())

    def _log_start(self, pools: Sequence[tuple[Sequence[str], int]]) -> None:
        shown = [f"{', '.join(name or '(no module)' for name in names)}: {slots} slots" for names, slots in pools]
        engines = {
            "job queue": "ARQ" if uses_arq(self.settings) else "SQL",
            "database": self.db.database_name,
            "redis": "yes" if self.redis else "no",
            "blobs": "S3" if self.settings.blobs_url.startswith("s3:") else "disk",
        }
        using = ", ".join(f"{name} {engine}" for name, engine in engines.items())
        log.info("worker %s started; %s; %s", self.owner, "; ".join(shown), using)

    def workers(
        self, handlers: Mapping[str, JobHandler], modules: Sequence[str], *, slots: int | None = None
    ) -> Workers | ArqWorkers:
        """Workers that run these handlers on the jobs of these modules."""
        if self.tracing is not None:
            handlers = self.tracing.jobs(handlers)
        slots = slots or self.settings.workers
        options = RunnerOptions(
            lease_seconds=self.settings.lease_seconds,
            grace_seconds=self.settings.grace_seconds,
            retries=self.modules.retries,
        )
        if self.redis is None or not uses_arq(self.settings):
            return Workers(self.db, self.queue, handlers, owner=self.owner, modules=modules, slots=slots, **options)
        runner = Runner(self.db, self.queue, handlers, owner=self.owner, **options)
        return ArqWorkers(
            self.redis,
            runner,
            modules=modules,
            slots=slots,
            names=self.modules.arq_queue_names,
            functions=self.modules.arq_functions,
            result_seconds=self.settings.arq_result_seconds,
        )

    async def run_background(self, *, kind: ProcessKind, modules: Sequence[str] = ()) -> None:
        """Run the background tasks of a process until cancelled. `modules` are those whose jobs it takes."""
        heartbeat = Heartbeat(self.db, owner=self.owner, kind=kind, modules=modules, version=version("penstock"))
        async with asyncio.TaskGroup() as tasks:
            for part in (self.relay, self.scheduler, heartbeat):
                tasks.create_task(part.run())
            if kind is ProcessKind.SERVE:  # only a server has event streams
                tasks.create_task(self.hub.run())
            for background in chain.from_iterable(spec.background for spec in self.modules.specs):
                if kind in background.kinds:
                    tasks.create_task(background.run())
            if self.notifier is not None:
                tasks.create_task(run_notifier(self.db.wakeups, self.notifier))


@asynccontextmanager
async def open_runtime(settings: Settings, *, modules: Mapping[str, ModuleEntry] = MODULES) -> AsyncIterator[Runtime]:
    """Build a runtime and close it afterwards. Migrates an embedded database; any other must be migrated already."""
    clock = SystemClock()
    async with AsyncExitStack() as closing:
        db = open_db(settings, clock)
        closing.push_async_callback(db.close)
        await make_ready(db, settings, modules)
        warn_if_shared(settings.data_dir)
        owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        preload = [name for entry in modules.values() for name in entry.preload]
        backends = build_backends(settings, db, owner=owner, preload=preload)
        closing.push_async_callback(backends.close)
        built = build_modules(settings, db, backends, modules)
        yield _build(settings, db, backends, owner, built, migrations=migration_folders(modules))


async def make_ready(db: Db, settings: Settings, modules: Mapping[str, ModuleEntry] = MODULES) -> None:
    """Migrate an embedded database; refuse any other that has pending migrations."""
    folders = migration_folders(modules)
    if settings.embedded:
        await migrate(db, folders)
    elif steps := await pending(db, folders):
        raise DatabaseNotMigrated(reason=f"pending: {', '.join(steps)}")


def _build(
    settings: Settings, db: Db, backends: Backends, owner: str, modules: Modules, *, migrations: Sequence[Path]
) -> Runtime:
    enqueuer = None
    if backends.redis is not None and uses_arq(settings):
        enqueuer = ArqEnqueuer(backends.redis, db.clock, names=modules.arq_queue_names, functions=modules.arq_functions)
    sinks = _sinks(settings, backends, modules, enqueuer)
    relay = Relay(
        db,
        modules.routes,
        sinks=sinks,
        owner=owner,
        max_attempts=settings.outbox_attempts,
        lease_seconds=settings.lease_seconds,
    )
    periodic_tasks = [
        *_maintenance(settings, db, backends, relay),
        *chain.from_iterable(spec.periodic_tasks for spec in modules.specs),
        *([ArqReconciler(db, backends.queue, enqueuer).periodic_task()] if enqueuer is not None else []),
    ]
    return Runtime(
        settings=settings,
        owner=owner,
        clock=db.clock,
        db=db,
        redis=backends.redis,
        blobs=backends.blobs,
        queue=backends.queue,
        runs=backends.runs,
        limits=backends.limits,
        relay=relay,
        scheduler=Scheduler(db, periodic_tasks, owner=owner),
        notifier=backends.notifier,
        hub=_hub(settings, db),
        sandbox=backends.sandbox,
        models=backends.models,
        tracing=backends.tracing,
        modules=modules,
        migrations=migrations,
    )


def _sinks(settings: Settings, backends: Backends, modules: Modules, enqueuer: ArqEnqueuer | None) -> list[Sink]:
    sinks = list(chain.from_iterable(spec.sinks for spec in modules.specs))
    if backends.redis is not None:
        sinks.append(RedisStreamSink(backends.redis, PUBLIC, length=settings.stream_length))
    if enqueuer is not None:
        sinks.append(enqueuer)
    return sinks


def _maintenance(settings: Settings, db: Db, backends: Backends, relay: Relay) -> list[PeriodicTask]:
    """The periodic tasks of the kernel: its tables and the blob store."""
    history, dead_letters = timedelta(days=settings.history_days), timedelta(days=settings.dead_letter_days)
    maintenance = Maintenance(db, jobs=backends.queue, relay=relay, history=history, dead_letters=dead_letters)

    async def delete_old_events() -> int:
        await Sequencer(db).catch_up()  # without a hub, nobody else does; a new one reads the whole inbox
        async with db.tx(actor=ACTOR) as tx:
            return await delete_events(tx, before=tx.now - timedelta(days=settings.event_days))

    async def sweep_blobs() -> None:
        await backends.blobs.sweep(older_than=db.clock.now() - DRAFT_AGE)

    delete_events_until_zero = partial(repeat_until_zero, delete_old_events)
    return [
        *maintenance.periodic_tasks(backends.runs, backends.limit_engine),
        PeriodicTask(name="forget-events", every_seconds=CLEANUP_SECONDS, run=delete_events_until_zero),
        PeriodicTask(name="sweep-blobs", every_seconds=SWEEP_SECONDS, run=sweep_blobs),
    ]


def _hub(settings: Settings, db: Db) -> Hub:
    return Hub(
        db,
        max_streams=settings.sse_connections,
        max_per_tenant=settings.sse_per_tenant,
        max_queued=settings.sse_queue,
        keepalive_seconds=settings.sse_keepalive_seconds,
    )
