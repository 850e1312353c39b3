"""The ASGI middleware that every request passes.

It gives the request an id, refuses what no route should see (a key in the URL, a body that is too large, too slow or
not valid JSON), lets the app respond, adds our headers, compresses the response, and then counts and logs the request.
An unexpected exception becomes a 500 that names the request id, and the log has the traceback.

It is one class in plain ASGI on purpose: a stack of middlewares would wrap every message several times.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.kernel.errors import PenstockError
from penstock.kernel.http.envelope import envelope_error
from penstock.kernel.http.exchange import HttpExchange
from penstock.kernel.http.headers import RequestIds, parse_headers
from penstock.kernel.http.in_flight import InFlight, Stopping
from penstock.kernel.http.problems import problem_response
from penstock.kernel.http.request_body import (
    BodyTooLarge,
    LimitedBody,
    check_json,
    drain_body,
    read_body,
    replay_body,
)
from penstock.kernel.http.request_log import RequestLog
from penstock.kernel.http.request_url import check_url
from penstock.kernel.logs import request_id
from penstock.kernel.metrics import HttpMetrics

log = logging.getLogger(__name__)

NOT_TRACED = nullcontext()


class RequestTracing(Protocol):
    """Traces requests; `adapters/otel.py` implements it."""

    def request(self, exchange: HttpExchange) -> AbstractContextManager[None]:
        """A span around the handling of a request."""
        ...


@dataclass(frozen=True, kw_only=True)
class BodyLimits:
    """Size and time limits of request bodies. Below the `exempt` paths (uploads), routes limit bodies themselves."""

    max_bytes: int
    seconds: float
    exempt: tuple[str, ...] = ()


class RequestMiddleware:
    """Checks, traces, counts and logs every request."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        body_limits: BodyLimits,
        traffic: HttpMetrics,
        request_log: RequestLog,
        in_flight: InFlight,
        has_head_route: Callable[[str], bool],
        enveloped: tuple[str, ...] = (),
        tracing: RequestTracing | None = None,
    ) -> None:
        self._app = app
        self._body_limits = body_limits
        self._traffic = traffic
        self._request_log = request_log
        self._new_id = RequestIds().new
        self._in_flight = in_flight
        self._has_head_route = has_head_route  # elsewhere HEAD is handled as GET without the body
        self._enveloped = enveloped  # below these paths errors are sent in the envelope format
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = HttpExchange(scope, send, parse_headers(scope["headers"], self._new_id))
        scope.setdefault("state", {})["request_id"] = exchange.head.request_id
        token = request_id.set(exchange.head.request_id)
        task = self._in_flight.start()
        try:
            with self._tracing.request(exchange) if self._tracing else NOT_TRACED:
                await self._handle(exchange, receive)
        finally:
            self._in_flight.finish(task)
            self._traffic.count(exchange.known_method, exchange.route, exchange.status, exchange.seconds)
            self._request_log.add(exchange)
            request_id.reset(token)

    async def _handle(self, exchange: HttpExchange, receive: Receive) -> None:
        try:
            check_url(exchange.scope)
            if exchange.method == "HEAD" and not self._has_head_route(exchange.scope["path"]):
                exchange.scope["method"] = "GET"
            if exchange.head.has_body:
                await self._handle_with_body(exchange, receive)
            else:
                await self._app(exchange.scope, receive, exchange.send)
        except asyncio.CancelledError:
            if not self._in_flight.was_cancelled():
                raise
            if not exchange.is_answered:
                await self._send_error(exchange, Stopping())
        except Exception as error:
            if exchange.is_answered:
                log.exception("%s %s failed", exchange.known_method, exchange.scope["path"])
                raise  # half a response is out: the server must abort the connection, so that it is not taken for whole
            await self._fail(exchange, receive, error)

    async def _fail(self, exchange: HttpExchange, receive: Receive, error: Exception) -> None:
        """Respond with an error. This is not part of `_handle`, whose frame the error references: with a reference
        back, the body would only be freed by the garbage collector (see `LimitedBody.release`)."""
        if isinstance(error, PenstockError):
            await self._send_error(exchange, error)
        else:
            log.error("%s %s failed", exchange.known_method, exchange.scope["path"], exc_info=error)
            await self._send_error(exchange, PenstockError())
        if isinstance(error, BodyTooLarge):
            await drain_body(receive)

    async def _send_error(self, exchange: HttpExchange, error: PenstockError) -> None:
        if self._enveloped and exchange.scope["path"].startswith(self._enveloped):
            response = envelope_error(Request(exchange.scope), error)
        else:
            response = problem_response(error, HTTPConnection(exchange.scope))
        await response(exchange.scope, _disconnected, exchange.send)

    async def _handle_with_body(self, exchange: HttpExchange, receive: Receive) -> None:
        """Let the app handle a request with a body: JSON is checked first, other bodies while they are read."""
        limits, scope = self._body_limits, exchange.scope
        if limits.exempt and scope["path"].startswith(limits.exempt):
            await self._app(scope, receive, exchange.send)
            return
        if exchange.head.body_bytes > limits.max_bytes:
            raise BodyTooLarge(most_bytes=limits.max_bytes)
        if exchange.head.is_json:
            body = await read_body(receive, max_bytes=limits.max_bytes, seconds=limits.seconds)
            if body:
                await check_json(body)
            await self._app(scope, replay_body(body, receive), exchange.send)
            return
        limited = LimitedBody(receive, max_bytes=limits.max_bytes, seconds=limits.seconds)
        try:
            await self._app(scope, limited.receive, exchange.send)
        finally:
            limited.release()
        if limited.too_large:
            await drain_body(receive)


async def _disconnected() -> Message:
    return {"type": "http.disconnect"}
