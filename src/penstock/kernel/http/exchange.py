"""One request on its way through the house: what it asked, what it was answered, how long that took."""

from time import perf_counter

from starlette.types import Message, Scope, Send

from penstock.kernel.http.compression import VARY, Form, form_of, pack, packed_headers
from penstock.kernel.http.headers import Asked, Raw, takes_gzip, with_ours

UNMATCHED = "unmatched"  # the one name of every path that no route serves, so that nobody can make up names
WENT_AWAY = 499  # nothing was answered: the caller had left, or we were stopping
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class HttpExchange:
    """A request and its answer. `send` is what the app is given to answer with."""

    __slots__ = ("_began", "_first_after", "_held", "_send", "asked", "bytes_out", "method", "scope", "status")

    def __init__(self, scope: Scope, send: Send, asked: Asked) -> None:
        self.scope = scope
        self.asked = asked
        self.method: str = scope["method"]
        self.status = WENT_AWAY
        self.bytes_out = 0
        self._send = send
        self._held: list[Raw] | None = None  # headers that wait for the body, which may be packed
        self._began = perf_counter()
        self._first_after: float | None = None

    @property
    def answered(self) -> bool:
        """Whether the answer has begun to go out, so that no other can be given."""
        return self.status != WENT_AWAY and self._held is None

    @property
    def seconds(self) -> float:
        """How long the answer took; of a stream, how long its beginning took."""
        return perf_counter() - self._began if self._first_after is None else self._first_after

    @property
    def route(self) -> str:
        """The template of the path, such as /api/v1/things/{id}."""
        return getattr(self.scope.get("route"), "path_format", UNMATCHED)

    @property
    def known_method(self) -> str:
        """The method, or OTHER for what nobody has heard of."""
        return self.method if self.method in METHODS else "OTHER"

    @property
    def caller(self) -> str:
        """The name of the caller, once the door has let them in."""
        return getattr(self.scope["state"].get("caller"), "name", "")

    async def send(self, message: Message) -> None:
        """Pass a part of the answer on: with our headers, and packed where that is worth it."""
        if message["type"] == "http.response.start":
            await self._start(message["status"], message.get("headers", ()))
        elif message["type"] == "http.response.body":
            await self._continue(message.get("body", b""), more=message.get("more_body", False))
        else:
            await self._send(message)

    async def _start(self, status: int, own: list[Raw]) -> None:
        self.status = status
        headers = with_ours(own, self.asked.request_id)
        form = form_of(status, own)
        if form is Form.PACKABLE:
            headers.append(VARY)
            if takes_gzip(self.asked.encodings) and self.method != "HEAD":
                self._held = headers
                return
        elif form is Form.STREAM:
            self._first_after = perf_counter() - self._began
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _continue(self, body: bytes, *, more: bool) -> None:
        if self._held is not None:
            headers, self._held = self._held, None
            if not more:
                body = await pack(body)
                headers = packed_headers(headers, len(body))
            await self._send({"type": "http.response.start", "status": self.status, "headers": headers})
        if self.method == "HEAD":
            body = b""
        self.bytes_out += len(body)
        await self._send({"type": "http.response.body", "body": body, "more_body": more})
