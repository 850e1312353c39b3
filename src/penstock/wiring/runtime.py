"""The runtime: everything one process needs, built but not yet running."""

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from penstock.access.authenticate import Authenticator
from penstock.access.login import Logins
from penstock.access.passwords import Passwords
from penstock.adapters.arq_queue import ArqReconciler, ArqWorkers
from penstock.adapters.llm import ChatCompletions
from penstock.adapters.redis.client import RedisClient
from penstock.adapters.redis.messages import StreamCarrier
from penstock.etl import worker as etl_worker
from penstock.etl.rules import check_default_rule, load_rule_files
from penstock.etl.upload import clean_scratch_periodically
from penstock.kernel.blobs import Blobs
from penstock.kernel.circuit_breaker import CircuitBreaker
from penstock.kernel.clock import Clock, SystemClock
from penstock.kernel.coalescer import Coalescer
from penstock.kernel.database_errors import DatabaseNotMigrated
from penstock.kernel.db import Db
from penstock.kernel.events import delete_events
from penstock.kernel.fallback_limits import FallbackLimits
from penstock.kernel.hub import Hub
from penstock.kernel.maintenance import ACTOR, CLEANUP_SECONDS, Maintenance, repeat_until_zero
from penstock.kernel.migrations import migrate, pending
from penstock.kernel.notifier import Notifier, run_notifier
from penstock.kernel.outbox import Carrier, Relay
from penstock.kernel.processes import Heartbeat, ProcessKind
from penstock.kernel.queue import JobQueue
from penstock.kernel.retry import retry_while_unavailable
from penstock.kernel.runner import Runner, RunnerOptions
from penstock.kernel.runstate import RunState
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.scheduler import PeriodicTask, Scheduler
from penstock.kernel.workers import JobHandler, Workers
from penstock.notify.deps import Deps as NotifyDeps
from penstock.notify.worker import WebhookFanOut
from penstock.settings import BadSetting, Settings
from penstock.tasks import worker as tasks_worker
from penstock.tasks.alerts import AlertThresholds
from penstock.tasks.deps import Config as TasksConfig
from penstock.tasks.deps import Deps as TasksDeps
from penstock.tasks.metrics import TaskMetrics
from penstock.tasks.pull_limits import BadRate, PullLimiter, Rate, read_rates
from penstock.wiring.backends import Backends, build_backends, build_tokens, open_db, queue_names, uses_arq
from penstock.wiring.etl import build_etl
from penstock.wiring.modules import MODULES, PUBLIC, ROUTES, Modules, access_cleaner

if TYPE_CHECKING:
    from penstock.adapters.otel import OtelTracing

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
    access: Authenticator
    logins: Logins
    sandbox: Sandbox
    models: ChatCompletions
    tracing: "OtelTracing | None"
    modules: Modules

    @property
    def breakers(self) -> list[CircuitBreaker]:
        """The circuit breakers of this process."""
        return [*([self.redis.breaker] if self.redis else []), *self.models.breakers]

    async def work(self, modules: Sequence[str] = MODULES) -> None:
        """Run the jobs of these modules until cancelled. Modules share worker slots unless they have their own."""
        own_slots = {etl_worker.MODULE: self.settings.etl.worker_count}
        shared = [module for module in modules if module not in own_slots]
        handlers = self.modules.handlers()
        async with asyncio.TaskGroup() as pools:
            if shared:
                pools.create_task(self.workers(handlers, shared).run())
            for module in set(modules) & set(own_slots):
                pools.create_task(self.workers(handlers, [module], slots=own_slots[module]).run())

    def workers(
        self, handlers: Mapping[str, JobHandler], modules: Sequence[str] = MODULES, *, slots: int | None = None
    ) -> Workers | ArqWorkers:
        """Workers that run these handlers on the jobs of these modules."""
        if self.tracing is not None:
            handlers = self.tracing.jobs(handlers)
        slots = slots or self.settings.workers
        options = RunnerOptions(
            lease_seconds=self.settings.lease_seconds,
            grace_seconds=self.settings.grace_seconds,
            retries=self.modules.retries(),
        )
        if self.redis is None or not uses_arq(self.settings):
            return Workers(self.db, self.queue, handlers, owner=self.owner, modules=modules, slots=slots, **options)
        runner = Runner(self.db, self.queue, handlers, owner=self.owner, **options)
        return ArqWorkers(self.redis, runner, modules=modules, slots=slots, names=queue_names(self.settings))

    async def run_background(self, *, kind: ProcessKind, modules: Sequence[str] = ()) -> None:
        """Run the background tasks of a process until cancelled. `modules` are those whose jobs it takes."""
        heartbeat = Heartbeat(self.db, owner=self.owner, kind=kind, modules=modules, version=version("penstock"))
        async with asyncio.TaskGroup() as tasks:
            for part in (self.relay, self.scheduler, heartbeat):
                tasks.create_task(part.run())
            tasks.create_task(self._import_rules())
            tasks.create_task(clean_scratch_periodically(self.modules.etl))
            if kind is ProcessKind.SERVE:  # only a server has event streams and callers
                tasks.create_task(self.hub.run())
                tasks.create_task(self.access.run())
            if self.notifier is not None:
                tasks.create_task(run_notifier(self.db.wakeups, self.notifier))

    async def _import_rules(self) -> None:
        """Import the rules in files at start, or as soon as the database is available."""
        await retry_while_unavailable(self.clock, self._read_rules, warning="Rules in files are not imported yet")

    async def _read_rules(self) -> None:
        await load_rule_files(self.modules.etl, self.settings.data_dir / self.settings.etl.rules_dir)
        await check_default_rule(self.modules.etl)


@asynccontextmanager
async def open_runtime(settings: Settings) -> AsyncIterator[Runtime]:
    """Build a runtime and close it afterwards. Migrates an embedded database; any other must be migrated already."""
    clock = SystemClock()
    async with AsyncExitStack() as closing:
        db = open_db(settings, clock)
        closing.push_async_callback(db.close)
        await make_ready(db, settings)
        owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        backends = build_backends(settings, db, owner=owner)
        closing.push_async_callback(backends.close)
        yield _build(settings, db, backends, owner)


async def make_ready(db: Db, settings: Settings) -> None:
    """Migrate an embedded database; refuse any other that has pending migrations."""
    if settings.embedded:
        await migrate(db)
    elif steps := await pending(db):
        raise DatabaseNotMigrated(reason=f"pending: {', '.join(steps)}")


def _build(settings: Settings, db: Db, backends: Backends, owner: str) -> Runtime:
    modules = _modules(settings, db, backends)
    carriers = _carriers(settings, backends, modules)
    relay = Relay(db, ROUTES, carriers=carriers, owner=owner, max_attempts=settings.outbox_attempts)
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
        scheduler=Scheduler(db, _periodic_tasks(settings, db, backends, relay, modules), owner=owner),
        notifier=backends.notifier,
        hub=_hub(settings, db),
        access=Authenticator(db, tokens=build_tokens(settings, db.clock)),
        logins=_logins(settings, db),
        sandbox=backends.sandbox,
        models=backends.models,
        tracing=backends.tracing,
        modules=modules,
    )


def _modules(settings: Settings, db: Db, backends: Backends) -> Modules:
    notify = NotifyDeps(
        db=db,
        queue=backends.queue,
        client=backends.webhook_client,
        channels=PUBLIC,
        max_attempts=settings.webhook_attempts,
        user_agent=f"penstock/{version('penstock')}",
    )
    return Modules(notify=notify, tasks=_tasks(settings, db, backends), etl=build_etl(settings, db, backends))


def _tasks(settings: Settings, db: Db, backends: Backends) -> TasksDeps:
    config = TasksConfig(
        pull_timeout=settings.pull_timeout,
        batch_size=settings.pull_batch_size,
        max_attempts=settings.pull_max_attempts,
        wait_seconds=settings.pull_wait_seconds,
        stats_seconds=settings.pull_stats_seconds,
        history_days=settings.pull_history_days,
        expiry_time=settings.task_expiry_time,
        expired_action=settings.task_expired_action,
        reset_clears_pulls=settings.reset_clear_pull_status,
        rerun_clears_pulls=settings.rerun_clear_pull_status,
    )
    limiter = PullLimiter(
        backends.limits,
        db.clock,
        rates=_rates(settings.pull_rate_limit),
        min_interval=settings.pull_min_interval,
        quota=settings.pull_quota,
    )
    return TasksDeps(
        db=db, queue=backends.queue, config=config, limiter=limiter, metrics=TaskMetrics(), coalescer=Coalescer()
    )


def _rates(text: str) -> list[Rate]:
    try:
        return read_rates(text)
    except BadRate as error:
        reason = "expected a value like 60/minute, 1000/hour, or both separated by a comma"
        raise BadSetting(env="PULL_RATE_LIMIT", value=text, reason=reason) from error


def _alert_thresholds(settings: Settings) -> AlertThresholds:
    return AlertThresholds(
        success_rate=settings.pull_alert_success_rate,
        overdue=settings.pull_alert_overdue,
        requests=settings.pull_alert_requests,
        operations=settings.pull_alert_operations,
    )


def _carriers(settings: Settings, backends: Backends, modules: Modules) -> list[Carrier]:
    carriers: list[Carrier] = [WebhookFanOut(modules.notify), *modules.carriers()]
    if backends.redis is not None:
        carriers.append(StreamCarrier(backends.redis, PUBLIC, length=settings.stream_length))
    if backends.arq_enqueuer is not None:
        carriers.append(backends.arq_enqueuer)
    return carriers


def _periodic_tasks(
    settings: Settings, db: Db, backends: Backends, relay: Relay, modules: Modules
) -> list[PeriodicTask]:
    history, dead_letters = timedelta(days=settings.history_days), timedelta(days=settings.dead_letter_days)
    maintenance = Maintenance(db, jobs=backends.queue, relay=relay, history=history, dead_letters=dead_letters)
    audit, lock = timedelta(days=settings.audit_days), timedelta(seconds=settings.login_lock_seconds)

    async def delete_old_events() -> int:
        async with db.tx(actor=ACTOR) as tx:
            return await delete_events(tx, before=tx.now - timedelta(days=settings.event_days))

    async def sweep_blobs() -> None:
        await backends.blobs.sweep(older_than=db.clock.now() - DRAFT_AGE)

    periodic_tasks = [
        *maintenance.periodic_tasks(backends.runs, backends.limit_engine),
        access_cleaner(db, audit_age=audit, lock=lock),
        *modules.periodic_tasks(history=history),
        tasks_worker.alert_task(db, _alert_thresholds(settings)),
        PeriodicTask(
            name="forget-events", every_seconds=CLEANUP_SECONDS, run=partial(repeat_until_zero, delete_old_events)
        ),
        PeriodicTask(name="sweep-blobs", every_seconds=SWEEP_SECONDS, run=sweep_blobs),
    ]
    if backends.arq_enqueuer is not None:
        periodic_tasks.append(ArqReconciler(db, backends.queue, backends.arq_enqueuer).periodic_task())
    return periodic_tasks


def _hub(settings: Settings, db: Db) -> Hub:
    return Hub(
        db,
        most_streams=settings.sse_connections,
        most_per_tenant=settings.sse_per_tenant,
        most_waiting=settings.sse_queue,
        keepalive_seconds=settings.sse_keepalive_seconds,
    )


def _logins(settings: Settings, db: Db) -> Logins:
    return Logins(
        db,
        Passwords(),
        attempts=settings.login_attempts,
        lock_seconds=settings.login_lock_seconds,
        session_seconds=settings.session_seconds,
    )
