"""What a database says when it fails, in our words. Everything not named here is a bug and stays as it is."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from penstock.kernel.errors import DiskFull, PenstockError, Unavailable


class DatabaseAway(Unavailable):
    """The database cannot be reached, or went away in the middle."""

    code = "DB_UNAVAILABLE"
    message = "The database cannot be reached ({reason})."
    message_zh = "无法连接数据库（{reason}）。"
    hint = "Nothing was half-written. Check that the database is up; servers and workers go on by themselves then."
    hint_zh = "没有写入一半的数据。请检查数据库是否在运行；恢复后服务与工作进程会自动继续。"
    ours = True


class DatabaseBusy(Unavailable):
    """The database is there, but no turn came in time."""

    code = "DB_BUSY"
    message = "The database was too busy to answer ({reason})."
    message_zh = "数据库过于繁忙，未能响应（{reason}）。"
    hint = "Nothing was half-written. Try again; with many writers, use PostgreSQL."
    hint_zh = "没有写入一半的数据。请重试；写入者较多时请使用 PostgreSQL。"
    ours = True


class DatabaseBroken(Unavailable):
    """The database's file is not one, or is damaged."""

    code = "DB_BROKEN"
    message = "The database's file cannot be used ({reason})."
    message_zh = "数据库文件无法使用（{reason}）。"
    hint = "Restore it from a copy, or choose another data folder."
    hint_zh = "请从备份恢复，或另选数据文件夹。"
    retryable = False


class DatabaseNotMigrated(Unavailable):
    """The database is there, but our tables are not, or are older than this program."""

    code = "DB_NOT_MIGRATED"
    message = "The database is not ready for this version ({reason})."
    message_zh = "数据库尚未准备好用于此版本（{reason}）。"
    hint = "Run: penstock migrate"
    hint_zh = "请运行：penstock migrate"
    retryable = False


SQLITE_FULL = "database or disk is full"
SQLITE_UNMIGRATED = ("no such table", "no such column")
SQLITE_BUSY = ("database is locked", "database table is locked")
SQLITE_BROKEN = ("file is not a database", "database disk image is malformed")
SQLITE_AWAY = ("unable to open database file", "disk i/o error", "attempt to write a readonly database")
CONNECTION_BROKE = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.InternalClientError)
POSTGRES_AWAY = (
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
def named_faults() -> Iterator[None]:
    """Turn a driver's failure into one of the errors above, with the cause kept.

    A bare OSError counts too: drivers let it through when a connection is refused or cut. Nothing else inside a
    transaction raises one, since no file or network is touched while a transaction is open.
    """
    try:
        yield
    except PoolTimeout as error:
        raise DatabaseBusy(reason="no connection became free; is one transaction opened inside another?") from error
    except DBAPIError as error:
        named = _name(error)
        if named is None:
            raise
        raise named from error
    except (
        OSError,
        sqlite3.Error,
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
    ) as error:
        named = _name_cause(error)
        if named is None:
            raise
        raise named from error


def _name(error: DBAPIError) -> PenstockError | None:
    driver_error = error.orig.__cause__ if error.orig is not None and error.orig.__cause__ else error.orig
    named = _name_cause(driver_error) if driver_error is not None else None
    if named is None and error.connection_invalidated:
        return DatabaseAway(reason="the connection broke")
    return named


def _name_cause(error: BaseException) -> PenstockError | None:
    if isinstance(error, sqlite3.Error):
        return _name_sqlite(str(error))
    if isinstance(error, asyncpg.DiskFullError):
        return DiskFull(what="to the database")
    if isinstance(error, POSTGRES_UNMIGRATED):
        return DatabaseNotMigrated(reason=str(error))
    if isinstance(error, TimeoutError):
        return DatabaseBusy(reason="no answer came in time")
    if isinstance(error, POSTGRES_BUSY):
        return DatabaseBusy(reason=_first_line(error))
    if isinstance(error, asyncpg.InterfaceError) and "closed" not in str(error):
        return None  # the driver was used wrongly: a bug, not an outage
    if isinstance(error, CONNECTION_BROKE):
        return DatabaseAway(reason="the connection broke")
    if isinstance(error, POSTGRES_AWAY):
        return DatabaseAway(reason=_first_line(error))
    if isinstance(error, OSError):  # refused, reset, timed out, no socket file
        return DatabaseAway(reason=error.strerror or type(error).__name__)
    return None


def _first_line(error: BaseException) -> str:
    """What the server says, without the details below it."""
    return str(error).partition("\n")[0]


def _name_sqlite(text: str) -> PenstockError | None:
    lowered = text.lower()
    if SQLITE_FULL in lowered:
        return DiskFull(what="to the database")
    if lowered.startswith(SQLITE_UNMIGRATED):
        return DatabaseNotMigrated(reason=text)
    if lowered.startswith(SQLITE_BUSY):
        return DatabaseBusy(reason=text)
    if lowered.startswith(SQLITE_BROKEN):
        return DatabaseBroken(reason=text)
    if lowered.startswith(SQLITE_AWAY):
        return DatabaseAway(reason=text)
    return None
