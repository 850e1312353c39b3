"""A status read through the whole app. The reference is a FastAPI endpoint with the same authentication and one Redis
GET, without our middleware.

Both are served by granian in a process of their own, on the same Redis and database. What counts is how many requests a
server answers per second of its own CPU: on a small machine the client takes as much of the clock as the server.
"""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import psutil
from fastapi import APIRouter, FastAPI, Request

from bench.comparison import ROUNDS, Finding, summary
from penstock.access.domain import Scope
from penstock.access.guard import requires
from penstock.access.keys import ensure_admin_key
from penstock.kernel.runstate import RunEntry
from penstock.settings import Settings
from penstock.web.app import ROUTERS, build_app
from penstock.web.server import serve_app
from penstock.wiring import Runtime, open_runtime
from tests.journeys.command import free_port
from tests.servers.valkey import ValkeyServer
from tests.storms import processes

KEY = "sk-the-key-of-the-benchmark-0001"
RUN = "etl:task:42"
REQUESTS = 6000
CONNECTIONS = 16
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
        await runtime.runs.put(RunEntry(key=RUN, run=1, order=1, status="running", fields=FIELDS))
        assert runtime.redis is not None
        await runtime.redis.raw.set("plain", "x" * 200)


def _serve(settings: Settings, port: int, name: str) -> None:
    asyncio.run({"whole": _serve_whole, "bare": _serve_bare}[name](settings, port))


async def _serve_whole(settings: Settings, port: int) -> None:
    async with open_runtime(settings) as runtime:
        app = build_app(runtime, routers=[*ROUTERS, status])
        app.state.runs = runtime.runs
        await serve_app(app, host="127.0.0.1", port=port)


async def _serve_bare(settings: Settings, port: int) -> None:
    async with open_runtime(settings) as runtime:
        await serve_app(_bare_app(runtime), host="127.0.0.1", port=port)


def _bare_app(runtime: Runtime) -> FastAPI:
    app = FastAPI(docs_url=None, redoc_url=None)
    app.include_router(bare)
    app.state.access = runtime.access
    assert runtime.redis is not None
    app.state.redis = runtime.redis.raw
    return app


async def _compare(ports: dict[str, int], pids: dict[str, int]) -> list[Finding]:
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    async with aiohttp.ClientSession(connector=connector, headers={"X-API-Key": KEY}) as session:
        paths = {"whole": f"/api/v1/status/{RUN}", "bare": "/api/v1/status/plain"}
        urls = {name: f"http://127.0.0.1:{port}{paths[name]}" for name, port in ports.items()}
        for url in urls.values():
            await _ready(session, url)
        cpu, clock = [], []
        for _ in range(ROUNDS):
            found = {name: await _load(session, urls[name], pids[name]) for name in ("bare", "whole")}
            cpu.append((found["bare"][0], found["whole"][0]))
            clock.append((found["bare"][1], found["whole"][1]))
    return [
        summary("status read, whole app", "requests/CPU s", cpu, at_least=0.8),
        summary("status read, whole app, by the clock", "requests/s", clock, at_least=0.8),
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
