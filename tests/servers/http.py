"""An app behind the HTTP server that the product uses, in the test's own process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from granian.constants import Interfaces
from granian.log import LogLevels
from granian.server.embed import Server

from tests.journeys.command import free_port

READY_SECONDS = 20
CONNECTIONS = 4096  # open ones; the server takes no more, idle ones included


@asynccontextmanager
async def serving(app: FastAPI, port: int = 0) -> AsyncIterator[str]:
    """Serve an app, on a free port by default; yields its URL."""
    port = port or free_port()
    server = Server(
        app,
        address="127.0.0.1",
        port=port,
        interface=Interfaces.ASGINL,
        backlog=1024,
        backpressure=CONNECTIONS,
        log_level=LogLevels.critical,
    )
    task = asyncio.ensure_future(server.serve())
    try:
        await _until_open(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop()
        await asyncio.wait([task], timeout=5)
        assert task.done(), "a connection kept the server from ending"


async def _until_open(port: int) -> None:
    async with asyncio.timeout(READY_SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.01)
                continue
            writer.close()
            return
