"""Sixteen clients on two servers pull 20,000 tasks: some are killed, some release tasks, some report late.

No task may be held twice or not done exactly once; the reference is the number of all tasks.
"""

import asyncio
import tempfile
import time
from pathlib import Path

import aiohttp

from bench import databases
from bench.comparison import Finding, summary
from tests.conftest import open_db
from tests.journeys.command import Serving
from tests.journeys.profiles import ADMIN_KEY
from tests.servers.postgres import PostgresServer
from tests.storms.pullers import LEASE_SECONDS, Storm, judge, plan, storm

SIZE = Storm(tasks=20_000, clients=16, kills=60, seed=20261116)


def run() -> list[Finding]:
    """One storm, on a durable PostgreSQL."""
    with databases.postgres() as server, tempfile.TemporaryDirectory() as folder:
        return [asyncio.run(_storm(server, Path(folder)))]


async def _storm(server: PostgresServer, folder: Path) -> Finding:
    await databases.new_database(server, "pullers")
    url, journals = server.url("pullers"), folder / "journals"
    journals.mkdir()
    settings = {"PENSTOCK_DATABASE_URL": url, "PENSTOCK_DATA_DIR": str(folder), "PENSTOCK_ADMIN_KEY": ADMIN_KEY}
    servers = [Serving(**settings, PULL_TIMEOUT=str(LEASE_SECONDS), PENSTOCK_LOG_LEVEL="ERROR") for _ in range(2)]
    began = time.perf_counter()
    try:
        async with aiohttp.ClientSession(headers={"X-API-Key": ADMIN_KEY}) as session:
            for serving in servers:
                await serving.ready(session)
            await plan(session, servers[0].url, SIZE.tasks)
            verdict = await storm(session, [one.url for one in servers], ADMIN_KEY, journals, SIZE)
    finally:
        for serving in servers:
            serving.stop()
    db = open_db(url)
    await judge(db, verdict)
    await db.close()
    wrong = [*verdict.not_done, *verdict.pushed_not_once, *verdict.held_by_two, *verdict.taken_from_two]
    what = "tasks not done once, or held by two, with 16 clients on two servers"
    found = summary(what, "of all tasks", [(SIZE.tasks, len(wrong))], at_most=0)
    seconds = time.perf_counter() - began
    return found.noted(kills=verdict.kills, refused=verdict.refused, given_back=verdict.given_back, seconds=seconds)
