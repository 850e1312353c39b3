"""The processes of the house: each says every ten seconds that it lives, and what it works on.

Nothing is decided by this: who holds a job is said by its lease. It is for people, who want to see their workers, and
for health, which warns when work waits in a room that nobody works in.
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

BEAT_SECONDS = 10
ALIVE = timedelta(seconds=3 * BEAT_SECONDS)  # three beats may be missed
FORGET = timedelta(days=1)
MOST_LISTED = 200
GOODBYE_SECONDS = 2  # a stop does not wait for a database that is away


class ProcessKind(StrEnum):
    """What a process is for."""

    SERVE = "serve"
    WORK = "work"


process = Table(
    "process",
    metadata,
    Column("id", Id, primary_key=True),  # the owner, as leases name it
    Column("kind", String, nullable=False),
    Column("rooms", Json, nullable=False),  # where it takes up jobs
    Column("version", String, nullable=False),
    Column("started_at", UtcTime, nullable=False),
    Column("seen_at", UtcTime, nullable=False),
    CheckConstraint("kind IN ('serve', 'work')", name="kind"),
    Index("ix_process_seen_at", "seen_at"),
)


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process as it last told of itself."""

    id: str
    kind: ProcessKind
    rooms: tuple[str, ...]
    version: str
    started_at: datetime
    seen_at: datetime
    alive: bool


class Heartbeat:
    """Tells of one process, from its start to its end."""

    def __init__(self, db: Db, *, owner: str, kind: ProcessKind, rooms: Sequence[str], version: str) -> None:
        self._db = db
        self._owner = owner
        self._told = {"kind": kind.value, "rooms": list(rooms), "version": version}

    async def run(self) -> None:
        """Tell until cancelled; then say goodbye."""
        try:
            while True:
                try:
                    await self.beat()
                except Unavailable as error:
                    log.warning("nobody hears that this process lives: %s", error)
                await self._db.clock.sleep(BEAT_SECONDS)
        finally:
            await self._say_goodbye()

    async def beat(self) -> None:
        """Tell once, and forget those that have been silent for long."""
        async with self._db.tx(actor=self._owner) as tx:
            seen = update(process).where(process.c.id == self._owner).values(seen_at=tx.now, **self._told)
            if (await tx.conn.execute(seen)).rowcount == 0:
                new = insert(process).values(id=self._owner, started_at=tx.now, seen_at=tx.now, **self._told)
                await tx.conn.execute(new)
            await tx.conn.execute(delete(process).where(process.c.seen_at < tx.now - FORGET))

    async def _say_goodbye(self) -> None:
        try:
            async with asyncio.timeout(GOODBYE_SECONDS), self._db.tx(actor=self._owner) as tx:
                await delete_process(tx, self._owner)
        except (Unavailable, TimeoutError) as error:
            log.warning("this process stays on the list until it is forgotten: %s", error)


async def list_processes(tx: Tx, *, limit: int = MOST_LISTED) -> list[Process]:
    """The processes that told of themselves, the last heard of first."""
    latest = select(process).order_by(process.c.seen_at.desc(), process.c.id).limit(limit)
    return [
        Process(
            id=row.id,
            kind=ProcessKind(row.kind),
            rooms=tuple(row.rooms),
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
    """Take a process off the list."""
    await tx.conn.execute(delete(process).where(process.c.id == process_id))
