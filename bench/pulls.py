"""Pulls over HTTP from one API process on PostgreSQL, with history and audit written.

The references of pulls of 100 are the bare claim sent with asyncpg, and pgqueuer's drain of as many jobs. The reference
of single pulls over 32 connections is an endpoint that only authenticates its caller. All in interleaved rounds of one
run.
"""

import asyncio
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
from fastapi import APIRouter
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench import databases
from bench.comparison import ROUNDS, Finding, summary
from bench.http_connection import HttpConnection, send_all
from bench.task_rows import fill
from penstock.access.domain import Scope
from penstock.access.guard import requires
from penstock.access.keys import ensure_admin_key
from penstock.settings import Settings
from penstock.web.app import build_app, list_routers
from penstock.web.server import serve_app
from penstock.wiring import open_runtime
from tests.journeys.command import free_port
from tests.servers.postgres import PostgresServer
from tests.storms import processes

KEY = "sk-the-key-of-the-benchmark-0001"
ROWS = 20_000
BATCH = 100
AT_ONCE = 4  # connections that pull batches; the bare claim has as many
SINGLES = 8_000
CONNECTIONS = 32
CLAIM = """
UPDATE task SET state = 'held', lease_owner = $1, lease_token = $2, leased_until = $3, pulled_at = $4,
                lease_count = lease_count + 1
WHERE id = ANY(ARRAY(SELECT id FROM task WHERE state = 'offered' AND partition_key = $5 AND status = 'pending'
                     ORDER BY priority, scheduled_at, id LIMIT $6 FOR UPDATE SKIP LOCKED))
RETURNING *
"""

nothing = APIRouter()


@nothing.get("/api/v1/nothing", **requires(Scope.READ, bound=True))
async def do_nothing() -> dict[str, object]:
    """Authenticate and respond."""
    return {"success": True, "data": None}


def run() -> list[Finding]:
    """Measure everything in turn."""
    with databases.postgres() as server, tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(server, Path(folder)))


async def _measure(server: PostgresServer, folder: Path) -> list[Finding]:
    await databases.new_database(server, "pulls")
    server.create_database("peer")
    await _install_peer(server.dsn("peer"))
    settings = Settings(data_dir=folder, database_url=server.url("pulls"), admin_key=KEY, log_level="WARNING")
    await make_key(settings)
    port = free_port()
    child = processes.start(serve, settings, port)
    try:
        return await _compare(server, port)
    finally:
        processes.kill(child)


async def _compare(server: PostgresServer, port: int) -> list[Finding]:
    dsn, pull = server.dsn("pulls"), "/api/v1/projects/p/tasks/pull?limit="
    batches, beside, singles = [], [], []
    for _ in range(ROUNDS):
        await fill(dsn, ("p", ROWS))
        bare = await _bare(dsn)
        await fill(dsn, ("p", ROWS))
        ours = await _ask(port, AT_ONCE, ROWS // BATCH, f"{pull}{BATCH}")
        batches.append((bare, ours * BATCH))
        beside.append((await _peer(server.dsn("peer")), ours * BATCH))
        noop = await _ask(port, CONNECTIONS, SINGLES, "/api/v1/nothing")
        await fill(dsn, ("p", ROWS))
        singles.append((noop, await _ask(port, CONNECTIONS, SINGLES, f"{pull}1")))
    return [
        summary("pulls of 100 over HTTP beside the bare claim, PostgreSQL", "tasks/s", batches, at_least=0.5),
        summary("pulls of 100 over HTTP beside pgqueuer's drain", "tasks/s", beside, at_least=1.0),
        summary("single pulls over 32 connections beside no-op", "requests/s", singles, at_least=0.5),
    ]


async def _ask(port: int, count: int, requests: int, path: str) -> float:
    """Requests per second over this many new connections: the server closes idle ones."""
    connections = [await connect(port) for _ in range(count)]
    rate = await send_all(connections, requests, lambda _: path)
    for connection in connections:
        connection.close()
    return rate


async def make_key(settings: Settings) -> None:
    """The API key of all benchmarks."""
    async with open_runtime(settings) as runtime, runtime.db.tx() as tx:
        await ensure_admin_key(tx, KEY)


def serve(settings: Settings, port: int) -> None:
    """One API process, with an additional endpoint that does nothing."""
    asyncio.run(_serve(settings, port))


async def _serve(settings: Settings, port: int) -> None:
    async with open_runtime(settings) as runtime:
        await serve_app(build_app(runtime, routers=[nothing, *list_routers(runtime)]), host="127.0.0.1", port=port)


async def connect(port: int) -> HttpConnection:
    """Connect, as soon as the server responds."""
    async with asyncio.timeout(60):
        while True:
            try:
                connection = await HttpConnection.open(port, KEY)
                await connection.get("/api/v1/nothing")
                return connection
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.1)


async def _bare(dsn: str) -> float:
    """The claim in_fresh_process, by as many connections, without history, audit, HTTP or a caller."""
    connections = [await asyncpg.connect(dsn) for _ in range(AT_ONCE)]

    async def drain(connection: asyncpg.Connection, number: int) -> int:
        taken = batch = 0
        while True:
            now, token, batch = datetime.now(UTC), f"{number}-{batch}", batch + 1
            rows = await connection.fetch(CLAIM, "bench", token, now + timedelta(hours=1), now, "p", BATCH)
            if not rows:
                return taken
            taken += len(rows)

    began = time.perf_counter()
    taken = sum(await asyncio.gather(*(drain(connection, number) for number, connection in enumerate(connections))))
    rate = taken / (time.perf_counter() - began)
    for connection in connections:
        await connection.close()
    return rate


async def _install_peer(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def _peer(dsn: str) -> float:
    """pgqueuer drains as many empty jobs, in batches of the same size."""
    connection = await asyncpg.connect(dsn)
    driver = AsyncpgDriver(connection)
    queries = Queries(driver)
    await queries.enqueue(["fetch"] * ROWS, [None] * ROWS, [0] * ROWS)
    peer = PgQueuer(driver)
    done, over = 0, asyncio.Event()

    @peer.entrypoint("fetch")
    async def fetch(_job: Job) -> None:
        nonlocal done
        done += 1
        if done == ROWS:
            over.set()

    began = time.perf_counter()
    running = asyncio.create_task(peer.run(dequeue_timeout=timedelta(seconds=1), batch_size=BATCH))
    async with asyncio.timeout(120):
        await over.wait()
    rate = ROWS / (time.perf_counter() - began)
    peer.shutdown.set()
    await running
    await connection.close()
    return rate
