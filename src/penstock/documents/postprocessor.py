"""The postprocessor port: extracts JSON from the pages of a document, as a rule demands."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from penstock.documents.blob_files import append_chunk, temporary_file
from penstock.documents.ocr.provider import Reading, StageContext
from penstock.documents.pages import Citation, Page, write_page
from penstock.kernel.json_object import JsonObject


@dataclass(frozen=True, kw_only=True)
class ExtractionRule:
    """The schema of the result, and how to produce it."""

    json_schema: JsonObject | None = None
    system_prompt: str | None = None
    strategy: str | None = None
    options: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ExtractionResult:
    """A result, how it was produced, and a citation for each of its values."""

    value: Any
    strategy: str
    citations: tuple[Citation, ...] = ()
    usage: JsonObject = field(default_factory=dict)  # tokens and cost; empty without a model
    notes: JsonObject = field(default_factory=dict)  # remarks on the result, such as conflicting values


class PostProcessor(Protocol):
    """Implemented by `skip` (no extraction), `fields` (values by their labels) and `llm` (a language model)."""

    def identity(self, rule: ExtractionRule) -> JsonObject | None:
        """What a result depends on besides the pages and the rule; None when the result is too cheap to cache."""
        ...

    async def extract(
        self, filename: str, reading: Reading, rule: ExtractionRule, context: StageContext
    ) -> ExtractionResult:
        """Extract a value that satisfies the schema of the rule."""
        ...


class PagePostProcessor(PostProcessor, Protocol):
    """A post-processor that can be given some pages of a document, before or without a reading of all of them."""

    async def extract_pages(
        self, filename: str, pages: Sequence[Page], rule: ExtractionRule, context: StageContext
    ) -> ExtractionResult:
        """Extract a value that satisfies the schema of the rule from these pages alone."""
        ...


@asynccontextmanager
async def pages_file(pages: Sequence[Page], folder: Path) -> AsyncIterator[Path]:
    """A temporary pages file, for a post-processor that is given pages."""
    async with temporary_file(folder) as path:
        await asyncio.to_thread(append_chunk, path, b"".join(map(write_page, pages)))
        yield path
