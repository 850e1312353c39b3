"""What `columns.py` promises: a time and a JSON value mean the same on both databases."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import count
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Column, MetaData, Table, func, insert, literal, select
from sqlalchemy.exc import StatementError

from penstock.kernel.columns import Id, Json, UtcTime, to_json
from penstock.kernel.db import Db

moment = Table(
    "moment",
    MetaData(),
    Column("id", Id, primary_key=True),
    Column("at", UtcTime),
    Column("fields", Json),
)
EXAMPLES = count()  # a fresh id per Hypothesis example: the table is one for all of them
shared_table = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
zones = st.timedeltas(min_value=timedelta(hours=-14), max_value=timedelta(hours=14)).map(
    lambda offset: timezone(timedelta(minutes=offset // timedelta(minutes=1)))
)
times = st.datetimes(min_value=datetime(1000, 1, 1), max_value=datetime(9999, 1, 1), timezones=zones)  # noqa: DTZ001


@pytest.fixture
async def moments(db: Db) -> Db:
    async with db.tx() as tx:
        await tx.conn.run_sync(moment.create)
    return db


async def keep(db: Db, at: datetime | None) -> datetime | None:
    """Store a time and read it back."""
    row = f"{next(EXAMPLES):06}"
    async with db.tx() as tx:
        await tx.conn.execute(insert(moment).values(id=row, at=at))
    async with db.read() as tx:
        back: datetime | None = await tx.conn.scalar(select(moment.c.at).where(moment.c.id == row))
        return back


@given(times)
@shared_table
async def test_a_time_comes_back_in_utc_to_the_microsecond(moments: Db, at: datetime):
    back = await keep(moments, at)
    assert back == at
    assert back is not None
    assert back.utcoffset() == timedelta(0)


async def test_the_hour_that_happens_twice_is_told_apart(moments: Db):
    berlin = ZoneInfo("Europe/Berlin")
    first = datetime(2026, 10, 25, 2, 30, tzinfo=berlin)
    second = first.replace(fold=1)
    assert await keep(moments, first) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert await keep(moments, second) == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)


async def test_no_time_stays_no_time(moments: Db):
    assert await keep(moments, None) is None


async def test_a_time_without_a_zone_is_refused(moments: Db):
    naive = datetime(2026, 1, 1)  # noqa: DTZ001  (the zone is what is missing)
    with pytest.raises(StatementError, match="2026-01-01 00:00:00 has no time zone"):
        await keep(moments, naive)
    async with moments.read() as tx:
        with pytest.raises(StatementError, match="has no time zone"):
            await tx.conn.execute(select(moment).where(moment.c.at < naive))


@given(times, times)
@shared_table
async def test_times_are_compared_and_sorted_as_moments(moments: Db, one: datetime, other: datetime):
    name = f"{next(EXAMPLES):06}"
    async with moments.tx() as tx:
        rows = [{"id": f"{name}-1", "at": one}, {"id": f"{name}-2", "at": other}]
        await tx.conn.execute(insert(moment), rows)
        mine = moment.c.id.startswith(literal(name))
        in_order = (await tx.conn.scalars(select(moment.c.at).where(mine).order_by(moment.c.at))).all()
        assert in_order == sorted([one, other])
        before = select(func.count()).select_from(moment).where(mine, moment.c.at < other)
        assert await tx.conn.scalar(before) == (1 if one < other else 0)
        assert await tx.conn.scalar(select(func.min(moment.c.at)).where(mine)) == min(one, other)


async def test_ids_sort_byte_by_byte(moments: Db):
    names = ["a", "B", "_", "ä", "Z", "z", "中", "😀", "a-", "aa", "a b", "～"]
    async with moments.tx() as tx:
        await tx.conn.execute(insert(moment), [{"id": name} for name in names])
        in_order = (await tx.conn.scalars(select(moment.c.id).order_by(moment.c.id))).all()
        after = (await tx.conn.scalars(select(moment.c.id).where(moment.c.id > "a").order_by(moment.c.id))).all()
    assert in_order == sorted(names, key=str.encode)
    assert after == [name for name in in_order if name.encode() > b"a"]


async def test_a_json_value_comes_back_and_none_is_sql_null(moments: Db):
    value = {"text": "三 \"'\\", "list": [1, 2.5, None, True], "deep": {"": {}}}
    async with moments.tx() as tx:
        await tx.conn.execute(insert(moment), [{"id": "a", "fields": value}, {"id": "b", "fields": None}])
        assert await tx.conn.scalar(select(moment.c.fields).where(moment.c.id == "a")) == value
        assert (await tx.conn.scalars(select(moment.c.id).where(moment.c.fields.is_(None)))).all() == ["b"]


def test_json_text_is_short_and_keeps_letters_as_they_are():
    assert to_json({"name": "世界", "none": None, "at": [1, True]}) == '{"name":"世界","none":null,"at":[1,true]}'


def test_what_is_no_json_is_refused():
    with pytest.raises(TypeError):
        to_json({"what": object()})
