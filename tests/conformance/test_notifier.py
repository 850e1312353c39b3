"""What every notifier does: a commit in one process wakes the waiters of the others, and a notifier that is down blocks
nobody. The processes are two databases in one event loop, each with its own connections to the notifier.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Protocol

import pytest

from penstock.adapters.postgres_notifier import MAX_PAYLOAD_BYTES, PostgresNotifier
from penstock.adapters.redis.client import RedisClient
from penstock.adapters.redis.messages import RedisNotifier
from penstock.kernel.clock import Clock, ManualClock, SystemClock
from penstock.kernel.db import Db
from penstock.kernel.notifier import Notifier, run_notifier
from penstock.kernel.queue import Job, JobQueue, NewJob
from penstock.kernel.workers import Workers
from tests.conftest import open_db
from tests.fakes.blocking_handler import wait_until
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyServer

SOON_SECONDS = 0.5  # half of what it takes without a notifier
NEVER_SECONDS = 3600


class Server(Protocol):
    """A server of our own for the notifier."""

    def kill(self) -> None: ...
    def start_again(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class OwnLinkBell(RedisNotifier):
    """A Redis notifier that also closes its client."""

    async def close(self) -> None:
        await self._redis.close()


@pytest.fixture(scope="module")
def postgres_of_our_own() -> Iterator[PostgresServer]:
    with PostgresServer.start() as server:
        yield server


@pytest.fixture(scope="module")
def valkey_of_our_own() -> Iterator[ValkeyServer]:
    with ValkeyServer.start() as server:
        yield server


@pytest.fixture(params=["postgres", "valkey"])
def server(request: pytest.FixtureRequest) -> Server:
    server: Server = request.getfixturevalue(f"{request.param}_of_our_own")
    return server


@pytest.fixture
def open_notifier(server: Server) -> Callable[[str], Notifier]:
    def open_one(owner: str) -> Notifier:
        if isinstance(server, PostgresServer):
            return PostgresNotifier(server.url("postgres"), owner=owner)
        assert isinstance(server, ValkeyServer)
        return OwnLinkBell(RedisClient(server.url), owner=owner)

    return open_one


@asynccontextmanager
async def two_processes(
    url: str, open_notifier: Callable[[str], Notifier], second: Clock | None = None
) -> AsyncIterator[tuple[Db, Db]]:
    """Two databases joined by a notifier that both listen to; the second may have its own clock."""
    async with AsyncExitStack() as stack:
        dbs = []
        for owner, clock in (("host:1:a", None), ("host:2:b", second)):
            db, notifier = open_db(url, clock), open_notifier(owner)
            running_notifier = asyncio.create_task(run_notifier(db.wakeups, notifier))
            stack.push_async_callback(db.close)
            stack.push_async_callback(notifier.close)
            stack.push_async_callback(asyncio.wait, [running_notifier])
            stack.callback(running_notifier.cancel)
            dbs.append(db)
        await hears(dbs[0], dbs[1])
        await hears(dbs[1], dbs[0])
        yield dbs[0], dbs[1]


async def hears(speaker: Db, listener: Db) -> None:
    """Wait until what one process wakes is heard in the other."""
    waiter = listener.wakeups.listen(["warm-up"])

    def heard() -> bool:
        speaker.wakeups.wake("warm-up")
        if isinstance(speaker.clock, ManualClock):
            speaker.clock.advance(seconds=0.1)
        return waiter._notified.is_set()

    await wait_until(heard)
    listener.wakeups.unlisten(waiter)


async def say(db: Db, *channels: str) -> None:
    async with db.tx() as tx:
        for channel in channels:
            tx.wake(channel)


@pytest.fixture
def still() -> ManualClock:
    """A clock that stands, so that nobody looks by himself, and is ahead, so that what others add is due."""
    return ManualClock(SystemClock().now() + timedelta(hours=1))


async def test_a_commit_in_one_process_wakes_a_worker_of_another_at_once(
    sqlite_url: str, open_notifier, still: ManualClock
):
    started = asyncio.Event()

    async def note(job: Job) -> None:
        started.set()

    async with two_processes(sqlite_url, open_notifier, still) as (here, there):
        working = asyncio.create_task(Workers(there, JobQueue(), {"k": note}, owner="w").run())
        await asyncio.sleep(0.05)  # it has looked for work, found none, and waits for a clock that stands
        began = time.perf_counter()
        async with here.tx() as tx:
            await JobQueue().enqueue(tx, NewJob(kind="k"))
        async with asyncio.timeout(20):
            await started.wait()
        took = time.perf_counter() - began
        working.cancel()
        await asyncio.wait([working])
    assert took < SOON_SECONDS


async def test_every_channel_arrives_whatever_its_name(sqlite_url: str, open_notifier, still: ManualClock):
    names = ["tickets:", "a b  c", "task:ü中'\"\\;--", "x" * 1000]
    async with two_processes(sqlite_url, open_notifier, still) as (here, there):
        listeners = [there.wakeups.listen([name]) for name in names]
        await say(here, *names, "y" * (MAX_PAYLOAD_BYTES + 1))  # one that is too long for some may get lost, alone
        async with asyncio.timeout(20):
            await asyncio.gather(*(waiter.wait(seconds=NEVER_SECONDS) for waiter in listeners))


async def test_a_process_does_not_receive_its_own_notifications_and_nothing_echoes(sqlite_url: str, open_notifier):
    async with two_processes(sqlite_url, open_notifier) as (here, there):
        mine, theirs = here.wakeups.listen(["jobs"]), there.wakeups.listen(["jobs"])
        await say(here, "jobs")
        await asyncio.gather(mine.wait(seconds=NEVER_SECONDS), theirs.wait(seconds=NEVER_SECONDS))
        await hears(there, here)  # what would have come back by now has come back
        await hears(here, there)
        assert not mine._notified.is_set()
        assert not theirs._notified.is_set()


@pytest.mark.parametrize("gone", ["killed", "paused"])
async def test_a_notifier_that_is_lost_blocks_nobody_and_reconnects(
    sqlite_url: str, open_notifier, server: Server, gone: str
):
    async with two_processes(sqlite_url, open_notifier) as (here, there):
        server.kill() if gone == "killed" else server.pause()
        try:
            began = time.perf_counter()
            for _ in range(20):
                await say(here, "jobs")
            took = time.perf_counter() - began
        finally:
            server.start_again() if gone == "killed" else server.resume()
        assert took < 1.0  # the other side would take seconds to say that it does not answer
        await hears(here, there)
        await hears(there, here)


async def test_a_notifier_can_be_down_from_the_start(sqlite_url: str, open_notifier, server: Server):
    async def start_by_and_by() -> None:
        await asyncio.sleep(0.3)  # real time: the first tries of both processes must fail
        server.start_again()

    server.kill()
    starting = asyncio.create_task(start_by_and_by())
    try:
        async with two_processes(sqlite_url, open_notifier) as (here, _):
            await say(here, "jobs")
    finally:
        await starting


async def test_a_listener_can_be_cancelled_at_any_moment(open_notifier):
    notifier = open_notifier("host:1:a")

    async def listen() -> None:
        async for _ in notifier.listen():
            pass

    for steps in range(150):
        listening = asyncio.create_task(listen())
        for _ in range(steps):
            await asyncio.sleep(0)
        listening.cancel()
        done, _ = await asyncio.wait([listening], timeout=5)
        assert done, f"a cancel after {steps} steps got lost"
    await notifier.close()
