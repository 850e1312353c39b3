"""A transaction that is cancelled at the worst moment leaves no trap for the next one on its connection."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress

import pytest
from sqlalchemy import text

from penstock.kernel.db import Db
from penstock.kernel.migrations import migrate
from penstock.kernel.queue import JobQueue, NewJob, get_job
from tests.conftest import open_db
from tests.servers.postgres import PostgresServer


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer.start() as started:
        yield started


@pytest.fixture
async def db(server: PostgresServer) -> AsyncIterator[Db]:
    """A database with one connection, so that the next transaction gets the one that was cancelled."""
    server.drop_database("cancelled")
    server.create_database("cancelled")
    db = open_db(server.url("cancelled"), connections=1)
    await migrate(db)
    yield db
    await db.close()


async def in_begin(db: Db, server: PostgresServer) -> None:
    server.pause()
    async with db.tx():
        pass


async def in_commit(db: Db, server: PostgresServer) -> None:
    async with db.tx() as tx:
        await tx.conn.execute(text("SELECT 1"))
        server.pause()


async def in_a_statement(db: Db, server: PostgresServer) -> None:
    async with db.tx() as tx:
        server.pause()
        await JobQueue().enqueue(tx, NewJob(kind="k", id="lost"))


async def in_rollback(db: Db, server: PostgresServer) -> None:
    async with db.tx() as tx:
        await tx.conn.execute(text("SELECT 1"))
        server.pause()
        raise ValueError("roll it back")


@pytest.mark.parametrize("moment", [in_begin, in_commit, in_a_statement, in_rollback])
async def test_the_next_transaction_commits_although_the_last_one_was_cancelled(
    db: Db, server: PostgresServer, moment: Callable[[Db, PostgresServer], Awaitable[None]]
):
    victim = asyncio.ensure_future(moment(db, server))
    try:
        await asyncio.wait([victim], timeout=0.3)  # it hangs in the database by now
        victim.cancel()
        await asyncio.wait([victim], timeout=10)
    finally:
        server.resume()
    assert victim.cancelled()
    async with db.tx() as tx:
        await JobQueue().enqueue(tx, NewJob(kind="k", id="kept"))
    other = open_db(server.url("cancelled"))
    async with other.read() as tx:
        assert (await get_job(tx, "kept")).id == "kept"
    await other.close()


@pytest.mark.timeout(60)
async def test_a_sqlite_write_that_is_cancelled_anywhere_keeps_no_lock(sqlite_url: str):
    db, queue = open_db(sqlite_url), JobQueue()
    for number in range(15):
        with suppress(TimeoutError):
            async with asyncio.timeout(0.005 + number * 0.004), db.tx() as tx:
                await queue.enqueue(tx, *(NewJob(kind="k") for _ in range(2000)))
        async with asyncio.timeout(5), db.tx() as tx:  # a lock that stays would hold this up for ten seconds
            await queue.enqueue(tx, NewJob(kind="k"))
    await db.close()
