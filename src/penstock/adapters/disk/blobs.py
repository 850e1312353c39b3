"""The Blobs port on a local directory. Each call runs in a thread, so a slow disk never blocks the event loop."""

import secrets
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

from penstock.adapters.disk import listing, reading, writing
from penstock.adapters.disk.directories import INCOMING
from penstock.adapters.disk.writing import Publish, TempFile
from penstock.adapters.disk_thread import in_thread
from penstock.kernel import blobs
from penstock.kernel.blobs import BlobPage, BlobReceipt, BlobStat, Chunks


class DiskBlobs:
    """Objects as files under `root`, which is created on the first write."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def folder(self) -> Path:
        """Where the files are; it may not exist yet."""
        return self._root

    async def put(self, key: str, chunks: Chunks, *, content_type: str | None = None) -> BlobReceipt:  # noqa: ARG002  (a file has no content type)
        return await self._store(key, chunks, writing.replace)

    async def create(self, key: str, chunks: Chunks, *, content_type: str | None = None) -> BlobReceipt:  # noqa: ARG002  (a file has no content type)
        return await self._store(key, chunks, writing.link_if_absent)

    async def get(self, key: str, *, max_bytes: int = blobs.MAX_READ_BYTES) -> bytes:
        blobs.check_key(key)
        return await in_thread(key, partial(reading.read_all, self._root, key, max_bytes))

    async def read_range(self, key: str, start: int, stop: int) -> bytes:
        blobs.check_key(key)
        blobs.check_range(key, start, stop)
        blobs.check_read(key, stop - start)
        return await in_thread(key, partial(reading.read_range, self._root, key, start, stop))

    async def stream(self, key: str, *, start: int = 0, stop: int | None = None) -> AsyncGenerator[bytes, None]:
        blobs.check_key(key)
        blobs.check_range(key, start, stop)
        open_object = reading.ObjectStream(self._root, key, start, stop)
        try:
            while not open_object.ended:
                if chunk := await in_thread(key, open_object.next_chunk):
                    yield chunk
        finally:
            open_object.close()

    async def stat(self, key: str) -> BlobStat:
        blobs.check_key(key)
        return await in_thread(key, partial(reading.stat_of, self._root, key))

    async def copy(self, source: str, target: str) -> BlobStat:
        blobs.check_key(source)
        blobs.check_key(target)
        return await in_thread(target, partial(writing.copy, self._root, source, target))

    async def delete(self, key: str) -> None:
        blobs.check_key(key)
        await in_thread(key, partial(writing.delete, self._root, key))

    async def list(self, prefix: str, *, after: str | None = None, limit: int = blobs.MAX_LISTED) -> BlobPage:
        blobs.check_prefix(prefix)
        blobs.check_limit(limit)
        if after is not None:
            blobs.check_key(after)
        return await in_thread(prefix, partial(listing.page, self._root, prefix, after or "", limit))

    async def link(self, key: str, *, seconds: int) -> None:
        blobs.check_key(key)
        blobs.check_link(seconds)

    async def upload_link(self, key: str, *, seconds: int) -> None:
        blobs.check_key(key)
        blobs.check_link(seconds)

    async def check(self) -> None:
        await in_thread(INCOMING, partial(writing.check_writable, self._root))

    @asynccontextmanager
    async def open_file(self, key: str, *, suffix: str) -> AsyncIterator[Path | None]:
        """A second name of the object's file in incoming/, where `sweep` finds it after a crash."""
        blobs.check_key(key)
        name = f"{secrets.token_hex(16)}{suffix}"
        try:
            yield await in_thread(key, partial(writing.link_file, self._root, key, name))
        finally:
            await in_thread(key, partial(writing.remove_temp_file, self._root, name))

    async def sweep(self, older_than: datetime) -> int:
        """Remove temporary files that a crash left behind before `older_than`; returns how many.

        A put that has received no bytes since then loses its temporary file and fails, so use an age of about a day.
        """
        return await in_thread(INCOMING, partial(writing.sweep, self._root, older_than.timestamp()))

    async def _store(self, key: str, chunks: Chunks, publish: Publish) -> BlobReceipt:
        blobs.check_key(key)
        temp_file = TempFile(self._root, key)
        try:
            rest = chunks if isinstance(chunks, bytes) else await _write_all_but_last(temp_file, chunks)
            return await in_thread(key, partial(temp_file.finish, rest, publish), on_cancel=temp_file.abort)
        except BaseException:
            await in_thread(key, temp_file.discard)
            raise


async def _write_all_but_last(temp_file: TempFile, chunks: AsyncIterable[bytes]) -> bytes:
    """Write all but the last piece and return that one, so that a short stream needs no thread hop of its own."""
    waiting: list[bytes] = []
    waiting_bytes = 0
    async for chunk in chunks:
        waiting.append(chunk)
        waiting_bytes += len(chunk)
        if waiting_bytes >= writing.PIECE_BYTES:
            await in_thread(temp_file.key, partial(temp_file.write, b"".join(waiting)), on_cancel=temp_file.abort)
            waiting, waiting_bytes = [], 0
    return b"".join(waiting)
