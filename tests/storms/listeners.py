"""Listeners on two servers, cut at random and coming back to either, while events are told and rolled back.

Some of them, all on one server, stop reading after a while and go on only at the end: by then they must have cost
nobody anything, and they must hear all that they missed. What everyone has to have heard is read from the table.

How quick a machine is says nothing about that. So events are told no faster than they are heard, and those who share a
server with the deaf are compared with those on the other one, at the same time.
"""

import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.request import urlopen

import psutil

from penstock.kernel.db import Db
from penstock.kernel.events import StoredEvent, list_events
from penstock.kernel.message import Event
from tests.conftest import open_db, rolled_back, sequence
from tests.journeys.command import free_port
from tests.storms import processes
from tests.storms.stream_client import Listener, until
from tests.storms.stream_server import TENANTS, run_server

SERVERS = 2
ADMINS = 30  # of the listeners; they hear everything
DEAF = 5
LITTLE = 8192  # socket buffer of a listener that stops reading
TOPICS = 40
PADDING = "x" * 15_000  # at most; what a deaf listener does not read must be more than sockets and queues hold
TELLERS = 4
ROLLED_BACK = 0.2  # of the transactions
CUT_SECONDS = 0.02
AHEAD = 100  # events that most have not heard yet; fewer than a server keeps waiting for one listener
MANY = 500  # events in one transaction
PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Storm:
    """How large it is."""

    listeners: int
    events: int
    seconds: float
    seed: int


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a storm left behind."""

    told: int
    deliveries: int
    wrong: list[str]  # listeners that heard something else than they should, or in another order
    odd: list[bytes]
    cuts: int
    dropped: int  # events that deaf and slow listeners had to be read from the table
    wait_seconds: tuple[float, float]  # medians once some were deaf: of those beside them, and on the other server
    grown_bytes: list[int]  # by how much the servers' memory grew after everyone had come


async def storm(url: str, size: Storm) -> Verdict:
    """Let it rage, wait until everyone has heard everything, and judge."""
    chance, db = random.Random(size.seed), open_db(url)
    async with servers(url, SERVERS) as (ports, growth):
        crowd = [_listener(number, ports, chance) for number in range(size.listeners)]
        try:
            deaf_since = await _rage(db, crowd, growth, size, chance)
            told = await _everything(db)
            deaf, others = crowd[:DEAF], crowd[DEAF:]
            await until(lambda: _all_heard(others, told), seconds=PATIENCE_SECONDS, what="all had heard everything")
            grown, dropped = growth.so_far(), sum([await asyncio.to_thread(_dropped, port) for port in ports])
            for listener in deaf:
                listener.hear_again()
            await until(lambda: _all_heard(deaf, told), seconds=PATIENCE_SECONDS, what="the deaf had heard everything")
        finally:
            for listener in crowd:
                listener.leave()
    await db.close()
    return Verdict(
        told=len(told),
        deliveries=sum(len(one.heard) for one in crowd),
        wrong=[_difference(one, told) for one in crowd if one.heard != _wanted(one, told)],
        odd=[words for one in crowd for words in one.odd],
        cuts=sum(one.cuts for one in crowd),
        dropped=dropped,
        wait_seconds=(_median_wait(others, ports[0], deaf_since), _median_wait(others, ports[1], deaf_since)),
        grown_bytes=grown,
    )


async def _rage(db: Db, crowd: Sequence[Listener], growth: "Growth", size: Storm, chance: random.Random) -> float:
    """Tell and cut until everything is told; returns when some went deaf."""
    for listener in crowd:
        listener.come()
    await until(lambda: all(one.since is not None for one in crowd), seconds=PATIENCE_SECONDS, what="all had come")
    cutting = asyncio.create_task(_cut(crowd[DEAF:], chance))
    pace = Pace(crowd[DEAF:ADMINS])
    await _tell(db, size.events // 5, size.seconds / 5, chance, pace)
    growth.begin()  # only now have the servers had to do with something
    deaf_since = time.monotonic()
    for listener in crowd[:DEAF]:
        listener.go_deaf()
    await _tell(db, size.events * 4 // 5, size.seconds * 4 / 5, chance, pace)
    cutting.cancel()
    return deaf_since


@dataclass(frozen=True, kw_only=True)
class Deafness:
    """What a listener that read nothing cost, and what it heard in the end."""

    told: list[int]
    heard_meanwhile: list[int]  # by one that did read
    heard_late: list[int]
    dropped: int
    grown_bytes: int


async def go_deaf(url: str, *, events: int) -> Deafness:
    """Let many events pass a listener that does not read, beside one that does."""
    db, chance = open_db(url), random.Random(1)
    async with servers(url, 1) as ([port], growth):
        deaf, quick = (Listener("admin", "", ports=[port], chance=chance) for _ in "ab")
        try:
            for listener in (deaf, quick):
                listener.come()
            await until(lambda: quick.since == deaf.since == 0, seconds=PATIENCE_SECONDS, what="both had come")
            deaf.go_deaf()
            await _tell_many(db, events // 10)
            await until(lambda: len(quick.heard) == events // 10, seconds=PATIENCE_SECONDS, what="the first were heard")
            growth.begin()
            await _tell_many(db, events - events // 10)
            await until(lambda: len(quick.heard) >= events, seconds=PATIENCE_SECONDS, what="one had heard all")
            [grown], dropped = growth.so_far(), await asyncio.to_thread(_dropped, port)
            deaf.hear_again()
            await until(lambda: len(deaf.heard) >= events, seconds=PATIENCE_SECONDS, what="the other had, too")
        finally:
            deaf.leave()
            quick.leave()
    told = [one.id for one in await _everything(db)]
    await db.close()
    return Deafness(told=told, heard_meanwhile=quick.heard, heard_late=deaf.heard, dropped=dropped, grown_bytes=grown)


async def _tell_many(db: Db, events: int) -> None:
    for _ in range(0, events, MANY):
        async with db.tx() as tx:
            for _ in range(MANY):
                tx.publish(
                    Event(topic="job:1", kind="counted", data={"told": time.monotonic(), "padding": PADDING[:100]})
                )


class Growth:
    """The memory of processes, from one moment on."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._processes = [psutil.Process(pid) for pid in pids]
        self._before = [0] * len(pids)

    def begin(self) -> None:
        """Remember how much it is."""
        self._before = [process.memory_info().rss for process in self._processes]

    def so_far(self) -> list[int]:
        """By how much it grew."""
        after = [process.memory_info().rss for process in self._processes]
        return [now - before for now, before in zip(after, self._before, strict=True)]


@asynccontextmanager
async def servers(url: str, count: int) -> AsyncIterator[tuple[list[int], Growth]]:
    """Servers of streams on these ports, each in a process of its own."""
    ports = [free_port() for _ in range(count)]
    started = [processes.start(run_server, url, port) for port in ports]
    try:
        for port in ports:
            await _until_serving(port)
        yield ports, Growth([process.pid for process in started if process.pid is not None])
    finally:
        for process in started:
            processes.kill(process)


async def _until_serving(port: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await asyncio.to_thread(_dropped, port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                return


def _dropped(port: int) -> int:
    with urlopen(f"http://127.0.0.1:{port}/dropped", timeout=PATIENCE_SECONDS) as answer:
        return int(answer.read())


def _listener(number: int, ports: Sequence[int], chance: random.Random) -> Listener:
    """The first hear everything, those who will go deaf among them; the others hear a user's events, or one topic's."""
    who = "admin" if number < ADMINS else f"user{number % TENANTS}"
    topic = f"job:{chance.randrange(TOPICS)}" if number % 3 == 0 and number >= ADMINS else ""
    if number < DEAF:
        return Listener(who, topic, ports=ports[:1], chance=chance, holds_bytes=LITTLE)
    return Listener(who, topic, ports=ports, chance=chance)


class Pace:
    """Keeps those who tell from running ahead of these listeners, who hear everything."""

    def __init__(self, hearing: Sequence[Listener]) -> None:
        self._hearing = hearing
        self._told = 0

    async def keep(self, told: int) -> None:
        """Wait until most have heard nearly all, these included."""
        self._told += told
        await until(self._are_near, seconds=PATIENCE_SECONDS, what="most had heard nearly all")

    def _are_near(self) -> bool:
        return self._told - self._heard() <= AHEAD

    def _heard(self) -> float:
        return statistics.median(len(one.heard) for one in self._hearing)


async def _tell(db: Db, events: int, seconds: float, chance: random.Random, pace: Pace) -> None:
    """Let several tell so many events together, spread over a time."""
    await asyncio.gather(*(_tell_share(db, events // TELLERS, seconds, chance, pace) for _ in range(TELLERS)))


async def _tell_share(db: Db, events: int, seconds: float, chance: random.Random, pace: Pace) -> None:
    """Tell in transactions of random sizes, some of which are rolled back."""
    over_at, left = time.monotonic() + seconds, events
    while left > 0:
        some = min(left, chance.randint(1, 12))
        undone = chance.random() < ROLLED_BACK
        async with rolled_back(db) if undone else db.tx() as tx:
            for _ in range(some):
                tx.publish(_event(chance))
        left -= 0 if undone else some
        await pace.keep(0 if undone else some)
        rest = max(0.0, over_at - time.monotonic())
        await asyncio.sleep(min(rest, chance.expovariate(1) * rest * some / max(left, some)))


def _event(chance: random.Random) -> Event:
    data = {"told": time.monotonic(), "padding": PADDING[: chance.randrange(len(PADDING))]}
    topic, audience = f"job:{chance.randrange(TOPICS)}", f"user:{chance.randrange(TENANTS)}"
    return Event(topic=topic, kind="counted", audience=audience, data=data)


async def _cut(crowd: Sequence[Listener], chance: random.Random) -> None:
    while True:
        await asyncio.sleep(chance.uniform(0, 2 * CUT_SECONDS))
        chance.choice(crowd).cut()


async def _everything(db: Db) -> list[StoredEvent]:
    await sequence(db)
    async with db.read() as tx:
        return await list_events(tx, limit=1_000_000)


def _wanted(listener: Listener, told: Sequence[StoredEvent]) -> list[int]:
    return [one.id for one in told if listener.wants(one)]


def _all_heard(crowd: Sequence[Listener], told: Sequence[StoredEvent]) -> bool:
    return all(len(one.heard) >= len(_wanted(one, told)) for one in crowd)


def _difference(listener: Listener, told: Sequence[StoredEvent]) -> str:
    wanted, heard = _wanted(listener, told), listener.heard
    lost, more = set(wanted) - set(heard), len(heard) - len(set(heard))
    return f"{listener.who} {listener.topic}: lost {sorted(lost)[:5]}, {more} twice, sorted {heard == sorted(heard)}"


def _median_wait(crowd: Sequence[Listener], port: int, since: float) -> float:
    waits = (wait for one in crowd for wait in one.waits if wait.port == port and wait.at >= since)
    return statistics.median(wait.seconds for wait in waits)
