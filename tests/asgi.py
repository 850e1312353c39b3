"""Calls an ASGI app without a server: `call` for one plain request, `send_request` for a body in several parts."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

DISCONNECT = b"<disconnect>"  # in place of a body part: the client disconnects there
STALL = b"<stall>"  # in place of a body part: it never arrives

Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Response:
    """A whole response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def data(self) -> Any:
        """The data of a successful envelope."""
        assert self.json["success"] is True, self.body
        return self.json["data"]

    @property
    def error(self) -> Any:
        """The error of an envelope."""
        assert self.json["success"] is False, self.body
        return self.json["error"]


class Connection:
    """The server's side of one request: gives out its body and collects the messages of the response."""

    def __init__(self, parts: Sequence[bytes] = (), *, closed_after_body: bool = False) -> None:
        self.taken = 0  # how many body parts the app has read
        self.taken_before_response = -1  # and how many before the response started
        self.sent: list[Message] = []
        self._parts = list(parts) or [b""]
        self._closed_after_body = closed_after_body

    async def receive(self) -> Message:
        """The next part of the body. After the last one the client waits for its response, or has closed."""
        if self.taken == len(self._parts):
            if not self._closed_after_body:
                await asyncio.Event().wait()
            return {"type": "http.disconnect"}
        part = self._parts[self.taken]
        self.taken += 1
        if part == STALL:
            await asyncio.Event().wait()
        if part == DISCONNECT:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": self.taken < len(self._parts)}

    async def send(self, message: Message) -> None:
        """Collect a message of the response."""
        if not self.sent:
            self.taken_before_response = self.taken
        self.sent.append(message)

    @property
    def response(self) -> Response:
        """The whole response; exactly one must have been sent."""
        [start] = [message for message in self.sent if message["type"] == "http.response.start"]
        assert self.sent[0] is start
        return Response(
            status=start["status"],
            headers={name.decode().lower(): value.decode() for name, value in start["headers"]},
            body=b"".join(message.get("body", b"") for message in self.sent[1:]),
        )


def scope_of(
    method: str,
    target: str,
    headers: Iterable[tuple[str, str]] = (),
    *,
    path: str | None = None,
    client: str = "192.0.2.7",
) -> dict[str, Any]:
    """The ASGI scope of a request; `path` is the decoded one where it differs."""
    raw_path, _, query = target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": raw_path if path is None else path,
        "raw_path": raw_path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
        "client": (client, 4711),
        "server": ("test", 80),
        "state": {},
    }


async def call(
    app: ASGIApp,
    method: str,
    target: str,
    body: object = None,
    *,
    headers: Headers = (),
    client: str = "127.0.0.1",
    host: str | None = "localhost",
) -> Response:
    """Send a request; `body` is bytes as they are, or any other value as JSON."""
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    given = [*([("host", host)] if host is not None else []), ("content-type", "application/json"), *headers]
    path = unquote(target.partition("?")[0])
    connection = Connection([raw])
    await app(scope_of(method, target, given, path=path, client=client), connection.receive, connection.send)
    return connection.response


async def send_request(app: ASGIApp, method: str, target: str, *parts: bytes, **headers: str) -> Response:
    """Send a request with its body in these parts; header names have underscores for hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if parts and "content-length" not in named:
        named["transfer-encoding"] = "chunked"
    connection = Connection(parts)
    await app(scope_of(method, target, named.items()), connection.receive, connection.send)
    return connection.response
