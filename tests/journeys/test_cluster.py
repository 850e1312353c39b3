"""Two servers and a worker share one state: a client sees the same on either server."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.fakes.receivers import Receiver
from tests.journeys.command import Command, Serving
from tests.journeys.profiles import ADMIN_KEY, Profile

ADMIN = {"X-API-Key": ADMIN_KEY}
SOON = 60  # seconds; on a busy machine a process takes that long to start

pytestmark = pytest.mark.timeout(240)


class Cluster:
    """Two servers that do no jobs, one worker, and a receiver of webhooks."""

    def __init__(self, profile: Profile, session: aiohttp.ClientSession, receiver: Receiver) -> None:
        self.session = session
        self.receiver = receiver
        self.first, self.second = (Serving("--no-workers", **profile.settings) for _ in range(2))
        self.worker = Command("work", **profile.settings)

    async def ask(self, server: Serving, method: str, path: str, body: object = None, *, key: str = ADMIN_KEY) -> Any:
        """One request; its answer, read."""
        headers = {"X-API-Key": key}
        async with self.session.request(method, f"{server.url}/api/v1{path}", json=body, headers=headers) as answer:
            return answer.status, await answer.json()

    async def new_key(self, scope: str) -> tuple[str, str]:
        """A key made on the first server: its id and its secret."""
        status, made = await self.ask(self.first, "POST", "/api-keys", {"name": "n", "scope": scope, "userId": 77})
        assert status == 201
        return made["data"]["id"], made["data"]["key"]

    async def until(self, look: Any) -> Any:
        """Wait for other processes."""
        async with asyncio.timeout(SOON):
            while not (found := await look()):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            return found

    def end(self) -> None:
        """kill -9 for whatever still runs."""
        for process in (self.first, self.second, self.worker):
            process.kill()


@pytest.fixture
async def cluster(profile: Profile, session: aiohttp.ClientSession) -> AsyncIterator[Cluster]:
    async with Receiver() as receiver:
        cluster = Cluster(profile, session, receiver)
        try:
            await cluster.first.ready(session)
            await cluster.second.ready(session)
            yield cluster
        finally:
            cluster.end()


async def test_what_is_said_to_one_server_is_known_to_the_other_and_done_by_the_worker(cluster: Cluster):
    await a_webhook_is_delivered(cluster)
    await a_revoked_key_is_refused(cluster)


async def test_what_stops_says_goodbye_and_clients_go_on_at_the_other_server(cluster: Cluster):
    await the_worker_stops(cluster)
    await a_server_stops(cluster)


async def a_webhook_is_delivered(cluster: Cluster) -> None:
    """Made on one server, pinged on the other, delivered by the worker."""
    _, key = await cluster.new_key("write")
    asked = {"url": cluster.receiver.url, "channels": ["*"]}
    status, webhook = await cluster.ask(cluster.first, "POST", "/webhooks", asked, key=key)
    assert status == 201
    status, _ = await cluster.ask(cluster.second, "POST", f"/webhooks/{webhook['id']}/ping", key=key)
    assert status == 202
    await asyncio.wait_for(cluster.receiver.rang.wait(), SOON)
    [post] = cluster.receiver.heard
    assert json.loads(post.body)["channel"] == "WebhookPing"
    assert post.headers["Penstock-Signature"].startswith("v1=")

    async def delivered() -> bool:
        _, page = await cluster.ask(cluster.first, "GET", f"/webhooks/{webhook['id']}/deliveries", key=key)
        return [item["state"] for item in page["items"]] == ["delivered"]

    assert await cluster.until(delivered)

    async def alive() -> bool:
        _, health = await cluster.ask(cluster.first, "GET", "/health")  # it is kept for a moment
        return bool(health["checks"]["workers"] == {"ok": True, "needed": False, "detail": "1 alive"})

    assert await cluster.until(alive)


async def a_revoked_key_is_refused(cluster: Cluster) -> None:
    """By the other server too, which also ends its stream."""
    key_id, key = await cluster.new_key("read")
    stream = await cluster.session.get(f"{cluster.second.url}/api/v1/events", headers={"X-API-Key": key})
    assert stream.status == 200
    assert (await cluster.ask(cluster.first, "DELETE", f"/api-keys/{key_id}"))[0] == 200

    async def refused() -> bool:
        return bool((await cluster.ask(cluster.second, "GET", "/auth/me", key=key))[0] == 401)

    assert await cluster.until(refused)
    async with asyncio.timeout(SOON):
        assert b"retry: 3000" in await stream.content.read()  # to its end


async def a_server_stops(cluster: Cluster) -> None:
    """It ends its streams; their clients go on at the other."""
    stream = await cluster.session.get(f"{cluster.first.url}/api/v1/events", headers=ADMIN)
    assert stream.status == 200
    cluster.first.send_signal(signal.SIGTERM)
    async with asyncio.timeout(SOON):
        await stream.content.read()
    assert cluster.first.wait(timeout=SOON) == 0
    resumed = await cluster.session.get(f"{cluster.second.url}/api/v1/events", headers=ADMIN | {"Last-Event-ID": "0"})
    assert resumed.status == 200
    resumed.close()


async def the_worker_stops(cluster: Cluster) -> None:
    """Health knows at once, without waiting for a heartbeat to fail."""

    async def alive(number: int) -> bool:
        async with cluster.session.get(f"{cluster.first.url}/api/v1/health", headers=ADMIN) as answer:
            detail = json.loads(await answer.text())["checks"]["workers"]["detail"]
        return bool(detail == (f"{number} alive" if number else "no worker is running"))

    assert await cluster.until(lambda: alive(1))
    cluster.worker.send_signal(signal.SIGTERM)
    assert cluster.worker.wait(timeout=SOON) == 0
    assert await cluster.until(lambda: alive(0))
