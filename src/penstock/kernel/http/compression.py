"""Packing answers: gzip for text that comes in one piece and is worth it. Streams go as they are, each part at once."""

import asyncio
import zlib
from collections.abc import Sequence
from enum import Enum, auto

from penstock.kernel.http.headers import Raw

LEAST_BYTES = 1024  # below, the packing costs more than it saves
IN_A_THREAD_BYTES = 128 * 1024
LEVEL = 5
GZIP = 31  # zlib's word for a gzip wrapper with the largest window
TYPES = (b"application/json", b"application/problem+json", b"application/javascript", b"application/xml", b"text/")
STREAM = b"text/event-stream"
NO_BODY = frozenset((204, 206, 304))
VARY: Raw = (b"vary", b"accept-encoding")


class Form(Enum):
    """How an answer goes out."""

    AS_IT_IS = auto()
    PACKABLE = auto()
    STREAM = auto()


def form_of(status: int, headers: Sequence[Raw]) -> Form:
    """What an answer's own headers say of it: text that is long enough and not packed yet can be packed."""
    size, is_text = 0, False
    for name, value in headers:
        if name == b"content-length":
            size = int(value)
        elif name == b"content-type":
            if value.startswith(STREAM):
                return Form.STREAM
            is_text = value.startswith(TYPES)
        elif name == b"content-encoding":
            return Form.AS_IT_IS
    return Form.PACKABLE if is_text and size >= LEAST_BYTES and status not in NO_BODY else Form.AS_IT_IS


def packed_headers(headers: Sequence[Raw], size: int) -> list[Raw]:
    """The headers of an answer whose body was packed to this size."""
    kept = [pair for pair in headers if pair[0] != b"content-length"]
    return [*kept, (b"content-encoding", b"gzip"), (b"content-length", str(size).encode())]


async def pack(body: bytes) -> bytes:
    """The body, packed; long ones beside the event loop."""
    if len(body) < IN_A_THREAD_BYTES:
        return zlib.compress(body, LEVEL, GZIP)
    return await asyncio.to_thread(zlib.compress, body, LEVEL, GZIP)
