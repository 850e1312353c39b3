"""Uploads as values: kinds, states, and what may be done with one."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from penstock.kernel.machine import Machine
from penstock.kernel.staging import STAGED_PREFIX, StagedObject

PDF = "application/pdf"


class UploadKind(StrEnum):
    """How an upload was made (`Upload-Concat`)."""

    ORDINARY = "ordinary"
    PARTIAL = "partial"
    FINAL = "final"


class UploadState(StrEnum):
    """The states of an upload; `UPLOAD` describes each."""

    OPEN = "open"
    ASSEMBLING = "assembling"
    COMPLETE = "complete"
    EXPIRED = "expired"
    TERMINATED = "terminated"


LIVING = (UploadState.OPEN, UploadState.ASSEMBLING, UploadState.COMPLETE)
UPLOAD = Machine(
    "upload",
    {
        "assemble": ({UploadState.OPEN}, UploadState.ASSEMBLING),
        "finish": ({UploadState.OPEN, UploadState.ASSEMBLING}, UploadState.COMPLETE),
        "expire": (set(LIVING), UploadState.EXPIRED),
        "terminate": (set(LIVING), UploadState.TERMINATED),
    },
    start=UploadState.OPEN,
    words={
        UploadState.OPEN: "Bytes are missing.",
        UploadState.ASSEMBLING: "A final upload: its partial uploads are being joined.",
        UploadState.COMPLETE: "Whole, and stored as an object.",
        UploadState.EXPIRED: "Not finished, or not used, in time. Its bytes are deleted.",
        UploadState.TERMINATED: "Deleted by its owner.",
    },
)


@dataclass(frozen=True, kw_only=True)
class Upload:
    """An upload. `offset` is what the last writer saved; while there is a `writer`, more may be stored."""

    id: str
    user_id: int
    merchant_id: int | None
    key_id: str | None
    kind: UploadKind
    state: UploadState
    length: int | None  # None: not known yet (`Upload-Defer-Length`)
    offset: int
    metadata: str  # as it was sent
    filename: str
    handle: str
    parts: Sequence[str]  # ids of partial uploads, in order
    writer: str | None
    writer_until: datetime | None
    created_at: datetime
    updated_at: datetime  # of the last byte
    expires_at: datetime

    @property
    def blob_key(self) -> str:
        """The key of its object."""
        return blob_key(self.id)

    @property
    def staged(self) -> StagedObject:
        """Its bytes in the staging area."""
        return StagedObject(key=self.blob_key, handle=self.handle)

    @property
    def audience(self) -> str:
        """Who may watch its events."""
        return f"user:{self.user_id}"

    def is_written_at(self, now: datetime) -> bool:
        """Whether a writer is live: a byte came within the last seconds."""
        return self.writer is not None and self.writer_until is not None and self.writer_until > now


def blob_key(upload_id: str) -> str:
    """The key of an upload's object."""
    return f"{STAGED_PREFIX}{upload_id}"
