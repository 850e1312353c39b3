"""Graceful shutdown: readiness turns false, requests in flight finish, and those that do not are cancelled."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic

import pytest

from tests.servers.children import kill_child
from tests.web.server_main import ADMIN_KEY, GRACE_SECONDS
from tests.web.server_process import ServerProcess
from tests.web.sockets import RawResponse, opened, request, send_raw

pytestmark = pytest.mark.timeout(180)

DRAIN_SECONDS = 1.0


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    process = ServerProcess(tmp_path)
    try:
        await process.wait_ready()
        yield process
    finally:
        kill_child(process.child)


async def until_logged(server: ServerProcess, text: str) -> None:
    """Wait until the log contains this text."""
    async with asyncio.timeout(20):
        while text not in server.log_file.read_text():  # noqa: ASYNC110  (it is another process)
            await asyncio.sleep(0.01)


async def readiness(server: ServerProcess) -> RawResponse:
    return await send_raw(server.port, request("GET /readyz HTTP/1.1", "Connection: close"))


async def started(server: ServerProcess, line: str) -> asyncio.Task[RawResponse]:
    """A request that has reached its route when this returns."""
    task = asyncio.create_task(send_raw(server.port, request(line), quiet=20))
    await until_logged(server, "slow request started")
    return task


async def test_a_request_in_flight_finishes_within_the_grace_period(server: ServerProcess):
    slow = await started(server, "GET /slow?seconds=1 HTTP/1.1")
    server.terminate()
    response = await slow
    assert response.statuses == [200]
    assert response.text.endswith(b'{"seconds":1.0}')
    assert await server.wait_exit() == 0
    assert "GET /slow status=200" in server.log_file.read_text()


async def test_a_request_that_outlasts_the_grace_period_is_cancelled(server: ServerProcess):
    stuck = await started(server, "GET /slow?seconds=600 HTTP/1.1")
    server.terminate()
    began = monotonic()
    response = await stuck
    assert response.closed
    assert response.statuses == [503]
    assert b'"code":"STOPPING"' in response.text
    assert await server.wait_exit() == 0
    assert monotonic() - began < GRACE_SECONDS + 10
    log = server.log_file.read_text()
    assert "1 requests cancelled" in log
    assert "GET /slow failed" not in log
    assert "_granian" not in log


async def test_live_streams_end_and_idle_connections_do_not_delay_the_exit(server: ServerProcess):
    async with opened(server.port), opened(server.port) as (reader, writer):
        writer.write(request("GET /api/v1/events HTTP/1.1", f"X-API-Key: {ADMIN_KEY}"))
        assert b"HTTP/1.1 200" in await reader.readuntil(b"retry: 3000")
        server.terminate()
        began = monotonic()
        await reader.read()
        assert await server.wait_exit() == 0
        assert monotonic() - began < GRACE_SECONDS + 10
    assert "requests cancelled" not in server.log_file.read_text()


async def test_while_draining_it_serves_and_readyz_is_503(tmp_path: Path):
    server = ServerProcess(tmp_path, drain_seconds=DRAIN_SECONDS)
    try:
        await server.wait_ready()
        assert (await readiness(server)).statuses == [200]
        server.terminate()
        async with asyncio.timeout(DRAIN_SECONDS + 5):
            while (stopping := await readiness(server)).statuses == [200]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert stopping.statuses == [503]
        assert b'{"status":"stopping"}' in stopping.text
        assert await server.is_alive()
        assert await server.wait_exit() == 0
    finally:
        kill_child(server.child)
