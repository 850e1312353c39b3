"""Events: transactions that publish an event, a hub with many subscribers, event streams that miss, repeat or reorder
an event, and live events beside a forgotten transaction.

The reference of the first is the same insert straight into the event table, without the ordering of ids. Both go
straight to the driver, since a process of ours is busier than the server and would hide the difference, and a hub in
another process reads meanwhile. The reference of the second is one subscriber.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from multiprocessing import get_context
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event as Flag

import asyncpg

from bench import databases
from bench.comparison import Finding, compare
from penstock.kernel.events import EVERYTHING, insert_events
from penstock.kernel.hub import Hub
from penstock.kernel.message import Event
from penstock.kernel.subscription import Subscription
from tests.conftest import open_db
from tests.servers.postgres import PostgresServer
from tests.storms.listeners import Storm, storm

WRITERS = 16
SECONDS = 5.0
SUBSCRIBERS = 300
EVENTS = 20_000
TIMEOUT_SECONDS = 60.0
FORGOTTEN_SECONDS = 60.0  # a transaction stays open so long
MAX_WAIT_SECONDS = 3.0  # of a live event meanwhile
STORM = Storm(listeners=500, events=20_000, seconds=120, seed=20261116)
INSERT = """
INSERT INTO {} (topic, kind, audience, data, at)
SELECT unnest($1::text[]), unnest($2::text[]), unnest($3::text[]), unnest($4::text[])::jsonb, $5::timestamptz
"""


def run() -> list[Finding]:
    """All of them, on a durable PostgreSQL."""
    with databases.postgres() as server:
        return [asyncio.run(measure(server)) for measure in (_writers, _crowd, _storm, _forgotten)]


async def _writers(server: PostgresServer) -> Finding:
    await databases.new_database(server, "writers")
    missed: list[int] = []

    async def ours() -> float:
        rate, unread = await _publish(server, INSERT.format("event_inbox"))
        assert unread == 0, f"the hub missed {unread} events"
        return rate

    async def reference() -> float:
        rate, unread = await _publish(server, INSERT.format("event"))
        missed.append(unread)
        return rate

    finding = await compare(
        f"transactions that publish an event, {WRITERS} at once and a hub that reads, PostgreSQL",
        "transactions/s",
        ours=ours,
        reference=reference,
        at_least=0.7,
    )
    return finding.noted(events_missed_by_the_hub_without_order=sum(missed))


async def _publish(server: PostgresServer, statement: str) -> tuple[float, int]:
    """Transactions per second, and how many events the hub missed. Each transaction does one more statement, as real
    ones do."""
    dsn, values = server.dsn("writers"), (["job:1"], ["page_done"], ["user:1"], ['{"page": 1}'])
    await databases.execute(dsn, "TRUNCATE event, event_inbox", "CHECKPOINT")
    async with _hub_process(server.url("writers")) as received:
        began = time.perf_counter()

        async def write(writer: int) -> int:
            connection, number = await asyncpg.connect(dsn), 0
            while time.perf_counter() - began < SECONDS:
                async with connection.transaction():
                    await connection.execute(
                        "INSERT INTO rate_bucket (key, full_at) VALUES ($1, $2) "
                        "ON CONFLICT (key) DO UPDATE SET full_at = excluded.full_at",
                        f"writer {writer}",
                        number,
                    )
                    await connection.execute(statement, *values, datetime.now(UTC))
                number += 1
            await connection.close()
            return number

        written = sum(await asyncio.gather(*map(write, range(WRITERS))))
        rate = written / (time.perf_counter() - began)
    return rate, written - sum(received)


@asynccontextmanager
async def _hub_process(url: str) -> AsyncIterator[list[int]]:
    """A hub with one subscriber in a process of its own; how many events it received is in the list after the block."""
    context, received = get_context("spawn"), list[int]()
    ready, stop, counts = context.Event(), context.Event(), context.Queue()
    process = context.Process(target=_run_hub, args=(url, ready, stop, counts), daemon=True)
    process.start()
    await asyncio.to_thread(ready.wait)
    yield received
    stop.set()
    received.append(await asyncio.to_thread(counts.get))
    process.join()


def _run_hub(url: str, ready: Flag, stop: Flag, counts: "Queue[int]") -> None:
    asyncio.run(_count_events(url, ready, stop, counts))


async def _count_events(url: str, ready: Flag, stop: Flag, counts: "Queue[int]") -> None:
    """Count until told to stop and nothing has come for two polls."""
    db, count = open_db(url), 0
    async with _running(Hub(db)) as hub, hub.subscribed(EVERYTHING, tenant="bench") as subscription:
        ready.set()
        while True:
            was_stopped = stop.is_set()
            if batch := await subscription.take(seconds=2.0):
                count += batch.count
            elif was_stopped:
                break
    counts.put(count)
    await db.close()


@asynccontextmanager
async def _running(hub: Hub) -> AsyncIterator[Hub]:
    running = asyncio.create_task(hub.run())
    yield hub
    running.cancel()
    await asyncio.wait([running])


async def _crowd(server: PostgresServer) -> Finding:
    await databases.new_database(server, "crowd")
    url = server.url("crowd")
    return await compare(
        f"events through a hub to {SUBSCRIBERS} subscribers beside 1",
        "events/s",
        ours=lambda: _fan_out(url, SUBSCRIBERS),
        reference=lambda: _fan_out(url, 1),
        at_least=0.1,
    )


async def _fan_out(url: str, subscribers: int) -> float:
    db = open_db(url)
    async with _running(Hub(db)) as hub, AsyncExitStack() as stack:
        tenants = map(str, range(subscribers))
        crowd = [await stack.enter_async_context(hub.subscribed(EVERYTHING, tenant=tenant)) for tenant in tenants]
        receiving = asyncio.gather(*(_receive(subscriber) for subscriber in crowd))
        async with db.tx() as tx:
            for number in range(EVENTS):
                tx.publish(
                    Event(topic=f"job:{number % 100}", kind="page_done", audience="user:1", data={"page": number})
                )
        began = time.perf_counter()
        await receiving
        rate = EVENTS / (time.perf_counter() - began)
    await db.close()
    return rate


async def _receive(subscriber: Subscription) -> None:
    received = 0
    while received < EVENTS:
        batch = await subscriber.take(seconds=TIMEOUT_SECONDS)
        received += batch.count if batch is not None else 0
        await asyncio.sleep(0)  # as a stream does when it sends


async def _storm(server: PostgresServer) -> Finding:
    await databases.new_database(server, "storm")
    verdict = await storm(server.url("storm"), STORM)
    wrong = len(verdict.wrong) + len(verdict.odd)
    return Finding(
        what=f"listeners of {STORM.listeners} on two servers that heard anything but everything once and in order",
        unit="of all listeners",
        ours=wrong,
        reference=STORM.listeners,
        ratio=wrong / STORM.listeners,
        spread=(wrong / STORM.listeners,) * 2,
        at_most=0.0,
        notes={
            "events": verdict.told,
            "deliveries": verdict.deliveries,
            "cuts": verdict.cuts,
            "median wait ms": verdict.wait_seconds[1] * 1000,
            "servers grew MB": max(verdict.grown_bytes) / 1e6,
        },
    )


async def _forgotten(server: PostgresServer) -> Finding:
    """The longest wait for a live event while a transaction that has published one stays open."""
    await databases.new_database(server, "forgotten")
    db, forgetful = open_db(server.url("forgotten")), open_db(server.url("forgotten"))
    waits: list[float] = []
    async with _running(Hub(db)) as hub, hub.subscribed(EVERYTHING, tenant="bench") as subscription:
        async with forgetful.tx() as tx:
            await insert_events(tx, [Event(topic="job:2", kind="forgotten")])
            over_at = time.perf_counter() + FORGOTTEN_SECONDS
            while (began := time.perf_counter()) < over_at:
                async with db.tx() as other:
                    other.publish(Event(topic="job:1", kind="page_done"))
                batch = await subscription.take(seconds=FORGOTTEN_SECONDS)
                assert batch is not None
                assert batch.count == 1
                waits.append(time.perf_counter() - began)
                await asyncio.sleep(0.1)
        late = await subscription.take(seconds=FORGOTTEN_SECONDS)
        assert late is not None
        assert b"forgotten" in late.text
    await db.close()
    await forgetful.close()
    ratio = max(waits) / FORGOTTEN_SECONDS
    return Finding(
        what=f"longest wait for a live event while a transaction stays open for {FORGOTTEN_SECONDS:.0f} s",
        unit="s",
        ours=max(waits),
        reference=FORGOTTEN_SECONDS,
        ratio=ratio,
        spread=(min(waits) / FORGOTTEN_SECONDS, ratio),
        at_most=MAX_WAIT_SECONDS / FORGOTTEN_SECONDS,
        notes={"events": len(waits), "median ms": statistics.median(waits) * 1000},
    )
