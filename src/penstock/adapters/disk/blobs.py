"""The port, each call one hop into a thread: the disk may be slow, the event loop may not."""

import asyncio
import errno
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from penstock.adapters.disk import listing, reading, writing
from penstock.adapters.disk.folders import INCOMING
from penstock.adapters.disk.writing import Draft, Place
from penstock.kernel import blobs
from penstock.kernel.blobs import BlobPage, BlobReceipt, BlobStat, BlobsUnavailable, Chunks
from penstock.kernel.errors import DiskFull, PenstockError

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

T = TypeVar("T")


class DiskBlobs:
    """Objects as files under `root`, which is made when first written to."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def put(self, key: str, chunks: Chunks, *, content_type: str | None = None) -> BlobReceipt:  # noqa: ARG002  (a file has no such thing)
        return await self._store(key, chunks, writing.replace)

    async def create(self, key: str, chunks: Chunks, *, content_type: str | None = None) -> BlobReceipt:  # noqa: ARG002  (the same)
        return await self._store(key, chunks, writing.link_as_new)

    async def get(self, key: str, *, most_bytes: int = blobs.MOST_READ_BYTES) -> bytes:
        blobs.check_key(key)
        return await _in_thread(key, partial(reading.read_all, self._root, key, most_bytes))

    async def read_range(self, key: str, start: int, stop: int) -> bytes:
        blobs.check_key(key)
        blobs.check_range(key, start, stop)
        blobs.check_read(key, stop - start)
        return await _in_thread(key, partial(reading.read_range, self._root, key, start, stop))

    async def stream(self, key: str, *, start: int = 0, stop: int | None = None) -> AsyncGenerator[bytes, None]:
        blobs.check_key(key)
        blobs.check_range(key, start, stop)
        open_object = reading.Reading(self._root, key, start, stop)
        try:
            while not open_object.ended:
                if chunk := await _in_thread(key, open_object.next_chunk):
                    yield chunk
        finally:
            open_object.close()

    async def stat(self, key: str) -> BlobStat:
        blobs.check_key(key)
        return await _in_thread(key, partial(reading.stat_of, self._root, key))

    async def copy(self, source: str, target: str) -> BlobStat:
        blobs.check_key(source)
        blobs.check_key(target)
        return await _in_thread(target, partial(writing.copy, self._root, source, target))

    async def delete(self, key: str) -> None:
        blobs.check_key(key)
        await _in_thread(key, partial(writing.delete, self._root, key))

    async def list(self, prefix: str, *, after: str | None = None, limit: int = blobs.MOST_LISTED) -> BlobPage:
        blobs.check_prefix(prefix)
        blobs.check_limit(limit)
        if after is not None:
            blobs.check_key(after)
        return await _in_thread(prefix, partial(listing.page, self._root, prefix, after or "", limit))

    async def link(self, key: str, *, seconds: int) -> None:
        blobs.check_key(key)
        blobs.check_link(seconds)

    async def upload_link(self, key: str, *, seconds: int) -> None:
        blobs.check_key(key)
        blobs.check_link(seconds)

    async def check(self) -> None:
        await _in_thread(INCOMING, partial(writing.try_draft, self._root))

    async def sweep(self, older_than: datetime) -> int:
        """Remove what a crash left half-written before `older_than`, and say how many.

        A put that has had no bytes since then loses its draft and fails, so a day is a good age.
        """
        return await _in_thread(INCOMING, partial(writing.sweep, self._root, older_than.timestamp()))

    async def _store(self, key: str, chunks: Chunks, place: Place) -> BlobReceipt:
        blobs.check_key(key)
        draft = Draft(self._root, key)
        try:
            rest = chunks if isinstance(chunks, bytes) else await _write_ahead(draft, chunks)
            return await _in_thread(key, partial(draft.finish, rest, place), on_cancel=draft.abandon)
        except BaseException:
            await _in_thread(key, draft.discard)
            raise


async def _write_ahead(draft: Draft, chunks: AsyncIterable[bytes]) -> bytes:
    """Write all but the last piece, which is returned: a short stream then needs no thread hop of its own."""
    waiting: list[bytes] = []
    waiting_bytes = 0
    async for chunk in chunks:
        waiting.append(chunk)
        waiting_bytes += len(chunk)
        if waiting_bytes >= writing.PIECE_BYTES:
            await _in_thread(draft.key, partial(draft.write, b"".join(waiting)), on_cancel=draft.abandon)
            waiting, waiting_bytes = [], 0
    return b"".join(waiting)


async def _in_thread(what: str, work: Callable[[], T], *, on_cancel: Callable[[], None] | None = None) -> T:
    """Run disk work off the event loop, and give its failures their names.

    A cancelled caller leaves only when the thread has ended: a thread left behind could replace an object
    after the next put has. The future is no task, so that closing the loop does not cancel it behind our back.
    """
    running = asyncio.get_running_loop().run_in_executor(None, _named, what, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if on_cancel is not None:
            on_cancel()
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        running.exception()  # asked for, or asyncio complains that nobody did
        raise


def _named(what: str, work: Callable[[], T]) -> T:
    try:
        return work()
    except OSError as error:
        raise _name(what, error) from error


def _name(what: str, error: OSError) -> PenstockError:
    if error.errno in FULL:
        return DiskFull(what=what)
    return BlobsUnavailable(reason=error.strerror or type(error).__name__)
