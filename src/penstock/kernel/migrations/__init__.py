"""Bringing a database to the newest form: `migrate` does it, `pending` says whether it is needed.

Each file in `versions` is one step. A test proves that all steps together give exactly the tables that the code
declares. Only one process migrates at a time; the others wait and then find nothing left to do.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from penstock.kernel.db import Db

Result = TypeVar("Result")

LOCK_NUMBER = 0x70656E73  # "pens": names our advisory lock on PostgreSQL


async def migrate(db: Db) -> list[str]:
    """Take every step that is missing; returns the steps taken. Safe to call from many processes at once."""
    return await _run(db, _upgrade)


async def pending(db: Db) -> list[str]:
    """The steps that have not been taken yet."""
    return await _run(db, _missing)


async def _run(db: Db, work: Callable[[Connection], Result]) -> Result:
    async with db.tx() as tx:  # SQLite has one writer, so it is alone already
        if tx.on_postgres:
            await tx.conn.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": LOCK_NUMBER})
        return await tx.conn.run_sync(work)


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    return config


def _missing(connection: Connection) -> list[str]:
    scripts = ScriptDirectory.from_config(_config(connection))
    current = MigrationContext.configure(connection).get_current_revision()
    steps = scripts.iterate_revisions("head", current) if current != scripts.get_current_head() else ()
    return [step.revision for step in steps][::-1]


def _upgrade(connection: Connection) -> list[str]:
    steps = _missing(connection)
    if steps:
        command.upgrade(_config(connection), "head")
    return steps
