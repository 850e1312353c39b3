"""Idle connections of one address, at a real server of this process."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from penstock.kernel.http.client_address import TrustedProxies
from penstock.kernel.http.in_flight import InFlight
from penstock.web.app import App, build_app
from penstock.web.idle_connections import IdleConnections
from penstock.web.server import serve_app
from penstock.wiring import Runtime
from tests.journeys.command import free_port

REQUEST = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Served:
    """A server and connections to it."""

    def __init__(self, app: App, port: int) -> None:
        self.in_flight: InFlight = app.state.in_flight
        self.port = port
        self.opened: list[Connection] = []

    def limiter(self, most: int, proxies: str = "") -> IdleConnections:
        return IdleConnections(self.port, self.in_flight, max_per_address=most, proxies=TrustedProxies.of(proxies))

    async def open(self, count: int) -> list[Connection]:
        """Connect, send a request and read its response; then the connections are idle."""
        new = [await asyncio.open_connection("127.0.0.1", self.port) for _ in range(count)]
        self.opened += new
        for connection in new:
            assert await ask(connection)
        return new


async def ask(connection: Connection) -> bool:
    """Whether the connection still answers a request."""
    reader, writer = connection
    try:
        writer.write(REQUEST)
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return False
    await reader.readexactly(len(b'{"status":"ok"}'))
    return head.startswith(b"HTTP/1.1 200")


@pytest.fixture
async def served(runtime: Runtime) -> AsyncIterator[Served]:
    app, port = build_app(runtime), free_port()
    serving = asyncio.create_task(serve_app(app, host="127.0.0.1", port=port))
    async with asyncio.timeout(30):
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                await asyncio.sleep(0.01)
    made = Served(app, port)
    yield made
    for _, writer in made.opened:
        writer.close()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_the_surplus_of_one_address_is_closed_the_longest_idle_first(served: Served):
    limiter = served.limiter(10)
    await limiter.scan()
    old = await served.open(8)
    assert await limiter.scan() == 0  # they had a request since the scan before
    young = await served.open(7)
    assert [await limiter.scan() for _ in range(2)] == [0, 0]  # the old are idle; then the young, for the first time
    assert await limiter.scan() == 5
    assert [await ask(one) for one in old].count(False) == 5
    assert all([await ask(one) for one in young])


async def test_a_connection_that_is_in_use_is_not_closed(served: Served):
    limiter = served.limiter(1)
    used = (await served.open(1))[0]
    for _ in range(4):
        assert await ask(used)
        assert await limiter.scan() == 0


async def test_connections_of_a_trusted_proxy_are_not_bounded(served: Served):
    limiter = served.limiter(2, "127.0.0.0/8")
    await served.open(8)
    assert [await limiter.scan() for _ in range(4)] == [0, 0, 0, 0]
    assert all([await ask(one) for one in served.opened])
