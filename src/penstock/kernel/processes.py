"""The processes of the cluster: each writes a heartbeat every ten seconds, with the modules it takes jobs of.

It informs operators and health checks, which warn when jobs wait in a module without workers. Nothing depends on it:
leases alone decide who holds a job.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import CheckConstraint, Column, Index, String, Table, delete, func, insert, select, update

from penstock.kernel.columns import Id, Json, UtcTime
from penstock.kernel.db import Db, Tx, metadata
from penstock.kernel.errors import Unavailable

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 10
ALIVE = timedelta(seconds=3 * HEARTBEAT_SECONDS)  # two heartbeats may be missed
DELETE_AFTER = timedelta(days=1)
MAX_PROCESSES = 200
DEREGISTER_SECONDS = 2  # a stop does not wait for a database that is down


class ProcessKind(StrEnum):
    """The role of a process."""

    SERVE = "serve"
    WORK = "work"


process = Table(
    "process",
    metadata,
    Column("id", Id, primary_key=True),  # the owner, as leases name it
    Column("kind", String, nullable=False),
    Column("rooms", Json, nullable=False),  # the modules whose jobs it runs
    Column("version", String, nullable=False),
    Column("started_at", UtcTime, nullable=False),
    Column("seen_at", UtcTime, nullable=False),
    CheckConstraint("kind IN ('serve', 'work')", name="kind"),
    Index("ix_process_seen_at", "seen_at"),
)


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process as of its last heartbeat."""

    id: str
    kind: ProcessKind
    modules: tuple[str, ...]
    version: str
    started_at: datetime
    seen_at: datetime
    alive: bool


class Heartbeat:
    """Writes the heartbeats of one process, from its start to its end."""

    def __init__(self, db: Db, *, owner: str, kind: ProcessKind, modules: Sequence[str], version: str) -> None:
        self._db = db
        self._owner = owner
        self._columns = {"kind": kind.value, "rooms": list(modules), "version": version}

    async def run(self) -> None:
        """Write heartbeats until cancelled, then deregister."""
        try:
            while True:
                try:
                    await self.beat()
                except Unavailable as error:
                    log.warning("heartbeat failed: %s", error)
                await self._db.clock.sleep(HEARTBEAT_SECONDS)
        finally:
            await self._deregister()

    async def beat(self) -> None:
        """Write one heartbeat, and delete processes that have been silent for long."""
        async with self._db.tx(actor=self._owner) as tx:
            seen = update(process).where(process.c.id == self._owner).values(seen_at=tx.now, **self._columns)
            if (await tx.conn.execute(seen)).rowcount == 0:
                new = insert(process).values(id=self._owner, started_at=tx.now, seen_at=tx.now, **self._columns)
                await tx.conn.execute(new)
            await tx.conn.execute(delete(process).where(process.c.seen_at < tx.now - DELETE_AFTER))

    async def _deregister(self) -> None:
        try:
            async with asyncio.timeout(DEREGISTER_SECONDS), self._db.tx(actor=self._owner) as tx:
                await delete_process(tx, self._owner)
        except (Unavailable, TimeoutError) as error:
            log.warning("could not deregister this process; it is listed until it is deleted as stale: %s", error)


async def list_processes(tx: Tx, *, limit: int = MAX_PROCESSES) -> list[Process]:
    """All listed processes, latest heartbeat first."""
    latest = select(process).order_by(process.c.seen_at.desc(), process.c.id).limit(limit)
    return [
        Process(
            id=row.id,
            kind=ProcessKind(row.kind),
            modules=tuple(row.rooms),
            version=row.version,
            started_at=row.started_at,
            seen_at=row.seen_at,
            alive=row.seen_at > tx.now - ALIVE,
        )
        for row in await tx.conn.execute(latest)
    ]


async def count_alive(tx: Tx) -> dict[str, int]:
    """How many processes of each kind are alive."""
    alive = select(process.c.kind, func.count()).where(process.c.seen_at > tx.now - ALIVE).group_by(process.c.kind)
    return dict.fromkeys(map(str, ProcessKind), 0) | {row[0]: row[1] for row in await tx.conn.execute(alive)}


async def delete_process(tx: Tx, process_id: str) -> None:
    """Remove a process from the list."""
    await tx.conn.execute(delete(process).where(process.c.id == process_id))
