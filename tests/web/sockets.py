"""Raw sockets, for requests that no HTTP client would send."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import NoReturn

STATUS = re.compile(rb"^HTTP/1\.[01] (\d{3}) ", re.MULTILINE)
ENDED = re.compile(rb"(?s).*?content-length: (\d+)\r\n.*?\r\n\r\n", re.IGNORECASE)
READ_SECONDS = 20.0


@dataclass(kw_only=True)
class RawResponse:
    """Everything that was received on one connection."""

    text: bytes = b""
    closed: bool = False
    seconds: float = 0.0
    sent_bytes: int = 0
    statuses: list[int] = field(default_factory=list)


@asynccontextmanager
async def opened(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """An open connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def send_raw(
    port: int, *parts: bytes, pause: float = 0.0, quiet: float = 1.0, half_close: bool = False
) -> RawResponse:
    """Send these parts, and read until the server closes or has been quiet for `quiet` seconds."""
    response, began = RawResponse(), monotonic()
    async with opened(port) as (reader, writer):
        sending = asyncio.create_task(_send(writer, parts, pause, response, half_close=half_close))
        try:
            async with asyncio.timeout(READ_SECONDS):
                while await _read(reader, response, quiet) or not (response.closed or sending.done()):
                    pass
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    response.seconds = monotonic() - began
    response.statuses = [int(status) for status in STATUS.findall(response.text)]
    return response


def send_all_first(port: int, *requests: tuple[bytes, int]) -> list[RawResponse]:
    """Send each request, a head and so many bytes, before its response is read, as most clients do, all on one
    connection. Raises when the server closes it too early."""
    responses, block = [], bytes(65_536)
    with socket.create_connection(("127.0.0.1", port), timeout=READ_SECONDS) as connection:
        for head, body_bytes in requests:
            connection.sendall(head)
            for left in range(body_bytes, 0, -len(block)):
                connection.sendall(block[:left])
            received = b""
            while not (ended := ENDED.match(received)) or len(received) < ended.end() + int(ended[1]):
                received += connection.recv(65_536) or _closed()
            responses.append(RawResponse(text=received, statuses=[int(one) for one in STATUS.findall(received)]))
    return responses


def _closed() -> NoReturn:
    raise ConnectionResetError("closed before the response was complete")


async def _send(
    writer: asyncio.StreamWriter, parts: tuple[bytes, ...], pause: float, response: RawResponse, *, half_close: bool
) -> None:
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            response.sent_bytes += len(part)
            await asyncio.sleep(pause)
        if half_close:
            writer.write_eof()
    except OSError:
        return  # the server closed the connection, which is a result too


async def _read(reader: asyncio.StreamReader, response: RawResponse, quiet: float) -> bool:
    """Read once; returns whether data arrived."""
    try:
        data = await asyncio.wait_for(reader.read(65_536), quiet)
    except TimeoutError:
        return False
    except OSError:
        data = b""
    response.text += data
    response.closed = not data
    return bool(data)


def request(line: str, *headers: str, body: bytes = b"") -> bytes:
    """A well-formed request, except for what the test puts in."""
    head = "\r\n".join([line, "Host: test", *headers, "", ""])
    return head.encode("latin-1") + body
