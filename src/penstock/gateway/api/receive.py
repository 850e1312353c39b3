"""Receive the bytes of a request: claim the upload, write, and settle whatever happened.

Everything that ends a body ends here: its last byte, a cut, silence, a full disk, a takeover, the shutdown of the
server. What was received is saved, and the row says how much.
"""

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace

from starlette.requests import ClientDisconnect, Request

from penstock.access.domain import Caller
from penstock.gateway import store, write
from penstock.gateway.api.live_writers import LiveWriter, LiveWriters
from penstock.gateway.deps import Deps
from penstock.gateway.domain import Upload, UploadKind, UploadState
from penstock.gateway.errors import (
    ChecksumFailed,
    FinalUploadReadOnly,
    OffsetMismatch,
    UploadLocked,
    UploadStalled,
    UploadTakenOver,
)
from penstock.gateway.tus import Checksum
from penstock.kernel.errors import PenstockError, Unavailable
from penstock.kernel.http.request_body import UploadTooLarge
from penstock.kernel.shielding import run_shielded
from penstock.kernel.staging import StagedObjectBusy, StagedWriter

log = logging.getLogger(__name__)

PIECE_BYTES = 1024 * 1024  # small chunks are joined to this size before they are written
LOCK_PAUSES, LOCK_PAUSE_SECONDS = 60, 0.05  # three seconds for a writer that lost the upload to close it


@dataclass(frozen=True, kw_only=True)
class Patch:
    """What a PATCH announces."""

    offset: int
    body_bytes: int | None  # None for a chunked body
    checksum: Checksum | None = None
    length: int | None = None  # of an upload whose length was deferred

    @property
    def is_all_or_nothing(self) -> bool:
        """Whether bytes count only with the last one: a checksum decides about them, or nobody knows their number."""
        return self.checksum is not None or self.body_bytes is None


async def stored_bytes(deps: Deps, upload: Upload) -> int:
    """How many bytes of an open upload are stored. It waits for nobody and never says too much."""
    if upload.state is not UploadState.OPEN:
        return upload.offset
    is_settled = upload.writer is None or upload.is_written_at(deps.db.clock.now())
    stored = await deps.staging.stored_bytes(upload.staged, saved=upload.offset if is_settled else None)
    return stored if upload.length is None else min(stored, upload.length)


async def recover(deps: Deps, upload: Upload) -> Upload:
    """The upload with what is stored. One that is whole, and whose writer was killed before it said so, is finished."""
    upload = replace(upload, offset=await stored_bytes(deps, upload))
    if upload.state is not UploadState.OPEN or upload.offset != upload.length:
        return upload
    if upload.is_written_at(deps.db.clock.now()):
        return upload
    return await _seal(deps, upload)


async def receive(
    deps: Deps, writers: LiveWriters, caller: Caller, upload_id: str, patch: Patch, request: Request
) -> Upload:
    """Receive the body of a PATCH; returns the upload as it is then."""
    async with deps.db.read() as tx:
        seen = await store.get_upload(tx, caller, upload_id)
    if seen.kind is UploadKind.FINAL:
        raise FinalUploadReadOnly(upload_id=upload_id)
    stored = await stored_bytes(deps, seen)
    if patch.offset != stored:
        raise OffsetMismatch(upload_id=upload_id, stored=stored, offset=patch.offset)
    most = _max_bytes(deps, seen, patch)
    if patch.offset + (patch.body_bytes or 0) > most:
        raise UploadTooLarge(most_bytes=most)
    if seen.state is not UploadState.OPEN:
        return seen
    if seen.is_written_at(deps.db.clock.now()):
        raise UploadLocked(upload_id=upload_id)
    async with deps.db.tx(actor=caller.actor) as tx:
        if patch.length is not None:
            seen = await write.declare_length(tx, deps, seen, patch.length)
        held = await write.claim(tx, deps, seen, offset=stored)
    async with _opened(deps, held, patch) as writer:
        return await BodyReceiver(deps, held, patch, writer).run(writers, request)


def _max_bytes(deps: Deps, upload: Upload, patch: Patch) -> int:
    """How large the upload may become with this request."""
    length = patch.length if upload.length is None else upload.length
    return deps.config.max_bytes if length is None else length


@asynccontextmanager
async def _opened(deps: Deps, held: Upload, patch: Patch) -> AsyncIterator[StagedWriter]:
    """The staged object, open for writing. If that fails, the upload is released."""
    async with AsyncExitStack() as closing:
        try:
            writer = await _open(deps, held, patch, closing)
        except PenstockError:
            await _release(deps, held, held.offset)
            raise
        yield writer


async def _open(deps: Deps, held: Upload, patch: Patch, closing: AsyncExitStack) -> StagedWriter:
    """Open the staged object. A former writer of another process may need a moment to close it."""
    for _ in range(LOCK_PAUSES):
        opening = deps.staging.append(held.staged, offset=held.offset, held=patch.is_all_or_nothing)
        with suppress(StagedObjectBusy):
            return await closing.enter_async_context(opening)
        await deps.db.clock.sleep(LOCK_PAUSE_SECONDS)
    raise UploadLocked(upload_id=held.id)


class BodyReceiver:
    """Takes the body of one request to the staged object."""

    def __init__(self, deps: Deps, held: Upload, patch: Patch, writer: StagedWriter) -> None:
        self._deps = deps
        self._held = held
        self._patch = patch
        self._writer = writer
        self._most = _max_bytes(deps, held, patch)
        self._end = held.offset  # of what was written
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._digest = patch.checksum.new_hash() if patch.checksum else None

    async def run(self, writers: LiveWriters, request: Request) -> Upload:
        """Receive everything; what arrived before a failure is saved, unless the request is all or nothing."""
        try:
            async with writers.writing(self._held, lambda: self._writer.stored_bytes) as live:
                await self._receive(live, request)
                self._check_sum()
        except UploadTakenOver:
            raise  # it is somebody else's now
        except (ClientDisconnect, PenstockError, asyncio.CancelledError):
            await run_shielded(self._save_after_failure())
            raise
        return await run_shielded(self._save())

    async def _receive(self, live: LiveWriter, request: Request) -> None:
        stream, seconds = request.stream(), self._deps.config.silence_seconds
        try:
            while True:
                async with asyncio.timeout(seconds):
                    chunk = await anext(stream)
                live.received += len(chunk)
                self._waiting.append(chunk)
                self._waiting_bytes += len(chunk)
                if self._waiting_bytes >= PIECE_BYTES:
                    await self._flush()
        except StopAsyncIteration:
            await self._flush()
        except TimeoutError as error:
            raise UploadStalled(seconds=seconds, stored=self._end + self._waiting_bytes) from error

    async def _flush(self) -> None:
        """Write the chunks that wait, joined to one piece."""
        piece, self._waiting, self._waiting_bytes = b"".join(self._waiting), [], 0
        if not piece:
            return
        if self._end + len(piece) > self._most:
            raise UploadTooLarge(most_bytes=self._most)
        if self._digest is not None:
            await asyncio.to_thread(self._digest.update, piece)
        await self._writer.write(piece)
        self._end += len(piece)

    def _check_sum(self) -> None:
        checksum, digest = self._patch.checksum, self._digest
        if checksum and digest and not hmac.compare_digest(digest.digest(), checksum.digest):
            raise ChecksumFailed

    async def _save(self) -> Upload:
        """Store everything; the upload is complete when its length is reached."""
        if self._end == self._held.length:
            await self._writer.seal()
            return await _finish(self._deps, self._held)
        await self._writer.save()
        await _release(self._deps, self._held, self._end)
        self._deps.metrics.received_bytes += self._end - self._held.offset
        return replace(self._held, offset=self._end, writer=None, writer_until=None)

    async def _save_after_failure(self) -> None:
        """Store what arrived. If the store is gone too, the row says what it has."""
        try:
            if not self._patch.is_all_or_nothing:
                await self._flush()
                await self._save()
                return
        except PenstockError as error:
            log.warning("upload %s: not all bytes could be stored: %s", self._held.id, error)
        await _release(self._deps, self._held, self._writer.stored_bytes)


async def _seal(deps: Deps, upload: Upload) -> Upload:
    assert upload.length is not None
    await deps.staging.seal(upload.staged, size_bytes=upload.length)
    return await _finish(deps, upload)


async def _finish(deps: Deps, upload: Upload) -> Upload:
    async with deps.db.tx(actor="gateway") as tx:
        done = await write.finish(tx, deps, upload)
    if done is None:
        raise UploadTakenOver(upload_id=upload.id)
    deps.metrics.received_bytes += done.offset - upload.offset
    return done


async def _release(deps: Deps, held: Upload, offset: int) -> None:
    """End the writer. Without a database its lease lapses, and the staging area knows what is stored."""
    try:
        async with deps.db.tx(actor="gateway") as tx:
            await write.release(tx, deps, held, offset=offset)
    except Unavailable as error:
        log.warning("upload %s: the writer could not be released: %s", held.id, error)
