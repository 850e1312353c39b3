"""Asks an ASGI app without a server between, with the body in as many parts as a test likes."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message

GONE = b"<the caller left>"  # instead of a part of the body: the connection ends there
SILENT = b"<nothing comes>"  # instead of a part of the body: it never comes


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, read."""
        return json.loads(self.body)


class Asker:
    """One request and the messages that came back for it."""

    def __init__(self, parts: Sequence[bytes] = ()) -> None:
        self.taken = 0  # how many parts of the body were asked for
        self.answered_after = -1  # and how many until the answer began
        self.sent: list[Message] = []
        self._parts = list(parts) or [b""]

    async def receive(self) -> Message:
        """The next part of the body."""
        if self.taken == len(self._parts):
            return {"type": "http.disconnect"}
        part = self._parts[self.taken]
        self.taken += 1
        if part == SILENT:
            await asyncio.Event().wait()
        if part == GONE:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": self.taken < len(self._parts)}

    async def send(self, message: Message) -> None:
        """Keep what the app says."""
        if not self.sent:
            self.answered_after = self.taken
        self.sent.append(message)

    @property
    def answer(self) -> Answer:
        """The whole answer; exactly one must have been given."""
        [start] = [message for message in self.sent if message["type"] == "http.response.start"]
        assert self.sent[0] is start
        return Answer(
            status=start["status"],
            headers={name.decode().lower(): value.decode() for name, value in start["headers"]},
            body=b"".join(message.get("body", b"") for message in self.sent[1:]),
        )


def scope_of(method: str, target: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """What a server says of a request."""
    path, _, query = target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
        "client": ("192.0.2.7", 4711),
        "server": ("test", 80),
        "state": {},
    }


async def ask(app: ASGIApp, method: str, target: str, *parts: bytes, **headers: str) -> Answer:
    """Send a request, its body in these parts; names of headers have their hyphens as underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if parts and "content-length" not in named:
        named["transfer-encoding"] = "chunked"
    asker = Asker(parts)
    await app(scope_of(method, target, named), asker.receive, asker.send)
    return asker.answer
