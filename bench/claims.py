"""Claim and settle in batches of 100 rows, on PostgreSQL.

The reference is the bare statements sent with asyncpg, without timeouts, error mapping, pool or history; the ratio is
our share of their rows per second.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import asyncpg

from bench import databases
from bench.comparison import Finding, compare
from penstock.kernel.queue import JobQueue
from tests.conftest import open_db
from tests.servers.postgres import PostgresServer

ROWS = 50_000
BATCH = 100
CLAIM = """
UPDATE job SET state = 'running', lease_owner = $1, lease_token = $2, leased_until = $3, lease_count = lease_count + 1
WHERE id = ANY(ARRAY(SELECT id FROM job WHERE state = 'waiting' AND NOT deferred AND partition_key = ''
                     ORDER BY priority, scheduled_at, id LIMIT $4 FOR UPDATE SKIP LOCKED))
RETURNING *
"""
SETTLE = """
UPDATE job SET state = 'done', lease_token = NULL, leased_until = NULL, finished_at = $3
WHERE id = ANY($1) AND lease_token = $2 RETURNING id
"""


def run() -> list[Finding]:
    """Drain the same rows both ways."""
    with databases.postgres() as server:
        return [asyncio.run(_compare(server))]


async def _compare(server: PostgresServer) -> Finding:
    await databases.new_database(server, "claims")
    dsn, url = server.dsn("claims"), server.url("claims")
    return await compare(
        "claim + settle, batches of 100, PostgreSQL",
        "rows/s",
        ours=lambda: _ours(dsn, url),
        reference=lambda: _bare(dsn),
        at_least=0.8,
    )


async def _bare(dsn: str) -> float:
    await databases.refill(dsn, ROWS)
    connection = await asyncpg.connect(dsn)
    began, batch = time.perf_counter(), 0
    while True:
        now, token, batch = datetime.now(UTC), f"token-{batch}", batch + 1
        rows = await connection.fetch(CLAIM, "bench", token, now + timedelta(seconds=60), BATCH)
        if not rows:
            break
        await connection.fetch(SETTLE, [row["id"] for row in rows], token, now)
    rate = ROWS / (time.perf_counter() - began)
    await connection.close()
    return rate


async def _ours(dsn: str, url: str) -> float:
    await databases.refill(dsn, ROWS)
    db, leases = open_db(url), JobQueue().leases
    began = time.perf_counter()
    while rows := await leases.claim_autocommit(db, owner="bench", seconds=60, limit=BATCH):
        async with db.autocommit() as tx:
            ids = [row.id for row in rows]
            await leases.settle(tx, ids, rows[0].lease_token, state="done", finished_at=tx.now)
    rate = ROWS / (time.perf_counter() - began)
    await db.close()
    return rate
