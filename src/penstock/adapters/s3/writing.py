"""Write one object, counted and hashed on the way, as one request or a multipart upload.

A write that is aborted, cancelled or interrupted leaves no partial object.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Self, TypeVar
from weakref import WeakValueDictionary

import obstore
from obstore.store import S3Store

from penstock.adapters.s3.errors import mapped_errors
from penstock.kernel.blobs import BlobReceipt, BlobsUnavailable, Chunks
from penstock.kernel.errors import TooLarge

PART_BYTES = 8 * 1024 * 1024
PARTS_AT_ONCE = 3  # in flight; with the one being filled, all that is held in memory
PIECE_BYTES = 1024 * 1024  # small chunks are joined to this size, so that hashing in a thread pays off
MAX_OBJECT_BYTES = 5 * 1024**3  # the largest object S3 copies in one request

Piece = bytes | memoryview
Attributes = dict[str, str]  # headers stored with an object
T = TypeVar("T")


class ObjectTooLarge(TooLarge):
    """An object is larger than the store supports."""

    code = "OBJECT_TOO_LARGE"
    message = "{key} is larger than {most_bytes} bytes and cannot be stored."
    hint = "Split the object and store its parts under separate keys."
    message_zh = "{key} 超过 {most_bytes} 字节，无法存储。"
    hint_zh = "请将对象拆分，并分别存储在各自的键下。"


class UploadAborted(Exception):
    """Raised inside an upload so that obstore aborts it."""


class UploadDigest:
    """Size and SHA-256 of the pieces so far."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._sha256 = hashlib.sha256()
        self._size_bytes = 0

    async def add(self, piece: Piece) -> None:
        """Count and hash a piece."""
        self._size_bytes += len(piece)
        if self._size_bytes > MAX_OBJECT_BYTES:
            raise ObjectTooLarge(key=self._key, most_bytes=MAX_OBJECT_BYTES)
        if len(piece) < PIECE_BYTES:
            self._sha256.update(piece)
        else:  # one or two milliseconds that the event loop can use otherwise
            await asyncio.to_thread(self._sha256.update, piece)

    def receipt(self) -> BlobReceipt:
        """The receipt, once everything is stored."""
        return BlobReceipt(key=self._key, size_bytes=self._size_bytes, sha256=self._sha256.hexdigest())


async def digest_pieces(chunks: Chunks, digest: UploadDigest) -> AsyncGenerator[Piece, None]:
    """Re-chunk to pieces of about 1 MiB, each counted before it is passed on."""
    if isinstance(chunks, bytes):
        for piece in _cut(chunks):
            await digest.add(piece)
            yield piece
        return
    waiting: list[bytes] = []
    waiting_bytes = 0
    async for chunk in chunks:
        waiting.append(chunk)
        waiting_bytes += len(chunk)
        if waiting_bytes >= PIECE_BYTES:
            for piece in _cut(b"".join(waiting)):
                await digest.add(piece)
                yield piece
            waiting, waiting_bytes = [], 0
    rest = b"".join(waiting)
    await digest.add(rest)
    yield rest


async def first_part(pieces: AsyncIterator[Piece]) -> tuple[bytes, bool]:
    """The pieces that fit into one part, joined, and True; or slightly more than fits, and False."""
    head: list[Piece] = []
    head_bytes = 0
    async for piece in pieces:
        head.append(piece)
        head_bytes += len(piece)
        if head_bytes > PART_BYTES:
            return b"".join(head), False
    return b"".join(head), True


class MultipartUpload:
    """A multipart upload in progress.

    obstore pulls the pieces that the caller's task feeds, one at a time. It never sees the caller's stream: a stalled
    stream could otherwise not be abandoned, and an upload that is merely dropped stays at the store for ever.
    """

    def __init__(self, store: S3Store, path: str, key: str, attributes: Attributes) -> None:
        self._key = key
        self._pieces: asyncio.Queue[Piece | None] = asyncio.Queue(maxsize=1)
        self._aborted = False
        self._running = asyncio.ensure_future(
            obstore.put_async(
                store,
                path,
                self,
                attributes=attributes,
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=PARTS_AT_ONCE,
            )
        )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        piece = await self._pieces.get()
        if self._aborted:
            raise UploadAborted
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def feed(self, piece: Piece | None) -> None:
        """Feed a piece once the last one was taken; None ends the object. Raises if the upload failed."""
        feeding = asyncio.ensure_future(self._pieces.put(piece))
        try:
            await asyncio.wait([feeding, self._running], return_when=asyncio.FIRST_COMPLETED)
        finally:
            feeding.cancel()
        if self._running.done():
            with mapped_errors(self._key):
                self._running.result()

    async def finish(self) -> None:
        """Complete the upload and wait until the object exists."""
        await self.feed(None)
        with mapped_errors(self._key):
            await finish_before_cancel(self._running)

    async def abort(self) -> None:
        """Abort the upload and wait until the store has dropped it, or cannot be reached."""
        self._aborted = True
        with suppress(asyncio.QueueFull):  # then the next piece is checked, which is enough
            self._pieces.put_nowait(None)
        await _wait_until_done(self._running)


async def put_parts(upload: MultipartUpload, head: bytes, pieces: AsyncIterator[Piece]) -> None:
    """Upload an object in parts. On error the upload is aborted; `sweep` finds one that could not be."""
    try:
        await upload.feed(head)
        async for piece in pieces:
            await upload.feed(piece)
        await upload.finish()
    except BaseException:
        await upload.abort()
        raise


class KeyLocks:
    """One lock per key that is being created in this process.

    SeaweedFS serialises concurrent creates of one key and takes about a second for each, but answers a single one at
    once. So we send one at a time, and only other processes can queue up.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        """Hold the lock of a key; the wait is bounded."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with asyncio.timeout(self._seconds):
                await lock.acquire()
        except TimeoutError as error:
            raise BlobsUnavailable(reason="timed out") from error
        try:
            yield
        finally:
            lock.release()


async def finish_before_cancel(running: Awaitable[T]) -> T:
    """Wait for a request that changes something. A cancelled caller returns only when the request has ended.

    A request left running could replace an object after the next put.
    """
    request = asyncio.ensure_future(running)
    try:
        return await asyncio.shield(request)
    except asyncio.CancelledError:
        await _wait_until_done(request)
        raise


async def _wait_until_done(request: asyncio.Future[T]) -> None:
    while not request.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([request])
    if not request.cancelled():
        request.exception()  # retrieved, or asyncio logs that it never was


def _cut(chunk: bytes) -> Iterator[Piece]:
    if len(chunk) <= PIECE_BYTES:
        yield chunk
        return
    view = memoryview(chunk)
    for start in range(0, len(view), PIECE_BYTES):
        yield view[start : start + PIECE_BYTES]
