"""How health looks at each part of the house: one short question per part, harmless however often it is asked."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path

from sqlalchemy import select

from penstock.kernel.backlog import list_rooms_waiting
from penstock.kernel.blobs import Blobs
from penstock.kernel.db import Db
from penstock.kernel.metrics import KnownBreaker
from penstock.kernel.migrations import pending
from penstock.kernel.processes import list_processes
from penstock.kernel.scheduler import list_periodic_tasks
from penstock.web.health import Finding, Probe

LEAST_FREE_BYTES = 100 * 1000 * 1000
LEAST_FREE_SHARE = 0.01
UNHEARD = timedelta(seconds=10)  # work may wait so long before anyone is blamed: a worker starts within that
MOST_NAMED = 10


def database(db: Db) -> Probe:
    """The database answers."""

    async def look() -> Finding:
        async with db.read() as tx:
            await tx.conn.execute(select(1))
        return Finding()

    return Probe(name="database", look=look)


def migrations(db: Db) -> Probe:
    """The database is in the form that this program knows."""

    async def look() -> Finding:
        steps = await pending(db)
        return Finding(ok=not steps, detail=f"steps to take: {', '.join(steps)}" if steps else "")

    return Probe(name="migrations", look=look)


def redis(ping: Callable[[], Awaitable[object]]) -> Probe:
    """Redis answers."""

    async def look() -> Finding:
        await ping()
        return Finding()

    return Probe(name="redis", look=look)


def blobs(store: Blobs) -> Probe:
    """The object store answers, lets us in, and has room."""

    async def look() -> Finding:
        await store.check()
        return Finding()

    return Probe(name="blobs", look=look)


def disk(folder: Path) -> Probe:
    """There is room where local files are kept."""

    async def look() -> Finding:
        total, _, free = await asyncio.to_thread(_usage, folder)
        return Finding(ok=is_room(free=free, total=total), detail=f"{free / 1e9:.1f} GB free")

    return Probe(name="disk", look=look)


def is_room(*, free: int, total: int) -> bool:
    """Whether a disk has so many bytes left that nothing will fail for want of them soon."""
    return free >= max(LEAST_FREE_BYTES, LEAST_FREE_SHARE * total)


def workers(db: Db) -> Probe:
    """Someone takes up jobs. Without, requests are served and work waits, so the house is not unwell for it."""

    async def look() -> Finding:
        async with db.read() as tx:
            alive = [known for known in await list_processes(tx) if known.alive and known.rooms]
        return Finding(ok=bool(alive), detail=f"{len(alive)} alive" if alive else "nobody takes up jobs")

    return Probe(name="workers", look=look, needed=False)


def rooms(db: Db) -> Probe:
    """No work waits in a room that nobody works in."""

    async def look() -> Finding:
        async with db.read() as tx:
            worked = {room for known in await list_processes(tx) if known.alive for room in known.rooms}
            waiting = [found for found in await list_rooms_waiting(tx) if found.since < tx.now - UNHEARD]
        left = [found.room or "the default room" for found in waiting if found.room not in worked]
        named = ", ".join(left[:MOST_NAMED])
        return Finding(ok=not left, detail=f"work waits and nobody works in: {named}" if left else "")

    return Probe(name="rooms", look=look, needed=False)


def periodic_tasks(db: Db, known: frozenset[str]) -> Probe:
    """Periodic periodic_tasks do not fail. One that failed is tried again, so the house is not unwell for it."""

    async def look() -> Finding:
        failing = [duty.name for duty in await list_periodic_tasks(db) if duty.error and duty.name in known]
        return Finding(ok=not failing, detail=f"failed last time: {', '.join(failing)}" if failing else "")

    return Probe(name="duties", look=look, needed=False)


def breakers(known: Sequence[KnownBreaker]) -> Probe:
    """Nothing is left alone because it failed."""

    async def look() -> Finding:
        opened = [f"{breaker.name} ({breaker.reason})" for breaker in known if breaker.open]
        return Finding(ok=not opened, detail=f"left alone: {', '.join(opened)}" if opened else "")

    return Probe(name="breakers", look=look, needed=False)


def console() -> Probe:
    """The console's build; there is none yet, and nothing is amiss for that."""

    async def look() -> Finding:
        return Finding(detail="this build has no console")

    return Probe(name="console", look=look, needed=False)


def _usage(folder: Path) -> shutil._ntuple_diskusage:
    """Of the disk that a folder is on, or will be on once it is made."""
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    return shutil.disk_usage(there)
