"""The ASGI middleware that every request passes.

It gives the request an id, refuses what no route should see (a key in the URL, headers that are too large, a body that
is too large, too slow or not valid JSON), lets the app respond, adds our headers, compresses the response, and then
counts and logs the request. An unexpected exception becomes a 500 that names the request id, and the log has the
traceback.

It is one class in plain ASGI on purpose: a stack of middlewares would wrap every message several times.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.kernel.dialect.watchdog import in_request
from penstock.kernel.errors import PenstockError, folder_full_from
from penstock.kernel.http.envelope import envelope_error
from penstock.kernel.http.exchange import HttpExchange
from penstock.kernel.http.headers import RawHeader, RequestIds, check_headers, parse_headers
from penstock.kernel.http.in_flight import InFlight, Stopping
from penstock.kernel.http.large_bodies import LargeBodies
from penstock.kernel.http.problems import problem_response
from penstock.kernel.http.request_body import (
    PARSED_JSON,
    BodyTooLarge,
    BodyTooSlow,
    LimitedBody,
    UnreadBody,
    check_json,
    is_large,
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


@dataclass(frozen=True, kw_only=True)
class PathRules:
    """What holds below some paths, also for responses that the middleware makes."""

    enveloped: tuple[str, ...] = ()  # errors are sent in the envelope format
    headers: Mapping[str, Sequence[RawHeader]] = field(default_factory=dict)  # of every response, by path
    method_override: tuple[str, ...] = ()  # X-HTTP-Method-Override is read


NO_RULES = PathRules()


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
        paths: PathRules = NO_RULES,
        tracing: RequestTracing | None = None,
    ) -> None:
        self._app = app
        self._body_limits = body_limits
        self._traffic = traffic
        self._request_log = request_log
        self._new_id = RequestIds().new
        self._in_flight = in_flight
        self._has_head_route = has_head_route  # elsewhere HEAD is handled as GET without the body
        self._paths = paths
        self._tracing = tracing
        self._large_bodies = LargeBodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = HttpExchange(scope, send, parse_headers(scope["headers"], self._new_id))
        scope.setdefault("state", {})["request_id"] = exchange.head.request_id
        for path, own in self._paths.headers.items():
            if scope["path"].startswith(path):
                exchange.path_headers = own
        token = request_id.set(exchange.head.request_id)
        watched = in_request.set(True)
        body = UnreadBody(receive) if exchange.head.has_body else None
        task = self._in_flight.start(scope.get("client"))
        try:
            with self._tracing.request(exchange) if self._tracing else NOT_TRACED:
                await self._handle(exchange, receive if body is None else body)
        finally:
            self._in_flight.finish(task)
            self._traffic.count(exchange.known_method, exchange.route, exchange.status, exchange.seconds)
            self._request_log.add(exchange)
            in_request.reset(watched)
            request_id.reset(token)
        if body is not None:
            await body.drain()

    async def _handle(self, exchange: HttpExchange, receive: Receive) -> None:
        try:
            check_headers(exchange.head)
            check_url(exchange.scope)
            if self._paths.method_override and exchange.scope["path"].startswith(self._paths.method_override):
                exchange.override_method()
            if exchange.method == "HEAD" and not self._has_head_route(exchange.scope["path"]):
                exchange.scope["method"] = "GET"
            if exchange.head.has_body:
                await self._handle_with_body(exchange, receive)
            else:
                await self._app(exchange.scope, receive, exchange.send)
        except asyncio.CancelledError:
            if not self._in_flight.was_cancelled():
                raise
            if (task := asyncio.current_task()) is not None:
                task.uncancel()  # it is handled here; before Python 3.11.4 no timeout works while one is open
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
        expected = error if isinstance(error, PenstockError) else folder_full_from(error)
        if expected is not None:
            await self._send_error(exchange, expected)
        else:
            log.error("%s %s failed", exchange.known_method, exchange.scope["path"], exc_info=error)
            await self._send_error(exchange, PenstockError())
        if isinstance(error, BodyTooSlow) and isinstance(receive, UnreadBody):
            receive.give_up()

    async def _send_error(self, exchange: HttpExchange, error: PenstockError) -> None:
        if self._paths.enveloped and exchange.scope["path"].startswith(self._paths.enveloped):
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
            if is_large(body):
                async with self._large_bodies.turn():
                    scope["state"][PARSED_JSON] = await check_json(body)
                    await self._app(scope, replay_body(body, receive), exchange.send)
                return
            if body:
                await check_json(body)
            await self._app(scope, replay_body(body, receive), exchange.send)
            return
        limited = LimitedBody(receive, max_bytes=limits.max_bytes, seconds=limits.seconds)
        try:
            await self._app(scope, limited.receive, exchange.send)
        finally:
            limited.release()
        if limited.too_slow and isinstance(receive, UnreadBody):
            receive.give_up()


async def _disconnected() -> Message:
    return {"type": "http.disconnect"}
