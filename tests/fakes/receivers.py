"""Webhook receivers: real HTTP servers on loopback, named by what they do to the sender."""

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from aiohttp import web

SHUTDOWN_SECONDS = 0.05  # what still hangs then is cut off


@dataclass(frozen=True, kw_only=True)
class Posted:
    """A received request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Receiver:
    """Accepts and records everything."""

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.heard: list[Posted] = []
        self.rang = asyncio.Event()  # set with every post
        self.port = port  # 0 becomes a free one when it listens
        self._host = host
        self._tls = tls
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._take)
        self._runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_SECONDS)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self.port, ssl_context=self._tls).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        """Its URL."""
        return f"http{'s' if self._tls else ''}://{self._host}:{self.port}/hook"

    async def _take(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.heard.append(Posted(method=request.method, path=request.path_qs, headers=request.headers, body=body))
        self.rang.set()
        return await self.answer(request)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """The response."""
        return web.Response(text="thank you")


class ReceiverThatSays(Receiver):
    """Answers with these statuses in turn; the last one stays."""

    def __init__(self, *statuses: int, text: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.statuses = list(statuses)
        self._text = text
        self._headers = headers or {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return web.Response(status=status, text=self._text, headers=self._headers)


class ReceiverThatSendsBytes(Receiver):
    """Answers with these bytes and headers."""

    def __init__(self, body: bytes, headers: Mapping[str, str]) -> None:
        super().__init__()
        self._body = body
        self._headers = headers

    async def answer(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=self._body, headers=self._headers)


class ReceiverThatStalls(Receiver):
    """Accepts the request and never answers."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError("nothing wakes it")


class ReceiverThatTrickles(Receiver):
    """Sends the status at once, and then a body that never ends."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await answer.prepare(request)
        await answer.write(b"well, ")
        await asyncio.Event().wait()
        raise AssertionError("nothing wakes it")


class ReceiverThatNeverStops(Receiver):
    """Answers with an endless text, as fast as it is read; `sent` counts the bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0
        self.cut_off = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await answer.prepare(request)
        try:
            while True:
                await answer.write(b"z" * 65536)
                self.sent += 65536
        except ConnectionError:
            self.cut_off.set()
            raise


class ReceiverThatHangsUp(Receiver):
    """Accepts the request and closes the connection."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


class PlainSocket:
    """Listens, records every byte, and answers with given bytes: not HTTP, unless they are."""

    def __init__(self, says: bytes = b"") -> None:
        self.connections = 0
        self.heard = bytearray()
        self.left = asyncio.Event()  # set when the other end hung up
        self._says = says

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._meet, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    @property
    def port(self) -> int:
        """The port it listens on."""
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.port}/"

    async def _meet(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.connections += 1
        writer.write(self._says)
        try:
            while some := await reader.read(65536):
                self.heard += some
        except ConnectionError:
            pass  # the other end cut it
        writer.close()
        self.left.set()
