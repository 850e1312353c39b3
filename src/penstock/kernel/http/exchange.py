"""One HTTP exchange: a request, its response, and how long it took."""

from collections.abc import Sequence
from time import perf_counter

from starlette.types import Message, Scope, Send

from penstock.kernel.http.compression import VARY, ResponseKind, accepts_gzip, compress, compressed_headers, kind_of
from penstock.kernel.http.headers import WARNINGS, RawHeader, RequestHead, with_default_headers

UNMATCHED = "unmatched"  # the route label of every unknown path, so that clients cannot create labels
CLIENT_CLOSED = 499  # nothing was sent: the client disconnected, or the server was stopping
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class HttpExchange:
    """A request and its response. The app responds through `send`."""

    __slots__ = (
        "_first_byte_seconds",
        "_pending",
        "_send",
        "_started_at",
        "bytes_out",
        "head",
        "method",
        "path_headers",
        "scope",
        "status",
    )

    def __init__(self, scope: Scope, send: Send, head: RequestHead) -> None:
        self.scope = scope
        self.head = head
        self.method: str = scope["method"]
        self.path_headers: Sequence[RawHeader] = ()
        self.status = CLIENT_CLOSED
        self.bytes_out = 0
        self._send = send
        self._pending: list[RawHeader] | None = None  # headers held back until the body is compressed
        self._started_at = perf_counter()
        self._first_byte_seconds: float | None = None

    @property
    def is_answered(self) -> bool:
        """Whether the response has started to go out, so that no other can be sent."""
        return self.status != CLIENT_CLOSED and self._pending is None

    @property
    def seconds(self) -> float:
        """How long the response took; of a stream, the time to its first byte."""
        return perf_counter() - self._started_at if self._first_byte_seconds is None else self._first_byte_seconds

    @property
    def route(self) -> str:
        """The path template, such as /api/v1/things/{id}."""
        return getattr(self.scope.get("route"), "path_format", UNMATCHED)

    @property
    def known_method(self) -> str:
        """The method, or OTHER for an unknown one."""
        return self.method if self.method in METHODS else "OTHER"

    def override_method(self) -> None:
        """Take the method from X-HTTP-Method-Override, for clients that cannot send every method."""
        for name, value in self.scope["headers"]:
            if name == b"x-http-method-override" and (method := value.decode("latin-1").strip().upper()) in METHODS:
                self.method = self.scope["method"] = method

    @property
    def caller(self) -> str:
        """The name of the caller, once authenticated."""
        return getattr(self.scope["state"].get("caller"), "name", "")

    @property
    def address(self) -> str:
        """The address of the client."""
        client = self.scope.get("client")
        return client[0] if client else ""

    async def send(self, message: Message) -> None:
        """Send a part of the response, with our headers and compressed where it is worthwhile."""
        if message["type"] == "http.response.start":
            await self._send_start(message["status"], message.get("headers", ()))
        elif message["type"] == "http.response.body":
            await self._send_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            await self._send(message)

    async def _send_start(self, status: int, own: list[RawHeader]) -> None:
        self.status = status
        headers = with_default_headers(own, self.head.request_id)
        headers += self.scope.get(WARNINGS, ())
        headers += self.path_headers
        kind = kind_of(status, own)
        if kind is ResponseKind.COMPRESSIBLE:
            headers.append(VARY)
            if accepts_gzip(self.head.accept_encoding) and self.method != "HEAD":
                self._pending = headers
                return
        elif kind is ResponseKind.STREAM:
            self._first_byte_seconds = perf_counter() - self._started_at
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _send_body(self, body: bytes, *, more: bool) -> None:
        if self._pending is not None:
            headers, self._pending = self._pending, None
            if not more:
                body = await compress(body)
                headers = compressed_headers(headers, len(body))
            await self._send({"type": "http.response.start", "status": self.status, "headers": headers})
        if self.method == "HEAD":
            body = b""
        self.bytes_out += len(body)
        await self._send({"type": "http.response.body", "body": body, "more_body": more})
