"""Schema migrations: `migrate` applies them, `pending` lists those that are missing.

Each file in `versions` is one migration. A test proves that all of them together create exactly the tables that the
code declares. A module may bring a folder of its own, whose migrations are a branch of their own.

Only one process migrates at a time; the others wait and then have nothing left to do.

A migration may say `compatible = True`: processes of the version before can live with it, because it only adds tables,
indexes, and columns that may be left out. `schema_migration` records that, so processes of an older version, which do
not know the migration, find out that they may go on. Any other migration needs them stopped first.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Boolean, Column, Connection, Table, insert, inspect, select
from sqlalchemy.exc import DBAPIError

from penstock.kernel.columns import Id
from penstock.kernel.db import Db, metadata
from penstock.kernel.dialect.sql import advisory_lock, list_relations
from penstock.kernel.errors import Unavailable


class DatabaseNewer(Unavailable):
    """The database was migrated by a newer version."""

    code = "DB_NEWER"
    message = "The database is at migration {current}, which this version does not know; its latest is {newest}."
    message_zh = "数据库处于迁移 {current}，此版本不认识该迁移；其最新迁移为 {newest}。"
    hint = "Upgrade Penstock to the version that migrated the database."
    hint_zh = "请将本程序更新到迁移该数据库的版本。"
    retryable = False


class DatabaseOccupied(Unavailable):
    """The database has tables of another application with names that this one needs."""

    code = "DB_OCCUPIED"
    message = "The database belongs to another application, and nothing was changed. Names that are taken: {names}."
    message_zh = "该数据库属于另一个应用，未做任何更改。已被占用的名称：{names}。"
    hint = (
        "Use another database, or move these out of the way and run `penstock migrate` again: on PostgreSQL with "
        "CREATE SCHEMA earlier; ALTER TABLE name SET SCHEMA earlier; on SQLite with ALTER TABLE name RENAME TO "
        "earlier_name, and DROP INDEX for indexes. See docs/howto/earlier-tables.md."
    )
    hint_zh = (
        "请改用其他数据库，或先移走这些对象，再运行 `penstock migrate`：PostgreSQL 用 CREATE SCHEMA earlier; "
        "ALTER TABLE name SET SCHEMA earlier；SQLite 用 ALTER TABLE name RENAME TO earlier_name，索引用 DROP INDEX。"
        "参见 docs/howto/earlier-tables.md。"
    )
    retryable = False


schema_migration = Table(
    "schema_migration",
    metadata,
    Column("revision", Id, primary_key=True),
    Column("parent", Id),  # the revision before it
    Column("compatible", Boolean, nullable=False),  # whether processes that know its parent only can live with it
)

HERE = Path(__file__).parent
VERSIONS = HERE / "versions"
ALEMBIC_TABLE = "alembic_version"
OF_FIRST_MIGRATION = frozenset({"outbox", "lease_partition", "run_state"})
MAX_NAMES = 20
TAKEN = re.compile(r'(?:relation|table|index) "?(\w+)"? already exists')
LOCK_NUMBER = 0x70656E73  # "pens": the advisory lock on PostgreSQL


async def migrate(db: Db, folders: Sequence[Path] = ()) -> list[str]:
    """Apply every pending migration and return them. Safe to call from many processes at once."""
    async with db.tx() as tx:
        await advisory_lock(tx, LOCK_NUMBER)
        return await tx.conn.run_sync(_upgrade, tuple(folders))


async def pending(db: Db, folders: Sequence[Path] = ()) -> list[str]:
    """The migrations that have not been applied. Only reads, and does not wait for a running migration."""
    async with db.read() as tx:
        return await tx.conn.run_sync(_missing, tuple(folders))


@cache
def _scripts(folders: tuple[Path, ...]) -> ScriptDirectory:
    return ScriptDirectory(str(HERE), version_locations=[str(folder) for folder in (VERSIONS, *folders)])


def _missing(connection: Connection, folders: tuple[Path, ...]) -> list[str]:
    """Oldest first. Each folder is a branch with a head of its own, so no branch waits for another's next migration."""
    scripts = _scripts(folders)
    current, newest = MigrationContext.configure(connection).get_current_heads(), scripts.get_heads()
    if set(current) == set(newest):
        return []
    if names := _find_taken(connection, current):
        raise DatabaseOccupied(names=", ".join(names))
    known = {step.revision for step in scripts.walk_revisions()}
    found = [_find_known(connection, head, known) for head in current]
    if None in found:
        raise DatabaseNewer(current=", ".join(current), newest=", ".join(newest))
    applied = {step.revision for head in found if head for step in scripts.iterate_revisions(head, "base")}
    return [step.revision for step in [*scripts.walk_revisions()][::-1] if step.revision not in applied]


def _find_taken(connection: Connection, current: Collection[str]) -> list[str]:
    """Names of ours that exist although none of our migrations was applied: tables, else indexes that a rename left.

    Another application may have migrations of Alembic, too; the tables of our first one tell.
    """
    existing = set(connection.scalars(list_relations(connection)))
    if existing >= OF_FIRST_MIGRATION:
        return []
    tables = existing & {*metadata.tables, *([ALEMBIC_TABLE] if current else [])}
    return sorted(tables or existing & _index_names())[:MAX_NAMES]


def _index_names() -> set[str]:
    """The names of our indexes, those of constraints included: PostgreSQL keeps them with the names of tables."""
    tables = metadata.tables.values()
    indexes = {str(index.name) for table in tables for index in table.indexes}
    return indexes | {str(one.name) for table in tables for one in table.constraints if one.name is not None}


def _find_known(connection: Connection, revision: str, known: Collection[str]) -> str | None:
    """The revision itself, or the last one that this version knows if all that follow are compatible with it."""
    if revision in known:
        return revision
    if not inspect(connection).has_table(schema_migration.name):
        return None
    later = {row.revision: row for row in connection.execute(select(schema_migration))}
    while revision not in known:
        step = later.get(revision)
        if step is None or step.parent is None or not step.compatible:
            return None
        revision = step.parent
    return revision


def _record(connection: Connection, scripts: ScriptDirectory, revisions: Sequence[str]) -> None:
    """Record which of the migrations that were just applied are compatible."""
    steps = [scripts.get_revision(revision) for revision in revisions]
    rows = [
        {
            "revision": step.revision,
            "parent": step.down_revision,
            "compatible": getattr(step.module, "compatible", False),
        }
        for step in steps
    ]
    connection.execute(insert(schema_migration), rows)


@contextmanager
def _taken_names_reported() -> Iterator[None]:
    """Report a name that is taken on a database which has some of our migrations already."""
    try:
        yield
    except DBAPIError as error:
        if taken := TAKEN.search(str(error.orig)):
            raise DatabaseOccupied(names=taken[1]) from error
        raise


def _upgrade(connection: Connection, folders: tuple[Path, ...]) -> list[str]:
    steps = _missing(connection, folders)
    if steps:
        config = Config()
        config.set_main_option("script_location", str(HERE))
        config.set_main_option("path_separator", "newline")
        config.set_main_option("version_locations", "\n".join(map(str, (VERSIONS, *folders))))
        config.attributes["connection"] = connection
        with _taken_names_reported():
            command.upgrade(config, "heads")
        _record(connection, _scripts(folders), steps)
    return steps
