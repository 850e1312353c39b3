"""The staging area on S3: a multipart upload that any process can go on with.

    uploads/42                                  the key; its multipart upload has equal parts, sized from the length
    staged~/uploads/42~/00003-001048576         the short tail after part 2: the beginning of part 3

A writer fills a part in memory and stores it while it fills the next. `save` stores the rest as the tail, which the
next writer reads back. The name of a tail has its part and its length, so a late writer replaces no other tail. An
object that fits into one part needs no multipart upload.

A part that is put twice may be listed twice: SeaweedFS keeps both. They have the same bytes, since what may be wrong is
held aside (`held_writer.py`), so either will do.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from pathlib import Path

from penstock.adapters.held_writer import holding
from penstock.adapters.s3 import multipart
from penstock.adapters.s3.blobs import S3Blobs
from penstock.adapters.s3.config import S3Bucket, S3Timeouts
from penstock.adapters.s3.multipart import MAX_COPY_BYTES, MIN_PART_BYTES, StoredPart, UploadGone
from penstock.adapters.s3.signed_requests import SignedClient, open_signed_client
from penstock.kernel.blobs import BlobNotFound, BlobStat, BlobsUnavailable
from penstock.kernel.clock import Clock
from penstock.kernel.staging import (
    MAX_LISTED_STAGED,
    STAGED_PREFIX,
    StagedObject,
    StagedObjectNotFound,
    StagedWriter,
    check_staged_key,
)

MIB = 1024 * 1024
MAX_PARTS = 10_000  # of S3; GW_S3_MAX_PARTS may ask for fewer
PARTS_AT_ONCE = 3  # in flight; with the one being filled, all that a writer holds in memory
TAILS = "staged~/"  # no key segment ends with "~", so a tail is never listed as an object
TAIL_NAME = re.compile(r".*~/(\d{5})-(\d{9})")


@dataclass(frozen=True, kw_only=True)
class PartLayout:
    """How a staged object is cut into parts. `upload_id` is empty if it fits into one."""

    key: str
    part_bytes: int
    upload_id: str
    content_type: str = ""

    @classmethod
    def of(cls, staged: StagedObject) -> "PartLayout":
        """Read a handle."""
        part_bytes, upload_id, content_type = staged.handle.split("\n")
        return cls(key=staged.key, part_bytes=int(part_bytes), upload_id=upload_id, content_type=content_type)

    @property
    def staged(self) -> StagedObject:
        """The object with its handle."""
        return StagedObject(key=self.key, handle=f"{self.part_bytes}\n{self.upload_id}\n{self.content_type}")

    @property
    def tails(self) -> str:
        """The prefix of its tails."""
        return f"{TAILS}{self.key}~/"

    def divided(self, size_bytes: int) -> tuple[int, int]:
        """The number of whole parts, and the length of the tail."""
        return divmod(size_bytes, self.part_bytes) if self.upload_id else (0, size_bytes)

    def tail(self, size_bytes: int) -> str | None:
        """The key of the tail of an object of this size; None if it ends with a whole part."""
        whole, rest = self.divided(size_bytes)
        return f"{self.tails}{whole + 1:05d}-{rest:09d}" if rest else None


class S3StagedWriter:
    """A staged object, open for writing. Parts are stored in the background while the next one is filled."""

    def __init__(
        self, staging: "S3Staging", client: SignedClient, layout: PartLayout, offset: int, tail: bytes
    ) -> None:
        self._staging = staging
        self._client = client
        self._layout = layout
        self._stored = offset
        self._buffer = bytearray(tail)
        self._storing: deque[asyncio.Task[object]] = deque()  # whole parts, in order
        self._next_part = offset // layout.part_bytes + 1

    @property
    def stored_bytes(self) -> int:
        return self._stored

    async def write(self, chunk: bytes) -> None:
        self._buffer += chunk
        while len(self._buffer) >= self._layout.part_bytes and self._layout.upload_id:
            body = bytes(self._buffer[: self._layout.part_bytes])
            del self._buffer[: self._layout.part_bytes]
            while len(self._storing) >= PARTS_AT_ONCE:
                await self._one_stored()
            self._storing.append(asyncio.create_task(self._put_part(self._next_part, body)))
            self._next_part += 1
        while self._storing and self._storing[0].done():
            await self._one_stored()

    async def save(self) -> None:
        await self._all_stored()
        end = self._end
        if end != self._stored and (tail := self._layout.tail(end)) is not None:
            await self._staging.put_tail(tail, bytes(self._buffer))
        self._stored = end

    async def seal(self) -> None:
        await self._all_stored()
        if not self._layout.upload_id:
            await self._staging.put_small(self._layout, bytes(self._buffer))
            return
        if self._buffer or self._next_part == 1:
            await self._put_part(self._next_part, bytes(self._buffer))
        await self._staging.complete(self._client, self._layout, size_bytes=self._end)

    async def close(self) -> None:
        """Cancel what is still being stored."""
        for task in self._storing:
            task.cancel()
        await asyncio.gather(*self._storing, return_exceptions=True)

    @property
    def _end(self) -> int:
        return (self._next_part - 1) * self._layout.part_bytes + len(self._buffer)

    async def _put_part(self, number: int, body: bytes) -> None:
        path = self._staging.path(self._layout.key)
        await multipart.put_part(self._client, path, self._layout.upload_id, number, body)

    async def _one_stored(self) -> None:
        await self._storing[0]
        self._storing.popleft()
        self._stored = max(self._stored, (self._next_part - 1 - len(self._storing)) * self._layout.part_bytes)

    async def _all_stored(self) -> None:
        while self._storing:
            await self._one_stored()


class S3Staging:
    """Staged objects of an `S3Blobs`. It signs its own requests, so it needs an access key."""

    def __init__(
        self,
        blobs: S3Blobs,
        bucket: S3Bucket,
        *,
        clock: Clock,
        scratch: Path,
        timeouts: S3Timeouts | None = None,
        max_parts: int = MAX_PARTS,
    ) -> None:
        self._blobs = blobs
        self._bucket = bucket
        self._clock = clock
        self._scratch = scratch
        self._timeouts = timeouts or S3Timeouts()
        self._max_parts = max_parts

    async def begin(self, key: str, *, max_bytes: int, content_type: str | None = None) -> StagedObject:
        check_staged_key(key)
        part_bytes = max(MIN_PART_BYTES, -(-max_bytes // self._max_parts))
        part_bytes = -(-part_bytes // MIB) * MIB
        layout = PartLayout(key=key, part_bytes=part_bytes, upload_id="", content_type=content_type or "")
        if max_bytes <= part_bytes:
            return layout.staged
        async with self._client() as client:
            upload_id = await multipart.begin_upload(client, self.path(key), content_type=content_type)
        return replace(layout, upload_id=upload_id).staged

    async def stored_bytes(self, staged: StagedObject, *, saved: int | None = None) -> int:
        if saved is not None:
            return saved
        layout = PartLayout.of(staged)
        async with self._client() as client:
            try:
                whole = len(await self._whole_parts(client, layout))
            except UploadGone as error:
                return await self._sealed_bytes(staged.key, error)
            tails = await self._list_tails(client, f"{layout.tails}{whole + 1:05d}-")
        if not whole and not tails:
            with suppress(BlobNotFound):
                return (await self._blobs.stat(staged.key)).size_bytes
        return whole * layout.part_bytes + max(tails.values(), default=0)

    @asynccontextmanager
    async def append(self, staged: StagedObject, *, offset: int, held: bool = False) -> AsyncIterator[StagedWriter]:
        layout = PartLayout.of(staged)
        async with self._client() as client:
            writer = S3StagedWriter(self, client, layout, offset, await self._read_tail(client, layout, offset))
            try:
                async with holding(writer, self._scratch) if held else nullcontext(writer) as opened:
                    yield opened
            finally:
                await writer.close()

    async def seal(self, staged: StagedObject, *, size_bytes: int) -> None:
        layout = PartLayout.of(staged)
        async with self._client() as client:
            if not layout.upload_id:
                with suppress(BlobNotFound):
                    if (await self._blobs.stat(staged.key)).size_bytes == size_bytes:
                        return
                await self.put_small(layout, await self._read_tail(client, layout, size_bytes))
                return
            whole, rest = layout.divided(size_bytes)
            try:
                await self._whole_parts(client, layout)
            except UploadGone as error:
                if await self._sealed_bytes(staged.key, error) == size_bytes:
                    return
                raise StagedObjectNotFound(key=staged.key) from error
            if rest or not whole:
                tail = await self._read_tail(client, layout, size_bytes)
                await multipart.put_part(client, self.path(staged.key), layout.upload_id, whole + 1, tail)
            await self.complete(client, layout, size_bytes=size_bytes)

    async def join(self, key: str, sources: Sequence[BlobStat], *, content_type: str | None = None) -> None:
        """Parts are copied inside the store. Only sources shorter than a part pass through this process."""
        check_staged_key(key)
        if sum(source.size_bytes for source in sources) <= MIN_PART_BYTES:
            whole = b"".join([await self._blobs.get(source.key) for source in sources])
            await self._blobs.put(key, whole, content_type=content_type)
            return
        async with self._client() as client:
            path = self.path(key)
            upload_id = await multipart.begin_upload(client, path, content_type=content_type)
            try:
                await self._copy_parts(client, path, upload_id, sources)
                parts = await multipart.list_parts(client, path, upload_id)
                await multipart.complete_upload(client, path, upload_id, parts)
            except BaseException:
                await asyncio.shield(multipart.abort_upload(client, path, upload_id))
                raise

    async def discard(self, staged: StagedObject) -> None:
        layout = PartLayout.of(staged)
        async with self._client() as client:
            if layout.upload_id:
                await multipart.abort_upload(client, self.path(staged.key), layout.upload_id)
            await self._delete_tails(client, layout)

    async def list_staged(self, *, older_than: datetime) -> Sequence[StagedObject]:
        found: dict[str, StagedObject] = {}
        async with self._client() as client:
            async for upload in multipart.list_uploads(client, self.path(STAGED_PREFIX)):
                key = upload.path.removeprefix(self._bucket.root)
                if upload.initiated_at < older_than:
                    layout = PartLayout(key=key, part_bytes=MIN_PART_BYTES, upload_id=upload.upload_id)
                    found[key] = layout.staged
                if len(found) == MAX_LISTED_STAGED:
                    return list(found.values())
            for tail in (await client.list_page(TAILS, "", MAX_LISTED_STAGED)).blobs:
                key = tail.key.removeprefix(TAILS).rpartition("~/")[0]
                if tail.modified_at < older_than:
                    found.setdefault(key, PartLayout(key=key, part_bytes=MIN_PART_BYTES, upload_id="").staged)
        return list(found.values())[:MAX_LISTED_STAGED]

    def path(self, key: str) -> str:
        """The key in the bucket."""
        return self._bucket.root + key

    async def put_tail(self, name: str, body: bytes) -> None:
        """Store the tail of an object."""
        await self._blobs.put_path(name, body)

    async def put_small(self, layout: PartLayout, body: bytes) -> None:
        """Store an object that fits into one part."""
        await self._blobs.put(layout.key, body, content_type=layout.content_type or None)
        async with self._client() as client:
            await self._delete_tails(client, layout)

    async def complete(self, client: SignedClient, layout: PartLayout, *, size_bytes: int) -> None:
        """Make the object of its parts, all of which are stored."""
        path = self.path(layout.key)
        wanted = max(-(-size_bytes // layout.part_bytes), 1)
        try:
            parts = (await multipart.list_parts(client, path, layout.upload_id))[:wanted]
            if sum(part.size_bytes for part in parts) != size_bytes:
                raise BlobsUnavailable(reason=f"the store has lost a part of {layout.key}")
            await multipart.complete_upload(client, path, layout.upload_id, parts)
        except UploadGone as error:  # the answer to an earlier try was lost
            if await self._sealed_bytes(layout.key, error) != size_bytes:
                raise StagedObjectNotFound(key=layout.key) from error
        await self._delete_tails(client, layout)

    def _client(self) -> AbstractAsyncContextManager[SignedClient]:
        if self._bucket.keys is None:
            raise BlobsUnavailable(reason="uploads in pieces need an access key (AWS_ACCESS_KEY_ID), not a role")
        seconds = self._timeouts.part_seconds
        return open_signed_client(self._bucket, self._bucket.keys, self._clock, self._timeouts, seconds=seconds)

    async def _whole_parts(self, client: SignedClient, layout: PartLayout) -> list[StoredPart]:
        """The whole parts from the first on."""
        if not layout.upload_id:
            return []
        parts = await multipart.list_parts(client, self.path(layout.key), layout.upload_id)
        whole = takewhile(
            lambda at: at[1].number == at[0] and at[1].size_bytes == layout.part_bytes, enumerate(parts, 1)
        )
        return [part for _, part in whole]

    async def _sealed_bytes(self, key: str, error: Exception) -> int:
        try:
            return (await self._blobs.stat(key)).size_bytes
        except BlobNotFound:
            raise StagedObjectNotFound(key=key) from error

    async def _read_tail(self, client: SignedClient, layout: PartLayout, size_bytes: int) -> bytes:
        """The bytes of an object of this size after its last whole part."""
        name, (whole, rest) = layout.tail(size_bytes), layout.divided(size_bytes)
        if name is None:
            return b""
        with suppress(BlobNotFound):
            return await self._blobs.get_path(name)
        prefix = f"{layout.tails}{whole + 1:05d}-"
        for longer, length in (await self._list_tails(client, prefix)).items():
            if length > rest:
                return (await self._blobs.get_path(longer))[:rest]
        raise StagedObjectNotFound(key=layout.key)

    async def _list_tails(self, client: SignedClient, prefix: str) -> dict[str, int]:
        """The tails with this prefix and their lengths."""
        page = await client.list_page(prefix, "", MAX_LISTED_STAGED)
        return {tail.key: int(found[2]) for tail in page.blobs if (found := TAIL_NAME.fullmatch(tail.key))}

    async def _delete_tails(self, client: SignedClient, layout: PartLayout) -> None:
        for name in await self._list_tails(client, layout.tails):
            await self._blobs.delete_path(name)

    async def _copy_parts(self, client: SignedClient, path: str, upload_id: str, sources: Sequence[BlobStat]) -> None:
        """Copy ranges inside the store; what is too short for a part is read and joined with what follows."""
        number, short = 0, b""
        for source in sources:
            start = 0
            if short:
                start = min(max(MIN_PART_BYTES - len(short), 0), source.size_bytes)
                short += await self._blobs.read_range(source.key, 0, start)
                if len(short) < MIN_PART_BYTES:
                    continue
                number += 1
                await multipart.put_part(client, path, upload_id, number, short)
                short = b""
            while source.size_bytes - start >= MIN_PART_BYTES:
                stop = min(start + MAX_COPY_BYTES, source.size_bytes)
                number += 1
                from_path = f"{self._bucket.bucket}/{self.path(source.key)}"
                await multipart.copy_part(client, path, upload_id, number, source=from_path, start=start, stop=stop)
                start = stop
            if start < source.size_bytes:
                short = await self._blobs.read_range(source.key, start, source.size_bytes)
        if short:
            await multipart.put_part(client, path, upload_id, number + 1, short)
