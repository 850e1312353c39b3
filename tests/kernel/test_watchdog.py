"""A request does not wait for a PostgreSQL server that has stopped answering; one that waits for a lock does."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager

import pytest
from sqlalchemy import text

from penstock.kernel.database_errors import DatabaseTimedOut
from penstock.kernel.db import Db, Tx
from penstock.kernel.dialect import watchdog
from penstock.kernel.dialect.watchdog import Watchdog, in_request
from tests.conftest import open_db
from tests.servers.postgres import PostgresServer

Session = Callable[[], AbstractAsyncContextManager[Tx]]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of our own, which may be paused."""
    with PostgresServer.start() as started:
        yield started


@pytest.fixture
def frozen(server: PostgresServer) -> Iterator[Callable[[], None]]:
    """Freezes the server until the end of the test."""
    yield server.pause
    server.resume()


@pytest.fixture
async def db(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Db]:
    monkeypatch.setattr(watchdog, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(watchdog, "PING_SECONDS", 0.5)
    db = open_db(server.url("postgres"), connections=3)
    yield db
    await db.close()


async def ask(session: Session) -> object:
    async with session() as tx:
        return await tx.conn.scalar(text("SELECT 1"))


async def ask_as_a_request(session: Session) -> object:
    in_request.set(True)  # in the context of this task
    return await ask(session)


@pytest.mark.timeout(60)
async def test_requests_to_a_frozen_server_are_ended_and_the_server_is_used_again_afterwards(
    db: Db, server: PostgresServer, frozen: Callable[[], None]
):
    sessions = (db.tx, db.read, db.autocommit) * 3  # more than there are connections
    await asyncio.gather(*(ask(session) for session in sessions))
    frozen()
    answers = await asyncio.wait_for(
        asyncio.gather(*map(asyncio.create_task, map(ask_as_a_request, sessions)), return_exceptions=True), 30
    )
    assert {type(answer) for answer in answers} == {DatabaseTimedOut}, answers
    server.resume()
    assert await asyncio.gather(*(ask(session) for session in sessions)) == [1] * 9


@pytest.mark.timeout(60)
async def test_a_freeze_in_the_middle_of_a_transaction_ends_it(db: Db, frozen: Callable[[], None]):
    async def write() -> None:
        in_request.set(True)
        async with db.tx() as tx:
            await tx.conn.execute(text("SELECT 1"))
            frozen()
            await tx.conn.execute(text("SELECT 2"))

    with pytest.raises(DatabaseTimedOut) as raised:
        await asyncio.wait_for(asyncio.create_task(write()), 30)
    assert (raised.value.status, raised.value.internal_outage) == (503, True)
    assert "same Idempotency-Key" in raised.value.hint


@pytest.mark.timeout(60)
async def test_a_request_that_waits_for_a_lock_is_not_ended(db: Db):
    pinged, lock = asyncio.Event(), text("SELECT pg_advisory_xact_lock(7)")

    async def ping() -> None:
        await ask(db.read)
        pinged.set()

    dog = Watchdog(ping)

    async def wait_for_lock() -> str:
        async with dog.watched(), db.tx() as tx:
            await tx.conn.execute(lock)
        return "done"

    async with db.tx() as holder:
        await holder.conn.execute(lock)
        waiting = asyncio.create_task(wait_for_lock())
        await pinged.wait()
        assert not waiting.done()
    assert await waiting == "done"
    await dog.close()


@pytest.mark.timeout(60)
async def test_a_worker_waits_on(db: Db, server: PostgresServer, frozen: Callable[[], None]):
    await ask(db.tx)
    frozen()
    working = asyncio.create_task(ask(db.tx))
    with pytest.raises(DatabaseTimedOut):
        await asyncio.create_task(ask_as_a_request(db.tx))
    assert not working.done()
    server.resume()
    assert await working == 1
