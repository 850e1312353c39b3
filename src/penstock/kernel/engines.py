"""How each database is connected to: the settings that make it safe, in one place."""

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
from penstock.kernel.errors import Invalid
from penstock.kernel.sqlite import connect_steadily

BUSY_SECONDS = 10  # how long a SQLite writer waits for a writer of another process
POOL_WAIT_SECONDS = 30  # how long a caller waits for a free connection
CONNECT_SECONDS = 5
COMMAND_SECONDS = 60  # no statement of ours takes that long; a dead network would
POSTGRES_PATIENCE: dict[str, Any] = {"timeout": CONNECT_SECONDS, "command_timeout": COMMAND_SECONDS}
SUPABASE_POOLER_PORT = 6543

SQLITE_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
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
    """The folder of the SQLite file cannot be made or written to."""

    code = "BAD_DATABASE_FOLDER"
    message = "The database cannot be kept in {folder} ({reason})."
    message_zh = "数据库无法存放在 {folder}（{reason}）。"
    hint = "Choose another folder with PENSTOCK_DATA_DIR, or --data-dir where there is one."
    hint_zh = "请用 PENSTOCK_DATA_DIR 另选文件夹，或在支持处使用 --data-dir。"


def behind_pooler(url: str) -> bool:
    """Whether an address is known to be that of a transaction pooler."""
    return _parse(url).port == SUPABASE_POOLER_PORT


@dataclass(frozen=True, kw_only=True)
class Engines:
    """The engine that writes and the one that reads (on PostgreSQL they are one)."""

    writer: AsyncEngine
    reader: AsyncEngine
    commits_each: bool  # whether a statement outside a transaction is one by itself: behind a pooler it may be torn

    @classmethod
    def open(cls, url: str, *, pooled: bool, connections: int) -> "Engines":
        """Connect to nothing yet, but know how."""
        parsed = _parse(url)
        if parsed.get_backend_name() == "sqlite":
            writer, reader = _sqlite(parsed, connections)
            return cls(writer=writer, reader=reader, commits_each=True)
        pooled = pooled or behind_pooler(url)
        engine = (_postgres_behind_pooler if pooled else _postgres)(parsed, connections)
        return cls(writer=engine, reader=engine, commits_each=not pooled)


@asynccontextmanager
async def connected(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A connection from the pool. Given back at once when all went well: SQLAlchemy's own way starts a task for it, in
    case we are cancelled meanwhile, which only matters when there is something to roll back."""
    conn = await engine.connect()
    try:
        yield conn
    except BaseException:
        await asyncio.shield(conn.close())
        raise
    await conn.close()


def driver_of(conn: AsyncConnection) -> Any:
    """The driver's own connection behind one that is checked out."""
    assert conn.sync_connection is not None, "it is checked out"
    return conn.sync_connection.connection.driver_connection


@asynccontextmanager
async def transaction(conn: AsyncConnection) -> AsyncIterator[None]:
    """A transaction on a connection, begun by the driver itself: statements given straight to PostgreSQL's driver
    (`hot.py`) are then inside it too, and SQLite is spared what SQLAlchemy does around a BEGIN. The engine is not told:
    PostgreSQL's takes each statement to commit by itself, and SQLite's rolls back when a connection is given back,
    which does nothing while nothing is open."""
    driver = driver_of(conn)
    if conn.dialect.name != "postgresql":
        async with driver.transaction():
            yield
        return
    opened = driver.transaction()
    try:
        await opened.start()
        yield
        await opened.commit()
    except BaseException:
        await _roll_back(opened, driver)
        raise  # the first error, whatever the roll-back met: a cancel must stay a cancel


@asynccontextmanager
async def together(conn: AsyncConnection) -> AsyncIterator[None]:
    """What SQLite does in several statements and PostgreSQL in one: within the open transaction, or else in its own."""
    async with nullcontext() if driver_of(conn).begun else transaction(conn):
        yield


async def _roll_back(opened: Any, driver: Any) -> None:
    """Roll back, or cut the connection when it is in no state for it (BEGIN or COMMIT was cut short, or this is). Given
    back half open, it would take the next caller's commit for a part of its own; cut, the server rolls it back."""
    try:
        await opened.rollback()
    except asyncio.CancelledError:
        driver.terminate()
        raise
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
        driver.terminate()


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except Exception as error:  # SQLAlchemy raises several kinds here, all meaning "not a URL"
        raise BadDatabaseUrl(reason="it is not a URL") from error
    if backend in ("postgresql", "postgres"):
        return _in_asyncpg_words(parsed)
    if backend == "sqlite":
        return parsed.set(drivername="sqlite+aiosqlite")
    raise BadDatabaseUrl(reason=f"{backend} is neither postgresql nor sqlite")


def _in_asyncpg_words(url: URL) -> URL:
    """Hosted databases hand out URLs in libpq's words; the driver has its own, and fails on any other."""
    query = dict(url.query)
    if "sslmode" in query:
        query["ssl"] = query.pop("sslmode")
    query.pop("channel_binding", None)  # a demand on how passwords are sent that the driver cannot be told
    if unknown := set(query) - {"ssl", "host", "port"}:
        raise BadDatabaseUrl(reason=f"its option {min(unknown)} is not known here")
    return url.set(drivername="postgresql+asyncpg", query=query)


def _sqlite(url: URL, connections: int) -> tuple[AsyncEngine, AsyncEngine]:
    if not url.database or url.database == ":memory:":
        raise BadDatabaseUrl(reason="SQLite needs a file, so that several connections see one database")
    folder = Path(url.database).parent
    try:
        folder.mkdir(mode=0o770, parents=True, exist_ok=True)  # less the umask: not for everybody on the machine
    except OSError as error:
        raise BadDatabaseFolder(folder=folder, reason=error.strerror) from error
    if not os.access(folder, os.W_OK):
        raise BadDatabaseFolder(folder=folder, reason="it cannot be written to")
    writer = _engine(url, connections=1, connect_args={"async_creator_fn": connect_steadily})
    reader = _engine(url, connections=connections, connect_args={"async_creator_fn": connect_steadily})
    _connect_with(writer, *SQLITE_PRAGMAS)
    _connect_with(reader, *SQLITE_PRAGMAS, "PRAGMA query_only = ON")
    return writer, reader


def _connect_with(engine: AsyncEngine, *pragmas: str) -> None:
    """Prepare each connection, and take from Python's driver what it would begin by itself, late and not IMMEDIATE."""

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(pragma)
        cursor.close()


def _postgres(url: URL, connections: int) -> AsyncEngine:
    # A plan made while a queue is empty would read the whole table, and is kept while the queue grows: a claim took
    # 140 ms at 200,000 rows, now 2. Where a page lies is taken not to matter: else a plan made for a few rows fetches
    # them in the order of pages and sorts them, and sorts all of them when they are many; an incremental sort does the
    # same. JIT would compile what still has to read a table, at more than it saves. A statement is planned once for any
    # parameters: to plan a claim anew took 1.1 ms of the server's time, to run it 0.6.
    off = dict.fromkeys(("enable_seqscan", "enable_incremental_sort", "jit"), "off")
    settings = {"application_name": "penstock", "random_page_cost": "1", "plan_cache_mode": "force_generic_plan", **off}
    options = POSTGRES_PATIENCE | {"server_settings": settings}
    return _drop_closed(_engine(url, connections=connections, connect_args=options, isolation_level="AUTOCOMMIT"))


def _postgres_behind_pooler(url: URL, connections: int) -> AsyncEngine:
    """Behind a transaction pooler the next transaction may run on another server connection, so nothing may be kept
    on one: no named statements (the empty name is parsed anew each time and never piles up) and no session settings."""
    nothing_kept = {"statement_cache_size": 0, "prepared_statement_cache_size": 0, "prepared_statement_name_func": str}
    options = POSTGRES_PATIENCE | nothing_kept
    return _drop_closed(_engine(url, connections=connections, connect_args=options, isolation_level="AUTOCOMMIT"))


def _drop_closed(engine: AsyncEngine) -> AsyncEngine:
    """Do not hand out connections that the server has closed meanwhile: the first call after a restart would fail.
    Asking the driver costs no round trip."""

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
        hide_parameters=True,  # an error names the statement, never the values: they are other people's data
        json_serializer=to_json,
        json_deserializer=msgspec.json.decode,
        **more,
    )
