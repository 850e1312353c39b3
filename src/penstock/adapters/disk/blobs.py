"""The Blobs port on a local directory. Each call runs in a thread, so a slow disk never blocks the event loop."""

import asyncio
import errno
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from penstock.adapters.disk import listing, reading, writing
from penstock.adapters.disk.directories import INCOMING
from penstock.adapters.disk.writing import Publish, TempFile
from penstock.kernel import blobs
from penstock.kernel.blobs import BlobPage, BlobReceipt, BlobStat, BlobsUnavailable, Chunks
from penstock.kernel.errors import DiskFull, PenstockError

DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

T = TypeVar("T")


class DiskBlobs:
    """Objects as files under `root`, which is created on the first write."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def put(self, key: str, chunks: Chunks, *, content_type: str | None = None) -> BlobReceipt:  # noqa: ARG002  (a file has no content type)
        return await self._store(key, chunks, writing.replace)

    async def create(self, key: str, chunks: Chunks, *, content_type: str | None = None) -> BlobReceipt:  # noqa: ARG002  (a file has no content type)
        return await self._store(key, chunks, writing.link_if_absent)

    async def get(self, key: str, *, max_bytes: int = blobs.MAX_READ_BYTES) -> bytes:
        blobs.check_key(key)
        return await _in_thread(key, partial(reading.read_all, self._root, key, max_bytes))

    async def read_range(self, key: str, start: int, stop: int) -> bytes:
        blobs.check_key(key)
        blobs.check_range(key, start, stop)
        blobs.check_read(key, stop - start)
        return await _in_thread(key, partial(reading.read_range, self._root, key, start, stop))

    async def stream(self, key: str, *, start: int = 0, stop: int | None = None) -> AsyncGenerator[bytes, None]:
        blobs.check_key(key)
        blobs.check_range(key, start, stop)
        open_object = reading.ObjectStream(self._root, key, start, stop)
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

    async def list(self, prefix: str, *, after: str | None = None, limit: int = blobs.MAX_LISTED) -> BlobPage:
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
        await _in_thread(INCOMING, partial(writing.check_writable, self._root))

    async def sweep(self, older_than: datetime) -> int:
        """Remove temporary files that a crash left behind before `older_than`; returns how many.

        A put that has received no bytes since then loses its temporary file and fails, so use an age of about a day.
        """
        return await _in_thread(INCOMING, partial(writing.sweep, self._root, older_than.timestamp()))

    async def _store(self, key: str, chunks: Chunks, publish: Publish) -> BlobReceipt:
        blobs.check_key(key)
        temp_file = TempFile(self._root, key)
        try:
            rest = chunks if isinstance(chunks, bytes) else await _write_all_but_last(temp_file, chunks)
            return await _in_thread(key, partial(temp_file.finish, rest, publish), on_cancel=temp_file.abort)
        except BaseException:
            await _in_thread(key, temp_file.discard)
            raise


async def _write_all_but_last(temp_file: TempFile, chunks: AsyncIterable[bytes]) -> bytes:
    """Write all but the last piece and return that one, so that a short stream needs no thread hop of its own."""
    waiting: list[bytes] = []
    waiting_bytes = 0
    async for chunk in chunks:
        waiting.append(chunk)
        waiting_bytes += len(chunk)
        if waiting_bytes >= writing.PIECE_BYTES:
            await _in_thread(temp_file.key, partial(temp_file.write, b"".join(waiting)), on_cancel=temp_file.abort)
            waiting, waiting_bytes = [], 0
    return b"".join(waiting)


async def _in_thread(what: str, work: Callable[[], T], *, on_cancel: Callable[[], None] | None = None) -> T:
    """Run disk work off the event loop and map its `OSError` to a Blobs error.

    A cancelled caller returns only when the thread has ended: a thread left behind could replace an object
    after the next put. The future is not a task, so closing the loop does not cancel it.
    """
    running = asyncio.get_running_loop().run_in_executor(None, _with_mapped_errors, what, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if on_cancel is not None:
            on_cancel()
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        running.exception()  # retrieved, or asyncio logs that it never was
        raise


def _with_mapped_errors(what: str, work: Callable[[], T]) -> T:
    try:
        return work()
    except OSError as error:
        raise _map_error(what, error) from error


def _map_error(what: str, error: OSError) -> PenstockError:
    if error.errno in DISK_FULL_ERRNOS:
        return DiskFull(what=what)
    return BlobsUnavailable(reason=error.strerror or type(error).__name__)
