"""Raw sockets: what no HTTP client would let a test send."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic

STATUS = re.compile(rb"^HTTP/1\.[01] (\d{3}) ", re.MULTILINE)
READ_SECONDS = 20.0


@dataclass(kw_only=True)
class Heard:
    """All that came back on one connection."""

    text: bytes = b""
    closed: bool = False
    seconds: float = 0.0
    sent_bytes: int = 0
    statuses: list[int] = field(default_factory=list)


@asynccontextmanager
async def opened(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection of one's own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def talk(port: int, *parts: bytes, pause: float = 0.0, quiet: float = 1.0, half_close: bool = False) -> Heard:
    """Send these parts and listen until the other side closes or has been quiet for so long."""
    heard, began = Heard(), monotonic()
    async with opened(port) as (reader, writer):
        sending = asyncio.create_task(_send(writer, parts, pause, heard, half_close=half_close))
        try:
            async with asyncio.timeout(READ_SECONDS):
                while await _listen(reader, heard, quiet) or not (heard.closed or sending.done()):
                    pass
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    heard.seconds = monotonic() - began
    heard.statuses = [int(status) for status in STATUS.findall(heard.text)]
    return heard


async def _send(
    writer: asyncio.StreamWriter, parts: tuple[bytes, ...], pause: float, heard: Heard, *, half_close: bool
) -> None:
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            heard.sent_bytes += len(part)
            await asyncio.sleep(pause)
        if half_close:
            writer.write_eof()
    except OSError:
        return  # it was closed on us, which is an answer too


async def _listen(reader: asyncio.StreamReader, heard: Heard, quiet: float) -> bool:
    """Whether something came."""
    try:
        some = await asyncio.wait_for(reader.read(65_536), quiet)
    except TimeoutError:
        return False
    except OSError:
        some = b""
    heard.text += some
    heard.closed = not some
    return bool(some)


def request(line: str, *headers: str, body: bytes = b"") -> bytes:
    """A request as it should be, but for what the test makes of it."""
    head = "\r\n".join([line, "Host: test", *headers, "", ""])
    return head.encode("latin-1") + body
