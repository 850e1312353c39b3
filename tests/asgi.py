"""Calls an ASGI app without a server between: one request, one whole answer."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def data(self) -> Any:
        """The data of an envelope that tells of a success."""
        assert self.json["success"] is True, self.body
        return self.json["data"]

    @property
    def error(self) -> Any:
        """The error of an envelope that tells of one."""
        assert self.json["success"] is False, self.body
        return self.json["error"]


Headers = Sequence[tuple[str, str]]


async def call(
    app: ASGIApp, method: str, path: str, body: object = None, *, headers: Headers = (), client: str = "127.0.0.1"
) -> Answer:
    """Send a request; `body` is bytes as they are, or anything else as JSON."""
    target, _, query = path.partition("?")
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    given = [("host", "test"), ("content-type", "application/json"), *headers]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(target),
        "raw_path": target.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in given],
        "client": (client, 4711),
        "server": ("test", 80),
        "state": {},
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": raw, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = sent[0]
    return Answer(
        status=start["status"],
        headers={name.decode().lower(): value.decode() for name, value in start["headers"]},
        body=b"".join(message.get("body", b"") for message in sent[1:]),
    )
