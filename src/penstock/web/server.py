"""The server: granian inside this process, so that the API, the workers and the timekeeper share one event loop.

It stops in order. `/readyz` says so first; then no connection is taken any more, live streams end, and requests that
are under way have the grace to end. What is not over by then is cut off.
"""

import asyncio
import logging
import os
import socket
from contextlib import suppress

from fastapi import FastAPI
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server.embed import Server

from penstock.kernel.errors import Conflict
from penstock.kernel.http.in_flight import InFlight
from penstock.web.app import build_app
from penstock.wiring import Runtime

log = logging.getLogger(__name__)

# How long a connection may be silent before a request's headers are whole, also between two requests.
HEADER_MILLISECONDS = 30_000
HEADER_BYTES = 64 * 1024
BACKLOG = 1024  # connections that wait to be taken
SPARE_CONNECTIONS = 1024  # beside those that live streams may hold
CUT_SECONDS = 2  # for what was cut off to end
# A thread of granian's puts things away after it has said that it is done. It aborts a process that ends before it has.
SETTLE_SECONDS = 0.1
# Its own lines go the way of ours; it would write to standard output by itself, past what redacts them.
LOGGING = {"handlers": {}, "formatters": {}, "loggers": {"_granian": {"handlers": [], "propagate": True}}}


class PortTaken(Conflict):
    """Something else listens on the port, or the address is not ours."""

    code = "PORT_TAKEN"
    message = "{host}:{port} cannot be listened on ({reason})."
    message_zh = "无法监听 {host}:{port}（{reason}）。"
    hint = "Stop what listens there, or choose another address with --host and --port."
    hint_zh = "请停止占用该端口的程序，或用 --host 和 --port 另选地址。"


def check_port(host: str, port: int) -> None:
    """Refuse a port that is taken: the server itself would share it with the other one, to everyone's surprise."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, port), family=family, reuse_port=False):
            return
    except OSError as error:
        raise PortTaken(
            host=host, port=port, reason=os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        ) from error


async def serve_http(house: Runtime, *, host: str, port: int) -> None:
    """Answer HTTP until cancelled."""
    app, settings = build_app(house), house.settings
    connections = settings.sse_connections + SPARE_CONNECTIONS
    try:
        await serve_app(
            app,
            host=host,
            port=port,
            connections=connections,
            grace_seconds=settings.grace_seconds,
            drain_seconds=settings.drain_seconds,
        )
    finally:
        app.state.request_log.tell()


async def serve_app(
    app: FastAPI,
    *,
    host: str,
    port: int,
    connections: int = SPARE_CONNECTIONS,
    grace_seconds: float = 0,
    drain_seconds: float = 0,
) -> None:
    """Answer HTTP with this app until cancelled; from then on, `/readyz` tells for `drain_seconds` to ask others."""
    check_port(host, port)
    under_way: InFlight = getattr(app.state, "under_way", InFlight())  # an app that is not ours has none
    server = _server(app, host, port, connections=connections)
    serving = asyncio.create_task(server.serve())
    try:
        await asyncio.shield(serving)
    finally:
        under_way.stopping = True
        await asyncio.sleep(drain_seconds)
        server.stop()  # type: ignore[no-untyped-call]  # granian gives this method no types
        await _finish(under_way, serving, grace_seconds=grace_seconds)


def _server(app: FastAPI, host: str, port: int, *, connections: int) -> Server:
    return Server(
        app,
        address=host,
        port=port,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,  # proxies speak it, and there is half as much to defend
        websockets=False,
        backlog=BACKLOG,
        backpressure=connections,
        http1_settings=HTTP1Settings(header_read_timeout=HEADER_MILLISECONDS, max_buffer_size=HEADER_BYTES),
        log_level=LogLevels.error,
        log_dictconfig=LOGGING,
    )


async def _finish(under_way: InFlight, serving: asyncio.Task[None], *, grace_seconds: float) -> None:
    """Wait for the requests that are under way; cut off those that outlast the grace."""
    await asyncio.wait([serving], timeout=grace_seconds)
    if late := under_way.cut():
        log.warning("%d requests are cut off: they did not end within %g s", late, grace_seconds)
    await asyncio.wait([serving], timeout=CUT_SECONDS)
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving
    await asyncio.sleep(SETTLE_SECONDS)
