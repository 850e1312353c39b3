"""Status reads through the whole app. The reference is a FastAPI endpoint with the same authentication and one Redis
GET, without our middleware, and with a response of the same size.

Measured are a route that returns run state as it is, and the route of etl tasks, for a task that a worker runs.

Both are served by granian in a process of their own, on the same Redis and database. What counts is how many requests a
server answers per second of its own CPU: on a small machine the client takes as much of the clock as the server.
"""

import asyncio
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import psutil
from fastapi import APIRouter, FastAPI, Request

from bench.comparison import ROUNDS, Finding, summary
from penstock.access.domain import Scope
from penstock.access.guard import requires
from penstock.access.keys import ensure_admin_key
from penstock.etl import run_state
from penstock.etl.api.params import Localizer
from penstock.etl.api.shapes import task_fields
from penstock.etl.domain import EtlTask, Status
from penstock.etl.run_state import TaskRun
from penstock.kernel.runstate import RunSnapshot
from penstock.settings import Settings
from penstock.web.app import build_app, list_routers
from penstock.web.server import serve_app
from penstock.wiring import Runtime, open_runtime
from tests.journeys.command import free_port
from tests.servers.valkey import ValkeyServer
from tests.storms import processes

KEY = "sk-the-key-of-the-benchmark-0001"
REQUESTS = 6000
CONNECTIONS = 16
TASK = EtlTask(
    id=42,
    user_id=5,
    project_id=3,
    filename="letter.pdf",
    s3_key="users/5/raw/3/letter.pdf",
    rule_id=0,
    rule_version=1,
    status=Status.MINERU_PARSING,
    run=1,
    ocr_run=1,
    progress=34,
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
    updated_at=datetime(2026, 1, 1, 0, 1, tzinfo=UTC),
    metadata={"s3_key": "users/5/raw/3/letter.pdf", "rule_version": 1, "pages_done": 17, "page_count": 40},
)
SHOWN = {**task_fields(TASK, Localizer(Request({"type": "http", "headers": []}))), "queue_position": None}
FIELDS = {"phase": "ocr", "page": 17, "pages": 40, "attempts": 1, "filename": "letter.pdf", "rule_id": 0, "user_id": 5}

status = APIRouter()
bare = APIRouter()


@status.get("/api/v1/status/{key}", **requires(Scope.READ))
async def read_status(key: str, request: Request) -> dict[str, Any]:
    """What a status route does: read the run state and return it."""
    entry = await request.app.state.runs.get(key)
    return {"task_id": entry.key, "status": entry.status, "run": entry.run, **entry.fields}


@bare.get("/api/v1/status/{key}", **requires(Scope.READ))
async def read_bare(key: str, request: Request) -> dict[str, Any]:
    """The same authentication, one Redis GET, and a response of the same size."""
    await request.app.state.redis.get(key)
    return {"task_id": key, "status": "running", "run": 1, **FIELDS}


@bare.get("/api/v1/tasks/{key}", **requires(Scope.READ))
async def read_bare_task(key: str, request: Request) -> dict[str, Any]:
    """The same for a response of the size of an etl task."""
    await request.app.state.redis.get(key)
    return SHOWN


def run() -> list[Finding]:
    """Measure both in turn."""
    with ValkeyServer.start() as redis, tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), redis_url=redis.url, admin_key=KEY, log_level="WARNING")
        asyncio.run(_prepare(settings))
        ports = {name: free_port() for name in ("whole", "bare")}
        started = {name: processes.start(_serve, settings, port, name) for name, port in ports.items()}
        try:
            return asyncio.run(_compare(ports, {name: child.pid or 0 for name, child in started.items()}))
        finally:
            for child in started.values():
                processes.kill(child)


async def _prepare(settings: Settings) -> None:
    async with open_runtime(settings) as runtime:
        async with runtime.db.tx() as tx:
            await ensure_admin_key(tx, KEY)
        await runtime.runs.put(RunSnapshot(key="run", run=1, order=1, status="running", fields=FIELDS))
        etl = runtime.modules.etl
        shown = run_state.encode(run_state.key(etl, TASK.id), TaskRun.of(TASK), database=runtime.db.identity)
        await etl.runs.put(shown)
        assert runtime.redis is not None
        await runtime.redis.raw.set("plain", "x" * 200)


def _serve(settings: Settings, port: int, name: str) -> None:
    asyncio.run({"whole": _serve_whole, "bare": _serve_bare}[name](settings, port))


async def _serve_whole(settings: Settings, port: int) -> None:
    async with open_runtime(settings) as runtime:
        app = build_app(runtime, routers=[*list_routers(runtime), status])
        app.state.runs = runtime.runs
        await serve_app(app, host="127.0.0.1", port=port)


async def _serve_bare(settings: Settings, port: int) -> None:
    async with open_runtime(settings) as runtime:
        await serve_app(_bare_app(runtime), host="127.0.0.1", port=port)


def _bare_app(runtime: Runtime) -> FastAPI:
    app = FastAPI(docs_url=None, redoc_url=None)
    app.include_router(bare)
    app.state.access = runtime.modules.state["access"]
    assert runtime.redis is not None
    app.state.redis = runtime.redis.raw
    return app


async def _compare(ports: dict[str, int], pids: dict[str, int]) -> list[Finding]:
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    async with aiohttp.ClientSession(connector=connector, headers={"X-API-Key": KEY}) as session:
        run = {"whole": "/api/v1/status/run", "bare": "/api/v1/status/plain"}
        task = {"whole": f"/api/v1/etl/tasks/{TASK.id}", "bare": "/api/v1/tasks/plain"}
        return [
            finding
            for what, paths, target in (("status read", run, 0.8), ("status read of an etl task", task, 0.9))
            for finding in await _compare_paths(session, what, _urls(ports, paths), pids, target)
        ]


def _urls(ports: dict[str, int], paths: dict[str, str]) -> dict[str, str]:
    return {name: f"http://127.0.0.1:{port}{paths[name]}" for name, port in ports.items()}


async def _compare_paths(
    session: aiohttp.ClientSession, what: str, urls: dict[str, str], pids: dict[str, int], target: float
) -> list[Finding]:
    for url in urls.values():
        await _ready(session, url)
    cpu, clock = [], []
    for _ in range(ROUNDS):
        found = {name: await _load(session, urls[name], pids[name]) for name in ("bare", "whole")}
        cpu.append((found["bare"][0], found["whole"][0]))
        clock.append((found["bare"][1], found["whole"][1]))
    return [
        summary(f"{what}, whole app", "requests/CPU s", cpu, at_least=target),
        summary(f"{what}, whole app, by the clock", "requests/s", clock, at_least=0.8),
    ]


async def _ready(session: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                async with session.get(url) as answer:
                    assert answer.status == 200, await answer.text()
                    return
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.1)


async def _load(session: aiohttp.ClientSession, url: str, pid: int) -> tuple[float, float]:
    """Requests per CPU second of the server, and per wall second."""
    server = psutil.Process(pid)
    before, began = sum(server.cpu_times()[:2]), time.perf_counter()

    async def some() -> None:
        for _ in range(REQUESTS // CONNECTIONS):
            async with session.get(url) as answer:
                await answer.read()
                assert answer.status == 200

    await asyncio.gather(*(some() for _ in range(CONNECTIONS)))
    spent = sum(server.cpu_times()[:2]) - before
    return REQUESTS / spent, REQUESTS / (time.perf_counter() - began)
