"""Growth: p95 of a claim of 10 at a million waiting rows, on both databases.

The reference is the same claim at 10,000 rows.
"""

import asyncio
import time
from pathlib import Path

from bench import databases
from bench.comparison import Finding, compare, p95
from penstock.kernel.db import Db
from penstock.kernel.queue import JobQueue
from tests.conftest import open_db
from tests.servers.postgres import PostgresServer

FEW, MANY = 10_000, 1_000_000
CLAIMS = 300
BATCH = 10


def run() -> list[Finding]:
    """Measure the small table and the large one in turn."""
    with databases.postgres() as server, databases.folder() as folder:
        return asyncio.run(_run(server, folder))


async def _run(server: PostgresServer, folder: Path) -> list[Finding]:
    return [await _compare("PostgreSQL", *await _postgres(server)), await _compare("SQLite", *await _sqlite(folder))]


async def _postgres(server: PostgresServer) -> tuple[Db, Db]:
    opened = []
    for name, rows in (("few", FEW), ("many", MANY)):
        await databases.new_database(server, name)
        await databases.refill(server.dsn(name), rows)
        opened.append(open_db(server.url(name)))
    return opened[0], opened[1]


async def _sqlite(folder: Path) -> tuple[Db, Db]:
    opened = []
    for name, rows in (("few", FEW), ("many", MANY)):
        url = f"sqlite:///{folder / name}.db"
        await databases.migrated(url)
        opened.append(open_db(url))
        await databases.fill_sqlite(opened[-1], rows)
    return opened[0], opened[1]


async def _compare(database: str, few: Db, many: Db) -> Finding:
    small, large = JobQueue(), JobQueue()
    finding = await compare(
        f"p95 of a claim of {BATCH} at {MANY:,} rows beside {FEW:,}, {database}",
        "ms",
        ours=lambda: _p95(many, large),
        reference=lambda: _p95(few, small),
        at_most=1.5,
    )
    await few.close()
    await many.close()
    return finding


async def _p95(db: Db, queue: JobQueue) -> float:
    took = []
    for _ in range(CLAIMS):
        began = time.perf_counter()
        rows = await queue.leases.claim_autocommit(db, owner="bench", seconds=600, limit=BATCH)
        took.append(time.perf_counter() - began)
        assert len(rows) == BATCH
    return p95(took)
