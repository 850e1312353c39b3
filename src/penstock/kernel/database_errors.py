"""Translates driver errors into `PenstockError`s. An error that is not listed here is a bug and passes unchanged."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from penstock.kernel.errors import DiskFull, PenstockError, Unavailable


class DatabaseUnavailable(Unavailable):
    """The database cannot be reached, or the connection was lost."""

    code = "DB_UNAVAILABLE"
    message = "The database cannot be reached ({reason})."
    message_zh = "无法连接数据库（{reason}）。"
    hint = "No partial data was written. Check that the database is running; servers and workers resume automatically."
    hint_zh = "没有写入一半的数据。请检查数据库是否在运行；恢复后服务与工作进程会自动继续。"
    internal_outage = True


class DatabaseTimedOut(Unavailable):
    """The database server did not answer in time: it is frozen, overloaded or cut off."""

    code = "DB_TIMED_OUT"
    message = "The database did not answer in time."
    message_zh = "数据库未在时限内应答。"
    hint = (
        "It is unknown whether the request took effect: send it again with the same Idempotency-Key. "
        "Check that the database server is not frozen, overloaded or cut off from the network."
    )
    hint_zh = (
        "无法确定请求是否已生效：请用相同的 Idempotency-Key 重新发送。请检查数据库服务器是否停顿、过载或网络中断。"
    )
    terminal_hint = "It is unknown whether the command took effect: check that the database answers, then look."
    internal_outage = True


class PoolerRefused(Unavailable):
    """A connection pooler refuses the session settings of a direct connection."""

    code = "DB_POOLER"
    message = "A connection pooler in front of PostgreSQL refused the connection ({reason})."
    message_zh = "PostgreSQL 前的连接池拒绝了连接（{reason}）。"
    hint = "Set PENSTOCK_DATABASE_POOLER=true: behind pgbouncer, connections take no session settings."
    hint_zh = "请设置 PENSTOCK_DATABASE_POOLER=true：经由 pgbouncer 的连接不带会话设置。"
    retryable = False
    internal_outage = True


class DatabaseBusy(Unavailable):
    """The database is reachable, but no connection or lock became free in time."""

    code = "DB_BUSY"
    message = "The database was too busy to answer ({reason})."
    message_zh = "数据库过于繁忙，未能响应（{reason}）。"
    hint = (
        "No partial data was written. Try again. If it persists: on SQLite with many writers, use PostgreSQL; on "
        "PostgreSQL, check its load and raise PENSTOCK_DATABASE_CONNECTIONS."
    )
    hint_zh = (
        "没有写入一半的数据。请重试。若持续出现：SQLite 写入者较多时请改用 PostgreSQL；"
        "使用 PostgreSQL 时请检查其负载并调高 PENSTOCK_DATABASE_CONNECTIONS。"
    )
    internal_outage = True


class DatabaseCorrupt(Unavailable):
    """The SQLite file is corrupt or not a database."""

    code = "DB_BROKEN"
    message = "The database file cannot be used ({reason})."
    message_zh = "数据库文件无法使用（{reason}）。"
    hint = "Restore it from a backup, or choose another data folder."
    hint_zh = "请从备份恢复，或另选数据文件夹。"
    retryable = False


class DatabaseNotMigrated(Unavailable):
    """The database lacks our tables, or they are older than this version."""

    code = "DB_NOT_MIGRATED"
    message = "The database is not ready for this version ({reason})."
    message_zh = "数据库尚未准备好用于此版本（{reason}）。"
    hint = "Run: penstock migrate"
    hint_zh = "请运行：penstock migrate"
    retryable = False


SQLITE_FULL = "database or disk is full"
SQLITE_UNMIGRATED = ("no such table", "no such column")
SQLITE_BUSY = ("database is locked", "database table is locked")
SQLITE_CORRUPT = ("file is not a database", "database disk image is malformed")
SQLITE_UNAVAILABLE = ("unable to open database file", "disk i/o error", "attempt to write a readonly database")
CONNECTION_LOST = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.InternalClientError)
STARTUP_PARAMETER = "startup parameter"  # pgbouncer: "unsupported startup parameter: plan_cache_mode"
POSTGRES_UNAVAILABLE = (
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
)
POSTGRES_UNMIGRATED = (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError)
POSTGRES_BUSY = (
    asyncpg.TooManyConnectionsError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
    asyncpg.SerializationError,
)


@contextmanager
def translate_database_errors() -> Iterator[None]:
    """Raise one of the errors above in place of a driver error, with the cause kept.

    A bare OSError counts too: drivers let it through when a connection is refused or reset. Nothing else inside a
    transaction raises one, since no other I/O happens while a transaction is open.
    """
    try:
        yield
    except PoolTimeout as error:
        raise DatabaseBusy(reason="no free connection; is a transaction opened inside another one?") from error
    except DBAPIError as error:
        translated = _translate(error)
        if translated is None:
            raise
        raise translated from error
    except (
        OSError,
        sqlite3.Error,
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
    ) as error:
        translated = _translate_cause(error)
        if translated is None:
            raise
        raise translated from error


def _translate(error: DBAPIError) -> PenstockError | None:
    driver_error = error.orig.__cause__ if error.orig is not None and error.orig.__cause__ else error.orig
    translated = _translate_cause(driver_error) if driver_error is not None else None
    if translated is None and error.connection_invalidated:
        return DatabaseUnavailable(reason="connection lost")
    return translated


def _translate_cause(error: BaseException) -> PenstockError | None:
    if isinstance(error, sqlite3.Error):
        return _translate_sqlite(str(error))
    if isinstance(error, asyncpg.PostgresError):
        return _translate_postgres(error)
    if isinstance(error, TimeoutError):
        return DatabaseTimedOut()
    if isinstance(error, asyncpg.InterfaceError) and "closed" not in str(error):
        return None  # wrong use of the driver: a bug, not an outage
    if isinstance(error, CONNECTION_LOST):
        return DatabaseUnavailable(reason="connection lost")
    if isinstance(error, OSError):  # refused, reset, timed out, no socket file
        return DatabaseUnavailable(reason=error.strerror or type(error).__name__)
    return None


def _translate_postgres(error: asyncpg.PostgresError) -> PenstockError | None:
    """An error that the server, or a pooler in front of it, sent."""
    if isinstance(error, asyncpg.DiskFullError):
        return DiskFull(what="to the database")
    if isinstance(error, POSTGRES_UNMIGRATED):
        return DatabaseNotMigrated(reason=str(error))
    if isinstance(error, POSTGRES_BUSY):
        return DatabaseBusy(reason=_first_line(error))
    if _is_of_pooler(error):
        return PoolerRefused(reason=_first_line(error))
    if isinstance(error, CONNECTION_LOST):
        return DatabaseUnavailable(reason="connection lost")
    return DatabaseUnavailable(reason=_first_line(error)) if isinstance(error, POSTGRES_UNAVAILABLE) else None


def _is_of_pooler(error: BaseException) -> bool:
    """Whether a pooler refuses settings, or gives a statement to another server connection than the one it is on."""
    refused = isinstance(error, asyncpg.ProtocolViolationError) and STARTUP_PARAMETER in str(error)
    return refused or isinstance(error, asyncpg.DuplicatePreparedStatementError | asyncpg.InvalidSQLStatementNameError)


def _first_line(error: BaseException) -> str:
    """The server's message without its details."""
    return str(error).partition("\n")[0]


def _translate_sqlite(text: str) -> PenstockError | None:
    lowered = text.lower()
    if SQLITE_FULL in lowered:
        return DiskFull(what="to the database")
    if lowered.startswith(SQLITE_UNMIGRATED):
        return DatabaseNotMigrated(reason=text)
    if lowered.startswith(SQLITE_BUSY):
        return DatabaseBusy(reason=text)
    if lowered.startswith(SQLITE_CORRUPT):
        return DatabaseCorrupt(reason=text)
    if lowered.startswith(SQLITE_UNAVAILABLE):
        return DatabaseUnavailable(reason=text)
    return None
