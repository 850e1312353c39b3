"""A module is added with its own folder, one migration and one line of wiring: `toy/` is one, and no file of the
product knows it."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from penstock.cli.process import ensure_admin_key
from penstock.kernel.migrations import DatabaseNewer, migrate, pending
from penstock.kernel.processes import ProcessKind
from penstock.settings import load
from penstock.web.server import serve_http
from penstock.wiring import MODULES, ModuleEntry, migration_folders, open_database, open_runtime
from tests.checks import tree
from tests.fakes.blocking_handler import wait_until
from tests.journeys.command import free_port
from tests.journeys.profiles import ADMIN_KEY, Profile
from tests.journeys.toy.module import MIGRATIONS, build_toy

WITH_TOY = {**MODULES, "toy": ModuleEntry(build_toy, migrations=MIGRATIONS)}  # the line of wiring
SECONDS = 30


@pytest.fixture
async def url(profile: Profile) -> AsyncIterator[str]:
    """Where a process with the toy module listens, as `penstock serve` starts it."""
    settings = load(profile.settings)
    db = open_database(settings)
    assert await pending(db, migration_folders(WITH_TOY)) == ["toy_0001"]
    assert await migrate(db, migration_folders(WITH_TOY)) == ["toy_0001"]
    await db.close()
    async with open_runtime(settings, modules=WITH_TOY) as runtime:
        await ensure_admin_key(runtime)
        port = free_port()
        parts = (
            runtime.run_background(kind=ProcessKind.SERVE, modules=runtime.modules.with_jobs),
            runtime.work(),
            serve_http(runtime, host="127.0.0.1", port=port),
        )
        running = [asyncio.create_task(part) for part in parts]
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


class ToyClient:
    """Requests to the toy module."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        headers = {"X-API-Key": ADMIN_KEY}
        async with self._session.request(method, self._url + path, json=body, headers=headers) as answer:
            return answer.status, await (answer.json() if "json" in answer.content_type else answer.text())

    async def listens(self) -> bool:
        try:
            return (await self.request("GET", "/livez"))[0] == 200
        except aiohttp.ClientConnectionError:
            return False


async def test_the_toy_has_routes_a_message_a_job_a_periodic_task_and_metrics(url: str, session: aiohttp.ClientSession):
    toy = ToyClient(session, url)
    await wait_until(toy.listens, seconds=SECONDS, every_seconds=0.05)

    status, taken = await toy.request("POST", "/api/v1/toy/notes", {"text": "buy milk"})
    assert (status, taken["text"]) == (201, "buy milk")

    async def is_archived() -> bool:
        return bool((await toy.request("GET", f"/api/v1/toy/notes/{taken['id']}"))[1]["archived"])

    # The relay handles the message, which enqueues the job, whose result the periodic task archives.
    await wait_until(is_archived, seconds=SECONDS, every_seconds=0.05)
    status, note = await toy.request("GET", f"/api/v1/toy/notes/{taken['id']}")
    assert (status, note) == (200, {"id": taken["id"], "text": "BUY MILK", "archived": True})

    assert "toy_notes_total 1.0" in (await toy.request("GET", "/metrics"))[1]
    status, refused = await toy.request("GET", "/api/v1/toy/nowhere")
    assert (status, refused["success"]) == (404, False)  # in the envelope format, as its spec says
    document = (await toy.request("GET", "/api/v1/openapi.json"))[1]
    assert document["paths"]["/api/v1/toy/notes"]["post"]["x-scope"] == "write"
    assert (await toy.request("GET", "/readyz"))[0] == 200


async def test_a_process_without_the_toy_refuses_its_database(profile: Profile):
    settings = load(profile.settings)
    db = open_database(settings)
    await migrate(db, migration_folders(WITH_TOY))
    assert await pending(db, migration_folders(WITH_TOY)) == []
    await db.close()
    with pytest.raises(DatabaseNewer):
        async with open_runtime(settings):
            pass


def test_the_product_does_not_know_the_toy():
    known = [
        path
        for path in tree.python_files("src")
        if re.search(r"\btoy", path.read_text(encoding="utf-8"), re.IGNORECASE)
    ]
    assert not known
