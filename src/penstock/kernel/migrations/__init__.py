"""Bringing a database to the newest form: `migrate` does it, `pending` says whether it is needed.

Each file in `versions` is one step. A test proves that all steps together give exactly the tables that the code
declares. Only one process migrates at a time; the others wait and then find nothing left to do.
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
    """A newer version of this program has migrated the database."""

    code = "DB_NEWER"
    message = "The database stands at step {current}, which this version does not know; its newest is {newest}."
    message_zh = "数据库处于步骤 {current}，此版本不认识该步骤；其最新步骤为 {newest}。"
    hint = "Update this program to the version that migrated the database."
    hint_zh = "请将本程序更新到迁移该数据库的版本。"
    retryable = False


LOCK_NUMBER = 0x70656E73  # "pens": names our advisory lock on PostgreSQL


async def migrate(db: Db) -> list[str]:
    """Take every step that is missing; returns the steps taken. Safe to call from many processes at once."""
    async with db.tx() as tx:
        await advisory_lock(tx, LOCK_NUMBER)
        return await tx.conn.run_sync(_upgrade)


async def pending(db: Db) -> list[str]:
    """The steps that have not been taken yet. Only reads, and waits for nobody who migrates."""
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
