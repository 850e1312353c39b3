"""A stop in good order: nobody is sent here any more, what is under way ends, and what does not end is cut off."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic

import pytest

from tests.servers.children import kill_child
from tests.web.attacked import ServedHouse
from tests.web.served import ADMIN_KEY, GRACE_SECONDS
from tests.web.sockets import Heard, opened, request, talk

pytestmark = pytest.mark.timeout(180)

DRAIN_SECONDS = 1.0


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedHouse]:
    house = ServedHouse(tmp_path)
    try:
        await house.ready()
        yield house
    finally:
        kill_child(house.child)


async def until(served: ServedHouse, word: str) -> None:
    """Return when the log has this word."""
    async with asyncio.timeout(20):
        while word not in served.log_file.read_text():  # noqa: ASYNC110  (it is another process)
            await asyncio.sleep(0.01)


async def readiness(served: ServedHouse) -> Heard:
    return await talk(served.port, request("GET /readyz HTTP/1.1", "Connection: close"))


async def begun(served: ServedHouse, line: str) -> asyncio.Task[Heard]:
    """A request that has reached its route when this returns."""
    task = asyncio.create_task(talk(served.port, request(line), quiet=20))
    await until(served, "under way")
    return task


async def test_what_is_under_way_ends_within_the_grace(served: ServedHouse):
    slow = await begun(served, "GET /slow?seconds=1 HTTP/1.1")
    served.ask_to_stop()
    heard = await slow
    assert heard.statuses == [200]
    assert heard.text.endswith(b'{"seconds":1.0}')
    assert await served.ended() == 0
    assert "GET /slow status=200" in served.log_file.read_text()


async def test_what_outlasts_the_grace_is_cut_off(served: ServedHouse):
    stuck = await begun(served, "GET /slow?seconds=600 HTTP/1.1")
    served.ask_to_stop()
    began = monotonic()
    heard = await stuck
    assert heard.closed
    assert heard.statuses == [503]
    assert b'"code":"STOPPING"' in heard.text
    assert await served.ended() == 0
    assert monotonic() - began < GRACE_SECONDS + 10
    told = served.log_file.read_text()
    assert "1 requests are cut off" in told
    assert "GET /slow failed" not in told
    assert "_granian" not in told


async def test_live_streams_end_and_idle_connections_hold_nothing_up(served: ServedHouse):
    async with opened(served.port), opened(served.port) as (reader, writer):
        writer.write(request("GET /api/v1/events HTTP/1.1", f"X-API-Key: {ADMIN_KEY}"))
        assert b"HTTP/1.1 200" in await reader.readuntil(b"retry: 3000")
        served.ask_to_stop()
        began = monotonic()
        await reader.read()
        assert await served.ended() == 0
        assert monotonic() - began < GRACE_SECONDS + 10
    assert "cut off" not in served.log_file.read_text()


async def test_while_it_drains_it_serves_and_says_that_others_should_be_asked(tmp_path: Path):
    served = ServedHouse(tmp_path, drain_seconds=DRAIN_SECONDS)
    try:
        await served.ready()
        assert (await readiness(served)).statuses == [200]
        served.ask_to_stop()
        async with asyncio.timeout(DRAIN_SECONDS + 5):
            while (stopping := await readiness(served)).statuses == [200]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert stopping.statuses == [503]
        assert b'{"status":"stopping"}' in stopping.text
        assert await served.is_well()
        assert await served.ended() == 0
    finally:
        kill_child(served.child)
