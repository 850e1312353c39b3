"""A pooler that refuses the settings of a direct connection, as pgbouncer does, is told as such."""

import asyncio
import struct
from collections.abc import AsyncIterator

import asyncpg
import pytest
from sqlalchemy import text

from penstock.kernel.database_errors import PoolerRefused, translate_database_errors
from tests.conftest import open_db

SSL_REQUEST = 80877103
REFUSAL = b"SFATAL\0C08P01\0Munsupported startup parameter: plan_cache_mode\0\0"


async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """What pgbouncer answers to a client that sends session settings at start."""
    while True:
        length, code = struct.unpack("!ii", await reader.readexactly(8))
        await reader.readexactly(length - 8)
        if code != SSL_REQUEST:
            break
        writer.write(b"N")
    writer.write(b"E" + struct.pack("!i", len(REFUSAL) + 4) + REFUSAL)
    await writer.drain()
    writer.close()
    await writer.wait_closed()


@pytest.fixture
async def refusing_url() -> AsyncIterator[str]:
    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"postgresql://me@127.0.0.1:{port}/penstock"


async def test_it_is_told_with_the_setting_that_helps(refusing_url: str):
    db = open_db(refusing_url)
    with pytest.raises(PoolerRefused, match="unsupported startup parameter: plan_cache_mode") as refused:
        async with db.read() as tx:
            await tx.conn.execute(text("SELECT 1"))
    assert "PENSTOCK_DATABASE_POOLER=true" in refused.value.hint
    await db.close()


async def test_a_statement_that_lands_on_another_connection_is_told_in_the_same_way():
    """With its settings ignored, pgbouncer in transaction mode still loses what was prepared."""
    for error in (asyncpg.DuplicatePreparedStatementError, asyncpg.InvalidSQLStatementNameError):
        with pytest.raises(PoolerRefused, match="prepared statement"), translate_database_errors():
            raise error('prepared statement "__asyncpg_stmt_1__" already exists')
