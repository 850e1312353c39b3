"""How SQLite is spoken to: by a thread for each connection, in as few trips as can be.

The driver sends each step of a statement to its thread: make a cursor, run it, fetch its rows, close it. A trip there
and back costs more than most of our statements do, so here a statement is one trip, and a transaction two more.
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
class Outcome:
    """What a statement left: its rows, and what a cursor knows of it."""

    rows: Sequence[Any] = ()
    description: Any = None
    rowcount: int = -1
    lastrowid: int | None = None


NOTHING_YET = Outcome()


class SteadyConnection(aiosqlite.Connection):
    """A connection that leaves no lock behind. One that is cancelled half-way is closed while a cursor still refers to
    it, and SQLite then keeps it, with its open transaction, until the garbage collector comes by. So what is running
    in the driver's thread is awaited, and a transaction is rolled back before the connection is closed."""

    begun = False  # or about to be: the thread may still wait for the lock

    async def _execute(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super()._execute(fn, *args, **kwargs)  # type: ignore[no-untyped-call]  # the driver has none
        except asyncio.CancelledError:
            await asyncio.shield(super()._execute(_nothing))  # type: ignore[no-untyped-call]  # comes back after it
            raise

    def cursor(self) -> "OneTripCursor":  # type: ignore[override]  # all of a cursor that SQLAlchemy asks for
        """For one statement."""
        return OneTripCursor(self)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A transaction that has the lock from its beginning: one that wants it later may find that it is too late."""
        self.begun = True
        try:
            await self._execute(_run, self._conn, "BEGIN IMMEDIATE", ())
            yield
            await self._execute(self._conn.commit)
            self.begun = False
        except BaseException:
            with suppress(sqlite3.Error, ValueError):  # the driver's word for a connection that was closed meanwhile
                await self.rollback()
            raise  # the first error, whatever the roll-back met: a cancel must stay a cancel

    async def rollback(self) -> None:
        """Roll back, if there is anything: a pool asks for it each time that it is given a connection back."""
        if self.begun and self._connection is not None:  # SQLAlchemy closes one that is cancelled in a statement
            await self._execute(self._connection.rollback)  # nothing happens there if the transaction is over
            self.begun = False

    async def close(self) -> None:
        """Roll back what is open, and close."""
        if self._connection is not None:
            await self._execute(self._connection.rollback)
        await super().close()


class OneTripCursor:
    """The cursor that SQLAlchemy is given: it runs, fetches and closes in one trip."""

    arraysize = 1

    def __init__(self, connection: SteadyConnection) -> None:
        self._connection = connection
        self._found = NOTHING_YET

    async def __aenter__(self) -> "OneTripCursor":
        return self

    @property
    def description(self) -> Any:
        return self._found.description

    @property
    def rowcount(self) -> int:
        return self._found.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self._found.lastrowid

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        """Run a statement, and fetch whatever it returns."""
        self._found = await self._connection._execute(partial(_run, self._connection._conn, statement, parameters))

    async def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each row of parameters."""
        self._found = await self._connection._execute(partial(_run_many, self._connection._conn, statement, rows))

    async def fetchall(self) -> Sequence[Any]:
        """What was fetched already."""
        return self._found.rows

    async def close(self) -> None:
        """Closed already."""


def connect_steadily(database: str, **options: Any) -> SteadyConnection:
    """A connection to a file, not yet open."""
    connection = SteadyConnection(partial(sqlite3.connect, database, **options), iter_chunk_size=64)
    connection._thread.daemon = True  # as SQLAlchemy does it: a process that ends does not wait for it
    return connection


def _run(connection: sqlite3.Connection, statement: str, parameters: Sequence[Any]) -> Outcome:
    return _outcome(connection.execute(statement, parameters))


def _run_many(connection: sqlite3.Connection, statement: str, rows: Iterable[Sequence[Any]]) -> Outcome:
    return _outcome(connection.executemany(statement, rows))


def _outcome(cursor: sqlite3.Cursor) -> Outcome:
    rows = cursor.fetchall() if cursor.description else ()
    found = Outcome(rows=rows, description=cursor.description, rowcount=cursor.rowcount, lastrowid=cursor.lastrowid)
    cursor.close()
    return found


def _nothing() -> None:
    """Done by the driver's thread after what it is doing."""
