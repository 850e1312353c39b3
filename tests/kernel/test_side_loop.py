"""The second event loop: what runs on it blocks nobody else, and its commits are reported on the first."""

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial

import pytest
from sqlalchemy import func, select

from penstock.kernel.db import Db
from penstock.kernel.logs import request_id
from penstock.kernel.queue import JobQueue, NewJob, job
from penstock.kernel.side_loop import SideLoop
from tests.conftest import open_db


class Failed(Exception):
    """An error of the work."""


@pytest.fixture
async def side(db: Db, db_url: str) -> AsyncIterator[SideLoop]:
    loop = SideLoop(db, partial(open_db, db_url))
    yield loop
    await loop.close()


async def count(db: Db) -> int:
    async with db.read() as tx:
        return await tx.conn.scalar(select(func.count()).select_from(job)) or 0


async def enqueue(db: Db, error: Exception | None = None) -> int:
    async with db.tx() as tx:
        await JobQueue().enqueue(tx, NewJob(kind="work"))
        tx.after_commit.append(lambda: None)
        if error is not None:
            raise error
    return threading.get_ident()


async def test_work_commits_on_a_thread_of_its_own(db: Db, side: SideLoop) -> None:
    assert await side.run(enqueue) != threading.get_ident()
    assert await count(db) == 1


async def test_an_error_rolls_back_and_reaches_the_caller(db: Db, side: SideLoop) -> None:
    with pytest.raises(Failed):
        await side.run(partial(enqueue, error=Failed()))
    assert await count(db) == 0


async def test_the_first_loop_runs_while_work_keeps_the_other_busy(side: SideLoop) -> None:
    go_on = threading.Event()

    async def busy(_db: Db) -> bool:
        return go_on.wait(timeout=30)  # blocks its loop, as a long computation does

    running = asyncio.create_task(side.run(busy))
    await asyncio.sleep(0)
    go_on.set()  # would never be reached if the loop were blocked
    assert await running


async def test_what_a_commit_triggers_runs_on_the_first_loop(db: Db, side: SideLoop) -> None:
    threads = []

    async def work(own: Db) -> None:
        async with own.tx() as tx:
            tx.after_commit.append(lambda: threads.append(threading.get_ident()))
            tx.wake("news")

    listener = db.wakeups.listen(["news"])
    await side.run(work)
    await listener.wait(seconds=30)
    db.wakeups.unlisten(listener)
    assert threads == [threading.get_ident()]


async def test_a_cancelled_caller_cancels_the_work(db: Db, side: SideLoop) -> None:
    began, ended = threading.Event(), threading.Event()

    async def work(own: Db) -> None:
        try:
            async with own.tx() as tx:
                await JobQueue().enqueue(tx, NewJob(kind="work"))
                began.set()
                await asyncio.Event().wait()
        finally:
            ended.set()

    running = asyncio.create_task(side.run(work))
    assert await asyncio.to_thread(began.wait, 30)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await asyncio.to_thread(ended.wait, 30)
    assert await count(db) == 0


async def test_work_carries_the_id_of_the_request(side: SideLoop) -> None:
    async def work(_db: Db) -> str:
        return request_id.get()

    token = request_id.set("req-7")
    assert await side.run(work) == "req-7"
    request_id.reset(token)


async def test_writers_of_the_process_take_turns_with_it(db: Db, side: SideLoop) -> None:
    order = []

    async def write(own: Db, name: str) -> None:
        async with own.tx() as tx:
            await JobQueue().enqueue(tx, NewJob(kind=name))
            order.append(name)

    many = [side.run(partial(write, name="aside")), write(db, "here"), side.run(partial(write, name="aside"))]
    await asyncio.gather(*many)
    assert await count(db) == 3
