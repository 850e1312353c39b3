"""A minute of churn while a held snapshot keeps vacuum from cleaning up: the last claims beside the first."""

import asyncio
import time
from dataclasses import replace

import asyncpg

from bench import databases
from bench.rounds import Finding, p95
from penstock.kernel.db import Db
from penstock.kernel.queue import NewJob, Queue
from tests.conftest import open_db
from tests.servers.postgres import PostgresServer

SECONDS = 60
EDGE_SECONDS = 5  # what counts as the start and as the end
BACKLOG = 10_000
BATCH = 100


def run() -> list[Finding]:
    """Enqueue, claim and settle as fast as it goes, for a minute."""
    with databases.postgres() as server:
        return asyncio.run(_run(server))


async def _run(server: PostgresServer) -> list[Finding]:
    await databases.new_database(server, "churn")
    await databases.refill(server.dsn("churn"), BACKLOG)
    holder = await asyncpg.connect(server.dsn("churn"))
    await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await holder.fetch("SELECT count(*) FROM job")  # the snapshot is taken here and kept
    db = open_db(server.url("churn"))
    claims, rescues = await _churn(db)
    dead = await _dead_rows(server.dsn("churn"))
    await holder.close()
    await db.close()
    claim = _finding("p95 of a claim of 100 after a minute of churn with vacuum blocked", claims)
    rescue = _finding("p95 of a look for lapsed leases, the same minute", rescues)
    return [replace(claim, notes={"dead rows": dead, "claims": len(claims)}), rescue]


async def _churn(db: Db) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    queue = Queue()
    claims, rescues = [], []
    began = looked = time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        async with db.tx() as tx:
            await queue.enqueue(tx, *(NewJob(kind="bench") for _ in range(BATCH)))
        start = time.perf_counter()
        rows = await queue.leases.claim_alone(db, owner="bench", seconds=600, limit=BATCH)
        claims.append((start - began, time.perf_counter() - start))
        async with db.once() as tx:
            ids = [row.id for row in rows]
            await queue.leases.settle(tx, ids, rows[0].lease_token, state="done", finished_at=tx.now)
        if time.perf_counter() - looked > 0.25:
            looked = start = time.perf_counter()
            async with db.tx() as tx:
                await queue.rescue(tx)
            rescues.append((start - began, time.perf_counter() - start))
    return claims, rescues


def _finding(what: str, measured: list[tuple[float, float]]) -> Finding:
    first = p95([took for at, took in measured if at < EDGE_SECONDS])
    last = p95([took for at, took in measured if at > SECONDS - EDGE_SECONDS])
    ratio = last / first
    return Finding(what=what, unit="ms", ours=last, reference=first, ratio=ratio, spread=(ratio, ratio), at_most=2.0)


async def _dead_rows(dsn: str) -> float:
    connection = await asyncpg.connect(dsn)
    await connection.execute("SELECT pg_stat_force_next_flush()")
    dead: int = await connection.fetchval("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'job'")
    await connection.close()
    return float(dead)
