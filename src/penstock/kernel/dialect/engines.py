"""Database engines: connection settings, pools and transactions for SQLite and PostgreSQL, in one place.

Errors name the server and never show the password of a database URL.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
from sqlalchemy import event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from penstock.kernel.columns import to_json
from penstock.kernel.dialect.sqlite import connect_sqlite
from penstock.kernel.dialect.watchdog import Watchdog, ping_postgres
from penstock.kernel.errors import Invalid
from penstock.kernel.private_folder import make_private_folder

BUSY_SECONDS = 10  # how long a SQLite writer waits for a writer of another process
POOL_WAIT_SECONDS = 30  # how long a caller waits for a free connection
CONNECT_SECONDS = 5
ROLLBACK_SECONDS = 1  # then the connection is closed: its server may not answer any more
COMMAND_SECONDS = 60  # longer than any statement takes; ends a wait on a dead network
POSTGRES_TIMEOUTS: dict[str, Any] = {"timeout": CONNECT_SECONDS, "command_timeout": COMMAND_SECONDS}
SUPABASE_POOLER_PORT = 6543
# The same for every statement, directly and behind a pooler (docs/decisions/0021-planner-settings.md).
PLANNER_SETTINGS = {
    # A plan made while a queue is empty scans the whole table, and stays cached while the queue grows: a claim took
    # 140 ms at 200,000 rows, now 2.
    "enable_seqscan": "off",
    # With the default of 4, a plan made for a few rows fetches them in page order and sorts them, also when there are
    # many.
    "random_page_cost": "1",
    "jit": "off",  # compiling costs more than it saves
}
# One round trip, as a plain BEGIN: it takes 15 microseconds longer.
BEGIN_POOLED = "; ".join(["BEGIN", *(f"SET LOCAL {name} = {value}" for name, value in PLANNER_SETTINGS.items())])

SQLITE_PRAGMAS = (
    "PRAGMA journal_mode = WAL",  # the one writer begins with BEGIN IMMEDIATE; readers do not wait for it
    "PRAGMA synchronous = FULL",  # a commit that was answered survives a power cut
    f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}",
    "PRAGMA foreign_keys = ON",
    "PRAGMA journal_size_limit = 67108864",  # the WAL file shrinks back to 64 MiB after a burst
)


class BadDatabaseUrl(Invalid):
    """The database URL cannot be used."""

    code = "BAD_DATABASE_URL"
    message = "The database cannot be opened: {reason}."
    message_zh = "无法打开数据库：{reason}。"
    hint = "PENSTOCK_DATABASE_URL takes postgresql://user:password@host/name, or sqlite:///path/to/file.db."
    hint_zh = "PENSTOCK_DATABASE_URL 的格式为 postgresql://user:password@host/name 或 sqlite:///path/to/file.db。"


class BadDatabaseFolder(Invalid):
    """The folder of the SQLite file cannot be created or written to."""

    code = "BAD_DATABASE_FOLDER"
    message = "The database cannot be stored in {folder} ({reason})."
    message_zh = "数据库无法存放在 {folder}（{reason}）。"
    hint = "Choose another folder with PENSTOCK_DATA_DIR, or with --data-dir where the command has it."
    hint_zh = "请用 PENSTOCK_DATA_DIR 另选文件夹，或在支持处使用 --data-dir。"


def behind_pooler(url: str) -> bool:
    """Whether a URL is known to point at a transaction pooler."""
    return _parse(url).port == SUPABASE_POOLER_PORT


class PooledConnection(asyncpg.Connection):
    """A connection behind a transaction pooler: each transaction sets the planner settings for itself."""


@dataclass(frozen=True, kw_only=True)
class DatabaseEngines:
    """The engine for writes and the engine for reads (on PostgreSQL they are the same)."""

    writer: AsyncEngine
    reader: AsyncEngine
    watchdog: Watchdog | None  # of a server; a file always answers
    autocommit: bool  # whether a statement outside a transaction commits by itself: behind a pooler that is not safe

    @classmethod
    def open(cls, url: str, *, pooled: bool, connections: int) -> "DatabaseEngines":
        """Create the engines; connections are opened at first use."""
        parsed = _parse(url)
        if parsed.get_backend_name() == "sqlite":
            writer, reader = _sqlite(parsed, connections)
            return cls(writer=writer, reader=reader, watchdog=None, autocommit=True)
        pooled = pooled or behind_pooler(url)
        engine = (_postgres_behind_pooler if pooled else _postgres)(parsed, connections)
        return cls(writer=engine, reader=engine, watchdog=Watchdog(ping_postgres(engine)), autocommit=not pooled)


@asynccontextmanager
async def checked_out(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A connection from the pool. On success it is returned directly: SQLAlchemy's own context manager starts a task
    for that in case of a cancellation, which only matters when there is something to roll back."""
    conn = await engine.connect()
    try:
        yield conn
    except BaseException:
        await asyncio.shield(conn.close())
        raise
    await conn.close()


def database_name(engine: AsyncEngine) -> str:
    """The name of the database: "postgresql" or "sqlite"."""
    return engine.dialect.name


def driver_connection(conn: AsyncConnection) -> Any:
    """The driver's own connection behind one that is checked out."""
    assert conn.sync_connection is not None, "the connection is checked out"
    return conn.sync_connection.connection.driver_connection


@asynccontextmanager
async def transaction(conn: AsyncConnection) -> AsyncIterator[None]:
    """A transaction on a connection, started by the driver itself: statements passed directly to PostgreSQL's driver
    (`compiled_statement.py`) are then part of it, and SQLite avoids SQLAlchemy's overhead around BEGIN. The SQLAlchemy
    engine does not know about it: PostgreSQL's runs in AUTOCOMMIT mode, and SQLite's rolls back when a connection is
    returned, which does nothing outside a transaction."""
    driver = driver_connection(conn)
    if conn.dialect.name != "postgresql":
        async with driver.transaction():
            yield
        return
    can_roll_back = False
    try:
        await driver.execute(BEGIN_POOLED if isinstance(driver, PooledConnection) else "BEGIN")
        can_roll_back = True
        yield
        can_roll_back = False
        await driver.execute("COMMIT")
    except BaseException:
        if can_roll_back:
            await _roll_back(driver)
        else:
            driver.terminate()
        raise  # the first error, whatever happens in the rollback: a cancellation must stay a cancellation


@asynccontextmanager
async def ensure_transaction(conn: AsyncConnection) -> AsyncIterator[None]:
    """Use the open transaction, or open one, for what PostgreSQL does in one statement and SQLite in several."""
    async with nullcontext() if driver_connection(conn).transaction_open else transaction(conn):
        yield


async def _roll_back(driver: Any) -> None:
    """Roll back, or close the connection if that is interrupted, as if BEGIN or COMMIT is. Returned to the pool with
    an open transaction, it would mix it with the next caller's; closed, the server rolls it back."""
    try:
        async with asyncio.timeout(ROLLBACK_SECONDS):
            await driver.execute("ROLLBACK")
    except asyncio.CancelledError:
        driver.terminate()
        raise
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
        driver.terminate()


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except Exception as error:  # SQLAlchemy raises several types here, all meaning "not a URL"
        raise BadDatabaseUrl(reason="it is not a URL") from error
    if backend in ("postgresql", "postgres"):
        return _with_asyncpg_options(parsed)
    if backend == "sqlite":
        return parsed.set(drivername="sqlite+aiosqlite")
    raise BadDatabaseUrl(reason=f"{backend} is neither postgresql nor sqlite")


def _with_asyncpg_options(url: URL) -> URL:
    """Translate libpq options, which hosted databases put in their URLs; asyncpg fails on options it does not know."""
    query = dict(url.query)
    if "sslmode" in query:
        query["ssl"] = query.pop("sslmode")
    query.pop("channel_binding", None)  # asyncpg has no such option
    if unknown := set(query) - {"ssl", "host", "port"}:
        raise BadDatabaseUrl(reason=f"the option {min(unknown)} is not supported")
    return url.set(drivername="postgresql+asyncpg", query=query)


def _sqlite(url: URL, connections: int) -> tuple[AsyncEngine, AsyncEngine]:
    if not url.database or url.database == ":memory:":
        raise BadDatabaseUrl(reason="SQLite needs a file, so that several connections share one database")
    folder = Path(url.database).parent
    try:
        make_private_folder(folder)
    except OSError as error:
        raise BadDatabaseFolder(folder=folder, reason=error.strerror) from error
    if not os.access(folder, os.W_OK):
        raise BadDatabaseFolder(folder=folder, reason="not writable")
    writer = _engine(url, connections=1, connect_args={"async_creator_fn": connect_sqlite})
    reader = _engine(url, connections=connections, connect_args={"async_creator_fn": connect_sqlite})
    _connect_with(writer, *SQLITE_PRAGMAS)
    _connect_with(reader, *SQLITE_PRAGMAS, "PRAGMA query_only = ON")
    return writer, reader


def _connect_with(engine: AsyncEngine, *pragmas: str) -> None:
    """Run pragmas on each new connection, and stop Python's driver from starting (deferred) transactions by itself."""

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(pragma)
        cursor.close()


def _postgres(url: URL, connections: int) -> AsyncEngine:
    # plan_cache_mode: planning a claim takes 1.1 ms of server time, running it 0.6.
    settings = {"application_name": "penstock", "plan_cache_mode": "force_generic_plan", **PLANNER_SETTINGS}
    options = POSTGRES_TIMEOUTS | {"server_settings": settings}
    return _drop_closed(_engine(url, connections=connections, connect_args=options, isolation_level="AUTOCOMMIT"))


def _postgres_behind_pooler(url: URL, connections: int) -> AsyncEngine:
    """Behind a transaction pooler (pgbouncer) the next transaction may use another server connection, so no session
    state may stay on one: no named prepared statements (the unnamed one is replaced each time), no session settings.
    Each statement is planned for its parameters; the planner settings are those of its transaction."""
    no_session_state: dict[str, Any] = {
        "connection_class": PooledConnection,
        "statement_cache_size": 0,
        "prepared_statement_cache_size": 0,
        "prepared_statement_name_func": str,
    }
    options = POSTGRES_TIMEOUTS | no_session_state
    return _drop_closed(_engine(url, connections=connections, connect_args=options, isolation_level="AUTOCOMMIT"))


def _drop_closed(engine: AsyncEngine) -> AsyncEngine:
    """Discard connections that the server has closed, so that the first call after a restart does not fail. Asking the
    driver costs no round trip."""

    @event.listens_for(engine.sync_engine, "checkout")
    def is_open(connection: Any, _record: object, _proxy: object) -> None:
        driver = connection.driver_connection
        if driver.is_closed() or driver.is_in_transaction():
            raise DisconnectionError

    return engine


def _engine(url: URL, *, connections: int, **more: Any) -> AsyncEngine:
    return create_async_engine(
        url,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=POOL_WAIT_SECONDS,
        hide_parameters=True,  # errors show the statement, never the values: they are user data
        json_serializer=to_json,
        json_deserializer=msgspec.json.decode,  # the standard library takes a tenth of the time of a claim of 100 rows
        **more,
    )
