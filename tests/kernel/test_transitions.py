"""What `transitions.py` promises, shown on a small table of lamps, on both databases."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from enum import StrEnum

import pytest
from sqlalchemy import Column, MetaData, String, Table, func, insert, select, text

from penstock.kernel.clock import ManualClock
from penstock.kernel.columns import Id
from penstock.kernel.db import Db, Tx
from penstock.kernel.machine import Machine, WrongState
from penstock.kernel.transitions import (
    MovedAlready,
    Transition,
    delete_transitions,
    list_transitions,
    move,
    record,
    state_transitions,
)
from tests.conftest import open_db, rolled_back


class Lit(StrEnum):
    OFF = "off"
    ON = "on"
    BROKEN = "broken"


LAMP = Machine(
    "lamp",
    {"light": ({Lit.OFF}, Lit.ON), "dim": ({Lit.ON}, Lit.OFF), "smash": ({Lit.OFF, Lit.ON}, Lit.BROKEN)},
    start=Lit.OFF,
    words={Lit.OFF: "Dark.", Lit.ON: "Bright.", Lit.BROKEN: "For good."},
)
lamp = Table(
    "lamp",
    MetaData(),
    Column("id", Id, primary_key=True),
    Column("state", String, nullable=False),
    Column("note", String),
)


@pytest.fixture
async def lamps(db: Db) -> Db:
    """The database, with one lamp in it that is off."""
    async with db.tx() as tx:
        await tx.conn.run_sync(lamp.create)
    async with db.tx() as tx:
        await tx.conn.execute(insert(lamp).values(id="a", state=Lit.OFF))
    return db


@pytest.fixture
async def rivals(lamps: Db, db_url: str, clock: ManualClock) -> AsyncIterator[list[Db]]:
    """The same database as eight processes see it: each with connections of its own."""
    opened = [open_db(db_url, clock, connections=2) for _ in range(8)]
    yield opened
    for db in opened:
        await db.close()


async def state_of(db: Db, lamp_id: str = "a") -> str | None:
    async with db.read() as tx:
        state: str | None = await tx.conn.scalar(select(lamp.c.state).where(lamp.c.id == lamp_id))
        return state


async def moves_of(db: Db, lamp_id: str = "a") -> list[tuple[str | None, str, str]]:
    async with db.read() as tx:
        return [(t.from_state, t.to_state, t.trigger) for t in await list_transitions(tx, "lamp", lamp_id)]


async def use(db: Db, verb: str, state: Lit, *, actor: str = "me", **values: object) -> Lit:
    async with db.tx(actor=actor) as tx:
        return await move(tx, lamp, LAMP, "a", state=state, verb=verb, **values)


async def rows_in(tx: Tx) -> int:
    return await tx.conn.scalar(select(func.count()).select_from(state_transitions)) or 0


async def test_a_move_changes_the_row_and_is_written_down(lamps: Db, clock: ManualClock):
    assert await use(lamps, "light", Lit.OFF, actor="anna", note="evening") is Lit.ON
    async with lamps.read() as tx:
        assert (await tx.conn.execute(select(lamp))).one() == ("a", "on", "evening")
        assert await list_transitions(tx, "lamp", "a") == [
            Transition(
                id=1,
                entity="lamp",
                entity_id="a",
                from_state="off",
                to_state="on",
                trigger="light",
                actor="anna",
                at=clock.now(),
            )
        ]


async def test_a_verb_that_does_not_fit_the_state_is_refused_and_writes_nothing(lamps: Db):
    with pytest.raises(WrongState, match="Cannot dim: the lamp is off"):
        await use(lamps, "dim", Lit.OFF)
    assert (await state_of(lamps), await moves_of(lamps)) == ("off", [])


async def test_a_row_that_moved_meanwhile_is_refused_and_nothing_is_written(lamps: Db):
    await use(lamps, "light", Lit.OFF)
    with pytest.raises(MovedAlready, match="The lamp a is no longer off; it was changed in the meantime"):
        await use(lamps, "smash", Lit.OFF, note="mine")
    assert (await state_of(lamps), await moves_of(lamps)) == ("on", [("off", "on", "light")])


async def test_a_row_that_is_not_there_is_refused(lamps: Db):
    with pytest.raises(MovedAlready):
        async with lamps.tx() as tx:
            await move(tx, lamp, LAMP, "stranger", state=Lit.OFF, verb="light")
    assert await moves_of(lamps, "stranger") == []


async def two_moves_of_which_the_second_is_late(db: Db) -> None:
    async with db.tx() as tx:
        await tx.conn.execute(insert(lamp).values(id="b", state=Lit.OFF))
        await move(tx, lamp, LAMP, "b", state=Lit.OFF, verb="light")
        await move(tx, lamp, LAMP, "a", state=Lit.ON, verb="dim")


async def test_moves_of_one_transaction_are_kept_or_undone_together(lamps: Db):
    with pytest.raises(MovedAlready):
        await two_moves_of_which_the_second_is_late(lamps)
    assert (await state_of(lamps, "b"), await moves_of(lamps, "b")) == (None, [])
    await use(lamps, "light", Lit.OFF)
    await two_moves_of_which_the_second_is_late(lamps)
    assert (await state_of(lamps, "b"), await moves_of(lamps, "b")) == ("on", [("off", "on", "light")])
    assert await moves_of(lamps) == [("off", "on", "light"), ("on", "off", "dim")]


async def test_of_many_rivals_exactly_one_wins(lamps: Db, rivals: list[Db]):
    gate = asyncio.Barrier(len(rivals))

    async def try_to_light(rival: Db, name: str) -> str | None:
        assert await state_of(rival) == "off"  # all have read it before anyone moves it
        await gate.wait()
        try:
            await use(rival, "light", Lit.OFF, actor=name, note=name)
        except MovedAlready:
            return None
        return name

    results = await asyncio.gather(*(try_to_light(rival, f"rival {n}") for n, rival in enumerate(rivals)))
    [winner] = [name for name in results if name]
    async with lamps.read() as tx:
        assert (await tx.conn.execute(select(lamp))).one() == ("a", "on", winner)
        assert [t.actor for t in await list_transitions(tx, "lamp", "a")] == [winner]


async def until_someone_waits_for_a_row(db: Db) -> None:
    """Return when a transaction waits for a lock that another one holds (PostgreSQL)."""
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    async with asyncio.timeout(20), db.read() as tx:
        while not await tx.conn.scalar(waiting):
            pass


@pytest.mark.parametrize("first_commits", [True, False], ids=["first commits", "first rolls back"])
@pytest.mark.parametrize("db_url", ["postgres"], indirect=True)
async def test_a_rival_waits_for_the_first_and_wins_only_if_it_gives_up(lamps: Db, first_commits: bool):
    async with lamps.tx(actor="first") if first_commits else rolled_back(lamps) as first:
        await move(first, lamp, LAMP, "a", state=Lit.OFF, verb="light")
        rival = asyncio.create_task(use(lamps, "smash", Lit.OFF, actor="rival"))
        await until_someone_waits_for_a_row(lamps)
    await asyncio.wait([rival])
    assert isinstance(rival.exception(), MovedAlready) == first_commits
    assert await moves_of(lamps) == [("off", "on", "light") if first_commits else ("off", "broken", "smash")]


async def test_a_life_is_listed_oldest_first_even_within_one_moment(lamps: Db):
    async with lamps.tx() as tx:
        await record(tx, "lamp", ["a"], None, Lit.OFF, "make")
        for _ in range(3):
            await move(tx, lamp, LAMP, "a", state=Lit.OFF, verb="light")
            await move(tx, lamp, LAMP, "a", state=Lit.ON, verb="dim")
    make, light, dim = (None, "off", "make"), ("off", "on", "light"), ("on", "off", "dim")
    assert await moves_of(lamps) == [make, light, dim, light, dim, light, dim]


async def test_a_list_is_bounded_and_holds_one_thing_only(lamps: Db):
    async with lamps.tx() as tx:
        await record(tx, "lamp", ["a", "b"], None, Lit.OFF, "make")
        await record(tx, "job", ["a"], None, "waiting", "make")
        await record(tx, "lamp", ["a"], Lit.OFF, Lit.ON, "light")
        assert [t.trigger for t in await list_transitions(tx, "lamp", "a")] == ["make", "light"]
        [first] = await list_transitions(tx, "lamp", "a", limit=1)
        assert [t.trigger for t in await list_transitions(tx, "lamp", "a", after=first.id)] == ["light"]


async def test_many_things_make_the_same_move_at_once(lamps: Db):
    ids = [f"l{number}" for number in range(2000)]
    async with lamps.tx(actor="dusk") as tx:
        await record(tx, "lamp", ids, Lit.OFF, Lit.ON, "light")
        assert await rows_in(tx) == 2000
        await record(tx, "lamp", [], Lit.OFF, Lit.ON, "light")
        assert await rows_in(tx) == 2000


async def test_old_transitions_are_deleted_oldest_first_and_no_more_than_the_limit(lamps: Db, clock: ManualClock):
    start = clock.now()
    for _ in range(6):
        async with lamps.tx() as tx:
            await record(tx, "lamp", ["a"], Lit.OFF, Lit.ON, "light")
        clock.advance(seconds=60)
    async with lamps.tx() as tx:
        assert await delete_transitions(tx, before=start + timedelta(seconds=240), limit=3) == 3
        left = [t.at - start for t in await list_transitions(tx, "lamp", "a")]
        assert left == [timedelta(seconds=180), timedelta(seconds=240), timedelta(seconds=300)]
        assert await delete_transitions(tx, before=start + timedelta(seconds=240), limit=3) == 1
        assert await delete_transitions(tx, before=start + timedelta(seconds=240), limit=3) == 0
