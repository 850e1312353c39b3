"""The OCR port: a file becomes markdown and pages, whoever reads it.

A provider writes two objects into the desk's folder: `mineru.md` (markdown, a page mark before each page) and
`pages.jsonl` (see `ground.py`). Killed at any point and called again, it goes on from what it has kept in the folder.
"""

from dataclasses import dataclass, field
from typing import Protocol

from penstock.kernel.plain import Plain

MARKDOWN = "mineru.md"  # the name that callers of the older API know
PAGES = "pages.jsonl"
MARKDOWN_TYPE = "text/markdown; charset=utf-8"
PAGES_TYPE = "application/x-ndjson"


@dataclass(frozen=True, kw_only=True)
class Source:
    """The document: an object of the blob store, and the name it came by."""

    key: str
    filename: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a provider made of a document. `metadata` has pages, seconds, version and whatever else it knows."""

    markdown_key: str
    pages_key: str
    provider_task_id: str
    page_count: int
    metadata: Plain = field(default_factory=dict)


class Desk(Protocol):
    """Where a stage works: a place for its papers, and someone to tell how far it is."""

    @property
    def folder(self) -> str:
        """The prefix, with its slash, of every key that this task's OCR writes."""
        ...

    @property
    def provider_task_id(self) -> str | None:
        """What an earlier attempt was told to remember."""
        ...

    async def progress(self, done: int, of: int) -> None:
        """Tell how many pages (or steps) are done. Raises when the task is not wanted any more: let it through."""
        ...

    async def remember(self, provider_task_id: str) -> None:
        """Keep a remote provider's task id, so that the next attempt can go on asking for it."""
        ...


class OCRProvider(Protocol):
    """The port: the local reader, or a service far away."""

    name: str

    @property
    def identity(self) -> Plain:
        """What a reading depends on beside the document: the reader, its version and its options."""
        ...

    async def read(self, source: Source, desk: Desk) -> Reading:
        """Read a document, going on where an earlier attempt stopped."""
        ...
