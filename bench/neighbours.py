"""Noisy neighbours: what one user's large requests do to everybody else, on both databases.

Six clients push 20,000 tasks each at once, while another reads `/livez` every 20 ms; and a queue of 150,000 tasks is
reset. The reference of each is its limit.
"""

import asyncio
import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import msgspec
import psutil

from bench import databases
from bench.comparison import Finding, summary
from bench.pulls import KEY
from bench.task_rows import fill_queue
from penstock.settings import Settings
from penstock.wiring import open_runtime
from tests.journeys.command import Serving

PUSHES, TASKS = 6, 20_000
RESET = 150_000
LIVEZ_SECONDS, RESET_SECONDS = 0.2, 1.0
PROBE_SECONDS = 0.02
REST_SECONDS = 5.0  # after which memory is measured
API = "/api/v1"


def run() -> list[Finding]:
    """Measure on PostgreSQL and on SQLite."""
    found = []
    with databases.postgres() as server:
        for name in ("PostgreSQL", "SQLite"):
            with tempfile.TemporaryDirectory() as folder:
                url = ""
                if name == "PostgreSQL":
                    asyncio.run(databases.new_database(server, "neighbours"))
                    url = server.url("neighbours")
                settings = Settings(data_dir=Path(folder), database_url=url, admin_key=KEY, log_level="WARNING")
                found += asyncio.run(_measure(settings, name))
    return found


async def _measure(settings: Settings, database: str) -> list[Finding]:
    async with open_runtime(settings) as runtime:
        await fill_queue(runtime.db, "large", "q", RESET)
    environment = {"PENSTOCK_DATA_DIR": str(settings.data_dir), "PENSTOCK_DATABASE_URL": settings.database_url}
    serving = Serving(**environment, PENSTOCK_ADMIN_KEY=KEY, PENSTOCK_LOG_LEVEL="WARNING")
    try:
        async with aiohttp.ClientSession(headers={"X-API-Key": KEY}) as session:
            await serving.ready(session)
            server = psutil.Process(serving.pid)
            pushes = await _pushes(session, serving.url, server, database)
            return [*pushes, await _reset(session, serving.url, database)]
    finally:
        serving.kill()


def _body(number: int) -> bytes:
    tasks = [
        {
            "id": f"task-{one}",
            "name": f"Review the report of customer {one}",
            "prompt": "Read it and answer.",
            "status": "pending",
            "spec_file": ["docs/plan.md"],
            "tags": ["review", f"day-{one % 31}"],
        }
        for one in range(TASKS)
    ]
    place = {"project_id": f"p{number}", "project_name": "P", "queue_id": "q", "queue_name": "Q"}
    return msgspec.json.encode(place | {"tasks": tasks})


async def _pushes(session: aiohttp.ClientSession, url: str, server: psutil.Process, database: str) -> list[Finding]:
    for number in range(2):  # the first ones load code and open connections
        await _push(session, url, _body(number))
    before = await _resting_bytes(server)
    bodies, over = [_body(number) for number in range(PUSHES)], asyncio.Event()
    probing = asyncio.create_task(_probe(session, url, over, server))
    began = time.perf_counter()
    await asyncio.gather(*(_push(session, url, body) for body in bodies))
    seconds = time.perf_counter() - began
    over.set()
    waits, peak = await probing
    after = await _resting_bytes(server)
    what = f"p99 of /livez while six clients push 20,000 tasks each, {database}"
    livez = summary(what, "s", [(LIVEZ_SECONDS, statistics.quantiles(waits, n=100)[-1])], at_most=1.0)
    memory = summary(f"memory after six pushes of 20,000 tasks, {database}", "MB", [(before, after)], at_most=1.3)
    return [livez.noted(longest=max(waits), pushes_took=seconds), memory.noted(peak=peak)]


async def _push(session: aiohttp.ClientSession, url: str, body: bytes) -> None:
    """Push, as a client does that waits when the server says so."""
    while True:
        async with session.post(
            f"{url}{API}/submit", data=body, headers={"Content-Type": "application/json"}
        ) as answer:
            if answer.status not in (429, 503):
                assert answer.status == 200, await answer.text()
                return
            await asyncio.sleep(float(answer.headers["Retry-After"]))


async def _probe(
    session: aiohttp.ClientSession, url: str, over: asyncio.Event, server: psutil.Process
) -> tuple[list[float], float]:
    """Seconds that each read of /livez took, and the most memory of the server in MB."""
    waits, peak = [], 0.0
    while not over.is_set():
        began = time.perf_counter()
        async with session.get(f"{url}/livez") as answer:
            assert answer.status == 200
        waits.append(time.perf_counter() - began)
        peak = max(peak, _megabytes(server))
        await asyncio.sleep(PROBE_SECONDS)
    return waits, peak


async def _resting_bytes(server: psutil.Process) -> float:
    await asyncio.sleep(REST_SECONDS)
    return _megabytes(server)


def _megabytes(server: psutil.Process) -> float:
    return float(server.memory_info().rss) / 2**20


async def _reset(session: aiohttp.ClientSession, url: str, database: str) -> Finding:
    """Seconds until the reset of a long queue answers, and until it is done."""
    began = time.perf_counter()
    async with session.post(f"{url}{API}/projects/large/queues/q/reset") as answer:
        data = (await answer.json())["data"]
    seconds = time.perf_counter() - began
    assert data["affected_count"] == RESET, data
    began_at = datetime.now(UTC)
    while True:
        async with session.get(f"{url}{API}/projects/large/operations/{data['operation_id']}") as answer:
            operation = (await answer.json())["data"]
        if operation["status"] != "running":
            break
        await asyncio.sleep(0.5)
    assert (operation["status"], operation["affected_count"]) == ("completed", RESET), operation
    done = (datetime.now(UTC) - began_at).total_seconds()
    what = f"a reset of 150,000 tasks answers, {database}"
    return summary(what, "s", [(RESET_SECONDS, seconds)], at_most=1.0).noted(done_after=done)
