"""The OCR port: a document becomes markdown and pages.

A provider writes two objects under the folder of its stage context: `mineru.md` (markdown with a marker before each
page) and `pages.jsonl` (see `pages.py`). A provider that was killed continues from its checkpoints there when it is
called again.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from penstock.documents.errors import DocumentEmpty, DocumentTooLarge
from penstock.kernel.json_object import JsonObject

MARKDOWN = "mineru.md"  # the name that clients of the older API expect
PAGES = "pages.jsonl"
MARKDOWN_TYPE = "text/markdown; charset=utf-8"
PAGES_TYPE = "application/x-ndjson"


@dataclass(frozen=True, kw_only=True)
class Source:
    """The document: the key of a blob, its file name, and the file that the caller has open, if it has one."""

    key: str
    filename: str
    size_bytes: int
    path: Path | None = None


def check_size(source: Source, *, max_bytes: int) -> None:
    """Refuse a document that is empty or too large, before it is opened."""
    if not source.size_bytes:
        raise DocumentEmpty(filename=source.filename)
    if source.size_bytes > max_bytes:
        reason = f"it has {source.size_bytes} bytes, and {max_bytes} may be read (ETL_MAX_FILE_BYTES)"
        raise DocumentTooLarge(filename=source.filename, reason=reason)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The result of a provider. `metadata` has pages, seconds, version and provider-specific values."""

    markdown_key: str
    pages_key: str
    provider_task_id: str
    page_count: int
    metadata: JsonObject = field(default_factory=dict)


class StageContext(Protocol):
    """The stage context: its folder of artifacts and checkpoints, and progress."""

    @property
    def folder(self) -> str:
        """The prefix, with a trailing slash, of every key that OCR writes for this task."""
        ...

    @property
    def provider_task_id(self) -> str | None:
        """The id that an earlier attempt stored with `remember`."""
        ...

    async def progress(self, done: int, of: int) -> None:
        """Report how many pages (or steps) are done. Raises when the task was cancelled: do not catch it."""
        ...

    async def remember(self, provider_task_id: str) -> None:
        """Store the task id of a remote provider, so that the next attempt can poll it."""
        ...


class OCRProvider(Protocol):
    """Implemented by the local reader and by remote services."""

    name: str

    @property
    def identity(self) -> JsonObject:
        """What a reading depends on besides the document: the reader, its version and its options."""
        ...

    async def read(self, source: Source, context: StageContext) -> Reading:
        """Read a document, continuing where an earlier attempt stopped."""
        ...
