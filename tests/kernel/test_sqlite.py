"""What `kernel/sqlite.py` promises: a statement is one trip to the driver's thread, and nothing is left open."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import insert, select

from penstock.kernel.clock import ManualClock
from penstock.kernel.sqlite import SteadyConnection
from penstock.kernel.timekeeper import duty
from tests.conftest import open_db


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], Any]]:
    """Whatever is sent to a driver's thread from now on."""
    sent: list[Callable[[], Any]] = []
    send = SteadyConnection._execute

    async def counted(self: SteadyConnection, fn: Any, *args: Any, **kwargs: Any) -> Any:
        sent.append(fn)
        return await send(self, fn, *args, **kwargs)

    monkeypatch.setattr(SteadyConnection, "_execute", counted)
    return sent


async def test_a_transaction_is_a_trip_for_each_statement_and_two_around_them(
    sqlite_url: str, clock: ManualClock, trips: list[Callable[[], Any]]
):
    db = open_db(sqlite_url, clock)
    for reads in (1, 3):
        async with db.read() as tx:
            await tx.conn.execute(select(duty.c.id))
        trips.clear()
        async with db.read() as tx:
            for _ in range(reads):
                assert (await tx.conn.execute(select(duty.c.id))).all() == []
        assert len(trips) == reads + 2
    await db.close()


async def test_rows_are_counted_and_come_back(sqlite_url: str, clock: ManualClock):
    db = open_db(sqlite_url, clock)
    async with db.tx() as tx:
        rows = [{"id": name, "scheduled_at": clock.now()} for name in "abc"]
        assert (await tx.conn.execute(insert(duty), rows)).rowcount == 3
        one = insert(duty).values(id="d", scheduled_at=clock.now()).returning(duty.c.id)
        assert await tx.conn.scalar(one) == "d"
    async with db.read() as tx:
        assert (await tx.conn.scalars(select(duty.c.id).order_by(duty.c.id))).all() == ["a", "b", "c", "d"]
    await db.close()
