"""Writes that go to the database together."""

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, String, Table, select

from penstock.kernel.columns import Id, Json, UtcTime
from penstock.kernel.db import Db
from penstock.kernel.dialect.bulk import WriteBatch, insert_rows
from tests.plans import recorded

here = MetaData()
place = Table("place", here, Column("id", Id, primary_key=True), Column("count", Integer), Column("about", Json))
guest = Table("guest", here, Column("id", Id, primary_key=True), Column("name", String), Column("left_at", UtcTime))
g = guest.c
STAYS = g.left_at.is_(None)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
async def inn(db: Db) -> Db:
    """Two places, and two guests of whom one has left."""
    async with db.tx() as tx:
        await tx.conn.run_sync(here.create_all)
        await insert_rows(tx, place, ("id", "count", "about"), [("a", 1, {"x": 1}), ("b", 1, None)])
        await insert_rows(tx, guest, ("id", "name", "left_at"), [("g1", "Ann", None), ("g2", "Bert", NOON)])
    return db


async def rows_of(db: Db, table: Table) -> list[tuple[Any, ...]]:
    async with db.read() as tx:
        return [tuple(row) for row in await tx.conn.execute(select(table).order_by(table.c.id))]


async def test_rows_of_several_tables_are_written(inn: Db):
    async with inn.tx() as tx:
        writes = WriteBatch(tx)
        writes.update(place, ("id", "count", "about"), [("a", 2, {"y": [1]}), ("b", 0, {})])
        writes.update(guest, ("id", "name"), [("g1", "Anna"), ("g2", "Berta")], where=STAYS)
        writes.insert(guest, ("id", "name", "left_at"), [("g3", "Carl", None), ("g4", "Dora 👋", NOON)])
        assert (await tx.conn.execute(select(place.c.count))).scalars().all() == [1, 1], "not before they are told to"
        await writes.write()
    assert await rows_of(inn, place) == [("a", 2, {"y": [1]}), ("b", 0, {})]
    assert await rows_of(inn, guest) == [
        ("g1", "Anna", None),
        ("g2", "Bert", NOON),
        ("g3", "Carl", None),
        ("g4", "Dora 👋", NOON),
    ]


async def test_one_table_may_be_written_to_in_several_ways(inn: Db):
    async with inn.tx() as tx:
        writes = WriteBatch(tx)
        writes.update(guest, ("id", "name"), [("g1", "Anna")])
        writes.update(guest, ("id", "left_at"), [("g2", None)])
        await writes.write()
    assert await rows_of(inn, guest) == [("g1", "Anna", None), ("g2", "Bert", None)]


async def test_what_is_written_is_not_written_again(inn: Db):
    async with inn.tx() as tx:
        writes = WriteBatch(tx)
        for number in (1, 2, 3):
            writes.insert(guest, ("id",), [(f"new-{number}",)])
            await writes.write()
        writes.update(guest, ("id", "name"), [])
        await writes.write()
    assert len(await rows_of(inn, guest)) == 5


async def test_on_postgres_they_are_one_statement(inn: Db):
    with recorded(inn, "(place|guest)") as statements:
        async with inn.tx() as tx:
            writes = WriteBatch(tx)
            writes.update(place, ("id", "count"), [("a", 2)])
            writes.update(guest, ("id", "name"), [("g1", "Anna")])
            await writes.write()
    words = [text.split()[0] for text, _ in statements]
    assert words == (["WITH"] if inn.database_name == "postgresql" else ["UPDATE", "UPDATE"])


async def test_a_time_without_a_zone_is_refused(inn: Db):
    async with inn.tx() as tx:
        writes = WriteBatch(tx)
        writes.update(place, ("id", "count"), [("a", 2)])
        writes.update(guest, ("id", "left_at"), [("g1", NOON.replace(tzinfo=None))])
        with pytest.raises(Exception, match="no time zone"):
            await writes.write()
