"""Create an upload: ordinary, partial, or final and made of partial ones."""

import mimetypes
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

from penstock.access.domain import Caller
from penstock.gateway import store
from penstock.gateway.deps import Config, Deps
from penstock.gateway.domain import Upload, UploadKind, UploadState
from penstock.gateway.errors import (
    BadTusHeader,
    InvalidFileType,
    TooManyUploads,
    UploadIncomplete,
    UploadNotFound,
)
from penstock.kernel.db import Tx
from penstock.kernel.http.request_body import UploadTooLarge
from penstock.kernel.queue import NewJob
from penstock.kernel.staging import StagedObject

MODULE = "gateway"
ASSEMBLE = "gateway.assemble"
ID_CHARACTERS = 21
RETRY_SECONDS = 60
MAX_FILENAME = 1000


@dataclass(frozen=True, kw_only=True)
class NewUpload:
    """What a client says about the upload it creates."""

    kind: UploadKind
    length: int | None
    metadata: str
    filename: str
    filetype: str
    parts: Sequence[str] = ()


def new_upload_id() -> str:
    """An id that nobody can guess."""
    return f"upl_{secrets.token_urlsafe(16)[:ID_CHARACTERS]}"


def check_new(config: Config, new: NewUpload) -> None:
    """Refuse a file that is too large or of a type that is not accepted."""
    if new.length is not None and new.length > config.max_bytes:
        raise UploadTooLarge(most_bytes=config.max_bytes)
    if new.kind is UploadKind.PARTIAL and not new.filename:
        return  # clients that upload in parallel send metadata with the final upload only
    if len(new.filename) > MAX_FILENAME or not new.filename.isprintable():
        raise BadTusHeader(header="Upload-Metadata", reason="filename is too long or not printable")
    if not _is_accepted(new, config.allowed_types):
        raise InvalidFileType(filename=new.filename, allowed=", ".join(sorted(config.allowed_types)))


def _is_accepted(new: NewUpload, allowed: Collection[str]) -> bool:
    _, dot, extension = new.filename.rpartition(".")
    if not dot or extension.lower() not in allowed:
        return False
    expected, _ = mimetypes.guess_type(f"a.{extension.lower()}")
    return bool(new.filetype) and (expected is None or new.filetype.partition(";")[0].strip().lower() == expected)


async def check_open_uploads(tx: Tx, deps: Deps, caller: Caller) -> None:
    """Refuse a caller who has too many unfinished uploads."""
    most = deps.config.max_open
    if await store.count_open(tx, caller, most=most) >= most:
        raise TooManyUploads(wait_seconds=RETRY_SECONDS, most=most)


async def create(tx: Tx, deps: Deps, caller: Caller, new: NewUpload, staged: StagedObject, upload_id: str) -> Upload:
    """Insert an upload whose staged object was begun."""
    await check_open_uploads(tx, deps, caller)
    made = _new_row(tx, deps, caller, new, upload_id, state=UploadState.OPEN, handle=staged.handle)
    await store.insert_upload(tx, made)
    return made


async def create_final(tx: Tx, deps: Deps, caller: Caller, new: NewUpload, upload_id: str) -> Upload:
    """Insert a final upload and enqueue its assembly."""
    parts = [await _get_part(tx, caller, part) for part in new.parts]
    length = sum(part.offset for part in parts)
    if length > deps.config.max_bytes:
        raise UploadTooLarge(most_bytes=deps.config.max_bytes)
    made = _new_row(tx, deps, caller, new, upload_id, state=UploadState.ASSEMBLING, length=length)
    await store.insert_upload(tx, made)
    await store.keep_parts(tx, [part.id for part in parts], expires_at=made.expires_at)
    await deps.queue.enqueue(tx, NewJob(kind=ASSEMBLE, module=MODULE, payload={"upload_id": made.id}))
    return made


async def _get_part(tx: Tx, caller: Caller, upload_id: str) -> Upload:
    found = await store.get_upload(tx, caller, upload_id)
    if found.user_id != caller.user_id:
        raise UploadNotFound(upload_id=upload_id)
    if found.kind is not UploadKind.PARTIAL:
        raise BadTusHeader(header="Upload-Concat", reason=f"{upload_id} is not a partial upload")
    if found.state is not UploadState.COMPLETE:
        raise UploadIncomplete(upload_id=upload_id)
    return found


def _new_row(
    tx: Tx,
    deps: Deps,
    caller: Caller,
    new: NewUpload,
    upload_id: str,
    *,
    state: UploadState,
    handle: str = "",
    length: int | None = None,
) -> Upload:
    kept = deps.config.expiry_seconds if state is UploadState.OPEN else deps.config.unused_seconds
    return Upload(
        id=upload_id,
        user_id=caller.user_id,
        merchant_id=caller.merchant_id,
        key_id=caller.key_id,
        kind=new.kind,
        state=state,
        length=new.length if length is None else length,
        offset=0,
        metadata=new.metadata,
        filename=new.filename,
        handle=handle,
        parts=tuple(new.parts),
        writer=None,
        writer_until=None,
        created_at=tx.now,
        updated_at=tx.now,
        expires_at=tx.now + timedelta(seconds=kept),
    )
