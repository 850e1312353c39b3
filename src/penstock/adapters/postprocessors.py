"""Post-processors without a model: `skip` returns a reference to the markdown, `fields` fills a schema by labels."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec

from penstock.documents.blob_files import local_file
from penstock.documents.errors import DocumentTookTooLong
from penstock.documents.extract.errors import FieldsSchemaUnusable, FieldsTooCostly
from penstock.documents.extract.fields.find import FieldsResult, find_fields
from penstock.documents.ocr.provider import Reading, StageContext
from penstock.documents.pages import Page
from penstock.documents.postprocessor import ExtractionResult, ExtractionRule, pages_file
from penstock.documents.sandbox_errors import OVER_LIMIT
from penstock.kernel.blobs import Blobs
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.sandbox.errors import SandboxTimedOut
from penstock.kernel.sandbox.limits import SandboxLimits

MAX_SCHEMA_BYTES = 100_000  # a sandboxed call takes 128 KiB of arguments
DEFAULT_LIMITS = SandboxLimits(
    memory_bytes=512 * 1024 * 1024, cpu_seconds=120, seconds=300.0, result_bytes=32 * 1024 * 1024
)


class SkipPostProcessor:
    """Returns the markdown key and the metadata of the reading; reads nothing."""

    def identity(self, rule: ExtractionRule) -> None:
        """Not cached: the result names the task's own artifacts."""

    async def extract(
        self,
        filename: str,
        reading: Reading,
        rule: ExtractionRule,  # noqa: ARG002  (the Protocol's signature)
        context: StageContext,
    ) -> ExtractionResult:
        """The stable wrapper around the markdown that callers of `skip` rely on."""
        await context.progress(1, 1)
        value = {
            "markdown_s3_key": reading.markdown_key,
            "provider_task_id": reading.provider_task_id,
            "metadata": reading.metadata,
            "filename": filename,
            "page_count": reading.page_count,
        }
        return ExtractionResult(value=value, strategy="skip")

    async def extract_pages(
        self,
        filename: str,
        pages: Sequence[Page],
        rule: ExtractionRule,  # noqa: ARG002  (the Protocol's signature)
        context: StageContext,
    ) -> ExtractionResult:
        """The markdown of the pages."""
        await context.progress(1, 1)
        markdown = "\n\n".join(page.markdown for page in pages)
        return ExtractionResult(
            value={"filename": filename, "page_count": len(pages), "markdown": markdown}, strategy="skip"
        )


class FieldsPostProcessor:
    """Fills the rule's schema from the labels, lines and tables of the pages."""

    def __init__(self, blobs: Blobs, sandbox: Sandbox, scratch: Path, limits: SandboxLimits = DEFAULT_LIMITS) -> None:
        self._blobs = blobs
        self._sandbox = sandbox
        self._scratch = scratch
        self._limits = limits

    def identity(self, rule: ExtractionRule) -> None:
        """Not cached: finding labels is as fast as copying a cached result."""

    async def extract(
        self, filename: str, reading: Reading, rule: ExtractionRule, context: StageContext
    ) -> ExtractionResult:
        """A result with all properties of the schema, null where the document has no value."""
        return await self._extract(filename, local_file(self._blobs, reading.pages_key, self._scratch), rule, context)

    async def extract_pages(
        self, filename: str, pages: Sequence[Page], rule: ExtractionRule, context: StageContext
    ) -> ExtractionResult:
        """A result with all properties of the schema, null where these pages have no value."""
        return await self._extract(filename, pages_file(pages, self._scratch), rule, context)

    async def _extract(
        self, filename: str, file: AbstractAsyncContextManager[Path], rule: ExtractionRule, context: StageContext
    ) -> ExtractionResult:
        schema = _encode_schema(rule.json_schema)
        await context.progress(0, 1)
        async with file as pages:
            found = await self._find(filename, pages, schema)
        await context.progress(1, 1)
        usage = {"ambiguous": list(found.ambiguous)} if found.ambiguous else {}
        return ExtractionResult(value=found.value, strategy="fields", citations=found.citations, usage=usage)

    async def _find(self, filename: str, pages: Path, schema: bytes) -> FieldsResult:
        try:
            found = await self._sandbox.run(find_fields, schema, file=pages, limits=self._limits)
        except OVER_LIMIT as error:
            raise FieldsTooCostly(filename=filename, reason=str(error).rstrip(".")) from error
        except SandboxTimedOut as error:  # the host may have been overloaded
            raise DocumentTookTooLong(filename=filename, reason=str(error).rstrip(".")) from error
        if found.schema_error is not None:
            raise FieldsSchemaUnusable(reason=found.schema_error)
        if found.limit_exceeded is not None:
            raise FieldsTooCostly(filename=filename, reason=found.limit_exceeded)
        return found


def _encode_schema(schema: dict[str, Any] | None) -> bytes:
    if schema is None:
        raise FieldsSchemaUnusable(reason="the rule has none")
    try:
        encoded = msgspec.json.encode(schema)
    except RecursionError as error:
        raise FieldsSchemaUnusable(reason="it is nested too deeply") from error
    if len(encoded) > MAX_SCHEMA_BYTES:
        raise FieldsSchemaUnusable(reason=f"it is longer than {MAX_SCHEMA_BYTES} bytes")
    return encoded
