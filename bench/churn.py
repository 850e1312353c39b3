"""A minute of churn while an open snapshot blocks vacuum: p95 of the last claims, settles and scans for expired leases.

The reference is the first five seconds of the same minute, so the ratio shows how much slower they get.
"""

import asyncio
import time
from dataclasses import replace

import asyncpg

from bench import databases
from bench.comparison import ROUNDS, Finding, p95, summary
from penstock.kernel.db import Db
from penstock.kernel.queue import JobQueue, NewJob
from tests.conftest import open_db
from tests.servers.postgres import PostgresServer

SECONDS = 60
EDGE_SECONDS = 5  # length of the first and of the last part
BACKLOG = 10_000
BATCH = 100
RESCUE_SECONDS = 0.25
LEASE_SECONDS = 5  # short, so that dead rows are where the rescuer looks for expired leases


def run() -> list[Finding]:
    """Enqueue, claim and settle as fast as it goes, for a minute."""
    with databases.postgres() as server:
        return asyncio.run(_run(server))


async def _run(server: PostgresServer) -> list[Finding]:
    rounds = [await _round(server, f"churn{number}") for number in range(ROUNDS)]
    claim = _finding("p95 of a claim of 100 after a minute of churn with vacuum blocked", [r.claims for r in rounds])
    notes = {"dead rows": rounds[0].dead_rows, "claims a minute": len(rounds[0].claims)}
    return [
        replace(claim, notes=notes),
        _finding("p95 of the settle, the same minute", [r.settles for r in rounds]),
        _finding("p95 of a scan for expired leases, the same minute", [r.rescues for r in rounds]),
    ]


async def _round(server: PostgresServer, database: str) -> "Churn":
    await databases.new_database(server, database)
    await databases.refill(server.dsn(database), BACKLOG)
    holder = await asyncpg.connect(server.dsn(database))
    await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await holder.fetch("SELECT count(*) FROM job")  # opens the snapshot
    db, churn = open_db(server.url(database)), Churn()
    await churn.run(db)
    churn.dead_rows = await _dead_rows(server.dsn(database))
    await holder.close()
    await db.close()
    server.drop_database(database)
    return churn


class Churn:
    """One minute of work: start and duration of each claim."""

    def __init__(self) -> None:
        self.claims: list[tuple[float, float]] = []
        self.settles: list[tuple[float, float]] = []
        self.rescues: list[tuple[float, float]] = []
        self.dead_rows = 0.0
        self._queue = JobQueue()
        self._began = time.perf_counter()

    async def run(self, db: Db) -> None:
        """Enqueue, claim and settle until the minute is over, and rescue expired leases now and then."""
        looked = 0.0
        while (at := self._now()) < SECONDS:
            await self._turn(db)
            if at - looked > RESCUE_SECONDS:
                looked = self._now()
                async with db.tx() as tx:
                    await self._queue.rescue(tx)
                self.rescues.append((looked, self._now() - looked))

    async def _turn(self, db: Db) -> None:
        async with db.tx() as tx:
            await self._queue.enqueue(tx, *(NewJob(kind="bench") for _ in range(BATCH)))
        began = self._now()
        rows = await self._queue.leases.claim_autocommit(db, owner="bench", seconds=LEASE_SECONDS, limit=BATCH)
        claimed = self._now()
        async with db.autocommit() as tx:
            ids, token = [row.id for row in rows], rows[0].lease_token
            await self._queue.leases.settle(tx, ids, token, state="done", finished_at=tx.now)
        self.claims.append((began, claimed - began))
        self.settles.append((claimed, self._now() - claimed))

    def _now(self) -> float:
        return time.perf_counter() - self._began


def _finding(what: str, rounds: list[list[tuple[float, float]]]) -> Finding:
    first = [p95([took for at, took in measured if at < EDGE_SECONDS]) for measured in rounds]
    last = [p95([took for at, took in measured if at > SECONDS - EDGE_SECONDS]) for measured in rounds]
    return summary(what, "ms", list(zip(first, last, strict=True)), at_most=2.0)


async def _dead_rows(dsn: str) -> float:
    connection = await asyncpg.connect(dsn)
    await connection.execute("SELECT pg_stat_force_next_flush()")
    dead: int = await connection.fetchval("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'job'")
    await connection.close()
    return float(dead)
