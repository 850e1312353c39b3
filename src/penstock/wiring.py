"""The only place that builds things: settings in, a `House` out.

`ROUTES` says which handler hears which message, `all_handlers` which function does which kind of job. Rooms add a line
to each. A `House` is everything one process needs; `serve` and `work` differ only in what they run of it.
"""

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from penstock.adapters.disk import DiskBlobs
from penstock.kernel import outbox
from penstock.kernel.blobs import Blobs
from penstock.kernel.clock import Clock, SystemClock
from penstock.kernel.db import Db
from penstock.kernel.faults import DatabaseNotMigrated
from penstock.kernel.ids import TimeIds
from penstock.kernel.limits import SqlLimits
from penstock.kernel.migrations import migrate, pending
from penstock.kernel.outbox import Relay, Routes
from penstock.kernel.queue import Queue
from penstock.kernel.runstate import SqlRunState
from penstock.kernel.timekeeper import Duty, Timekeeper
from penstock.kernel.upkeep import Upkeep
from penstock.kernel.workers import JobHandler, Workers
from penstock.settings import BadSetting, Settings

ROUTES: Routes = {}
ROOMS: Sequence[str] = ("",)
DRAFT_AGE = timedelta(days=1)  # a write that stalls for a day has been given up


@dataclass(frozen=True, kw_only=True)
class House:
    """Everything one process needs, built and not yet running."""

    settings: Settings
    owner: str  # this process, as leases and the record name it
    clock: Clock
    db: Db
    blobs: Blobs
    queue: Queue
    runs: SqlRunState
    limits: SqlLimits
    relay: Relay
    timekeeper: Timekeeper

    def workers(self, handlers: Mapping[str, JobHandler], rooms: Sequence[str] = ROOMS) -> Workers:
        """Workers for these kinds of jobs in these rooms."""
        return Workers(
            self.db,
            self.queue,
            handlers,
            owner=self.owner,
            rooms=rooms,
            slots=self.settings.workers,
            lease_seconds=self.settings.lease_seconds,
            grace_seconds=self.settings.grace_seconds,
        )

    async def keep(self) -> None:
        """What every process does beside its own work, until cancelled: deliver messages and keep time."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.relay.run())
            tasks.create_task(self.timekeeper.run())


def all_handlers(_house: House) -> Mapping[str, JobHandler]:
    """Which function does which kind of job. Each room will give its own here; there are none yet."""
    return {}


@asynccontextmanager
async def open_house(settings: Settings) -> AsyncIterator[House]:
    """Build a house and close it afterwards. An embedded database is brought up to date here; any other must be."""
    clock = SystemClock()
    db = Db.open(
        settings.database,
        clock=clock,
        ids=TimeIds(clock),
        post=outbox.post,
        pooled=settings.database_pooler,
        connections=settings.database_connections,
    )
    try:
        await _make_ready(db, settings)
        yield _build(settings, clock, db)
    finally:
        await db.close()


def open_database(settings: Settings) -> Db:
    """The database alone, for `penstock migrate`."""
    clock = SystemClock()
    pooled, connections = settings.database_pooler, settings.database_connections
    return Db.open(settings.database, clock=clock, ids=TimeIds(clock), pooled=pooled, connections=connections)


async def _make_ready(db: Db, settings: Settings) -> None:
    if settings.embedded:
        await migrate(db)
    elif steps := await pending(db):
        raise DatabaseNotMigrated(reason=f"steps to take: {', '.join(steps)}")


def _build(settings: Settings, clock: Clock, db: Db) -> House:
    owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
    jobs, runs, limits = Queue(), _runs(db, settings), SqlLimits(db)
    blobs = DiskBlobs(_blob_folder(settings))
    relay = Relay(db, ROUTES, owner=owner, most_attempts=settings.outbox_attempts)
    history, dead_letters = timedelta(days=settings.history_days), timedelta(days=settings.dead_letter_days)
    upkeep = Upkeep(db, jobs=jobs, relay=relay, history=history, dead_letters=dead_letters)
    duties = [*upkeep.duties(runs, limits), _sweep_blobs(blobs, clock)]
    return House(
        settings=settings,
        owner=owner,
        clock=clock,
        db=db,
        blobs=blobs,
        queue=jobs,
        runs=runs,
        limits=limits,
        relay=relay,
        timekeeper=Timekeeper(db, duties, owner=owner),
    )


def _runs(db: Db, settings: Settings) -> SqlRunState:
    return SqlRunState(db, live_seconds=settings.run_state_seconds, final_seconds=settings.run_state_final_seconds)


def _blob_folder(settings: Settings) -> Path:
    if not settings.blobs_url:
        return settings.data_dir / "blobs"
    url = urlsplit(settings.blobs_url)
    if url.scheme != "file" or url.netloc or not url.path:
        reason = "only file:///absolute/path is understood so far"
        raise BadSetting(env="PENSTOCK_BLOBS_URL", value=settings.blobs_url, reason=reason)
    return Path(url.path)


def _sweep_blobs(blobs: DiskBlobs, clock: Clock) -> Duty:
    async def sweep() -> None:
        await blobs.sweep(older_than=clock.now() - DRAFT_AGE)

    return Duty(name="sweep-blobs", every_seconds=3600, run=sweep)
