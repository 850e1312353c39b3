"""Schema migrations: `migrate` applies them, `pending` lists those that are missing.

Each file in `versions` is one migration. A test proves that all of them together create exactly the tables that the
code declares. Only one process migrates at a time; the others wait and then have nothing left to do.
"""

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.script.revision import RevisionError
from alembic.util import CommandError
from sqlalchemy import Connection

from penstock.kernel.db import Db, advisory_lock
from penstock.kernel.errors import Unavailable


class DatabaseNewer(Unavailable):
    """The database was migrated by a newer version."""

    code = "DB_NEWER"
    message = "The database is at migration {current}, which this version does not know; its latest is {newest}."
    message_zh = "数据库处于迁移 {current}，此版本不认识该迁移；其最新迁移为 {newest}。"
    hint = "Upgrade Penstock to the version that migrated the database."
    hint_zh = "请将本程序更新到迁移该数据库的版本。"
    retryable = False


LOCK_NUMBER = 0x70656E73  # "pens": the advisory lock on PostgreSQL


async def migrate(db: Db) -> list[str]:
    """Apply every pending migration and return them. Safe to call from many processes at once."""
    async with db.tx() as tx:
        await advisory_lock(tx, LOCK_NUMBER)
        return await tx.conn.run_sync(_upgrade)


async def pending(db: Db) -> list[str]:
    """The migrations that have not been applied. Only reads, and does not wait for a running migration."""
    async with db.read() as tx:
        return await tx.conn.run_sync(_missing)


@cache
def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(Path(__file__).parent))


def _missing(connection: Connection) -> list[str]:
    current, newest = MigrationContext.configure(connection).get_current_revision(), _scripts().get_current_head()
    if current == newest:
        return []
    try:
        steps = [step.revision for step in _scripts().iterate_revisions("head", current or "base")]
    except (CommandError, RevisionError) as error:
        raise DatabaseNewer(current=current, newest=newest) from error
    return steps[::-1]


def _upgrade(connection: Connection) -> list[str]:
    steps = _missing(connection)
    if steps:
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    return steps
