"""A database with tables of another application is named, and not touched."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from penstock.kernel.clock import SystemClock
from penstock.kernel.db import Db
from penstock.kernel.dialect.sql import list_relations
from penstock.kernel.ids import TimeIds
from penstock.kernel.migrations import DatabaseOccupied, migrate, pending
from tests.checks import tree
from tests.servers.postgres import Databases

NAME = "penstock_occupied"
# As the earlier product has them.
EARLIER = (
    "CREATE TABLE etl_task (id BIGINT PRIMARY KEY, user_id BIGINT, project_id BIGINT, filename TEXT, rule_id BIGINT, "
    "status TEXT, progress INTEGER, result TEXT, error TEXT, metadata TEXT, created_at TEXT, updated_at TEXT)",
    "CREATE TABLE etl_rule (rule_id BIGINT PRIMARY KEY, name TEXT, description TEXT, json_schema TEXT, "
    "system_prompt TEXT, postprocess_mode TEXT, postprocess_strategy TEXT, created_at TEXT)",
    "CREATE INDEX ix_etl_task_status ON etl_task (status)",
    "INSERT INTO etl_task (id, filename) VALUES (1, 'a.pdf')",
)
MOVE = {
    "sqlite": ("ALTER TABLE etl_task RENAME TO old_task", "ALTER TABLE etl_rule RENAME TO old_rule"),
    "postgresql": (
        "CREATE SCHEMA earlier",
        "ALTER TABLE etl_task SET SCHEMA earlier",
        "ALTER TABLE etl_rule SET SCHEMA earlier",
    ),
}

tree.modules()  # imports them all, so that every table is known, whichever module declares it


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without tables."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'one.db'}"
        return
    server: Databases = request.getfixturevalue("postgres_server")
    server.drop_database(NAME)
    server.create_database(NAME)
    yield server.url(NAME)
    server.drop_database(NAME)


@pytest.fixture
async def db(url: str) -> AsyncIterator[Db]:
    clock = SystemClock()
    db = Db.open(url, clock=clock, ids=TimeIds(clock))
    yield db
    await db.close()


async def execute(db: Db, *statements: str) -> None:
    async with db.tx() as tx:
        for statement in statements:
            await tx.conn.execute(text(statement))


async def relations(db: Db) -> set[str]:
    async with db.read() as tx:
        return await tx.conn.run_sync(lambda connection: set(connection.scalars(list_relations(connection))))


async def test_tables_of_another_application_are_named_and_nothing_changes(db: Db):
    await execute(db, *EARLIER)
    before = await relations(db)
    for asking in (migrate, pending):
        with pytest.raises(DatabaseOccupied, match=r"taken: etl_rule, etl_task\."):
            await asking(db)
    assert await relations(db) == before
    async with db.read() as tx:
        assert await tx.conn.scalar(text("SELECT filename FROM etl_task")) == "a.pdf"


async def test_it_goes_on_when_they_were_moved_aside(db: Db):
    await execute(db, *EARLIER)
    await execute(db, *MOVE[db.database_name])
    if db.database_name == "sqlite":  # a renamed table keeps its indexes and their names
        with pytest.raises(DatabaseOccupied, match=r"taken: ix_etl_task_status\."):
            await migrate(db)
        await execute(db, "DROP INDEX ix_etl_task_status")
    assert "0001" in await migrate(db)
    assert await pending(db) == []


async def test_migrations_of_another_application_are_not_taken_for_a_newer_version(db: Db):
    await execute(
        db,
        "CREATE TABLE alembic_version (version_num VARCHAR(32) PRIMARY KEY)",
        "INSERT INTO alembic_version VALUES ('1975ea83b712')",
        "CREATE TABLE etl_task (id BIGINT PRIMARY KEY)",
    )
    with pytest.raises(DatabaseOccupied, match=r"taken: alembic_version, etl_task\."):
        await migrate(db)


async def test_other_tables_do_not_matter(db: Db):
    await execute(db, "CREATE TABLE customer (id BIGINT PRIMARY KEY)")
    await migrate(db)
    assert await pending(db) == []


async def test_a_name_that_is_taken_after_the_first_migrations_is_named(db: Db):
    await migrate(db)
    async with db.tx() as tx:
        await tx.conn.execute(text("DROP TABLE etl_memory"))
        await tx.conn.execute(text("CREATE TABLE etl_memory (id BIGINT PRIMARY KEY)"))
        await tx.conn.execute(text("UPDATE alembic_version SET version_num = '0007'"))
        await tx.conn.execute(text("DELETE FROM schema_migration WHERE revision > '0007'"))
    with pytest.raises(DatabaseOccupied, match=r"taken: etl_memory\."):
        await migrate(db)
