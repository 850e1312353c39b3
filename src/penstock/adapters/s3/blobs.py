"""The port: each call checked, then one object by obstore, or many by `listing.py`."""

import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Literal

import obstore

from penstock.adapters.s3 import reading, writing
from penstock.adapters.s3.asking import Asker, asking
from penstock.adapters.s3.doors import Doors
from penstock.adapters.s3.faults import named
from penstock.adapters.s3.listing import first_keys
from penstock.adapters.s3.place import Patience, S3Place
from penstock.adapters.s3.role_pages import RolePages
from penstock.adapters.s3.turns import Turns
from penstock.adapters.s3.writing import Attributes, Piece, Tally, Upload, settled
from penstock.kernel import blobs
from penstock.kernel.blobs import BlobExists, BlobNotFound, BlobPage, BlobReceipt, BlobStat, BlobsUnavailable, Chunks
from penstock.kernel.clock import Clock

INCOMING = "incoming~/"  # no segment of a key ends with "~": a draft is never an object

Whole = Callable[[str, bytes, Attributes], Awaitable[None]]
Large = Callable[[str, bytes, AsyncIterator[Piece], Attributes], Awaitable[None]]


class S3Blobs:
    """Objects in a bucket. Nothing is connected before the first use, and nothing need be closed."""

    def __init__(self, place: S3Place, *, clock: Clock, patience: Patience | None = None) -> None:
        self._place = place
        self._clock = clock
        self._patience = patience or Patience()
        self._doors = Doors.open(place, self._patience)
        self._turns = Turns(self._patience.claim_seconds)

    async def put(self, key: str, chunks: Chunks, *, content_type: str | None = None) -> BlobReceipt:
        return await self._store(key, chunks, content_type, self._put_whole, self._put_large)

    async def create(self, key: str, chunks: Chunks, *, content_type: str | None = None) -> BlobReceipt:
        return await self._store(key, chunks, content_type, self._create_whole, self._create_large)

    async def get(self, key: str, *, most_bytes: int = blobs.MOST_READ_BYTES) -> bytes:
        blobs.check_key(key)
        with named(key):
            opened = await obstore.get_async(self._doors.quick, self._path(key))
            blobs.check_read(key, opened.meta["size"], most_bytes=most_bytes)
            return bytes(await opened.bytes_async())

    async def read_range(self, key: str, start: int, stop: int) -> bytes:
        blobs.check_key(key)
        blobs.check_range(key, start, stop)
        blobs.check_read(key, stop - start)
        opened = await reading.open_range(self._doors.quick, self._path(key), key, start, stop)
        if opened is None:
            return b""
        with named(key):
            return bytes(await opened.bytes_async())

    async def stream(self, key: str, *, start: int = 0, stop: int | None = None) -> AsyncGenerator[bytes, None]:
        blobs.check_key(key)
        blobs.check_range(key, start, stop)
        opened = await reading.open_range(self._doors.quick, self._path(key), key, start, stop)
        if opened is None:
            return
        with named(key):
            async for chunk in opened.stream(min_chunk_size=reading.CHUNK_BYTES):
                yield bytes(chunk)

    async def stat(self, key: str) -> BlobStat:
        blobs.check_key(key)
        return await reading.stat_of(self._doors.quick, self._path(key), key)

    async def copy(self, source: str, target: str) -> BlobStat:
        blobs.check_key(source)
        blobs.check_key(target)
        if source != target:  # S3 refuses to copy an object onto itself
            with named(source):
                await settled(obstore.copy_async(self._doors.patient, self._path(source), self._path(target)))
        return await self.stat(target)

    async def delete(self, key: str) -> None:
        blobs.check_key(key)
        await self._forget(key)

    async def list(self, prefix: str, *, after: str | None = None, limit: int = blobs.MOST_LISTED) -> BlobPage:
        blobs.check_prefix(prefix)
        blobs.check_limit(limit)
        if after is not None:
            blobs.check_key(after)
        async with self._pages() as pages:
            found = await first_keys(pages.page, prefix=prefix, after=after or "", most=limit + 1)
        return BlobPage(blobs=tuple(found[:limit]), after=found[limit - 1].key if len(found) > limit else None)

    async def link(self, key: str, *, seconds: int) -> str:
        return await self._sign("GET", key, seconds)

    async def upload_link(self, key: str, *, seconds: int) -> str:
        return await self._sign("PUT", key, seconds)

    async def check(self) -> None:
        async with self._pages() as pages:
            await pages.page("", "", 1)

    async def sweep(self, older_than: datetime) -> int:
        """End uploads that were begun before `older_than`, remove drafts left from then, and say how many.

        An upload that is still under way then fails, so a day is a good age. With the machine's own role unfinished
        uploads cannot be listed: the bucket needs the rule in docs/howto/s3.md.
        """
        swept = 0
        async with self._pages() as pages:
            for draft in (await pages.page(INCOMING, "", blobs.MOST_LISTED)).blobs:
                if draft.modified_at < older_than:
                    await self._forget(draft.key)
                    swept += 1
            if isinstance(pages, Asker):
                swept += await pages.abort_uploads(older_than)
        return swept

    def _path(self, key: str) -> str:
        return self._place.root + key

    async def _store(
        self, key: str, chunks: Chunks, content_type: str | None, whole: Whole, large: Large
    ) -> BlobReceipt:
        blobs.check_key(key)
        tally, told = Tally(key), _attributes(content_type)
        async with aclosing(writing.counted_pieces(chunks, tally)) as pieces:
            head, is_all = await writing.first_part(pieces)
            await (whole(key, head, told) if is_all else large(key, head, pieces, told))
        return tally.receipt()

    async def _put_whole(self, key: str, body: bytes, told: Attributes) -> None:
        store = self._doors.for_body(len(body))
        with named(key):
            await settled(obstore.put_async(store, self._path(key), body, attributes=told, use_multipart=False))

    async def _put_large(self, key: str, head: bytes, pieces: AsyncIterator[Piece], told: Attributes) -> None:
        upload = Upload(self._doors.patient, self._path(key), key, told)
        await writing.put_parts(upload, head, pieces)

    async def _create_whole(self, key: str, body: bytes, told: Attributes) -> None:
        store = self._doors.for_new_body(len(body))
        async with self._turns.turn(key):
            with named(key):
                await settled(obstore.put_async(store, self._path(key), body, attributes=told, mode="create"))

    async def _create_large(self, key: str, head: bytes, pieces: AsyncIterator[Piece], told: Attributes) -> None:
        """Upload aside, then copy to the key if it is free: the end of an upload in parts is not guarded everywhere."""
        with suppress(BlobNotFound):
            await self.stat(key)
            raise BlobExists(key=key)  # known before the bytes are sent
        draft = f"{INCOMING}{secrets.token_hex(16)}"
        try:
            upload = Upload(self._doors.patient, self._path(draft), key, told)
            await writing.put_parts(upload, head, pieces)
            async with self._turns.turn(key):
                source, target = self._path(draft), self._path(key)
                with named(key):
                    await settled(obstore.copy_async(self._doors.patient_once, source, target, overwrite=False))
        finally:
            with suppress(BlobsUnavailable):  # swept later; how the rest went counts more
                await self._forget(draft)

    async def _forget(self, key: str) -> None:
        with suppress(BlobNotFound), named(key):
            await settled(obstore.delete_async(self._doors.quick, self._path(key)))

    async def _sign(self, method: Literal["GET", "PUT"], key: str, seconds: int) -> str:
        blobs.check_key(key)
        blobs.check_link(seconds)
        with named(key):
            return await obstore.sign_async(self._doors.quick, method, self._path(key), timedelta(seconds=seconds))

    @asynccontextmanager
    async def _pages(self) -> AsyncIterator[Asker | RolePages]:
        if self._place.keys is None:
            yield RolePages(self._doors.quick, self._place.root)
            return
        async with asking(self._place, self._place.keys, self._clock, self._patience) as asker:
            yield asker


def _attributes(content_type: str | None) -> Attributes:
    return {} if content_type is None else {"Content-Type": content_type}
