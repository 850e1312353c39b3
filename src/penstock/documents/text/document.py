"""Reading formats that need no OCR, seen from outside the sandbox.

All parsing runs in the sandbox (`batches.py`); only the file signature is read here. Answers are validated, since a
child process that a file has compromised can answer anything.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from penstock.documents.errors import DocumentTooLarge, DocumentUnreadable
from penstock.documents.kinds import Kind, kind_by_signature
from penstock.documents.sandbox_errors import document_errors, unwrap
from penstock.documents.text.batches import ReadBatch, ReadCursor, detect_kind_in_file, read_batch
from penstock.kernel.sandbox.limits import SandboxLimits
from penstock.kernel.sandbox.session import SandboxSession

PRELOAD = ("penstock.documents.text.batches",)  # modules that the sandbox imports before a call
MAX_PAGES = 5000
SIGNATURE_BYTES = 32  # long enough for every signature
DETECT_LIMITS = SandboxLimits(memory_bytes=256 * 1024 * 1024, cpu_seconds=5, seconds=20.0)
BATCH_LIMITS = SandboxLimits(
    memory_bytes=512 * 1024 * 1024, cpu_seconds=30, seconds=120.0, result_bytes=12 * 1024 * 1024
)


async def detect_file_kind(session: SandboxSession, filename: str, *, limits: SandboxLimits = DETECT_LIMITS) -> Kind:
    """The kind of a file, by content and then by name. Raises DocumentEmpty, DocumentEncrypted, DocumentKindUnknown."""
    if (certain := kind_by_signature(await asyncio.to_thread(_beginning, session.file))) is not None:
        return certain  # cheaper than a sandbox call
    with document_errors(filename, "a document"):
        answer = await session.run(detect_kind_in_file, filename, limits=limits)
    return unwrap(answer, filename, "a document").kind


async def read_batches(
    session: SandboxSession,
    kind: Kind,
    filename: str,
    *,
    max_pages: int = MAX_PAGES,
    limits: SandboxLimits = BATCH_LIMITS,
) -> AsyncIterator[ReadBatch]:
    """Yield the pages of a file in batches, with one batch in memory at a time."""
    following: ReadCursor | None = ReadCursor()
    while following is not None:
        with document_errors(filename, kind):
            answer = await session.run(read_batch, kind, following.page, following.resume, limits=limits)
        batch = unwrap(answer, filename, kind)
        after = following.page + len(batch.pages)
        if not _is_in_order(batch, following.page, after):
            raise DocumentUnreadable(filename=filename, kind=kind, reason="its reader returned pages out of order")
        if after - 1 > max_pages:
            reason = f"it has more than {max_pages} pages (ETL_MAX_PAGES)"
            raise DocumentTooLarge(filename=filename, reason=reason)
        yield batch
        following = batch.following


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(SIGNATURE_BYTES)


def _is_in_order(batch: ReadBatch, first: int, after: int) -> bool:
    """Pages must be consecutive, or a compromised child could keep us reading forever."""
    in_order = [page.number for page in batch.pages] == list(range(first, after))
    return in_order and (batch.following is None or first < after == batch.following.page)
