"""A client that costs as little as a client can: requests written by hand on connections that stay open."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

END = b"\r\n\r\n"
LENGTH = b"content-length: "


class Wire:
    """One connection to a server on loopback."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> None:
        self._reader = reader
        self._writer = writer
        self._key = key

    @classmethod
    async def open(cls, port: int, key: str) -> "Wire":
        """Connect."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=2**24), key)

    async def get(self, path: str, *, client: str = "bench") -> tuple[int, bytes]:
        """Ask, and read the whole answer; returns its status and its body."""
        head = f"GET {path} HTTP/1.1\r\nhost: bench\r\nx-api-key: {self._key}\r\nx-client-id: {client}\r\n\r\n"
        self._writer.write(head.encode())
        start = await self._reader.readuntil(END)
        lower = start.lower()
        at = lower.index(LENGTH) + len(LENGTH)
        size = int(lower[at : lower.index(b"\r", at)])
        return int(start[9:12]), await self._reader.readexactly(size)

    async def data(self, path: str, *, client: str = "bench") -> Any:
        """The data of an answer that must be a success."""
        status, body = await self.get(path, client=client)
        if status != 200:
            raise RuntimeError(body[:500])
        return msgspec.json.decode(body)["data"]

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


async def crowd(wires: Sequence[Wire], requests: int, path: Callable[[int], str]) -> float:
    """Ask so often in all, each connection one after another; returns requests per second."""
    left = iter(range(requests))

    async def some(wire: Wire) -> None:
        for number in left:
            await wire.data(path(number))

    began = time.perf_counter()
    await asyncio.gather(*(some(wire) for wire in wires))
    return requests / (time.perf_counter() - began)
