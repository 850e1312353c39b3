"""Move an upload on: claim it for a writer, renew, release what was stored, finish what is whole."""

from dataclasses import replace
from datetime import timedelta

from penstock.gateway import store
from penstock.gateway.deps import Deps
from penstock.gateway.domain import Upload, UploadState
from penstock.gateway.errors import BadTusHeader, UploadLocked
from penstock.kernel.db import Tx
from penstock.kernel.http.request_body import UploadTooLarge
from penstock.kernel.ids import new_token
from penstock.kernel.message import Event

CHANNEL = "upload"  # wakes processes when an upload was taken from its writer


async def claim(tx: Tx, deps: Deps, seen: Upload, *, offset: int) -> Upload:
    """Claim an upload that has `offset` bytes; `UploadLocked` if somebody else was first."""
    token, until = new_token(), tx.now + timedelta(seconds=deps.config.takeover_seconds)
    if not await store.claim_writer(tx, seen, token, offset=offset, until=until):
        raise UploadLocked(upload_id=seen.id)
    if seen.writer is not None:
        tx.wake(CHANNEL)
    return replace(seen, writer=token, writer_until=until, offset=offset)


async def declare_length(tx: Tx, deps: Deps, upload: Upload, length: int) -> Upload:
    """Give an upload with a deferred length its length."""
    if upload.length is not None:
        if upload.length != length:
            raise BadTusHeader(header="Upload-Length", reason="the length is known and cannot change")
        return upload
    if length > deps.config.max_bytes:
        raise UploadTooLarge(most_bytes=deps.config.max_bytes)
    if length < upload.offset:
        raise BadTusHeader(header="Upload-Length", reason=f"{upload.offset} bytes are stored already")
    if not await store.move_length(tx, upload.id, length):
        raise UploadLocked(upload_id=upload.id)
    return replace(upload, length=length)


async def renew(tx: Tx, deps: Deps, upload: Upload, *, offset: int) -> bool:
    """Extend a writer that received bytes, and show its progress; False if it lost the upload."""
    assert upload.writer is not None
    config = deps.config
    renewed = await store.renew_writer(
        tx,
        upload.id,
        upload.writer,
        offset=offset,
        until=tx.now + timedelta(seconds=config.takeover_seconds),
        expires_at=tx.now + timedelta(seconds=config.expiry_seconds),
    )
    if renewed:
        tx.publish(event(replace(upload, offset=offset), "upload_progress"))
    return renewed


async def release(tx: Tx, deps: Deps, upload: Upload, *, offset: int) -> bool:
    """End a writer whose bytes are saved; False if it lost the upload."""
    assert upload.writer is not None
    expires_at = tx.now + timedelta(seconds=deps.config.expiry_seconds)
    released = await store.release_writer(tx, upload.id, upload.writer, offset=offset, expires_at=expires_at)
    if released and offset != upload.offset:
        tx.publish(event(replace(upload, offset=offset), "upload_progress"))
    return released


async def finish(tx: Tx, deps: Deps, upload: Upload) -> Upload | None:
    """Mark an upload complete whose object is sealed; None if somebody else did, or it was deleted."""
    assert upload.length is not None
    expires_at = tx.now + timedelta(seconds=deps.config.unused_seconds)
    if not await store.move_state(tx, upload, "finish", offset=upload.length, expires_at=expires_at):
        return None
    done = replace(
        upload, state=UploadState.COMPLETE, offset=upload.length, writer=None, writer_until=None, expires_at=expires_at
    )
    tx.publish(event(done, "upload_completed"))
    return done


def event(upload: Upload, kind: str) -> Event:
    """An event of an upload."""
    data = {"upload_id": upload.id, "filename": upload.filename, "offset": upload.offset, "length": upload.length}
    return Event(topic=f"upload:{upload.id}", kind=kind, audience=upload.audience, data=data)
