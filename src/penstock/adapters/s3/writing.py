"""One object, written: counted and hashed on the way in, in one request or in parts."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator
from contextlib import suppress
from typing import Self, TypeVar

import obstore
from obstore.store import S3Store

from penstock.adapters.s3.faults import named
from penstock.kernel.blobs import BlobReceipt, Chunks
from penstock.kernel.errors import TooLarge

PART_BYTES = 8 * 1024 * 1024
PARTS_AT_ONCE = 3  # under way at a time; with the one being filled they are all that is held in memory
PIECE_BYTES = 1024 * 1024  # small chunks are joined to this, so that a hop into a thread pays
MOST_OBJECT_BYTES = 5 * 1024**3  # what S3 copies in one request: larger objects could not be copied or created

Piece = bytes | memoryview
Attributes = dict[str, str]  # headers that the store keeps with an object
T = TypeVar("T")


class ObjectTooLarge(TooLarge):
    """An object is larger than the store can handle as one."""

    code = "OBJECT_TOO_LARGE"
    message = "More than {most_bytes} bytes cannot be stored under {key}."
    hint = "Split the object, and store its parts under keys of their own."
    message_zh = "无法在 {key} 下存储超过 {most_bytes} 字节的内容。"
    hint_zh = "请将对象拆分，并分别存储在各自的键下。"


class BrokenOff(Exception):
    """Ends an upload from within, so that obstore aborts it; nobody sees it."""


class Tally:
    """How much has come in, and its hash."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._sha256 = hashlib.sha256()
        self._size_bytes = 0

    async def add(self, piece: Piece) -> None:
        """Count a piece."""
        self._size_bytes += len(piece)
        if self._size_bytes > MOST_OBJECT_BYTES:
            raise ObjectTooLarge(key=self._key, most_bytes=MOST_OBJECT_BYTES)
        if len(piece) < PIECE_BYTES:
            self._sha256.update(piece)
        else:  # a millisecond or two that the event loop can use otherwise
            await asyncio.to_thread(self._sha256.update, piece)

    def receipt(self) -> BlobReceipt:
        """What was stored, once all of it is."""
        return BlobReceipt(key=self._key, size_bytes=self._size_bytes, sha256=self._sha256.hexdigest())


async def counted_pieces(chunks: Chunks, tally: Tally) -> AsyncGenerator[Piece, None]:
    """The chunks in pieces of about 1 MiB, however large or small they come, each counted before it is passed on."""
    if isinstance(chunks, bytes):
        for piece in _cut(chunks):
            await tally.add(piece)
            yield piece
        return
    waiting: list[bytes] = []
    waiting_bytes = 0
    async for chunk in chunks:
        waiting.append(chunk)
        waiting_bytes += len(chunk)
        if waiting_bytes >= PIECE_BYTES:
            for piece in _cut(b"".join(waiting)):
                await tally.add(piece)
                yield piece
            waiting, waiting_bytes = [], 0
    rest = b"".join(waiting)
    await tally.add(rest)
    yield rest


async def first_part(pieces: AsyncIterator[Piece]) -> tuple[bytes, bool]:
    """What fits into one part, joined, and True; or a little more than fits, and False."""
    head: list[Piece] = []
    head_bytes = 0
    async for piece in pieces:
        head.append(piece)
        head_bytes += len(piece)
        if head_bytes > PART_BYTES:
            return b"".join(head), False
    return b"".join(head), True


class Upload:
    """A large object on its way in parts.

    obstore pulls from here what the caller's own task gives, one piece at a time. It never sees the caller's stream: a
    stream that stalls could otherwise not be left, and an upload that is merely dropped stays at the store for ever.
    """

    def __init__(self, store: S3Store, path: str, key: str, told: Attributes) -> None:
        self._key = key
        self._pieces: asyncio.Queue[Piece | None] = asyncio.Queue(maxsize=1)
        self._broken_off = False
        self._running = asyncio.ensure_future(
            obstore.put_async(
                store,
                path,
                self,
                attributes=told,
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=PARTS_AT_ONCE,
            )
        )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        piece = await self._pieces.get()
        if self._broken_off:
            raise BrokenOff
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def give(self, piece: Piece | None) -> None:
        """Pass on a piece when the last one has been taken; None ends the object. Raises when the upload has failed."""
        giving = asyncio.ensure_future(self._pieces.put(piece))
        try:
            await asyncio.wait([giving, self._running], return_when=asyncio.FIRST_COMPLETED)
        finally:
            giving.cancel()
        if self._running.done():
            with named(self._key):
                self._running.result()

    async def finish(self) -> None:
        """Wait until the object is there."""
        await self.give(None)
        with named(self._key):
            await settled(self._running)

    async def abort(self) -> None:
        """End the upload, and wait until the store has forgotten it, or cannot be told."""
        self._broken_off = True
        with suppress(asyncio.QueueFull):  # then the next piece is looked at, and that is enough
            self._pieces.put_nowait(None)
        await _ended(self._running)


async def put_parts(upload: Upload, head: bytes, pieces: AsyncIterator[Piece]) -> None:
    """Upload an object in parts. When this raises, the upload has been aborted; the sweep finds one that could not."""
    try:
        await upload.give(head)
        async for piece in pieces:
            await upload.give(piece)
        await upload.finish()
    except BaseException:
        await upload.abort()
        raise


async def settled(running: Awaitable[T]) -> T:
    """Wait for a request that changes something. A cancelled caller leaves only when it has ended.

    A request left behind could replace an object after the next put has.
    """
    request = asyncio.ensure_future(running)
    try:
        return await asyncio.shield(request)
    except asyncio.CancelledError:
        await _ended(request)
        raise


async def _ended(request: asyncio.Future[T]) -> None:
    while not request.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([request])
    if not request.cancelled():
        request.exception()  # asked for, or asyncio complains that nobody did


def _cut(chunk: bytes) -> Iterator[Piece]:
    if len(chunk) <= PIECE_BYTES:
        yield chunk
        return
    view = memoryview(chunk)
    for start in range(0, len(view), PIECE_BYTES):
        yield view[start : start + PIECE_BYTES]
