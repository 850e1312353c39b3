"""Databases for benchmarks: a durable PostgreSQL and SQLite files, migrated and filled with waiting jobs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg

from penstock.kernel.db import Db
from penstock.kernel.migrations import migrate
from tests.conftest import open_db
from tests.servers.postgres import PostgresServer

# The same rows on both databases: ids like ours, payloads as small as ours.
FILL_POSTGRES = """
INSERT INTO job (id, kind, payload, scheduled_at, most_attempts, timeout_seconds, created_at, created_by)
SELECT 'job_' || lpad(n::text, 28, '0'), 'bench', '{"n": 1}', now(), 5, 600, now(), 'bench'
FROM generate_series(1, $1) n
"""
FILL_SQLITE = """
INSERT INTO job (id, kind, payload, scheduled_at, most_attempts, timeout_seconds, created_at, created_by)
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
SELECT 'job_' || printf('%028d', n), 'bench', '{"n": 1}', '2026-01-01 00:00:00.000000', 5, 600,
       '2026-01-01 00:00:00.000000', 'bench' FROM numbers
"""


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    """A durable PostgreSQL server."""
    with PostgresServer.start(fsync=True) as server:
        yield server


@contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder."""
    with TemporaryDirectory(prefix="penstock-bench-") as name:
        yield Path(name)


async def new_database(server: PostgresServer, name: str) -> None:
    """A migrated database."""
    server.create_database(name)
    await migrated(server.url(name))


async def migrated(url: str) -> None:
    """Migrate a database."""
    db = open_db(url)
    await migrate(db)
    await db.close()


async def refill(dsn: str, rows: int) -> None:
    """Truncate the job table of a PostgreSQL database, and fill it with waiting rows."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("TRUNCATE job")
    await connection.execute(FILL_POSTGRES, rows)
    await connection.execute("VACUUM ANALYZE job")
    await connection.execute("CHECKPOINT")
    await connection.close()


async def execute(dsn: str, *statements: str) -> None:
    """Execute statements on a PostgreSQL database, each by itself."""
    connection = await asyncpg.connect(dsn)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


async def fill_sqlite(db: Db, rows: int) -> None:
    """Fill the job table of a SQLite database with waiting rows."""
    async with db.tx() as tx:
        await tx.conn.exec_driver_sql(FILL_SQLITE, (rows,))
