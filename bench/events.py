"""Events: transactions that publish an event, a hub with many subscribers, and event streams that miss, repeat or
reorder an event.

The reference of the first is the same insert without the lock that makes ids visible in order. Both go straight to the
driver: a process of ours is busier than the server and would hide the difference. The reference of the second is one
subscriber.
"""

import asyncio
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import asyncpg
from sqlalchemy.dialects.postgresql import asyncpg as dialect

from bench import databases
from bench.comparison import Finding, compare
from penstock.kernel.events import APPEND, EVERYTHING
from penstock.kernel.hub import Hub
from penstock.kernel.message import Event
from penstock.kernel.subscription import Subscription
from tests.conftest import open_db
from tests.servers.postgres import PostgresServer
from tests.storms.listeners import Storm, storm

TELLERS = 16
SECONDS = 5.0
WATCHERS = 300
EVENTS = 20_000
PATIENT_SECONDS = 60.0
STORM = Storm(listeners=500, events=20_000, seconds=120, seed=20261116)
WITHOUT_TURN = """
INSERT INTO event (topic, kind, audience, data, at)
SELECT unnest($1::text[]), unnest($2::text[]), unnest($3::text[]), unnest($4::text[])::jsonb, $5::timestamptz
"""


def run() -> list[Finding]:
    """All three, on a durable PostgreSQL."""
    with databases.postgres() as server:
        return [asyncio.run(_turns(server)), asyncio.run(_crowd(server)), asyncio.run(_storm(server))]


async def _turns(server: PostgresServer) -> Finding:
    await databases.new_database(server, "turns")
    dsn = server.dsn("turns")
    compiled = APPEND.compile(dialect=dialect.dialect())
    constants = [compiled.binds[name].value for name in (compiled.positiontup or [])[5:]]
    return await compare(
        f"transactions that tell an event, {TELLERS} at once, PostgreSQL",
        "transactions/s",
        ours=lambda: _tell(dsn, str(compiled), *constants),
        reference=lambda: _tell(dsn, WITHOUT_TURN),
        at_least=0.2,
    )


async def _tell(dsn: str, statement: str, *constants: object) -> float:
    """Each transaction does one more statement, as real ones do."""
    told = (["job:1"], ["page_done"], ["user:1"], ['{"page": 1}'], datetime.now(UTC), *constants)
    began = time.perf_counter()

    async def tell(teller: int) -> int:
        connection, number = await asyncpg.connect(dsn), 0
        while time.perf_counter() - began < SECONDS:
            async with connection.transaction():
                await connection.execute(
                    "INSERT INTO rate_bucket (key, full_at) VALUES ($1, $2) "
                    "ON CONFLICT (key) DO UPDATE SET full_at = excluded.full_at",
                    f"teller {teller}",
                    number,
                )
                await connection.execute(statement, *told)
            number += 1
        await connection.close()
        return number

    return sum(await asyncio.gather(*map(tell, range(TELLERS)))) / (time.perf_counter() - began)


async def _crowd(server: PostgresServer) -> Finding:
    await databases.new_database(server, "crowd")
    url = server.url("crowd")
    return await compare(
        f"events through a hub to {WATCHERS} watchers beside 1",
        "events/s",
        ours=lambda: _fan_out(url, WATCHERS),
        reference=lambda: _fan_out(url, 1),
        at_least=0.1,
    )


async def _fan_out(url: str, watchers: int) -> float:
    db = open_db(url)
    hub = Hub(db)
    running = asyncio.create_task(hub.run())
    async with AsyncExitStack() as stack:
        tenants = map(str, range(watchers))
        crowd = [await stack.enter_async_context(hub.subscribed(EVERYTHING, tenant=tenant)) for tenant in tenants]
        hearing = asyncio.gather(*(_hear(watcher) for watcher in crowd))
        async with db.tx() as tx:
            for number in range(EVENTS):
                tx.tell(Event(topic=f"job:{number % 100}", kind="page_done", audience="user:1", data={"page": number}))
        began = time.perf_counter()
        await hearing
        rate = EVENTS / (time.perf_counter() - began)
    running.cancel()
    await asyncio.wait([running])
    await db.close()
    return rate


async def _hear(watcher: Subscription) -> None:
    heard = 0
    while heard < EVENTS:
        batch = await watcher.take(seconds=PATIENT_SECONDS)
        heard += batch.count if batch is not None else 0
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
