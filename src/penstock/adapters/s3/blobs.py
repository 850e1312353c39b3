"""The Blobs port on S3: checks arguments, then reads and writes through obstore and lists through `listing.py`."""

import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

import obstore
from obstore.store import S3Store

from penstock.adapters.s3 import writing
from penstock.adapters.s3.clients import S3Clients
from penstock.adapters.s3.config import S3Bucket, S3Timeouts
from penstock.adapters.s3.errors import OBSTORE_ERRORS, map_error, mapped_errors, status_of
from penstock.adapters.s3.listing import first_keys
from penstock.adapters.s3.multipart import abort_upload, list_uploads
from penstock.adapters.s3.obstore_listing import ObstoreLister
from penstock.adapters.s3.signed_requests import SignedClient, open_signed_client
from penstock.adapters.s3.writing import (
    Attributes,
    KeyLocks,
    MultipartUpload,
    Piece,
    UploadDigest,
    finish_before_cancel,
)
from penstock.kernel import blobs
from penstock.kernel.blobs import BlobExists, BlobNotFound, BlobPage, BlobReceipt, BlobStat, BlobsUnavailable, Chunks
from penstock.kernel.clock import Clock
from penstock.kernel.staging import STAGED_PREFIX

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult

CHUNK_BYTES = 1024 * 1024
RANGE_NOT_SATISFIABLE = 416
INCOMING = "incoming~/"  # no key segment ends with "~", so a temporary object is never listed as an object

Whole = Callable[[str, bytes, Attributes], Awaitable[None]]
Large = Callable[[str, bytes, AsyncIterator[Piece], Attributes], Awaitable[None]]


class S3Blobs:
    """Objects in a bucket. Connects on first use; nothing needs to be closed."""

    def __init__(self, bucket: S3Bucket, *, clock: Clock, timeouts: S3Timeouts | None = None) -> None:
        self._bucket = bucket
        self._clock = clock
        self._timeouts = timeouts or S3Timeouts()
        self._clients = S3Clients.open(bucket, self._timeouts)
        self._key_locks = KeyLocks(self._timeouts.claim_seconds)

    async def put(self, key: str, chunks: Chunks, *, content_type: str | None = None) -> BlobReceipt:
        return await self._store(key, chunks, content_type, self._put_whole, self._put_large)

    async def create(self, key: str, chunks: Chunks, *, content_type: str | None = None) -> BlobReceipt:
        return await self._store(key, chunks, content_type, self._create_whole, self._create_large)

    async def get(self, key: str, *, max_bytes: int = blobs.MAX_READ_BYTES) -> bytes:
        blobs.check_key(key)
        with mapped_errors(key):
            opened = await obstore.get_async(self._clients.fast, self._path(key))
            blobs.check_read(key, opened.meta["size"], max_bytes=max_bytes)
            return bytes(await opened.bytes_async())

    async def read_range(self, key: str, start: int, stop: int) -> bytes:
        blobs.check_key(key)
        blobs.check_range(key, start, stop)
        blobs.check_read(key, stop - start)
        opened = await _open_range(self._clients.fast, self._path(key), key, start, stop)
        if opened is None:
            return b""
        with mapped_errors(key):
            return bytes(await opened.bytes_async())

    async def stream(self, key: str, *, start: int = 0, stop: int | None = None) -> AsyncGenerator[bytes, None]:
        blobs.check_key(key)
        blobs.check_range(key, start, stop)
        opened = await _open_range(self._clients.fast, self._path(key), key, start, stop)
        if opened is None:
            return
        with mapped_errors(key):
            async for chunk in opened.stream(min_chunk_size=CHUNK_BYTES):
                yield bytes(chunk)

    async def stat(self, key: str) -> BlobStat:
        blobs.check_key(key)
        return await _stat(self._clients.fast, self._path(key), key)

    async def copy(self, source: str, target: str) -> BlobStat:
        blobs.check_key(source)
        blobs.check_key(target)
        if source != target:  # S3 refuses to copy an object onto itself
            with mapped_errors(source):
                await finish_before_cancel(
                    obstore.copy_async(self._clients.slow, self._path(source), self._path(target))
                )
        return await self.stat(target)

    async def delete(self, key: str) -> None:
        blobs.check_key(key)
        await self.delete_path(key)

    async def list(self, prefix: str, *, after: str | None = None, limit: int = blobs.MAX_LISTED) -> BlobPage:
        blobs.check_prefix(prefix)
        blobs.check_limit(limit)
        if after is not None:
            blobs.check_key(after)
        async with self._lister() as lister:
            found = await first_keys(lister.list_page, prefix=prefix, after=after or "", most=limit + 1)
        return BlobPage(blobs=tuple(found[:limit]), after=found[limit - 1].key if len(found) > limit else None)

    async def link(self, key: str, *, seconds: int) -> str:
        return await self._sign("GET", key, seconds)

    async def upload_link(self, key: str, *, seconds: int) -> str:
        return await self._sign("PUT", key, seconds)

    async def check(self) -> None:
        async with self._lister() as lister:
            await lister.list_page("", "", 1)

    async def sweep(self, older_than: datetime) -> int:
        """Abort uploads initiated before `older_than`, not of staged objects, and delete older temporary objects.

        An upload still in progress then fails, so use an age of about a day. With the machine's IAM role, unfinished
        multipart uploads cannot be listed: the bucket needs the lifecycle rule in docs/howto/s3.md.
        """
        swept = 0
        async with self._lister() as lister:
            for temporary in (await lister.list_page(INCOMING, "", blobs.MAX_LISTED)).blobs:
                if temporary.modified_at < older_than:
                    await self.delete_path(temporary.key)
                    swept += 1
            if isinstance(lister, SignedClient):
                swept += await self._abort_uploads(lister, older_than)
        return swept

    async def _abort_uploads(self, client: SignedClient, older_than: datetime) -> int:
        """Abort unfinished uploads, except those of staged objects, which may live as long as bytes arrive."""
        old = [
            upload
            async for upload in list_uploads(client, self._bucket.root)
            if upload.initiated_at < older_than and not upload.path.startswith(self._path(STAGED_PREFIX))
        ]
        for upload in old:
            await abort_upload(client, upload.path, upload.upload_id)
        return len(old)

    def _path(self, key: str) -> str:
        return self._bucket.root + key

    async def _store(
        self, key: str, chunks: Chunks, content_type: str | None, whole: Whole, large: Large
    ) -> BlobReceipt:
        blobs.check_key(key)
        digest, attributes = UploadDigest(key), _attributes(content_type)
        async with aclosing(writing.digest_pieces(chunks, digest)) as pieces:
            head, is_all = await writing.first_part(pieces)
            await (whole(key, head, attributes) if is_all else large(key, head, pieces, attributes))
        return digest.receipt()

    async def _put_whole(self, key: str, body: bytes, attributes: Attributes) -> None:
        store = self._clients.for_body(len(body))
        with mapped_errors(key):
            await finish_before_cancel(
                obstore.put_async(store, self._path(key), body, attributes=attributes, use_multipart=False)
            )

    async def _put_large(self, key: str, head: bytes, pieces: AsyncIterator[Piece], attributes: Attributes) -> None:
        upload = MultipartUpload(self._clients.slow, self._path(key), key, attributes)
        await writing.put_parts(upload, head, pieces)

    async def _create_whole(self, key: str, body: bytes, attributes: Attributes) -> None:
        store = self._clients.for_new_body(len(body))
        async with self._key_locks.hold(key):
            with mapped_errors(key):
                await finish_before_cancel(
                    obstore.put_async(store, self._path(key), body, attributes=attributes, mode="create")
                )

    async def _create_large(self, key: str, head: bytes, pieces: AsyncIterator[Piece], attributes: Attributes) -> None:
        """Upload to a temporary key, then copy if the key is free: not every store guards multipart uploads."""
        with suppress(BlobNotFound):
            await self.stat(key)
            raise BlobExists(key=key)  # before any byte is sent
        temporary = f"{INCOMING}{secrets.token_hex(16)}"
        try:
            upload = MultipartUpload(self._clients.slow, self._path(temporary), key, attributes)
            await writing.put_parts(upload, head, pieces)
            async with self._key_locks.hold(key):
                source, target = self._path(temporary), self._path(key)
                with mapped_errors(key):
                    await finish_before_cancel(
                        obstore.copy_async(self._clients.slow_no_retry, source, target, overwrite=False)
                    )
        finally:
            with suppress(BlobsUnavailable):  # `sweep` deletes it later; the outcome of the create matters more
                await self.delete_path(temporary)

    async def put_path(self, path: str, body: bytes) -> None:
        """Store a small object of our own under a path that no key can have."""
        await self._put_whole(path, body, {})

    async def get_path(self, path: str) -> bytes:
        """Read an object of our own."""
        with mapped_errors(path):
            return bytes(await (await obstore.get_async(self._clients.fast, self._path(path))).bytes_async())

    async def delete_path(self, path: str) -> None:
        """Delete an object of our own; no error when there is none."""
        with suppress(BlobNotFound), mapped_errors(path):
            await finish_before_cancel(obstore.delete_async(self._clients.fast, self._path(path)))

    async def _sign(self, method: Literal["GET", "PUT"], key: str, seconds: int) -> str:
        blobs.check_key(key)
        blobs.check_link(seconds)
        with mapped_errors(key):
            return await obstore.sign_async(self._clients.fast, method, self._path(key), timedelta(seconds=seconds))

    @asynccontextmanager
    async def _lister(self) -> AsyncIterator[SignedClient | ObstoreLister]:
        if self._bucket.keys is None:
            yield ObstoreLister(self._clients.fast, self._bucket.root)
            return
        async with open_signed_client(self._bucket, self._bucket.keys, self._clock, self._timeouts) as client:
            yield client


def _attributes(content_type: str | None) -> Attributes:
    return {} if content_type is None else {"Content-Type": content_type}


async def _stat(store: S3Store, path: str, key: str) -> BlobStat:
    """Size and modification time of an object."""
    try:
        found = await obstore.head_async(store, path)
    except FileNotFoundError:
        with mapped_errors(key):  # a HEAD response has no body, so GET tells a missing object from a missing bucket
            await obstore.get_async(store, path, options={"range": (0, 1)})
        raise BlobNotFound(key=key) from None  # created in the meantime
    except OBSTORE_ERRORS as error:
        raise map_error(key, error) from error
    return BlobStat(key=key, size_bytes=found["size"], modified_at=found["last_modified"], etag=found["e_tag"])


async def _open_range(store: S3Store, path: str, key: str, start: int, stop: int | None) -> "GetResult | None":
    """Open a checked range for reading; None if it is empty."""
    if stop != start:
        try:
            return await obstore.get_async(store, path, options=_range_options(start, stop))
        except OBSTORE_ERRORS as error:
            if status_of(error) != RANGE_NOT_SATISFIABLE:
                raise map_error(key, error) from error
    size_bytes = (await _stat(store, path, key)).size_bytes
    if start < blobs.end_of_range(key, start, stop, size_bytes=size_bytes):
        raise BlobsUnavailable(reason=f"{key} was replaced while it was read")
    return None


def _range_options(start: int, stop: int | None) -> "GetOptions | None":
    if stop is not None:
        return {"range": (start, stop)}
    return {"range": {"offset": start}} if start else None
