"""SQLite driver: one thread per connection, with as few thread switches as possible.

aiosqlite sends each step of a statement to its thread: create a cursor, execute, fetch, close. A thread switch costs
more than most of our statements, so here a statement is one call into the thread, and a transaction two more.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiosqlite


@dataclass(frozen=True, kw_only=True)
class SqliteResult:
    """The rows and cursor attributes of an executed statement."""

    rows: Sequence[Any] = ()
    description: Any = None
    rowcount: int = -1
    lastrowid: int | None = None


NO_RESULT = SqliteResult()


class SqliteConnection(aiosqlite.Connection):
    """A connection that leaves no lock behind. A plain one that is cancelled is closed while a cursor still refers to
    it, and SQLite keeps its open transaction until garbage collection. Here a cancellation waits for the driver's
    thread, and an open transaction is rolled back before the connection is closed."""

    transaction_open = False  # or about to be: the thread may still wait for the lock

    async def _execute(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super()._execute(fn, *args, **kwargs)  # type: ignore[no-untyped-call]  # the driver has none
        except asyncio.CancelledError:
            await asyncio.shield(super()._execute(_noop))  # type: ignore[no-untyped-call]  # queued behind it
            raise

    def cursor(self) -> "SingleCallCursor":  # type: ignore[override]  # has all that SQLAlchemy uses
        """A cursor for one statement."""
        return SingleCallCursor(self)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A transaction that takes the write lock at its start: upgrading a read lock later can fail."""
        self.transaction_open = True
        try:
            await self._execute(_execute_one, self._conn, "BEGIN IMMEDIATE", ())
            yield
            await self._execute(self._conn.commit)
            self.transaction_open = False
        except BaseException:
            with suppress(sqlite3.Error, ValueError):  # ValueError: the connection was closed meanwhile
                await self.rollback()
            raise  # the first error, whatever happens in the rollback: a cancellation must stay a cancellation

    async def rollback(self) -> None:
        """Roll back an open transaction; the pool calls this each time a connection is returned."""
        if self.transaction_open and self._connection is not None:  # SQLAlchemy closes one cancelled in a statement
            await self._execute(self._connection.rollback)  # no effect if the transaction has ended
            self.transaction_open = False

    async def close(self) -> None:
        """Roll back an open transaction and close."""
        if self._connection is not None:
            await self._execute(self._connection.rollback)
        await super().close()


class SingleCallCursor:
    """The cursor given to SQLAlchemy: it executes, fetches and closes in one call into the driver's thread."""

    arraysize = 1

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection
        self._result = NO_RESULT

    async def __aenter__(self) -> "SingleCallCursor":
        return self

    @property
    def description(self) -> Any:
        return self._result.description

    @property
    def rowcount(self) -> int:
        return self._result.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self._result.lastrowid

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        """Execute a statement and fetch all its rows."""
        self._result = await self._connection._execute(
            partial(_execute_one, self._connection._conn, statement, parameters)
        )

    async def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a statement once per row of parameters."""
        self._result = await self._connection._execute(partial(_execute_many, self._connection._conn, statement, rows))

    async def fetchall(self) -> Sequence[Any]:
        """The rows, which `execute` has fetched."""
        return self._result.rows

    async def close(self) -> None:
        """Do nothing: `execute` has closed the cursor."""


def connect_sqlite(database: str, **options: Any) -> SqliteConnection:
    """A connection to a database file; it opens when awaited."""
    connection = SqliteConnection(partial(sqlite3.connect, database, **options), iter_chunk_size=64)
    connection._thread.daemon = True  # as SQLAlchemy does: do not block process exit
    return connection


def _execute_one(connection: sqlite3.Connection, statement: str, parameters: Sequence[Any]) -> SqliteResult:
    return _result(connection.execute(statement, parameters))


def _execute_many(connection: sqlite3.Connection, statement: str, rows: Iterable[Sequence[Any]]) -> SqliteResult:
    return _result(connection.executemany(statement, rows))


def _result(cursor: sqlite3.Cursor) -> SqliteResult:
    rows = cursor.fetchall() if cursor.description else ()
    result = SqliteResult(
        rows=rows, description=cursor.description, rowcount=cursor.rowcount, lastrowid=cursor.lastrowid
    )
    cursor.close()
    return result


def _noop() -> None:
    """Queued in the driver's thread to wait for the statement that is running."""
