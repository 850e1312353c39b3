"""Heartbeats of processes, and processes that stopped sending them."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.processes import Heartbeat, Process, ProcessKind, count_alive, list_processes
from tests.conftest import open_db


def heartbeat(
    db: Db, owner: str = "a:1", kind: ProcessKind = ProcessKind.SERVE, modules: tuple[str, ...] = ("",)
) -> Heartbeat:
    return Heartbeat(db, owner=owner, kind=kind, modules=modules, version="1.2")


async def known(db: Db) -> dict[str, Process]:
    async with db.read() as tx:
        return {process.id: process for process in await list_processes(tx)}


async def until_known(db: Db, count: int) -> None:
    async with asyncio.timeout(10):
        while len(await known(db)) != count:  # noqa: ASYNC110  (the row is written by another task)
            await asyncio.sleep(0.005)


@asynccontextmanager
async def beating(db: Db) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(heartbeat(db).run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_beat_tells_what_the_process_is(db: Db, clock: ManualClock):
    started = clock.now()
    work = heartbeat(db, "b:2", ProcessKind.WORK, ("etl", "gateway"))
    await work.beat()
    clock.advance(seconds=10)
    await work.beat()
    assert await known(db) == {
        "b:2": Process(
            id="b:2",
            kind=ProcessKind.WORK,
            modules=("etl", "gateway"),
            version="1.2",
            started_at=started,
            seen_at=clock.now(),
            alive=True,
        )
    }


async def test_three_beats_may_be_missed(db: Db, clock: ManualClock):
    await heartbeat(db).beat()
    clock.advance(seconds=29.999)
    assert (await known(db))["a:1"].alive
    clock.advance(seconds=0.001)
    assert not (await known(db))["a:1"].alive


async def test_the_living_are_counted_by_kind(db: Db, clock: ManualClock):
    await heartbeat(db, "gone:1").beat()
    clock.advance(seconds=60)
    await heartbeat(db, "a:1").beat()
    for number in range(3):
        await heartbeat(db, f"b:{number}", ProcessKind.WORK).beat()
    async with db.read() as tx:
        assert await count_alive(tx) == {"serve": 1, "work": 3}


async def test_a_process_silent_for_a_day_is_deleted(db: Db, clock: ManualClock):
    await heartbeat(db, "gone:1").beat()
    clock.advance(seconds=86_400)
    await heartbeat(db).beat()
    assert set(await known(db)) == {"a:1", "gone:1"}
    clock.advance(seconds=1)
    await heartbeat(db).beat()
    assert set(await known(db)) == {"a:1"}


async def test_a_process_beats_every_ten_seconds_and_leaves_at_its_end(db: Db, clock: ManualClock):
    async with beating(db):
        await until_known(db, 1)
        clock.advance(seconds=10)
        async with asyncio.timeout(10):
            while (await known(db))["a:1"].seen_at != clock.now():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    assert await known(db) == {}


async def test_the_latest_come_first_and_a_list_has_an_end(db: Db, clock: ManualClock):
    for number in range(5):
        clock.advance(seconds=1)
        await heartbeat(db, f"p:{number}").beat()
    async with db.read() as tx:
        assert [process.id for process in await list_processes(tx, limit=3)] == ["p:4", "p:3", "p:2"]


async def test_a_heartbeat_that_fails_is_logged_and_retried(clock: ManualClock, caplog: pytest.LogCaptureFixture):
    db = open_db("postgresql://nobody@127.0.0.1:1/nowhere", clock)
    caplog.set_level(logging.WARNING)
    task = asyncio.create_task(heartbeat(db).run())
    async with asyncio.timeout(10):
        while "heartbeat failed" not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert "could not deregister" in caplog.text
    await db.close()
