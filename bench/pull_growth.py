"""Growth: p95 of pulls from a project of a million tasks, without filters and with some that match one in a thousand.

The reference is the same pull from a project of 10,000 tasks. Also measured: how soon after lease expiry a task can be
pulled again.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import aiohttp

from bench import databases
from bench.comparison import ROUNDS, Finding, p95, summary
from bench.http_connection import HttpConnection
from bench.pulls import KEY, connect, make_key, serve
from bench.task_rows import FIRST_DAY, RARE, fill
from penstock.settings import Settings
from tests.journeys.command import Serving, free_port
from tests.servers.postgres import PostgresServer
from tests.storms import processes

SMALL, LARGE = 10_000, 1_000_000
PULLS = 120  # per size, kind and round
TIMEOUT = 1.0
SILENT = 10  # holders that stop renewing


def _created(number: int) -> str:
    return _between("created", number)


def _modified(number: int) -> str:
    return _between("modified", number)


def _between(what: str, number: int) -> str:
    day = FIRST_DAY + timedelta(days=number % RARE)
    start, end = (quote(at.isoformat()) for at in (day, day + timedelta(days=1)))
    return f"&{what}_after={start}&{what}_before={end}"


# The plain one last: it takes all tasks of some days, for the days go with the priorities.
KINDS: dict[str, Callable[[int], str]] = {
    "by a tag of one in a thousand": lambda number: f"&tags=tag-{number % RARE}",
    "created on a day of a thousand": _created,
    "modified on a day of a thousand": _modified,
    "without filters": lambda _: "",
}


def run() -> list[Finding]:
    """Both, on a durable PostgreSQL."""
    with databases.postgres() as server, tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(server, Path(folder)))


async def _measure(server: PostgresServer, folder: Path) -> list[Finding]:
    await databases.new_database(server, "growth")
    url = server.url("growth")
    settings = Settings(data_dir=folder, database_url=url, admin_key=KEY, log_level="WARNING")
    await make_key(settings)
    await fill(server.dsn("growth"), ("small", SMALL), ("large", LARGE))
    port = free_port()
    child = processes.start(serve, settings, port)
    try:
        found = [await _compare(port, name, query, place) for place, (name, query) in enumerate(KINDS.items())]
    finally:
        processes.kill(child)
    return [*found, await _expired_leases(url, folder)]


async def _compare(port: int, name: str, query: Callable[[int], str], place: int) -> Finding:
    pairs, number = [], place * RARE // 3  # nearly every kind has its own tags or days
    for _ in range(ROUNDS):
        connection, seconds = await connect(port), {"small": list[float](), "large": list[float]()}
        for _ in range(PULLS):
            number += 1
            for project, taken in seconds.items():
                taken.append(await _pull(connection, project, query(number)))
        connection.close()
        pairs.append((p95(seconds["small"]), p95(seconds["large"])))
    what = f"p95 of a pull {name}, 1,000,000 tasks beside 10,000, PostgreSQL"
    return summary(what, "ms", pairs, at_most=1.5)


async def _pull(connection: HttpConnection, project: str, query: str) -> float:
    began = time.perf_counter()
    data = await connection.data(f"/api/v1/projects/{project}/tasks/pull?limit=2{query}")
    seconds = time.perf_counter() - began
    assert data["pulled_count"] == 2, (project, query)
    return seconds


async def _expired_leases(url: str, folder: Path) -> Finding:
    """Seconds from the expiry of a lease until a waiting client pulls the task."""
    settings = {"PENSTOCK_DATABASE_URL": url, "PENSTOCK_DATA_DIR": str(folder), "PULL_TIMEOUT": str(TIMEOUT)}
    serving = Serving(**settings, PENSTOCK_LOG_LEVEL="WARNING")
    try:
        async with aiohttp.ClientSession(headers={"X-API-Key": KEY}) as session:
            await serving.ready(session)
            pull = f"{serving.url}/api/v1/projects/small/tasks/pull"
            named = f"{serving.url}/api/v1/projects/small/tasks/pull/batch"
            late = [await _wait_for_expired(session, pull, named) for _ in range(SILENT)]
    finally:
        serving.stop()
    return summary("a task can be pulled again after its lease, at the latest", "s", [(1.0, max(late))], at_most=1.0)


async def _wait_for_expired(session: aiohttp.ClientSession, pull: str, named: str) -> float:
    async with session.get(pull, params={"limit": "1"}) as answer:
        [task] = (await answer.json())["data"]["tasks"]
    until = datetime.fromisoformat(task["leased_until"])
    while True:
        async with session.post(named, json={"taskIds": [task["task_id"]]}) as answer:
            if (await answer.json())["data"]["pulled_count"]:
                return (datetime.now(UTC) - until).total_seconds()
        await asyncio.sleep(0.02)
