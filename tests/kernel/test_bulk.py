"""What `bulk.py` promises: the same rows on both databases."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    func,
    select,
)
from sqlalchemy.exc import IntegrityError, StatementError

from penstock.kernel.columns import Id, Json, UtcTime
from penstock.kernel.db import Db
from penstock.kernel.dialect.bulk import insert_new, insert_rows, update_rows
from penstock.kernel.dialect.sql import any_of, upsert
from tests.conftest import rolled_back

thing = Table(
    "thing",
    MetaData(),
    Column("id", Id, primary_key=True),
    Column("name", String),
    Column("size", BigInteger),
    Column("share", Double),
    Column("good", Boolean),
    Column("made_at", UtcTime),
    Column("fields", Json),
    Column("colour", String, server_default="red"),
    UniqueConstraint("name", "size"),
)
strict = Table("strict", MetaData(), Column("id", Integer, primary_key=True), Column("fields", Json, nullable=False))
NAMES = ("id", "name", "size", "share", "good", "made_at", "fields")
NOON = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
EXAMPLES = count()  # a fresh id per Hypothesis example: the table is one for all of them
shared_table = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

# PostgreSQL holds no NUL in a text; half a surrogate pair is no text at all.
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
numbers = st.one_of(st.integers(-(2**53), 2**53), st.floats(-1e9, 1e9).map(lambda number: round(number, 6)))
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=10,
)


@pytest.fixture
async def things(db: Db) -> Db:
    """The database, with our tables in it, empty."""
    async with db.tx() as tx:
        await tx.conn.run_sync(thing.metadata.create_all)
        await tx.conn.run_sync(strict.metadata.create_all)
    return db


async def insert(db: Db, *rows: tuple[Any, ...], names: tuple[str, ...] = NAMES) -> None:
    async with db.tx() as tx:
        await insert_rows(tx, thing, names, rows)


async def insert_unless_there(db: Db, *rows: tuple[Any, ...], names: tuple[str, ...] = ("id", "name", "size")):
    async with db.tx() as tx:
        return await insert_new(tx, thing, names, rows)


async def stored(db: Db, *names: str) -> list[tuple[Any, ...]]:
    async with db.read() as tx:
        rows = await tx.conn.execute(select(*(thing.c[name] for name in names)).order_by(thing.c.id))
        return [tuple(row) for row in rows]


async def test_every_kind_of_column_comes_back_as_it_went_in(things: Db):
    full = ("a", "Grüße, 世界 🎉", 2**62, 0.1, True, NOON, {"k": [1, 2.5, "三", None, True, {"deep": {}}]})
    empty = ("b", None, None, None, None, None, None)
    await insert(things, full, empty)
    assert await stored(things, *NAMES) == [full, empty]


async def test_a_column_that_is_not_named_gets_its_default(things: Db):
    await insert(things, ("a",), names=("id",))
    assert await stored(things, "id", "name", "colour") == [("a", None, "red")]


async def test_columns_may_be_named_in_any_order(things: Db):
    await insert(things, (7, "a", "x"), names=("size", "id", "name"))
    assert await stored(things, "id", "name", "size") == [("a", "x", 7)]


async def test_no_rows_are_no_statement(things: Db):
    await insert(things)
    assert await insert_unless_there(things) == set()
    assert await stored(things, "id") == []


@pytest.mark.parametrize("rows", [[("a", "x"), ("b",)], [("a", "x", 1), ("b", "y", 2)], [("a",), ("b",)]])
async def test_a_row_of_another_width_than_the_names_is_refused(things: Db, rows: list[tuple[Any, ...]]):
    with pytest.raises(ValueError, match=r"zip\(\)"):
        await insert(things, *rows, names=("id", "name"))
    assert await stored(things, "id") == []


async def test_twenty_thousand_rows_go_in_at_once(things: Db):
    rows = [
        (f"{n:06}", f"name {n}", n, n / 7, n % 2 == 0, NOON + timedelta(microseconds=n), {"n": n})
        for n in range(20_000)
    ]
    await insert(things, *rows)
    assert await stored(things, *NAMES) == rows


async def test_of_twenty_thousand_rows_only_the_new_ones_are_kept_and_named(things: Db):
    await insert(things, *((f"{n:06}", "old", n) for n in range(0, 20_000, 3)), names=("id", "name", "size"))
    new = await insert_unless_there(things, *((f"{n:06}", "new", n) for n in range(20_000)))
    assert new == {f"{n:06}" for n in range(20_000) if n % 3}
    rows = await stored(things, "id", "name")
    assert rows == [(f"{n:06}", "new" if n % 3 else "old") for n in range(20_000)]


async def test_a_duplicate_within_one_call_is_left_out(things: Db):
    assert await insert_unless_there(things, ("a", "first", 1), ("a", "second", 2)) == {"a"}
    assert await stored(things, "id", "name") == [("a", "first")]


async def test_any_unique_constraint_counts(things: Db):
    await insert(things, ("a", "same", 1), names=("id", "name", "size"))
    assert await insert_unless_there(things, ("b", "same", 1), ("c", "same", 2)) == {"c"}


async def test_a_duplicate_undoes_a_plain_insert_whole(things: Db):
    await insert(things, ("b",), names=("id",))
    with pytest.raises(IntegrityError):
        await insert(things, ("a",), ("b",), names=("id",))
    assert await stored(things, "id") == [("b",)]


async def test_nothing_is_sql_null_and_not_the_json_null(things: Db):
    await insert(things, ("bulk", None), names=("id", "fields"))
    async with things.tx() as tx:
        await tx.conn.execute(upsert(thing).values(id="single", fields=None))
        nulls = select(thing.c.id).where(thing.c.fields.is_(None)).order_by(thing.c.id)
        assert (await tx.conn.scalars(nulls)).all() == ["bulk", "single"]


async def test_nothing_is_refused_where_json_must_be(things: Db):
    with pytest.raises(IntegrityError):
        async with things.tx() as tx:
            await insert_rows(tx, strict, ("id", "fields"), [(1, {}), (2, None)])


async def test_a_json_value_that_looks_like_nothing_is_kept(things: Db):
    values: list[Any] = [{}, [], "", 0, False, [None], {"a": None}, "null", '{"a": 1}']
    await insert(things, *((f"{n}", value) for n, value in enumerate(values)), names=("id", "fields"))
    back = [value for (value,) in await stored(things, "fields")]
    assert [(value, type(value)) for value in back] == [(value, type(value)) for value in values]


@given(st.lists(st.tuples(texts, plain), min_size=1, max_size=5))
@shared_table
async def test_any_text_and_any_json_come_back(things: Db, pairs: list[tuple[str, Any]]):
    example = f"{next(EXAMPLES):06}"
    rows = [(f"{example}-{n}", name, value) for n, (name, value) in enumerate(pairs)]
    async with things.tx() as tx:
        new = await insert_new(tx, thing, ("id", "colour", "fields"), rows)
        mine = select(thing.c.id, thing.c.colour, thing.c.fields).where(thing.c.id.in_(new))
        back = [tuple(row) for row in await tx.conn.execute(mine.order_by(thing.c.id))]
    assert back == rows


async def test_a_time_of_another_zone_is_the_same_moment(things: Db):
    there = NOON.astimezone(timezone(timedelta(hours=-9, minutes=-30)))
    await insert(things, ("a", there), names=("id", "made_at"))
    [(back,)] = await stored(things, "made_at")
    assert (back, back.utcoffset()) == (NOON, timedelta(0))


async def test_a_time_without_a_zone_is_refused(things: Db):
    naive = NOON.replace(tzinfo=None)
    with pytest.raises((ValueError, StatementError), match="has no time zone"):
        await insert(things, ("a", NOON), ("b", naive), names=("id", "made_at"))
    with pytest.raises((ValueError, StatementError), match="has no time zone"):
        await insert_unless_there(things, ("a", naive), names=("id", "made_at"))
    assert await stored(things, "id") == []


async def test_rows_belong_to_the_transaction(things: Db):
    async with rolled_back(things) as tx:
        await insert_rows(tx, thing, ("id",), [("a",)])
        assert await insert_new(tx, thing, ("id",), [("a",), ("b",)]) == {"b"}
        assert await tx.conn.scalar(select(func.count()).select_from(thing)) == 2
    assert await stored(things, "id") == []


async def found(db: Db, *ids: str) -> list[str]:
    async with db.read() as tx:
        mine = select(thing.c.id).where(any_of(thing.c.id, ids)).order_by(thing.c.id)
        return list((await tx.conn.scalars(mine)).all())


async def change(db: Db, names: tuple[str, ...], *rows: tuple[Any, ...], only: str | None = None) -> int:
    async with db.tx() as tx:
        where = () if only is None else (thing.c.colour == only,)
        return await update_rows(tx, thing, names, rows, *where)


class TestAmong:
    async def test_only_those_that_are_named_are_found(self, things: Db):
        await insert(things, ("a",), ("b",), ("c",), names=("id",))
        assert await found(things, "c", "a", "a", "nobody") == ["a", "c"]

    async def test_of_none_there_is_none(self, things: Db):
        await insert(things, ("a",), names=("id",))
        assert await found(things) == []

    @pytest.mark.parametrize(
        "name", ["A", "ä", "世界 🎉", "a,b", "{a}", '"a"', "a\\b", "' OR 1=1", "[1]", "null", " a "]
    )
    async def test_a_name_means_itself_and_nothing_else(self, things: Db, name: str):
        await insert(things, ("a",), (name,), names=("id",))
        assert await found(things, name) == [name]

    async def test_more_are_found_than_a_statement_has_parameters(self, things: Db):
        await insert(things, *((f"{n:06}",) for n in range(0, 70_000, 2)), names=("id",))
        assert len(await found(things, *(f"{n:06}" for n in range(70_000)))) == 35_000


class TestUpdateRows:
    async def test_each_row_gets_values_of_its_own(self, things: Db):
        await insert(things, ("a", "x", 1), ("b", "y", 2), ("c", "z", 3), names=("id", "name", "size"))
        assert await change(things, ("id", "name", "size"), ("a", "ä", 10), ("c", None, 30)) == 2
        assert await stored(things, "id", "name", "size") == [("a", "ä", 10), ("b", "y", 2), ("c", None, 30)]

    async def test_every_kind_of_column_is_set_as_it_was_given(self, things: Db):
        await insert(things, ("a", None, None, None, None, None, None), ("b", "old", 1, 0.5, True, NOON, {"k": 1}))
        full = ("a", "Grüße, 世界 🎉", 2**62, 0.1, True, NOON, {"k": [1, 2.5, "三", None, True, {"deep": {}}]})
        empty = ("b", None, None, None, None, None, None)
        assert await change(things, NAMES, full, empty) == 2
        assert await stored(things, *NAMES) == [full, empty]

    async def test_nothing_is_sql_null_and_not_the_json_null(self, things: Db):
        await insert(things, ("a", {"k": 1}), names=("id", "fields"))
        await change(things, ("id", "fields"), ("a", None))
        async with things.read() as tx:
            assert await tx.conn.scalar(select(func.count()).select_from(thing).where(thing.c.fields.is_(None))) == 1

    async def test_rows_that_do_not_meet_the_condition_stay(self, things: Db):
        await insert(things, ("a", "red"), ("b", "blue"), names=("id", "colour"))
        assert await change(things, ("id", "name"), ("a", "x"), ("b", "y"), only="blue") == 1
        assert await stored(things, "id", "name") == [("a", None), ("b", "y")]

    async def test_the_condition_may_speak_of_a_column_that_is_set(self, things: Db):
        await insert(things, ("a", "red"), ("b", "blue"), names=("id", "colour"))
        assert await change(things, ("id", "colour"), ("a", "green"), ("b", "green"), only="blue") == 1
        assert await stored(things, "id", "colour") == [("a", "red"), ("b", "green")]

    async def test_rows_that_are_not_there_are_not_made(self, things: Db):
        await insert(things, ("a",), names=("id",))
        assert await change(things, ("id", "name"), ("a", "x"), ("nobody", "y")) == 1
        assert await stored(things, "id", "name") == [("a", "x")]

    async def test_no_rows_are_no_statement(self, things: Db):
        assert await change(things, ("id", "name")) == 0

    async def test_a_time_without_a_zone_is_refused(self, things: Db):
        await insert(things, ("a",), names=("id",))
        with pytest.raises((ValueError, StatementError), match="has no time zone"):
            await change(things, ("id", "made_at"), ("a", NOON.replace(tzinfo=None)))

    async def test_a_row_of_another_width_than_the_names_is_refused(self, things: Db):
        await insert(things, ("a",), ("b",), names=("id",))
        with pytest.raises(ValueError, match=r"zip\(\)"):
            await change(things, ("id", "name"), ("a", "x"), ("b",))
        assert await stored(things, "id", "name") == [("a", None), ("b", None)]

    async def test_ten_thousand_rows_are_set_at_once(self, things: Db):
        await insert(things, *((f"{n:06}", n) for n in range(10_000)), names=("id", "size"))
        rows = [(f"{n:06}", f"name {n}", -n) for n in range(10_000)]
        assert await change(things, ("id", "name", "size"), *rows) == 10_000
        assert await stored(things, "id", "name", "size") == rows
