"""Response compression: gzip for text of 1 KB and more. Event streams are not compressed."""

import asyncio
import zlib
from collections.abc import Sequence
from enum import Enum, auto

from penstock.kernel.http.headers import RawHeader

MIN_BYTES = 1024  # below, compression costs more than it saves
THREAD_BYTES = 128 * 1024  # from this size on, compression runs in a thread
LEVEL = 5
GZIP_WBITS = 31  # zlib: gzip wrapper with the largest window
TEXT_TYPES = (b"application/json", b"application/problem+json", b"application/javascript", b"application/xml", b"text/")
EVENT_STREAM = b"text/event-stream"
NO_BODY = frozenset((204, 206, 304))
VARY: RawHeader = (b"vary", b"accept-encoding")
ZERO_WEIGHTS = frozenset((b"q=0", b"q=0.", b"q=0.0", b"q=0.00", b"q=0.000"))


class ResponseKind(Enum):
    """How a response is sent."""

    PLAIN = auto()
    COMPRESSIBLE = auto()
    STREAM = auto()


def accepts_gzip(accept_encoding: bytes) -> bool:
    """Whether an Accept-Encoding header allows gzip."""
    for part in accept_encoding.lower().split(b","):
        coding, _, weight = part.partition(b";")
        if coding.strip() == b"gzip":
            return weight.replace(b" ", b"") not in ZERO_WEIGHTS
    return False


def kind_of(status: int, headers: Sequence[RawHeader]) -> ResponseKind:
    """The kind of a response by its headers: text that is large enough and not encoded yet is compressible."""
    size, is_text = 0, False
    for name, value in headers:
        if name == b"content-length":
            size = int(value)
        elif name == b"content-type":
            if value.startswith(EVENT_STREAM):
                return ResponseKind.STREAM
            is_text = value.startswith(TEXT_TYPES)
        elif name == b"content-encoding":
            return ResponseKind.PLAIN
    compressible = is_text and size >= MIN_BYTES and status not in NO_BODY
    return ResponseKind.COMPRESSIBLE if compressible else ResponseKind.PLAIN


def compressed_headers(headers: Sequence[RawHeader], size_bytes: int) -> list[RawHeader]:
    """The headers of a response whose body was compressed to this size."""
    others = [pair for pair in headers if pair[0] != b"content-length"]
    return [*others, (b"content-encoding", b"gzip"), (b"content-length", str(size_bytes).encode())]


async def compress(body: bytes) -> bytes:
    """The gzipped body; large bodies are compressed in a thread."""
    if len(body) < THREAD_BYTES:
        return zlib.compress(body, LEVEL, GZIP_WBITS)
    return await asyncio.to_thread(zlib.compress, body, LEVEL, GZIP_WBITS)
