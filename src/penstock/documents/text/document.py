"""Files that are text already, from outside: `kind_of_file` and `read_batches`.

All work on their bytes is done in the sandbox (`parts.py`); only a mark at the beginning is looked at here. What comes
back is checked once more, since a child that a file has taken over may answer anything.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from penstock.documents.errors import DocumentTooLarge, DocumentUnreadable
from penstock.documents.kinds import Kind, by_mark
from penstock.documents.sandbox_errors import accepted, told_of
from penstock.documents.text.batches import Bookmark, Part, name_kind, read_part
from penstock.kernel.sandbox.limits import SandboxLimits
from penstock.kernel.sandbox.session import SandboxSession

PRELOAD = ("penstock.documents.text.batches",)  # what a sandbox should have imported before it runs these
MOST_PAGES = 5000
MARK_BYTES = 32  # of a file, in which the kinds that have a mark show it
LOOK = SandboxLimits(memory_bytes=256 * 1024 * 1024, cpu_seconds=5, seconds=20.0)
PART = SandboxLimits(memory_bytes=512 * 1024 * 1024, cpu_seconds=30, seconds=120.0, result_bytes=12 * 1024 * 1024)


async def kind_of_file(sitting: SandboxSession, filename: str, *, limits: SandboxLimits = LOOK) -> Kind:
    """The kind of a file by its content, then its name. DocumentEmpty, DocumentEncrypted or DocumentKindUnknown."""
    if (certain := by_mark(await asyncio.to_thread(_beginning, sitting.file))) is not None:
        return certain  # a sandbox would cost more than the look
    with told_of(filename, "a document"):
        answer = await sitting.run(name_kind, filename, limits=limits)
    return accepted(answer, filename, "a document").kind


async def read_batches(
    sitting: SandboxSession, kind: Kind, filename: str, *, most_pages: int = MOST_PAGES, limits: SandboxLimits = PART
) -> AsyncIterator[Part]:
    """The pages of a file in parts, of which one at a time is in memory; the last one says that nothing follows."""
    following: Bookmark | None = Bookmark()
    while following is not None:
        with told_of(filename, kind):
            answer = await sitting.run(read_part, kind, following.page, following.resume, limits=limits)
        part = accepted(answer, filename, kind)
        after = following.page + len(part.pages)
        if not _goes_on(part, following.page, after):
            raise DocumentUnreadable(filename=filename, kind=kind, reason="its reader gave pages out of order")
        if after - 1 > most_pages:
            reason = f"it has more than the {most_pages} pages that may be read (ETL_MAX_PAGES)"
            raise DocumentTooLarge(filename=filename, reason=reason)
        yield part
        following = part.following


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MARK_BYTES)


def _goes_on(part: Part, first: int, after: int) -> bool:
    """Pages must follow each other, or a child could keep us reading for ever."""
    in_order = [page.number for page in part.pages] == list(range(first, after))
    return in_order and (part.following is None or first < after == part.following.page)
