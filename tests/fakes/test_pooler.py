import asyncio
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from tests.fakes.pooler import TransactionPooler
from tests.servers.postgres import PostgresServer

PID = "SELECT pg_backend_pid()"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer.start() as started:
        yield started


@pytest.fixture
async def pooler(server: PostgresServer) -> AsyncIterator[TransactionPooler]:
    server.create_database("pooled")
    async with TransactionPooler(server.socket_folder, "pooled", size=3) as pooler:
        yield pooler
    server.drop_database("pooled")


@pytest.fixture
async def client(pooler: TransactionPooler) -> AsyncIterator[asyncpg.Connection]:
    """A client that asks for no named prepared statements, as one behind a pooler must."""
    connection = await asyncpg.connect(pooler.dsn, statement_cache_size=0)
    yield connection
    await connection.close()


async def test_a_named_prepared_statement_does_not_outlive_its_transaction(pooler: TransactionPooler):
    careless = await asyncpg.connect(pooler.dsn)
    await careless.fetchval("SELECT $1::int", 1)
    with pytest.raises(asyncpg.InvalidSQLStatementNameError, match="does not exist"):
        await careless.fetchval("SELECT $1::int", 1)
    await careless.close()


async def test_a_prepared_statement_that_was_left_behind_is_in_the_way_of_the_next_client(server: PostgresServer):
    async with TransactionPooler(server.socket_folder, "postgres", size=1) as pooler:
        first, second = await asyncpg.connect(pooler.dsn), await asyncpg.connect(pooler.dsn)
        await first.execute("PREPARE statement_1 AS SELECT 1")
        with pytest.raises(asyncpg.DuplicatePreparedStatementError, match="already exists"):
            await second.execute("PREPARE statement_1 AS SELECT 2")
        await first.close()
        await second.close()


async def test_each_transaction_lands_on_the_next_server_connection(
    pooler: TransactionPooler, client: asyncpg.Connection
):
    pids = [await client.fetchval(PID) for _ in range(6)]
    assert len(set(pids)) == 3
    assert pids[:3] == pids[3:]
    assert pooler.backend_pids == set(pids)
    assert pooler.transactions == 6


async def test_a_transaction_stays_on_one_server_connection(pooler: TransactionPooler, client: asyncpg.Connection):
    for _ in range(3):
        async with client.transaction():
            assert len({await client.fetchval("SELECT pg_backend_pid() + $1::int", 0) for _ in range(4)}) == 1
    assert pooler.transactions == 3


async def test_a_failed_transaction_stays_until_it_is_rolled_back(client: asyncpg.Connection):
    transaction = client.transaction()
    await transaction.start()
    with pytest.raises(asyncpg.DivisionByZeroError):
        await client.fetchval("SELECT 1 / 0")
    with pytest.raises(asyncpg.InFailedSQLTransactionError):
        await client.fetchval("SELECT 1")
    await transaction.rollback()
    assert await client.fetchval("SELECT 1") == 1


async def test_what_a_client_sets_stays_with_the_server_connection(client: asyncpg.Connection):
    await client.execute("SET work_mem = '123MB'")
    assert [await client.fetchval("SHOW work_mem") for _ in range(3)].index("123MB") == 2


async def test_notifications_never_arrive(client: asyncpg.Connection):
    heard: list[object] = []
    await client.add_listener("news", lambda *news: heard.append(news))
    for _ in range(6):
        await client.execute("NOTIFY news")
    await client.execute("UNLISTEN *")
    assert heard == []


async def test_sqlalchemy_works_through_it_with_unnamed_statements(pooler: TransactionPooler):
    arguments = {"statement_cache_size": 0, "prepared_statement_name_func": str}
    engine = create_async_engine(
        pooler.url + "?prepared_statement_cache_size=0", connect_args=arguments, poolclass=NullPool
    )
    for _ in range(5):
        async with engine.begin() as connection:
            for number in range(3):
                assert await connection.scalar(text("SELECT CAST(:number AS int)"), {"number": number}) == number
    await engine.dispose()


async def test_more_clients_than_connections_wait_their_turn(pooler: TransactionPooler):
    await _execute(pooler, "CREATE TABLE counter AS SELECT 0 AS value")

    async def count_up() -> None:
        connection = await asyncpg.connect(pooler.dsn, statement_cache_size=0)
        for _ in range(10):
            async with connection.transaction():
                value = await connection.fetchval("SELECT value FROM counter FOR UPDATE")
                await connection.execute("UPDATE counter SET value = $1", value + 1)
        await connection.close()

    await asyncio.gather(*(count_up() for _ in range(10)))
    assert await _execute(pooler, "SELECT value FROM counter") == 100
    assert pooler.transactions == 102


async def test_who_leaves_inside_a_transaction_is_rolled_back(pooler: TransactionPooler, client: asyncpg.Connection):
    await client.execute("CREATE TABLE entry (amount int PRIMARY KEY)")
    for leave in (asyncpg.Connection.close, _terminate):
        leaver = await asyncpg.connect(pooler.dsn, statement_cache_size=0)
        await leaver.transaction().start()
        await leaver.execute("INSERT INTO entry VALUES (1)")
        await leave(leaver)
        await client.execute("INSERT INTO entry VALUES (1)")  # would wait for ever if the other row were still there
        await client.execute("DELETE FROM entry")


async def test_rows_are_copied_in_and_out(client: asyncpg.Connection):
    await client.execute("CREATE TABLE entry (amount int CHECK (amount < 5000))")
    await client.copy_records_to_table("entry", records=[(number,) for number in range(5000)])
    with pytest.raises(asyncpg.CheckViolationError):
        await client.copy_records_to_table("entry", records=[(number,) for number in range(50_000)])
    copied = bytearray()
    await client.copy_from_query("SELECT amount FROM entry", output=_appender(copied))
    assert len(copied.splitlines()) == 5000


async def test_a_query_is_cancelled_where_it_runs(client: asyncpg.Connection):
    with pytest.raises(TimeoutError):
        await client.fetchval("SELECT pg_sleep(600)", timeout=0.2)
    assert await client.fetchval("SELECT 1") == 1


@pytest.mark.storm
async def test_clients_are_served_again_after_the_server_was_killed(pooler: TransactionPooler, server: PostgresServer):
    await _execute(pooler, PID)
    server.kill()
    with pytest.raises((asyncpg.PostgresConnectionError, ConnectionError)):
        await _execute(pooler, PID)
    server.start_again()
    assert await _execute(pooler, "SELECT 1") == 1


async def _execute(pooler: TransactionPooler, query: str) -> object:
    connection = await asyncpg.connect(pooler.dsn, statement_cache_size=0)
    try:
        return await connection.fetchval(query)
    finally:
        connection.terminate()


async def _terminate(connection: asyncpg.Connection) -> None:
    connection.terminate()


def _appender(target: bytearray):
    async def append(chunk: bytes) -> None:
        target.extend(chunk)

    return append
