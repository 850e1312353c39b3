"""Clean PostgreSQL databases, one after another: what a test has used is emptied for the next.

To copy a database and drop it again takes ten times as long. A table that has pages gets new files by TRUNCATE, so the
planner knows as little of it as of one that was never used. A database in which something else has changed than rows
(tables, statistics, a lock that somebody still holds) is dropped, and copied anew.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import asyncpg

from tests.servers.postgres import Databases

OURS = 16384  # PostgreSQL's own things have smaller numbers
PATIENCE = "2s"  # for locks of connections that are just being closed

OTHERS = """
    SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
# TRUNCATE writes none of these rows; whatever else is done to a table writes some.
SHAPE = f"""
    SELECT concat_ws(' ',
        (SELECT md5(string_agg(oid || relname, ',' ORDER BY oid)) FROM pg_class WHERE oid >= {OURS} AND relkind <> 't'),
        (SELECT count(*) || '-' || sum(xmin::text::bigint) FROM pg_attribute WHERE attrelid >= {OURS}),
        (SELECT count(*) || '-' || sum(xmin::text::bigint) FROM pg_constraint WHERE oid >= {OURS}),
        (SELECT count(*) || '-' || sum(xmin::text::bigint) FROM pg_trigger WHERE oid >= {OURS}),
        (SELECT count(*) || '-' || sum(xmin::text::bigint) FROM pg_proc WHERE oid >= {OURS}),
        (SELECT count(*) FROM pg_db_role_setting),
        (SELECT count(*) FROM pg_statistic WHERE starelid >= {OURS}),
        (SELECT string_agg(version_num, ',') FROM alembic_version))
"""
USED_TABLES = f"""
    SELECT oid::regclass::text FROM pg_class
    WHERE oid >= {OURS} AND relkind = 'r' AND relname <> 'alembic_version' AND pg_relation_size(oid) > 0
"""
USED_SEQUENCES = "SELECT seqrelid::regclass::text FROM pg_sequence WHERE pg_sequence_last_value(seqrelid) IS NOT NULL"
# The lock was not given, or the connection is gone (thrown out by the test, or by the server's end).
HOPELESS = (asyncpg.LockNotAvailableError, asyncpg.OperatorInterventionError, asyncpg.InterfaceError, OSError)


class CleanDatabases:
    """Copies of a template, each used by one test at a time."""

    def __init__(self, server: Databases, template: str, *, prefix: str = "penstock_test_") -> None:
        self._server = server
        self._template = template
        self._prefix = prefix
        self._free: list[_Copy] = []
        self._made = 0
        self._thread = ThreadPoolExecutor(max_workers=1)  # the caller's thread may have a loop running
        self._loop = asyncio.new_event_loop()

    @contextmanager
    def one(self) -> Iterator[str]:
        """The URL of a clean database. It is cleaned when it is next requested: by then its user is gone."""
        copy = self._cleaned() or self._new()
        try:
            yield self._server.url(copy.name)
        finally:
            self._free.append(copy)

    def close(self) -> None:
        """Drop them all."""
        while self._free:
            self._drop(self._free.pop())
        self._do(self._loop.shutdown_default_executor())
        self._thread.submit(self._loop.close).result()
        self._thread.shutdown()

    def _cleaned(self) -> "_Copy | None":
        while self._free:
            copy = self._free.pop()
            if self._do(copy.clean()):
                return copy
            self._drop(copy)
        return None

    def _new(self) -> "_Copy":
        self._made += 1
        name = f"{self._prefix}{self._made}"
        self._server.drop_database(name)  # of an earlier run, on a server that outlived it
        self._server.create_database(name, template=self._template)
        copy = _Copy(name, self._server.dsn(name))
        self._do(copy.remember())
        return copy

    def _drop(self, copy: "_Copy") -> None:
        self._do(copy.leave())
        self._server.drop_database(copy.name)

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._thread.submit(self._loop.run_until_complete, work).result()


class _Copy:
    """One database, and a connection to it that stays open beside the test."""

    def __init__(self, name: str, dsn: str) -> None:
        self.name = name
        self._dsn = dsn
        self._shape = ""
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    async def remember(self) -> None:
        """Note what it looks like when new."""
        self._connection = await asyncpg.connect(self._dsn, server_settings={"lock_timeout": PATIENCE})
        self._shape = await self._connection.fetchval(SHAPE)

    async def clean(self) -> bool:
        """Empty it; False if that does not make it as if new."""
        try:
            return await self._empty()
        except HOPELESS:
            return False

    async def _empty(self) -> bool:
        assert self._connection is not None, "it has been looked at"
        await self._connection.execute(OTHERS)
        if await self._connection.fetchval(SHAPE) != self._shape:
            return False
        tables = [row[0] for row in await self._connection.fetch(USED_TABLES)]
        sequences = [row[0] for row in await self._connection.fetch(USED_SEQUENCES)]
        if tables:
            await self._connection.execute(f"TRUNCATE {', '.join(tables)} CASCADE")
        for name in sequences:
            await self._connection.execute(f"ALTER SEQUENCE {name} RESTART")
        return True

    async def leave(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with suppress(*HOPELESS):
                await self._connection.close()
