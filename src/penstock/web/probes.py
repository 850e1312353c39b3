"""Health probes: one short check per dependency, harmless however often it runs. One that is not needed only warns."""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path

from sqlalchemy import select

from penstock.kernel.backlog import list_module_backlogs
from penstock.kernel.blobs import Blobs, LocalFiles
from penstock.kernel.db import Db
from penstock.kernel.errors import folder_full_from
from penstock.kernel.metrics import BreakerStatus
from penstock.kernel.migrations import pending
from penstock.kernel.processes import list_processes
from penstock.kernel.scheduler import list_periodic_tasks
from penstock.web.health import Probe, ProbeResult

MIN_FREE_BYTES = 100 * 1000 * 1000
MIN_FREE_SHARE = 0.01
MAX_UNSERVED = timedelta(seconds=10)  # jobs may wait this long without a worker: one starts within that
MAX_NAMED = 10
CHECK_BYTES = 256 * 1024  # a folder with less space than this is full for most documents


def database(db: Db) -> Probe:
    """The database answers."""

    async def check() -> ProbeResult:
        async with db.read() as tx:
            await tx.conn.execute(select(1))
        return ProbeResult()

    return Probe(name="database", check=check, for_readiness=True)


def migrations(db: Db, folders: Sequence[Path] = ()) -> Probe:
    """The schema of the database is the one that this program knows."""

    async def check() -> ProbeResult:
        steps = await pending(db, folders)
        return ProbeResult(ok=not steps, detail=f"pending migrations: {', '.join(steps)}" if steps else "")

    return Probe(name="migrations", check=check, for_readiness=True)


def redis(ping: Callable[[], Awaitable[object]]) -> Probe:
    """Redis answers."""

    async def check() -> ProbeResult:
        await ping()
        return ProbeResult()

    return Probe(name="redis", check=check)


def blobs(store: Blobs) -> Probe:
    """The object store answers, accepts our credentials, and has space. A folder on this machine is needed to serve;
    without a remote store, all processes would be taken out of service at once, and none could answer reads."""

    async def check() -> ProbeResult:
        await store.check()
        return ProbeResult()

    return Probe(name="blobs", check=check, for_readiness=isinstance(store, LocalFiles))


def data_folder(folder: Path) -> Probe:
    """The data folder, with temporary files and an embedded database, accepts writes."""

    async def check() -> ProbeResult:
        await asyncio.to_thread(_check_writable, folder)
        return ProbeResult()

    return Probe(name="data_folder", check=check, for_readiness=True)


def disk(folder: Path) -> Probe:
    """The disk of the data folder has space."""

    async def check() -> ProbeResult:
        total, _, free = await asyncio.to_thread(_usage, folder)
        return ProbeResult(ok=has_space(free=free, total=total), detail=f"{free / 1e9:.1f} GB free")

    return Probe(name="disk", check=check)


def has_space(*, free: int, total: int) -> bool:
    """Whether a disk has enough free bytes that writes will not fail soon."""
    return free >= max(MIN_FREE_BYTES, MIN_FREE_SHARE * total)


def workers(db: Db) -> Probe:
    """A worker process is alive. Without one, requests are served and jobs wait, so it is not required."""

    async def check() -> ProbeResult:
        async with db.read() as tx:
            alive = [process for process in await list_processes(tx) if process.alive and process.modules]
        return ProbeResult(ok=bool(alive), detail=f"{len(alive)} alive" if alive else "no worker is running")

    return Probe(name="workers", check=check, needed=False)


def modules(db: Db) -> Probe:
    """No jobs wait in a module that no worker serves."""

    async def check() -> ProbeResult:
        async with db.read() as tx:
            served = {module for process in await list_processes(tx) if process.alive for module in process.modules}
            waiting = [found for found in await list_module_backlogs(tx) if found.since < tx.now - MAX_UNSERVED]
        unserved = [found.module or "the default module" for found in waiting if found.module not in served]
        named = ", ".join(unserved[:MAX_NAMED])
        return ProbeResult(ok=not unserved, detail=f"jobs wait and no worker serves: {named}" if unserved else "")

    return Probe(name="rooms", check=check, needed=False)


def periodic_tasks(db: Db, known: frozenset[str]) -> Probe:
    """No periodic task failed in its last run. A failed one is retried, so it is not required."""

    async def check() -> ProbeResult:
        failing = [task.name for task in await list_periodic_tasks(db) if task.error and task.name in known]
        return ProbeResult(ok=not failing, detail=f"failed last time: {', '.join(failing)}" if failing else "")

    return Probe(name="duties", check=check, needed=False)


def breakers(known: Sequence[BreakerStatus]) -> Probe:
    """No circuit breaker is open."""

    async def check() -> ProbeResult:
        opened = [f"{breaker.name} ({breaker.reason})" for breaker in known if breaker.open]
        return ProbeResult(ok=not opened, detail=f"open: {', '.join(opened)}" if opened else "")

    return Probe(name="breakers", check=check, needed=False)


def console() -> Probe:
    """The console's build; there is none yet, which is no failure."""

    async def check() -> ProbeResult:
        return ProbeResult(detail="this build has no console")

    return Probe(name="console", check=check, needed=False)


def _check_writable(folder: Path) -> None:
    """Write a temporary file and drop it; a folder that does not exist yet is created by what needs it."""
    if not folder.exists():
        return
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(CHECK_BYTES))
    except OSError as error:
        raise folder_full_from(error) or error from error


def _usage(folder: Path) -> shutil._ntuple_diskusage:
    """The usage of the disk that a folder is on, or will be on once it is created."""
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    return shutil.disk_usage(existing)
