"""The staging area beside the blob store: objects that are written in pieces, over several requests and processes.

    begin → append, append, …  → seal       the object exists under its key, and no byte was copied
                               → discard    nothing of it is left

One writer at a time: the caller's lease decides who writes. A writer appends at the stored size. Bytes that may turn
out to be wrong are held aside until they are saved. How much is stored can be asked at any time, and is never more
than survives a kill of the writer.

Every staged object has a key below `STAGED_PREFIX`, so that the sweep of the blob store leaves it alone.
tests/conformance/test_staging.py has what each implementation must do.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from penstock.kernel.blobs import BadBlobKey, BlobStat, check_key
from penstock.kernel.errors import Conflict, NotFound

STAGED_PREFIX = "uploads/"
MAX_LISTED_STAGED = 1000


class StagedObjectBusy(Conflict):
    """Another process still has the staged object open for writing."""

    code = "STAGED_OBJECT_BUSY"
    message = "Another writer still has {key} open."
    message_zh = "另一个写入者仍打开着 {key}。"
    hint = "Retry in a moment; a writer that lost its lease stops within seconds."
    hint_zh = "请稍后重试；失去租约的写入者会在数秒内停止。"
    retryable = True


class StagedObjectNotFound(NotFound):
    """The staged object was sealed, discarded or never begun."""

    code = "STAGED_OBJECT_NOT_FOUND"
    message = "There is no staged object {key}."
    message_zh = "没有暂存对象 {key}。"
    hint = "It was finished or deleted; begin a new one."
    hint_zh = "它已完成或已删除；请重新开始。"


@dataclass(frozen=True, kw_only=True)
class StagedObject:
    """An object that is not whole yet. `handle` is what another process needs to go on; store it with the key."""

    key: str
    handle: str = ""


class StagedWriter(Protocol):
    """A staged object, open for writing."""

    @property
    def stored_bytes(self) -> int:
        """The size that survives a kill of this process."""
        ...

    async def write(self, chunk: bytes) -> None:
        """Append a chunk. It may stay in memory until `save`."""
        ...

    async def save(self) -> None:
        """Store everything that was written."""
        ...

    async def seal(self) -> None:
        """Store everything that was written and make the object of it; the writer is then closed."""
        ...


class StagingArea(Protocol):
    """Staged objects of one blob store. It raises the errors of this file and those of the blob store."""

    async def begin(self, key: str, *, max_bytes: int, content_type: str | None = None) -> StagedObject:
        """Begin an empty object of at most `max_bytes`; a previous one of that key is dropped."""
        ...

    async def stored_bytes(self, staged: StagedObject, *, saved: int | None = None) -> int:
        """How many bytes are stored: the truth after a crash. Of a sealed object, its size.

        `saved` is the size that the last writer saved, if it closed the object properly; a store that cannot lose it
        answers at once.
        """
        ...

    def append(
        self, staged: StagedObject, *, offset: int, held: bool = False
    ) -> AbstractAsyncContextManager[StagedWriter]:
        """Open for writing at the end, which is at `offset`.

        The end of the block closes the object. Call `save` or `seal` before, or what is only in memory is lost. With
        `held`, nothing is stored before that, and without it nothing is ever stored, also if the process is killed.
        """
        ...

    async def seal(self, staged: StagedObject, *, size_bytes: int) -> None:
        """Make the object of its stored bytes. Harmless when it was sealed before."""
        ...

    async def join(self, key: str, sources: Sequence[BlobStat], *, content_type: str | None = None) -> None:
        """Make an object of other objects, one after another, replacing any previous one."""
        ...

    async def discard(self, staged: StagedObject) -> None:
        """Drop what is stored; no error when there is nothing. A sealed object stays."""
        ...

    async def list_staged(self, *, older_than: datetime) -> Sequence[StagedObject]:
        """Staged objects begun before then, at most `MAX_LISTED_STAGED`: for the cleaner of leftovers."""
        ...


def check_staged_key(key: str) -> None:
    """Refuse a key that the blob store would sweep."""
    check_key(key)
    if not key.startswith(STAGED_PREFIX):
        raise BadBlobKey(key=key, reason=f"a staged object is below {STAGED_PREFIX}")
