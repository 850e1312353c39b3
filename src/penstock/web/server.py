"""The server: granian inside this process, so that the API, the workers and the scheduler share one event loop.

Graceful shutdown, on SIGTERM or Ctrl-C: `/readyz` reports it first; then no connection is accepted, live streams end,
and requests in flight get a grace period to finish. What still runs after it is aborted with 503 STOPPING. The workers
of this process release running jobs, which continue at the next start.
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
from penstock.web.idle_connections import IdleConnections
from penstock.wiring import Runtime
from penstock.wiring.backends import build_proxies

log = logging.getLogger(__name__)

# How long a connection may be silent before a request's headers are complete, also between two requests.
HEADER_MILLISECONDS = 30_000
BACKLOG = 1024  # connections that wait to be accepted
SPARE_CONNECTIONS = 1024  # beside those that live streams may hold
CANCEL_SECONDS = 2  # for cancelled requests to end
# A thread of granian cleans up after it has reported its end. It aborts a process that exits before the thread is done.
SETTLE_SECONDS = 0.1
# Granian's log lines go through our handlers; by default it writes to standard output, without redaction.
LOGGING = {"handlers": {}, "formatters": {}, "loggers": {"_granian": {"handlers": [], "propagate": True}}}


class PortTaken(Conflict):
    """Another process listens on the port, or the address is not local."""

    code = "PORT_TAKEN"
    message = "Cannot listen on {host}:{port} ({reason})."
    message_zh = "无法监听 {host}:{port}（{reason}）。"
    hint = "Stop the process that listens there, or choose another address with --host and --port."
    hint_zh = "请停止占用该端口的程序，或用 --host 和 --port 另选地址。"


def check_port(host: str, port: int) -> None:
    """Raise `PortTaken` when the port is in use: granian would share it with the other process (SO_REUSEPORT)."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, port), family=family, reuse_port=False):
            return
    except OSError as error:
        raise PortTaken(
            host=host, port=port, reason=os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        ) from error


async def serve_http(runtime: Runtime, *, host: str, port: int) -> None:
    """Serve the runtime's app until cancelled."""
    app, settings = build_app(runtime), runtime.settings
    app.state.hosts = app.state.hosts.bound_to(host)
    connections = settings.sse_connections + SPARE_CONNECTIONS
    idle = IdleConnections(
        port,
        app.state.in_flight,
        max_per_address=settings.idle_connections,
        proxies=build_proxies(settings),
    )
    limiting = asyncio.create_task(idle.run())
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
        limiting.cancel()
        app.state.request_log.flush()


async def serve_app(
    app: FastAPI,
    *,
    host: str,
    port: int,
    connections: int = SPARE_CONNECTIONS,
    grace_seconds: float = 0,
    drain_seconds: float = 0,
) -> None:
    """Serve this app until cancelled; then `/readyz` reports the shutdown for `drain_seconds` before it begins."""
    check_port(host, port)
    in_flight: InFlight = getattr(app.state, "in_flight", InFlight())  # a foreign app has none
    server = _server(app, host, port, connections=connections)
    serving = asyncio.create_task(server.serve())
    try:
        await asyncio.shield(serving)
    finally:
        in_flight.stopping = True
        await asyncio.sleep(drain_seconds)
        server.stop()  # type: ignore[no-untyped-call]  # granian gives this method no types
        await _finish(in_flight, serving, grace_seconds=grace_seconds)


def _server(app: FastAPI, host: str, port: int, *, connections: int) -> Server:
    return Server(
        app,
        address=host,
        port=port,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,  # a proxy adds HTTP/2 and TLS; the attack surface is half the size
        websockets=False,
        backlog=BACKLOG,
        backpressure=connections,
        http1_settings=HTTP1Settings(header_read_timeout=HEADER_MILLISECONDS),
        log_level=LogLevels.error,
        log_dictconfig=LOGGING,
    )


async def _finish(in_flight: InFlight, serving: asyncio.Task[None], *, grace_seconds: float) -> None:
    """Wait for the requests in flight; cancel those that outlast the grace period."""
    await asyncio.wait([serving], timeout=grace_seconds)
    if late := in_flight.cancel_all():
        log.warning("%d requests cancelled: they did not finish within %g s", late, grace_seconds)
    await asyncio.wait([serving], timeout=CANCEL_SECONDS)
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving
    await asyncio.sleep(SETTLE_SECONDS)
