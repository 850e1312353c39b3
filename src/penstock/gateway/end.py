"""End uploads: deleted by their owner, or expired. The row goes first, then the bytes."""

from penstock.access.domain import Caller
from penstock.gateway import store, write
from penstock.gateway.deps import Deps
from penstock.gateway.domain import Upload, UploadState
from penstock.kernel.db import Tx


async def terminate(tx: Tx, caller: Caller, upload_id: str) -> Upload:
    """Delete an upload and end its writer; `delete_bytes` follows."""
    found = await store.get_upload(tx, caller, upload_id)
    if await store.move_state(tx, found, "terminate"):
        tx.wake(write.CHANNEL)
    return found


async def expire(tx: Tx, upload: Upload) -> bool:
    """Expire an upload whose time is over; `delete_bytes` follows. False if somebody else moved it."""
    return await store.move_state(tx, upload, "expire")


async def delete_bytes(deps: Deps, upload: Upload) -> None:
    """Delete what is stored of an upload that has ended. Harmless when run twice."""
    if upload.state is UploadState.OPEN:
        await deps.staging.discard(upload.staged)
    await deps.blobs.delete(upload.blob_key)
