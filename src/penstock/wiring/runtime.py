"""The house: everything one process needs, built and not yet running."""

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

from penstock.access import maintenance as access_upkeep
from penstock.access.identify import Access
from penstock.access.login import Logins
from penstock.access.passwords import Passwords
from penstock.adapters.arq_queue import ArqWorkers, Reconciler
from penstock.adapters.llm import ChatCompletions
from penstock.adapters.redis.link import RedisLink
from penstock.adapters.redis.streams import StreamCarrier
from penstock.etl import worker as etl_worker
from penstock.etl.receive import keep_swept
from penstock.etl.rules import check_default, take_in
from penstock.kernel.blobs import Blobs
from penstock.kernel.circuit_breaker import CircuitBreaker
from penstock.kernel.clock import Clock, SystemClock
from penstock.kernel.coalescer import Coalescer
from penstock.kernel.db import Db
from penstock.kernel.events import delete_events
from penstock.kernel.fallback_limits import FallbackLimits
from penstock.kernel.faults import DatabaseNotMigrated
from penstock.kernel.hub import Hub
from penstock.kernel.maintenance import ACTOR, TIDY_SECONDS, Maintenance, until_none
from penstock.kernel.migrations import migrate, pending
from penstock.kernel.notifier import Notifier, run_notifier
from penstock.kernel.outbox import Carrier, Relay
from penstock.kernel.patience import until_there
from penstock.kernel.processes import Heartbeat, ProcessKind
from penstock.kernel.queue import Queue
from penstock.kernel.runner import Runner, RunnerOptions
from penstock.kernel.runstate import RunState
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.scheduler import PeriodicTask, Scheduler
from penstock.kernel.workers import JobHandler, Workers
from penstock.notify.deps import Deps as NotifyDeps
from penstock.notify.fan_out import FanOut
from penstock.settings import BadSetting, Settings
from penstock.tasks import alerts
from penstock.tasks.alerts import AlertRules
from penstock.tasks.deps import Deps as TasksDeps
from penstock.tasks.deps import Rules as TaskRules
from penstock.tasks.limit import BadRate, PullGate, Rate, read_rates
from penstock.tasks.meters import Meters
from penstock.wiring import engines
from penstock.wiring.engines import Engines
from penstock.wiring.etl import build_etl
from penstock.wiring.modules import MODULES, PUBLIC, ROUTES, Modules

if TYPE_CHECKING:
    from penstock.adapters.otel import OtelTracing

DRAFT_AGE = timedelta(days=1)  # a write that stalls for a day has been given up
SWEEP_SECONDS = 3600


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """Everything one process needs. `keep` has to run beside whatever else it does."""

    settings: Settings
    owner: str  # this process, as leases and the record name it
    clock: Clock
    db: Db
    redis: RedisLink | None
    blobs: Blobs
    queue: Queue
    runs: RunState
    limits: FallbackLimits
    relay: Relay
    timekeeper: Scheduler
    bell: Notifier | None
    hub: Hub
    access: Access
    logins: Logins
    sandbox: Sandbox
    models: ChatCompletions
    tracing: "OtelTracing | None"
    rooms: Modules

    @property
    def breakers(self) -> list[CircuitBreaker]:
        """What is left alone for a while after it failed."""
        return [*([self.redis.breaker] if self.redis else []), *self.models.breakers]

    async def work(self, rooms: Sequence[str] = MODULES) -> None:
        """Run the jobs of these modules until cancelled. Modules share slots unless they have their own."""
        own = {etl_worker.ROOM: self.settings.etl.worker_count}
        shared = [room for room in rooms if room not in own]
        async with asyncio.TaskGroup() as crews:
            if shared:
                crews.create_task(self.workers(self.rooms.handlers(), shared).run())
            for room in set(rooms) & set(own):
                crews.create_task(self.workers(self.rooms.handlers(), [room], slots=own[room]).run())

    def workers(
        self, handlers: Mapping[str, JobHandler], rooms: Sequence[str] = MODULES, *, slots: int | None = None
    ) -> Workers | ArqWorkers:
        """Workers for these kinds of jobs in these rooms."""
        if self.tracing is not None:
            handlers = self.tracing.jobs(handlers)
        slots = slots or self.settings.workers
        options = RunnerOptions(
            lease_seconds=self.settings.lease_seconds,
            grace_seconds=self.settings.grace_seconds,
            retries=self.rooms.retries(),
        )
        if self.redis is None or not engines.uses_arq(self.settings):
            return Workers(self.db, self.queue, handlers, owner=self.owner, rooms=rooms, slots=slots, **options)
        runner = Runner(self.db, self.queue, handlers, owner=self.owner, **options)
        return ArqWorkers(self.redis, runner, rooms=rooms, slots=slots, names=engines.queue_names(self.settings))

    async def keep(self, *, kind: ProcessKind, rooms: Sequence[str] = ()) -> None:
        """What every process does beside its own work, until cancelled. `rooms` are those it takes jobs from."""
        heart = Heartbeat(self.db, owner=self.owner, kind=kind, rooms=rooms, version=version("penstock"))
        async with asyncio.TaskGroup() as tasks:
            for part in (self.relay, self.timekeeper, heart):
                tasks.create_task(part.run())
            tasks.create_task(self._take_in_rules())
            tasks.create_task(keep_swept(self.rooms.etl))
            if kind is ProcessKind.SERVE:  # only who serves has watchers and callers
                tasks.create_task(self.hub.run())
                tasks.create_task(self.access.run())
            if self.bell is not None:
                tasks.create_task(run_notifier(self.db.wakeups, self.bell))

    async def _take_in_rules(self) -> None:
        """Rules in files are taken in at the start, or as soon as the database is there."""
        await until_there(self.clock, self._read_rules, away="rules in files are not taken in for now")

    async def _read_rules(self) -> None:
        await take_in(self.rooms.etl, self.settings.data_dir / self.settings.etl.rules_dir)
        await check_default(self.rooms.etl)


@asynccontextmanager
async def open_runtime(settings: Settings) -> AsyncIterator[Runtime]:
    """Build a house and close it afterwards. An embedded database is brought up to date here; any other must be."""
    clock = SystemClock()
    async with AsyncExitStack() as closing:
        db = engines.open_db(settings, clock)
        closing.push_async_callback(db.close)
        await make_ready(db, settings)
        owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        chosen = engines.choose(settings, db, owner=owner)
        closing.push_async_callback(chosen.close)
        yield _build(settings, db, chosen, owner)


async def make_ready(db: Db, settings: Settings) -> None:
    """Bring an embedded database up to date; refuse any other that is not."""
    if settings.embedded:
        await migrate(db)
    elif steps := await pending(db):
        raise DatabaseNotMigrated(reason=f"steps to take: {', '.join(steps)}")


def _build(settings: Settings, db: Db, chosen: Engines, owner: str) -> Runtime:
    rooms = _rooms(settings, db, chosen)
    carriers = _carriers(settings, chosen, rooms)
    relay = Relay(db, ROUTES, carriers=carriers, owner=owner, most_attempts=settings.outbox_attempts)
    return Runtime(
        settings=settings,
        owner=owner,
        clock=db.clock,
        db=db,
        redis=chosen.redis,
        blobs=chosen.blobs,
        queue=chosen.queue,
        runs=chosen.runs,
        limits=chosen.limits,
        relay=relay,
        timekeeper=Scheduler(db, _duties(settings, db, chosen, relay, rooms), owner=owner),
        bell=chosen.bell,
        hub=_hub(settings, db),
        access=Access(db, tokens=engines.build_tokens(settings, db.clock)),
        logins=_logins(settings, db),
        sandbox=chosen.sandbox,
        models=chosen.models,
        tracing=chosen.tracing,
        rooms=rooms,
    )


def _rooms(settings: Settings, db: Db, chosen: Engines) -> Modules:
    notify = NotifyDeps(
        db=db,
        queue=chosen.queue,
        poster=chosen.poster,
        channels=PUBLIC,
        most_attempts=settings.webhook_attempts,
        user_agent=f"penstock/{version('penstock')}",
    )
    return Modules(notify=notify, tasks=_tasks(settings, db, chosen), etl=build_etl(settings, db, chosen))


def _tasks(settings: Settings, db: Db, chosen: Engines) -> TasksDeps:
    rules = TaskRules(
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
    gate = PullGate(
        chosen.limits,
        db.clock,
        rates=_rates(settings.pull_rate_limit),
        min_interval=settings.pull_min_interval,
        quota=settings.pull_quota,
    )
    return TasksDeps(db=db, queue=chosen.queue, rules=rules, gate=gate, meters=Meters(), trips=Coalescer())


def _rates(text: str) -> list[Rate]:
    try:
        return read_rates(text)
    except BadRate as error:
        reason = "it must be like 60/minute, 1000/hour, or both with a comma between them"
        raise BadSetting(env="PULL_RATE_LIMIT", value=text, reason=reason) from error


def _alert_rules(settings: Settings) -> AlertRules:
    return AlertRules(
        success_rate=settings.pull_alert_success_rate,
        overdue=settings.pull_alert_overdue,
        requests=settings.pull_alert_requests,
        operations=settings.pull_alert_operations,
    )


def _carriers(settings: Settings, chosen: Engines, rooms: Modules) -> list[Carrier]:
    carriers: list[Carrier] = [FanOut(rooms.notify), *rooms.carriers()]
    if chosen.redis is not None:
        carriers.append(StreamCarrier(chosen.redis, PUBLIC, length=settings.stream_length))
    if chosen.tickets is not None:
        carriers.append(chosen.tickets)
    return carriers


def _duties(settings: Settings, db: Db, chosen: Engines, relay: Relay, rooms: Modules) -> list[PeriodicTask]:
    history, dead_letters = timedelta(days=settings.history_days), timedelta(days=settings.dead_letter_days)
    upkeep = Maintenance(db, jobs=chosen.queue, relay=relay, history=history, dead_letters=dead_letters)
    audit, lock = timedelta(days=settings.audit_days), timedelta(seconds=settings.login_lock_seconds)

    async def forget_events() -> int:
        async with db.tx(actor=ACTOR) as tx:
            return await delete_events(tx, before=tx.now - timedelta(days=settings.event_days))

    async def sweep_blobs() -> None:
        await chosen.blobs.sweep(older_than=db.clock.now() - DRAFT_AGE)

    periodic_tasks = [
        *upkeep.periodic_tasks(chosen.runs, chosen.limit_engine),
        *access_upkeep.periodic_tasks(db, audit_age=audit, lock=lock),
        *rooms.periodic_tasks(history=history),
        alerts.duty(db, _alert_rules(settings)),
        PeriodicTask(name="forget-events", every_seconds=TIDY_SECONDS, run=partial(until_none, forget_events)),
        PeriodicTask(name="sweep-blobs", every_seconds=SWEEP_SECONDS, run=sweep_blobs),
    ]
    if chosen.tickets is not None:
        periodic_tasks.append(Reconciler(db, chosen.queue, chosen.tickets).duty())
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
