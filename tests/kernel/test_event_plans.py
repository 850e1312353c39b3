"""Every look at the event table is served by an index, on empty tables and on full ones."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.kernel import events
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db, Tx
from penstock.kernel.dialect.bulk import insert_rows
from penstock.kernel.events import EVERYTHING, Interest
from tests import plans
from tests.conftest import open_db
from tests.plans import NOW, explain, kept_plan, reads_a_whole_table, recorded, sorts
from tests.servers.postgres import Databases

ROWS = 20_000
FULL = "penstock_event_plans_full"
HALF = ROWS // 2


@dataclass(frozen=True, kw_only=True)
class Look:
    """A way to look at the table, and the index that must serve it."""

    name: str
    index: str
    run: Callable[[Tx], Awaitable[object]]


def reading(name: str, index: str, interest: Interest, **where: int) -> Look:
    return Look(name=name, index=index, run=lambda tx: events.list_events(tx, interest, after=HALF, limit=50, **where))


MINE = frozenset({"user:1", "merchant:1"})
PRIMARY = "pk_event"
INDEXES = [str(index.name) for index in events.event.indexes]
LOOKS = [
    reading("everything", PRIMARY, EVERYTHING),
    reading("a stretch", PRIMARY, EVERYTHING, upto=HALF + 500),
    reading("a topic", "ix_event_topic", Interest(topic="job:7")),
    reading("an audience", "ix_event_audience", Interest(audiences=frozenset({"user:1"}))),
    reading("audiences", "ix_event_audience", Interest(audiences=MINE)),
    reading("a foreign topic", "ix_event_topic_audience", Interest(topic="rush", audiences=frozenset({"user:2"}))),
    reading("own events of a topic", "ix_event_topic_audience", Interest(topic="job:7", audiences=MINE)),
    Look(name="latest", index=PRIMARY, run=events.latest_id),
    Look(name="oldest", index=PRIMARY, run=events.oldest_id),
    Look(name="delete", index=PRIMARY, run=lambda tx: events.delete_events(tx, before=NOW, limit=50)),
]
SEVERAL = [look for look in LOOKS if look.name in {"audiences", "own events of a topic"}]


def name_of(look: Look) -> str:
    return look.name.replace(" ", "_")


every_look = pytest.mark.parametrize("look", LOOKS, ids=name_of)


@pytest.fixture(scope="module")
def full_postgres(postgres_server: Databases) -> Iterator[str]:
    with plans.full_postgres(postgres_server, FULL, _fill) as url:
        yield url


@pytest.fixture(scope="module")
def full_sqlite(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return plans.full_sqlite(sqlite_template, tmp_path_factory, _fill)


async def _fill(db: Db) -> None:
    """Half of the events are of one busy topic; a user's own are one in a hundred."""
    rows = [_row(number) for number in range(ROWS)]
    async with db.tx() as tx:
        await insert_rows(tx, events.event, events.COLUMNS, rows)


def _row(number: int) -> tuple[Any, ...]:
    topic = "rush" if number % 2 else f"job:{number % 40}"
    return (topic, "done", f"user:{number % 100}", {}, NOW + timedelta(seconds=number - HALF))


@pytest.fixture(params=["new sqlite", "full sqlite", "new postgres", "full postgres", "new pooled", "full pooled"])
def tables_at(request: pytest.FixtureRequest) -> tuple[str, bool]:
    state, kind = request.param.split()
    pooled = kind == "pooled"
    kind = "postgres" if pooled else kind
    return request.getfixturevalue(f"full_{kind}" if state == "full" else f"{kind}_url"), pooled


@pytest.fixture
async def tables(tables_at: tuple[str, bool]) -> AsyncIterator[Db]:
    url, pooled = tables_at
    db = open_db(url, ManualClock(NOW), pooled=pooled)
    yield db
    await db.close()


async def steps_of(db: Db, look: Look) -> list[str]:
    with recorded(db, "event") as statements:
        async with db.tx() as tx:
            await look.run(tx)
    assert statements
    return [step for statement in statements for step in await explain(db, *statement)]


def reads_all_events(step: str) -> bool:
    return reads_a_whole_table(step) and "event" in step  # not a scan of what a part of the statement gave


def words_for(index: str, db: Db) -> str:
    """SQLite keeps a table in the order of its key, and has no index for that: it searches the table itself."""
    return "SEARCH event" if index == PRIMARY and db.database_name != "postgresql" else index


@every_look
async def test_it_is_served_by_its_index(tables: Db, look: Look):
    steps = await steps_of(tables, look)
    # A scan in SQLite's words, cut by the limit.
    goes_along_the_key = look.name == "delete" and tables.database_name != "postgresql"
    assert goes_along_the_key or [step for step in steps if reads_all_events(step)] == []
    assert any(words_for(look.index, tables) in step for step in steps), steps


@every_look
async def test_the_plan_that_postgres_keeps_is_good_too(full_postgres: str, look: Look):
    """After five runs PostgreSQL may keep a plan for any parameters, whatever they are."""
    db = open_db(full_postgres, ManualClock(NOW))
    with recorded(db, "event") as statements:
        async with db.tx() as tx:
            await look.run(tx)
    [(statement, _)] = statements
    steps = await kept_plan(db, "kept", statement)
    await db.close()
    assert [step for step in steps if reads_all_events(step)] == []
    assert {index for step in steps for index in (PRIMARY, *INDEXES) if step.endswith(index)} == {look.index}


@pytest.mark.parametrize("look", [look for look in LOOKS if look not in SEVERAL], ids=name_of)
async def test_it_sorts_nothing_on_a_full_table(full_sqlite: str, full_postgres: str, look: Look):
    for url in (full_sqlite, full_postgres):
        db = open_db(url, ManualClock(NOW))
        steps = await steps_of(db, look)
        await db.close()
        assert [step for step in steps if sorts(step)] == []


@pytest.mark.parametrize("look", SEVERAL, ids=name_of)
async def test_several_audiences_are_cut_one_by_one_before_they_are_put_in_order(full_postgres: str, look: Look):
    db = open_db(full_postgres, ManualClock(NOW))
    steps = await steps_of(db, look)
    await db.close()
    assert len([step for step in steps if step.startswith("Limit")]) == 1 + len(MINE)
