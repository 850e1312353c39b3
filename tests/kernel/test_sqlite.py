"""The SQLite driver: a statement is one call into the driver's thread, and nothing is left open."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import TextClause, insert, select, text
from sqlalchemy.exc import IntegrityError

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Tx
from penstock.kernel.dialect.engines import ensure_transaction
from penstock.kernel.dialect.sqlite import SqliteConnection, connect_sqlite
from penstock.kernel.scheduler import periodic_task
from tests.conftest import open_db


@pytest.fixture
def thread_calls(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], Any]]:
    """Whatever is sent to a driver's thread from now on."""
    sent: list[Callable[[], Any]] = []
    send = SqliteConnection._execute

    async def counted(self: SqliteConnection, fn: Any, *args: Any, **kwargs: Any) -> Any:
        sent.append(fn)
        return await send(self, fn, *args, **kwargs)

    monkeypatch.setattr(SqliteConnection, "_execute", counted)
    return sent


@pytest.mark.parametrize(("kind", "around"), [("read", 0), ("autocommit", 0), ("tx", 2)])
async def test_a_statement_is_one_thread_call_and_a_transaction_two_more(
    sqlite_url: str, clock: ManualClock, thread_calls: list[Callable[[], Any]], kind: str, around: int
):
    db = open_db(sqlite_url, clock)
    opened: Callable[[], AbstractAsyncContextManager[Tx]] = getattr(db, kind)
    for statements in (1, 3):
        async with opened() as tx:
            await tx.conn.execute(select(periodic_task.c.id))
        thread_calls.clear()
        async with opened() as tx:
            for _ in range(statements):
                assert (await tx.conn.execute(select(periodic_task.c.id))).all() == []
        assert len(thread_calls) == statements + around
    await db.close()


@pytest.mark.parametrize("kind", ["autocommit", "tx"])
async def test_statements_that_belong_together_are_kept_or_lost_together(
    sqlite_url: str, clock: ManualClock, kind: str
):
    db = open_db(sqlite_url, clock)
    opened: Callable[[], AbstractAsyncContextManager[Tx]] = getattr(db, kind)

    async def write(*names: str) -> None:
        async with opened() as tx, ensure_transaction(tx.conn):
            for name in names:
                await tx.conn.execute(insert(periodic_task), {"id": name, "scheduled_at": clock.now()})

    await write("a", "b")
    with pytest.raises(IntegrityError):
        await write("c", "a")
    async with db.read() as tx:
        assert (await tx.conn.scalars(select(periodic_task.c.id).order_by(periodic_task.c.id))).all() == ["a", "b"]
    await db.close()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("cancels", [1, 2])
async def test_who_is_cancelled_while_it_waits_for_its_turn_begins_nothing(
    sqlite_url: str, clock: ManualClock, cancels: int
):
    db = open_db(sqlite_url, clock)
    async with db.tx() as tx:
        await tx.conn.execute(select(periodic_task.c.id))

    async def begin() -> None:
        async with db.tx():
            raise AssertionError("nobody can begin now")

    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(begin())
        await asyncio.wait({waiting}, timeout=0.2)
        for _ in range(cancels):
            waiting.cancel()
            await asyncio.sleep(0.01)
        other.execute("COMMIT")
        await asyncio.wait({waiting})
    assert waiting.cancelled()
    async with asyncio.timeout(5), db.tx() as tx:
        await tx.conn.execute(insert(periodic_task), {"id": "a", "scheduled_at": clock.now()})
    assert not blocked(sqlite_url)
    await db.close()


async def test_rows_are_counted_and_come_back(sqlite_url: str, clock: ManualClock):
    db = open_db(sqlite_url, clock)
    async with db.tx() as tx:
        rows = [{"id": name, "scheduled_at": clock.now()} for name in "abc"]
        assert (await tx.conn.execute(insert(periodic_task), rows)).rowcount == 3
        one = insert(periodic_task).values(id="d", scheduled_at=clock.now()).returning(periodic_task.c.id)
        assert await tx.conn.scalar(one) == "d"
    async with db.read() as tx:
        assert (await tx.conn.scalars(select(periodic_task.c.id).order_by(periodic_task.c.id))).all() == [
            "a",
            "b",
            "c",
            "d",
        ]
    await db.close()


def counting_to(last: int, shown: str) -> TextClause:
    counting = f"SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {last}"
    return text(f"WITH RECURSIVE n(i) AS ({counting}) SELECT {shown} FROM n")


def blocked(sqlite_url: str) -> bool:
    """Whether somebody holds on to something, so that another process could not write now, or not empty the log."""
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        other.execute("COMMIT")
        (is_busy, *_) = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return bool(is_busy)


@pytest.mark.parametrize("is_many", [False, True])
async def test_a_statement_that_fails_leaves_nothing_open(sqlite_url: str, clock: ManualClock, is_many: bool):
    db = open_db(sqlite_url, clock)
    row = {"id": "a", "scheduled_at": clock.now()}

    async def fail() -> None:
        async with db.tx() as tx:
            await tx.conn.execute(insert(periodic_task), row)
            await tx.conn.execute(insert(periodic_task), [{**row, "id": "b"}, row] if is_many else row)

    with pytest.raises(IntegrityError) as caught:
        await fail()
    assert not blocked(sqlite_url), f"while somebody still has {caught.value!r} with its frames"
    async with db.tx() as tx:
        assert (await tx.conn.scalars(select(periodic_task.c.id))).all() == []
        await tx.conn.execute(insert(periodic_task), row)
    await db.close()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("cancels", [1, 2])
@pytest.mark.parametrize("writes", [False, True])
async def test_what_is_cancelled_holds_on_to_nothing(sqlite_url: str, clock: ManualClock, writes: bool, cancels: int):
    db = open_db(sqlite_url, clock, connections=1)
    opened = db.tx if writes else db.read

    async def work() -> None:
        async with opened() as tx:
            await tx.conn.execute(select(periodic_task.c.id))
            await tx.conn.execute(counting_to(300_000, "count(*)"))

    for turn in range(10):
        working = asyncio.create_task(work())
        await asyncio.wait({working}, timeout=0.002 * turn)
        for _ in range(cancels):
            working.cancel()
            await asyncio.sleep(0)
        await asyncio.wait({working})
        async with asyncio.timeout(5), opened() as tx:
            assert (await tx.conn.execute(select(periodic_task.c.id))).all() == []
        assert not blocked(sqlite_url)
    await db.close()


async def test_a_large_result_comes_whole_and_in_order(sqlite_url: str, clock: ManualClock):
    db = open_db(sqlite_url, clock)
    async with db.read() as tx:
        assert (await tx.conn.scalars(counting_to(50_000, "i"))).all() == list(range(1, 50_001))
    await db.close()


async def test_a_cancel_stays_a_cancel_when_its_connection_is_closed_meanwhile(tmp_path: Path):
    connection = connect_sqlite(str(tmp_path / "a.db"), isolation_level=None)
    await connection
    stopped: list[Any] = []

    async def be_cancelled() -> None:
        async with connection.transaction():
            stopped.append(connection.stop())  # as SQLAlchemy does it with one that it could not close in time
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await be_cancelled()
    await asyncio.gather(*stopped)
