"""The database that a command works on.

A command that looks or changes what exists creates nothing: without a database it says which folder it looked in. The
folder, or the server, is named on standard error, so that a command in the wrong directory is noticed.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import typer

from penstock import settings as all_settings
from penstock.cli.actor import cli_actor
from penstock.kernel.database_errors import DatabaseNotMigrated
from penstock.kernel.db import Db, Tx
from penstock.kernel.errors import NotFound
from penstock.kernel.migrations import pending
from penstock.settings import Settings
from penstock.wiring import migration_folders, open_database
from penstock.wiring.runtime import make_ready

T = TypeVar("T")

SQLITE = "sqlite:///"


class NoDatabase(NotFound):
    """There is no database in the data folder."""

    code = "NO_DATABASE"
    message = "There is no database at {path}."
    message_zh = "{path} 处没有数据库。"
    hint = (
        "Set PENSTOCK_DATA_DIR, or --data-dir where the command has it, to the data folder; `penstock serve` makes it."
    )
    hint_zh = "请用 PENSTOCK_DATA_DIR（或命令支持的 --data-dir）指定数据文件夹；`penstock serve` 会创建数据库。"


def load_settings(data_dir: Path | None) -> Settings:
    """The settings of this process, with another data folder if one is given."""
    settings = all_settings.load()
    return settings if data_dir is None else dataclasses.replace(settings, data_dir=data_dir)


def describe_database(settings: Settings) -> str:
    """Where the database is, without credentials."""
    if settings.embedded:
        return f"SQLite in {database_path(settings).parent}"
    url = urlsplit(settings.database)
    port = f":{url.port}" if url.port else ""
    return f"PostgreSQL at {url.hostname or 'localhost'}{port}{url.path}"


def database_path(settings: Settings) -> Path:
    """The file of an embedded database."""
    return Path(settings.database.removeprefix(SQLITE)).absolute()


def require_database(settings: Settings) -> None:
    """Raise `NoDatabase` if the database is a file that does not exist."""
    if settings.embedded and not (path := database_path(settings)).exists():
        raise NoDatabase(path=path)


def create_database(settings: Settings) -> None:
    """Create an embedded database, or migrate it; any other must be migrated already."""

    async def create() -> None:
        db = open_database(settings)
        try:
            await make_ready(db, settings)
        finally:
            await db.close()

    asyncio.run(create())


def run_in_tx(action: Callable[[Tx], Awaitable[T]], settings: Settings) -> T:
    """Run an action in one transaction."""

    async def run(db: Db) -> T:
        async with db.tx(actor=cli_actor()) as tx:
            return await action(tx)

    return run_with_db(run, settings)


def run_with_db(action: Callable[[Db], Awaitable[T]], settings: Settings) -> T:
    """Run an action that opens its own transactions."""

    async def run() -> T:
        require_database(settings)
        db = open_database(settings)
        try:
            if steps := await pending(db, migration_folders()):
                raise DatabaseNotMigrated(reason=f"pending: {', '.join(steps)}")
            return await action(db)
        finally:
            await db.close()

    typer.echo(f"using {describe_database(settings)}", err=True)
    return asyncio.run(run())
