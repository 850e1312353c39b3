"""The front of the house: one pass over every request, whatever it asks for.

It gives the request an id, refuses what no route should see (a key in the address, a body that is too large, too slow
or no JSON), lets the app answer, puts our headers on the answer, packs it, and then counts it and writes one line
about it. What nobody expected becomes a 500 that names the id, and the log has the trace.

It is one class in plain ASGI on purpose: layers of middleware would each wrap every message of every request.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.kernel.errors import Invalid, PenstockError, TooLarge
from penstock.kernel.http.envelope import refusal
from penstock.kernel.http.exchange import HttpExchange
from penstock.kernel.http.headers import RequestIds, read_headers
from penstock.kernel.http.in_flight import InFlight, Stopping
from penstock.kernel.http.problems import problem
from penstock.kernel.http.request_body import BodyTooLarge, CountedBody, again, check_json, linger, read_whole
from penstock.kernel.http.request_log import RequestLog
from penstock.kernel.http.request_url import refuse_key_in_url
from penstock.kernel.logs import request_id
from penstock.kernel.metrics import Traffic

log = logging.getLogger(__name__)


MOST_QUERY_BYTES = 8192
NOT_TRACED = nullcontext()


class UrlTooLong(TooLarge):
    """The part of the address behind the question mark is too long."""

    code = "URL_TOO_LONG"
    message = "The query of the address is longer than {most_bytes} bytes."
    message_zh = "地址中的查询部分超过 {most_bytes} 字节。"
    hint = "Ask for less at once, or send it in a body where the route takes one."
    hint_zh = "请减少单次查询的内容，或在支持的路由上改用请求体发送。"
    status = 414


class BadUrl(Invalid):
    """The address holds a character that nothing can be called by."""

    code = "BAD_URL"
    message = "The address holds a NUL character."
    message_zh = "地址中含有 NUL 字符。"
    hint = "Take %00 out of the address."
    hint_zh = "请从地址中去掉 %00。"


class Tracing(Protocol):
    """Tells someone else about requests; `adapters/otel.py` does."""

    def request(self, visit: HttpExchange) -> AbstractContextManager[None]:
        """What the request does inside the block belongs to it."""
        ...


@dataclass(frozen=True, kw_only=True)
class BodyRules:
    """How large and how slow a body may be. Below `own_limits`, paths of uploads, routes see to that themselves."""

    most_bytes: int
    seconds: float
    own_limits: tuple[str, ...] = ()


class Front:
    """The middleware."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        bodies: BodyRules,
        traffic: Traffic,
        request_log: RequestLog,
        under_way: InFlight,
        own_head: Callable[[str], bool],
        enveloped: tuple[str, ...] = (),
        tracing: Tracing | None = None,
    ) -> None:
        self._app = app
        self._bodies = bodies
        self._traffic = traffic
        self._request_log = request_log
        self._new_id = RequestIds().new
        self._under_way = under_way
        self._own_head = own_head  # whether a path has a HEAD of its own; elsewhere it is a GET without its body
        self._enveloped = enveloped  # below these paths refusals are told in the envelope that clients there know
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        visit = HttpExchange(scope, send, read_headers(scope["headers"], self._new_id))
        scope.setdefault("state", {})["request_id"] = visit.asked.request_id
        token = request_id.set(visit.asked.request_id)
        task = self._under_way.begin()
        try:
            with self._tracing.request(visit) if self._tracing else NOT_TRACED:
                await self._answer(visit, receive)
        finally:
            self._under_way.end(task)
            self._traffic.count(visit.known_method, visit.route, visit.status, visit.seconds)
            self._request_log.add(visit)
            request_id.reset(token)

    async def _answer(self, visit: HttpExchange, receive: Receive) -> None:
        try:
            _check_address(visit.scope)
            if visit.method == "HEAD" and not self._own_head(visit.scope["path"]):
                visit.scope["method"] = "GET"
            if visit.asked.has_body:
                await self._take_in(visit, receive)
            else:
                await self._app(visit.scope, receive, visit.send)
        except asyncio.CancelledError:
            if not self._under_way.was_cut():
                raise
            if not visit.answered:
                await self._refuse(visit, Stopping())
        except Exception as error:
            if visit.answered:
                log.exception("%s %s failed", visit.known_method, visit.scope["path"])
                raise  # half an answer is out: the server has to cut it off, so that nobody takes it for whole
            await self._fail(visit, receive, error)

    async def _fail(self, visit: HttpExchange, receive: Receive, error: Exception) -> None:
        """Answer with what went wrong. It is no part of `_answer`, whose frame the error holds: held by it in turn, the
        body would not be let go of before the garbage collector came by (see `CountedBody.let_go`)."""
        if isinstance(error, PenstockError):
            await self._refuse(visit, error)
        else:
            log.error("%s %s failed", visit.known_method, visit.scope["path"], exc_info=error)
            await self._refuse(visit, PenstockError())
        if isinstance(error, BodyTooLarge):
            await linger(receive)

    async def _refuse(self, visit: HttpExchange, error: PenstockError) -> None:
        if self._enveloped and visit.scope["path"].startswith(self._enveloped):
            answer = refusal(Request(visit.scope), error)
        else:
            answer = problem(error, HTTPConnection(visit.scope))
        await answer(visit.scope, _nothing, visit.send)

    async def _take_in(self, visit: HttpExchange, receive: Receive) -> None:
        """Let the app answer a request with a body: once that is known to be fit, or while it is being counted."""
        rules, scope = self._bodies, visit.scope
        if rules.own_limits and scope["path"].startswith(rules.own_limits):
            await self._app(scope, receive, visit.send)
            return
        if visit.asked.body_bytes > rules.most_bytes:
            raise BodyTooLarge(most_bytes=rules.most_bytes)
        if visit.asked.is_json:
            body = await read_whole(receive, most_bytes=rules.most_bytes, seconds=rules.seconds)
            if body:
                await check_json(body)
            await self._app(scope, again(body, receive), visit.send)
            return
        counted = CountedBody(receive, most_bytes=rules.most_bytes, seconds=rules.seconds)
        try:
            await self._app(scope, counted.receive, visit.send)
        finally:
            counted.let_go()
        if counted.too_large:
            await linger(receive)


def _check_address(scope: Scope) -> None:
    query: bytes = scope["query_string"]
    if "\0" in scope["path"] or b"%00" in query:
        raise BadUrl
    if not query:
        return
    if len(query) > MOST_QUERY_BYTES:
        raise UrlTooLong(most_bytes=MOST_QUERY_BYTES)
    refuse_key_in_url(query)


async def _nothing() -> Message:
    return {"type": "http.disconnect"}
