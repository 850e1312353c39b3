"""A database that was used is as new for the next test: its rows, its numbers, its plans and its tables."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.servers.clean import CleanDatabases
from tests.servers.postgres import Databases

TEMPLATE = "penstock_clean_template"
TABLES = """
    CREATE TABLE alembic_version AS SELECT '0001' AS version_num;
    CREATE TABLE house (number int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text CHECK (name <> ''));
    CREATE TABLE room (house int REFERENCES house)
"""
BUILD = "INSERT INTO house (name) VALUES ('one'), ('two'); INSERT INTO room VALUES (1)"
NUMBER = "INSERT INTO house (name) VALUES ('next') RETURNING number"
PAGES = "SELECT sum(pg_relation_size(name::regclass)) FROM unnest(ARRAY['house', 'room']) AS name"


async def say(url: str, words: str) -> None:
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        await connection.execute(words)
    finally:
        await connection.close()


async def ask(url: str, question: str) -> object:
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


@pytest.fixture
async def databases(postgres_server: Databases) -> AsyncIterator[CleanDatabases]:
    postgres_server.drop_database(TEMPLATE)
    postgres_server.create_database(TEMPLATE)
    await say(postgres_server.url(TEMPLATE), TABLES)
    made = CleanDatabases(postgres_server, TEMPLATE, prefix="penstock_clean_")
    yield made
    made.close()
    postgres_server.drop_database(TEMPLATE)


async def test_it_is_used_again_with_nothing_in_it_and_its_numbers_begin_anew(databases: CleanDatabases):
    with databases.one() as first:
        await say(first, BUILD)
    with databases.one() as second:
        assert second == first
        assert await ask(second, PAGES) == 0, "the planner looks at pages, be there rows on them or not"
        assert await ask(second, NUMBER) == 1


async def test_numbers_that_were_drawn_for_nothing_begin_anew_too(databases: CleanDatabases):
    with databases.one() as first, pytest.raises(asyncpg.CheckViolationError):
        await say(first, "INSERT INTO house (name) VALUES ('')")
    with databases.one() as second:
        assert second == first
        assert await ask(second, NUMBER) == 1


async def test_two_at_a_time_are_two(databases: CleanDatabases):
    with databases.one() as first, databases.one() as second:
        assert first != second


async def test_remaining_connections_are_terminated(databases: CleanDatabases):
    with databases.one() as first:
        left = await asyncpg.connect(first.replace("+asyncpg", ""))
        await left.execute("BEGIN")
        await left.execute(BUILD)
    with databases.one() as second:
        assert await ask(second, "SELECT count(*) FROM house") == 0
    left.terminate()


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE more (number int)",
        "DROP TABLE room",
        "ALTER TABLE room RENAME TO chamber",
        "ALTER TABLE room ADD COLUMN name text",
        "ALTER TABLE room ALTER COLUMN house SET NOT NULL",
        "ALTER TABLE room ADD CONSTRAINT right_house CHECK (house > 0)",
        "CREATE INDEX more ON room (house)",
        "CREATE FUNCTION more() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "UPDATE alembic_version SET version_num = '0002'",
        f"{BUILD}; ANALYZE house",
    ],
)
async def test_one_that_was_changed_in_another_way_is_not_used_again(databases: CleanDatabases, change: str):
    with databases.one() as first:
        await say(first, change)
    with databases.one() as second:
        assert second != first
        await say(second, BUILD)
