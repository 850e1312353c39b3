"""Listeners for storms: many in one process, so each costs next to nothing."""

import asyncio
import json
import random
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.kernel.events import StoredEvent

SAMPLE = 20  # of so many events, one tells how long it took
AGAIN_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Wait:
    """How long after it was told an event was heard, when, and from which server."""

    at: float
    seconds: float
    port: int


class Listener(asyncio.Protocol):
    """One client. When its connection ends it comes back, to any of the servers, with the id it saw last."""

    def __init__(
        self, who: str, topic: str, *, ports: Sequence[int], chance: random.Random, holds_bytes: int = 0
    ) -> None:
        self.who = who
        self.topic = topic
        self.since: int | None = None  # where its first stream began
        self.last_id: int | None = None
        self.heard: list[int] = []
        self.waits: list[Wait] = []
        self.odd: list[bytes] = []  # what a stream should not have said
        self.cuts = 0
        self._ports = ports
        self._port = 0  # of the server that it came to last
        self._chance = chance
        self._holds_bytes = holds_bytes  # how much its socket takes in; 0: as the system likes
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._in_body = False
        self._coming: set[asyncio.Task[None]] = set()
        self._done = False

    def wants(self, told: StoredEvent) -> bool:
        """Whether an event is one it has to hear."""
        seen = self.who == "admin" or told.audience == f"user:{self.who.removeprefix('user')}"
        return seen and (not self.topic or told.topic == self.topic) and told.id > (self.since or 0)

    def come(self) -> None:
        """Connect, again and again until it works."""
        task = asyncio.create_task(self._connect())
        self._coming.add(task)
        task.add_done_callback(self._coming.discard)

    def cut(self) -> None:
        """Lose the connection, in the middle of whatever it was saying."""
        if self._transport is not None:
            self.cuts += 1
            self._transport.abort()

    def go_deaf(self) -> None:
        """Keep the connection and read nothing more from it."""
        if self._transport is not None:
            self._transport.pause_reading()

    def hear_again(self) -> None:
        """Go on reading."""
        if self._transport is not None:
            self._transport.resume_reading()

    def leave(self) -> None:
        """Go for good."""
        self._done = True
        for task in self._coming:
            task.cancel()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the stream. By HTTP/1.0, whose bodies have no frames to be taken apart."""
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._rest, self._in_body = transport, b"", False
        lines = [f"GET /api/v1/events?{f'topic={self.topic}' if self.topic else ''} HTTP/1.0", f"X-API-Key: {self.who}"]
        if self.last_id is not None:
            lines.append(f"Last-Event-ID: {self.last_id}")
        transport.write("\r\n".join([*lines, "", ""]).encode())

    def data_received(self, data: bytes) -> None:
        """Take in what came; a block that is not whole yet waits for its rest."""
        self._rest += data
        if not self._in_body:
            head, found, rest = self._rest.partition(b"\r\n\r\n")
            if not found:
                return
            if b" 200 " not in head.partition(b"\r\n")[0]:
                self.odd.append(head)
            self._in_body, self._rest = True, rest
        *whole, self._rest = self._rest.split(b"\n\n")
        for block in whole:
            self._take(block)

    def connection_lost(self, _error: Exception | None) -> None:
        """Come back."""
        self._transport = None
        if not self._done:
            self.come()

    def _take(self, block: bytes) -> None:
        if block.startswith(b":"):
            return
        first, _, rest = block.partition(b"\n")
        if first.startswith(b"retry: "):
            self.last_id = int(rest.removeprefix(b"id: "))
            self.since = self.last_id if self.since is None else self.since
            return
        kind, _, data = rest.partition(b"\n")
        if kind != b"event: counted":
            self.odd.append(block)
        self.last_id = int(first.removeprefix(b"id: "))
        self.heard.append(self.last_id)
        if len(self.heard) % SAMPLE == 0:
            now = time.monotonic()
            told: float = json.loads(data.removeprefix(b"data: "))["told"]
            self.waits.append(Wait(at=now, seconds=now - told, port=self._port))

    async def _connect(self) -> None:
        await asyncio.sleep(self._chance.uniform(0, AGAIN_SECONDS))
        while not self._done:
            try:
                await self._connect_once(self._chance.choice(self._ports))
            except OSError:
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                return

    async def _connect_once(self, port: int) -> None:
        loop, door = asyncio.get_running_loop(), socket.socket()
        self._port = port
        door.setblocking(False)
        if self._holds_bytes:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._holds_bytes)
        try:
            await loop.sock_connect(door, ("127.0.0.1", port))
            await loop.create_connection(lambda: self, sock=door)
        except BaseException:
            door.close()
            raise


async def until(condition: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Wait for something that other processes bring about."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110  (the servers are other processes)
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"it took more than {seconds:g} s until {what}") from None
