"""Growth: p95 of lists, searches and statistics in a project of 300,000 tasks, and of lists of 100,000 etl tasks.

Each is beside the same call in a project of 10,000 tasks, or as a user with 1,000 etl tasks. What takes more than 1.5
times as long must at least answer within 50 ms: the reference is the larger of the two limits.
"""

import asyncio
import tempfile
import time
from pathlib import Path

from bench import databases
from bench.comparison import ROUNDS, Finding, p95, summary
from bench.http_connection import HttpConnection
from bench.pulls import KEY, connect, make_key, serve
from bench.task_rows import fill_etl_tasks, fill_queue
from penstock.settings import Settings
from penstock.wiring import open_runtime
from tests.journeys.command import free_port
from tests.storms import processes

SMALL, LARGE = 10_000, 300_000
ETL_SMALL, ETL_LARGE = 1_000, 100_000  # tasks of two projects of one user
CALLS = 20  # per size and round
LIMIT_MS, FACTOR = 50.0, 1.5

TASKS = "/api/v1/projects/{name}/queues/q/tasks"
ANY = "/api/v1/projects/{name}/tasks?queue=any"
KINDS = {
    "the first page of tasks": TASKS + "?pageSize=100",
    "a page in the middle": TASKS + "?page={middle}&pageSize=20",
    "the last page": TASKS + "?page={last}&pageSize=20",
    "the last page of a status": TASKS + "?status=done&page={middle}&pageSize=20",
    "the last page of a pull state": TASKS + "?pull_state=pulled&page={middle}&pageSize=20",
    "the last page of all queues": ANY + "&page={last}&pageSize=20",
    "a search with one hit": TASKS + "?search=task-{one}%20",
    "a search with no hit": TASKS + "?search=nothing%20like%20it",
    "a search that everything matches": TASKS + "?search=REPORT",
    "a search in all queues": ANY + "&search=customer%20{one}",
    "pull statistics": "/api/v1/projects/{name}/tasks/pull/stats",
    "statistics of a project": "/api/v1/stats/project/{name}",
}
ETL_KINDS = {
    "the first page of etl tasks": "/api/v1/etl/tasks?project_id={project}&limit=100",
    "the last page of etl tasks": "/api/v1/etl/tasks?project_id={project}&offset={offset}&limit=20",
    "the last page of completed etl tasks": (
        "/api/v1/etl/tasks?project_id={project}&status=completed&offset={offset}&limit=20"
    ),
}


def run() -> list[Finding]:
    """Measure on PostgreSQL and on SQLite."""
    found = []
    with databases.postgres() as server:
        for name in ("PostgreSQL", "SQLite"):
            with tempfile.TemporaryDirectory() as folder:
                url, dsn = "", None
                if name == "PostgreSQL":
                    asyncio.run(databases.new_database(server, "lists"))
                    url, dsn = server.url("lists"), server.dsn("lists")
                settings = Settings(
                    data_dir=Path(folder), database_url=url, admin_key=KEY, log_level="WARNING", pull_stats_seconds=0
                )
                found += asyncio.run(_measure(settings, name, dsn))
    return found


async def _measure(settings: Settings, database: str, dsn: str | None) -> list[Finding]:
    await make_key(settings)
    async with open_runtime(settings) as runtime:
        for name, count in (("small", SMALL), ("large", LARGE)):
            await fill_queue(runtime.db, name, "q", count)
        for project, count in ((1, ETL_SMALL), (2, ETL_LARGE)):
            await fill_etl_tasks(runtime.db, project, count)
    if dsn is not None:
        await databases.execute(dsn, "VACUUM ANALYZE", "CHECKPOINT")
    port = free_port()
    child = processes.start(serve, settings, port)
    try:
        found = [
            await _compare(port, f"{what} of 300,000 tasks, {database}", _tasks_paths(path))
            for what, path in KINDS.items()
        ]
        found += [
            await _compare(port, f"{what} of 100,000, {database}", _etl_paths(path)) for what, path in ETL_KINDS.items()
        ]
        return found
    finally:
        processes.kill(child)


def _tasks_paths(path: str) -> tuple[str, str]:
    small, large = (
        path.format(name=name, middle=count // 40, last=count // 20, one=count * 3 // 4)
        for name, count in (("small", SMALL), ("large", LARGE))
    )
    return small, large


def _etl_paths(path: str) -> tuple[str, str]:
    small, large = (
        path.format(project=project, offset=count - 20) for project, count in ((1, ETL_SMALL), (2, ETL_LARGE))
    )
    return small, large


async def _compare(port: int, what: str, paths: tuple[str, str]) -> Finding:
    pairs, smalls = [], []
    for _ in range(ROUNDS):
        connection = await connect(port)
        took: tuple[list[float], list[float]] = ([], [])
        for number in range(CALLS + 2):
            for path, seconds in zip(paths, took, strict=True):
                spent = await _call(connection, path)
                if number >= 2:  # the first ones prepare the statements
                    seconds.append(spent)
        connection.close()
        small, large = p95(took[0]), p95(took[1])
        smalls.append(small)
        pairs.append((max(FACTOR * small, LIMIT_MS), large))
    return summary(f"p95 of {what}", "ms", pairs, at_most=1.0).noted(small_case=sorted(smalls)[ROUNDS // 2])


async def _call(connection: HttpConnection, path: str) -> float:
    began = time.perf_counter()
    status, body = await connection.get(path)
    assert status == 200, (path, body[:300])
    return time.perf_counter() - began
