"""What journeys of documents share: a server with a worker beside it, and somebody with a key."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from msgspec import json

from tests.journeys.command import Command, Serving
from tests.journeys.profiles import ADMIN_KEY, Profile

SOON = 90  # seconds; on a busy machine a process takes long to start, and OCR is no quick work
OVER = {"completed", "failed", "cancelled"}


class Client:
    """Somebody with a key."""

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str) -> None:
        self.session = session
        self.url = f"{url}/api/v1"
        self.headers = {"X-API-Key": key}

    async def ask(self, method: str, path: str, **sent: Any) -> tuple[int, bytes]:
        """One request: its status and its body."""
        async with self.session.request(method, self.url + path, headers=self.headers, **sent) as answer:
            return answer.status, await answer.read()

    async def send(self, name: str, content: bytes, **fields: int) -> int:
        """Upload and submit; returns the number of the task."""
        form = aiohttp.FormData({"project_id": "1"} | {field: str(value) for field, value in fields.items()})
        form.add_field("file", content, filename=name)
        status, body = await self.ask("POST", "/etl/upload_and_submit", data=form)
        assert status == 202, body
        return int(json.decode(body)["task_id"])

    async def get(self, path: str) -> Any:
        """What is there, which it must be."""
        status, body = await self.ask("GET", path)
        assert status == 200, body
        return json.decode(body)

    async def watch(self, task_id: int) -> list[dict[str, Any]]:
        """Every standing of a task that differs from the one before, to its end."""
        seen: list[dict[str, Any]] = []
        async with asyncio.timeout(SOON):
            while not seen or seen[-1]["status"] not in OVER:
                task = await self.get(f"/etl/tasks/{task_id}")
                if not seen or (task["status"], task["progress"]) != (seen[-1]["status"], seen[-1]["progress"]):
                    seen.append(task)
                await asyncio.sleep(0.03)  # the worker is another process
        return seen


@asynccontextmanager
async def serving(profile: Profile, session: aiohttp.ClientSession, **more: str) -> AsyncIterator[Serving]:
    """A server that does no jobs, and a worker."""
    settings = profile.settings | {"ETL_OCR_PROFILE": "fast"} | more
    server = Serving("--no-workers", **settings)
    worker = Command("work", "--modules", "etl", **settings)
    try:
        await server.ready(session)
        yield server
    finally:
        server.kill()
        worker.kill()


async def new_client(serving: Serving, session: aiohttp.ClientSession, *, user_id: int) -> Client:
    admin = Client(session, serving.url, ADMIN_KEY)
    wanted = {"name": f"user {user_id}", "scope": "write", "userId": user_id}
    status, body = await admin.ask("POST", "/api-keys", json=wanted)
    assert status == 201, body
    return Client(session, serving.url, json.decode(body)["data"]["key"])
