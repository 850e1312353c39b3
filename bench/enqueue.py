"""Bulk enqueue of 10,000 jobs a transaction. The reference is a bare INSERT from unnest sent with asyncpg."""

import asyncio
import time
from datetime import UTC, datetime

import asyncpg

from bench import databases
from bench.comparison import Finding, compare
from penstock.kernel.queue import JobQueue, NewJob
from tests.conftest import open_db
from tests.servers.postgres import PostgresServer

ROWS = 100_000
BATCH = 10_000
INSERT = """
INSERT INTO job (id, kind, payload, partition_key, priority, scheduled_at, deferred, most_attempts, timeout_seconds,
                 created_at, created_by)
SELECT * FROM unnest($1::text[], $2::text[], $3::jsonb[], $4::text[], $5::smallint[], $6::timestamptz[], $7::boolean[],
                     $8::integer[], $9::float8[], $10::timestamptz[], $11::text[])
"""


def run() -> list[Finding]:
    """Insert the same rows both ways. Ours also generates ids and validates the values."""
    with databases.postgres() as server:
        return [asyncio.run(_compare(server))]


async def _compare(server: PostgresServer) -> Finding:
    await databases.new_database(server, "enqueue")
    dsn, url = server.dsn("enqueue"), server.url("enqueue")
    return await compare(
        "bulk enqueue, 10,000 a transaction, PostgreSQL",
        "rows/s",
        ours=lambda: _ours(dsn, url),
        reference=lambda: _bare(dsn),
        at_least=0.5,
    )


async def _bare(dsn: str) -> float:
    await databases.refill(dsn, 0)
    connection = await asyncpg.connect(dsn)
    began = time.perf_counter()
    for start in range(0, ROWS, BATCH):
        now, n = datetime.now(UTC), BATCH
        ids = [f"job_{number:028}" for number in range(start, start + BATCH)]
        rest = (
            ["bench"] * n,
            ['{"n": 1}'] * n,
            [""] * n,
            [5] * n,
            [now] * n,
            [False] * n,
            [5] * n,
            [600.0] * n,
            [now] * n,
            ["bench"] * n,
        )
        await connection.execute(INSERT, ids, *rest)
    rate = ROWS / (time.perf_counter() - began)
    await connection.close()
    return rate


async def _ours(dsn: str, url: str) -> float:
    await databases.refill(dsn, 0)
    db, queue = open_db(url), JobQueue()
    began = time.perf_counter()
    for _ in range(0, ROWS, BATCH):
        async with db.tx() as tx:
            await queue.enqueue(tx, *(NewJob(kind="bench", payload={"n": 1}) for _ in range(BATCH)))
    rate = ROWS / (time.perf_counter() - began)
    await db.close()
    return rate
