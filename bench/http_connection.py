"""A minimal HTTP client: hand-written requests on keep-alive connections, so that the client costs little."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

END = b"\r\n\r\n"
LENGTH = b"content-length: "


class HttpConnection:
    """One connection to a server on loopback."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> None:
        self._reader = reader
        self._writer = writer
        self._key = key

    @classmethod
    async def open(cls, port: int, key: str) -> "HttpConnection":
        """Connect."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=2**24), key)

    async def get(self, path: str, *, client: str = "bench") -> tuple[int, bytes]:
        """Send a GET request; returns status and body."""
        head = f"GET {path} HTTP/1.1\r\nhost: bench\r\nx-api-key: {self._key}\r\nx-client-id: {client}\r\n\r\n"
        self._writer.write(head.encode())
        start = await self._reader.readuntil(END)
        lower = start.lower()
        at = lower.index(LENGTH) + len(LENGTH)
        size = int(lower[at : lower.index(b"\r", at)])
        return int(start[9:12]), await self._reader.readexactly(size)

    async def data(self, path: str, *, client: str = "bench") -> Any:
        """The data of a successful response."""
        status, body = await self.get(path, client=client)
        if status != 200:
            raise RuntimeError(body[:500])
        return msgspec.json.decode(body)["data"]

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


async def send_all(connections: Sequence[HttpConnection], requests: int, path: Callable[[int], str]) -> float:
    """Send this many requests in total over these connections; returns requests per second."""
    left = iter(range(requests))

    async def some(connection: HttpConnection) -> None:
        for number in left:
            await connection.data(path(number))

    began = time.perf_counter()
    await asyncio.gather(*(some(connection) for connection in connections))
    return requests / (time.perf_counter() - began)
