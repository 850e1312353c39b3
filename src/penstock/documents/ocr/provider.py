"""The OCR port: a document becomes markdown and pages.

A provider writes two objects under the folder of its stage context: `mineru.md` (markdown with a marker before each
page) and `pages.jsonl` (see `pages.py`). A provider that was killed continues from its checkpoints there when it is
called again.
"""

from dataclasses import dataclass, field
from typing import Protocol

from penstock.kernel.json_object import JsonObject

MARKDOWN = "mineru.md"  # the name that clients of the older API expect
PAGES = "pages.jsonl"
MARKDOWN_TYPE = "text/markdown; charset=utf-8"
PAGES_TYPE = "application/x-ndjson"


@dataclass(frozen=True, kw_only=True)
class Source:
    """The document: the key of a blob, and its file name."""

    key: str
    filename: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The result of a provider. `metadata` has pages, seconds, version and provider-specific values."""

    markdown_key: str
    pages_key: str
    provider_task_id: str
    page_count: int
    metadata: JsonObject = field(default_factory=dict)


class Desk(Protocol):
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

    async def read(self, source: Source, desk: Desk) -> Reading:
        """Read a document, continuing where an earlier attempt stopped."""
        ...
