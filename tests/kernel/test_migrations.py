"""Migrated is the same as fresh: the steps in `versions` give exactly the tables that the code declares."""

import asyncio
import json
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from penstock.kernel.clock import SystemClock
from penstock.kernel.db import Db, metadata
from penstock.kernel.ids import TimeIds
from penstock.kernel.migrations import DatabaseNewer, migrate, pending
from tests.checks import tree
from tests.servers.postgres import Databases

RIVALS = 4
ALEMBICS_OWN = "alembic_version"

POSTGRES_COLUMNS = """
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull,
           pg_get_expr(d.adbin, d.adrelid) AS standard, l.collname, a.attidentity::text, a.attgenerated::text
    FROM pg_attribute a
    JOIN pg_class c ON c.oid = a.attrelid AND c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    LEFT JOIN pg_collation l ON l.oid = a.attcollation
    WHERE a.attnum > 0 AND NOT a.attisdropped
"""
POSTGRES_RULES = """
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace
"""
POSTGRES_INDEXES = """
    SELECT indrelid::regclass::text, indexrelid::regclass::text, pg_get_indexdef(indexrelid)
    FROM pg_index JOIN pg_class c ON c.oid = indrelid AND c.relnamespace = 'public'::regnamespace
"""
SQLITE_EVERYTHING = (  # but its own tables, such as the one that counts ids
    "SELECT tbl_name, name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
)

tree.modules()  # imports them all, so that `metadata` knows every table, whichever module declares it


def open_plain(url: str) -> Db:
    clock = SystemClock()
    return Db.open(url, clock=clock, ids=TimeIds(clock))


@pytest.fixture(params=["sqlite", "postgres"])
def empty_urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    """Two databases with nothing in them."""
    if request.param == "sqlite":
        yield [f"sqlite:///{tmp_path / name}.db" for name in ("one", "two")]
        return
    server: Databases = request.getfixturevalue("postgres_server")
    names = ["penstock_empty_one", "penstock_empty_two"]
    for name in names:
        server.drop_database(name)
        server.create_database(name)
    yield [server.url(name) for name in names]
    for name in names:
        server.drop_database(name)


@pytest.fixture
async def empties(empty_urls: list[str]) -> AsyncIterator[list[Db]]:
    dbs = [open_plain(url) for url in empty_urls]
    yield dbs
    for db in dbs:
        await db.close()


async def schema(db: Db) -> dict[tuple[str, str, str], Any]:
    """Everything the database knows about our tables, whatever the order of their columns."""
    async with db.tx() as tx:
        found = await (_postgres_schema(tx.conn) if db.database_name == "postgresql" else _sqlite_schema(tx.conn))
    return {key: value for key, value in found.items() if key[0] != ALEMBICS_OWN}


async def _postgres_schema(conn: AsyncConnection) -> dict[tuple[str, str, str], Any]:
    found = {}
    for kind, query in (("column", POSTGRES_COLUMNS), ("rule", POSTGRES_RULES), ("index", POSTGRES_INDEXES)):
        for table, name, *what in await conn.execute(text(query)):
            found[table, kind, name] = what
    return found


async def _sqlite_schema(conn: AsyncConnection) -> dict[tuple[str, str, str], Any]:
    """SQLAlchemy writes each column and rule of a table on a line of its own."""
    found: dict[tuple[str, str, str], Any] = {}
    for table, name, sql in await conn.execute(text(SQLITE_EVERYTHING)):
        lines = [re.sub(r"\s+", " ", line.replace('"', "")).strip(" ,") for line in sql.splitlines()]
        # SQLite writes an added column on the line of the last one.
        lines = [part for line in lines for part in ([line] if "(" in line else line.split(", "))]
        found[table, "table" if name == table else "index", name] = sorted(filter(None, lines))
    return found


async def test_a_migrated_database_is_the_same_as_a_fresh_one(empties: list[Db]):
    migrated, fresh = empties
    await migrate(migrated)
    async with fresh.tx() as tx:
        await tx.conn.run_sync(metadata.create_all)
    assert await schema(migrated) == await schema(fresh)


async def test_the_comparison_sees_partial_indexes_collations_defaults_and_checks(empties: list[Db]):
    """Guards the test above: it would also pass if `schema` were blind."""
    await migrate(empties[0])
    found = await schema(empties[0])
    words = str(found)
    assert {table for table, _, _ in found} == set(metadata.tables)
    assert "WHERE" in words
    assert "most_attempts >= 1" in words
    if empties[0].database_name == "postgresql":
        assert found["job", "column", "id"][:5] == ["text", True, None, "C", ""]
        assert found["job", "column", "priority"][:3] == ["smallint", True, "'5'::smallint"]
    else:
        assert "priority SMALLINT DEFAULT '5' NOT NULL" in found["job", "table", "job"]


async def test_every_step_is_pending_before_and_none_after(empties: list[Db]):
    db = empties[0]
    before = await pending(db)
    assert before == sorted(before)
    assert "0001" in before
    assert await migrate(db) == before
    assert await pending(db) == []


async def test_asking_what_is_pending_changes_nothing(empties: list[Db]):
    await pending(empties[0])
    assert await schema(empties[0]) == {}
    assert "0001" in await pending(empties[0])


async def test_migrating_again_does_nothing(empties: list[Db]):
    db = empties[0]
    await migrate(db)
    first = await schema(db)
    assert await migrate(db) == []
    assert await schema(db) == first


# A process of its own: it says that it is ready, waits for the word, migrates, and tells which steps it took.
RIVAL = """
import asyncio, json, sys
from penstock.kernel.clock import SystemClock
from penstock.kernel.db import Db
from penstock.kernel.ids import TimeIds
from penstock.kernel.migrations import migrate

async def take_steps():
    db = Db.open(sys.argv[1], clock=SystemClock(), ids=TimeIds(SystemClock()))
    steps = await migrate(db)
    await db.close()
    return steps

print("ready", flush=True)
sys.stdin.readline()
print(json.dumps(asyncio.run(take_steps())))
"""


async def test_of_four_processes_that_migrate_at_once_exactly_one_takes_the_steps(empties: list[Db], empty_urls):
    steps = await pending(empties[0])
    command = [sys.executable, "-c", RIVAL, empty_urls[1]]
    rivals = [await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE) for _ in range(RIVALS)]
    try:
        for rival in rivals:
            assert rival.stdout is not None
            assert await rival.stdout.readline() == b"ready\n"
        taken = [json.loads(output) for output, _ in await asyncio.gather(*(r.communicate(b"go\n") for r in rivals))]
    finally:
        for rival in rivals:
            if rival.returncode is None:
                rival.kill()
    assert sorted(taken) == [[]] * (RIVALS - 1) + [steps]
    assert await pending(empties[1]) == []


async def test_a_database_that_a_newer_version_migrated_is_named(empties: list[Db]):
    db = empties[0]
    await migrate(db)
    async with db.tx() as tx:
        await tx.conn.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for asking in (pending, migrate):
        with pytest.raises(DatabaseNewer, match="9999"):
            await asking(db)
