"""Post-processors without a model: `skip` returns a reference to the markdown, `fields` fills a schema by labels."""

from pathlib import Path
from typing import Any

import msgspec

from penstock.documents.blob_files import local_copy
from penstock.documents.errors import DocumentTookTooLong
from penstock.documents.extract.errors import FieldsSchemaUnusable, FieldsTooCostly
from penstock.documents.extract.fields.find import FieldsResult, find_fields
from penstock.documents.ocr.provider import Desk, Reading
from penstock.documents.postprocessor import ExtractionResult, ExtractionRule
from penstock.documents.sandbox_errors import OVER_LIMIT
from penstock.kernel.blobs import Blobs
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.sandbox.errors import SandboxTimedOut
from penstock.kernel.sandbox.limits import SandboxLimits

MAX_SCHEMA_BYTES = 100_000  # a sandboxed call takes 128 KiB of arguments
USUAL_BOUNDS = SandboxLimits(
    memory_bytes=512 * 1024 * 1024, cpu_seconds=120, seconds=300.0, result_bytes=32 * 1024 * 1024
)


class SkipShaper:
    """Returns the markdown key and the metadata of the reading; reads nothing."""

    def identity(self, rule: ExtractionRule) -> None:
        """Not cached: the result names the task's own artifacts."""

    async def shape(self, filename: str, reading: Reading, rule: ExtractionRule, desk: Desk) -> ExtractionResult:  # noqa: ARG002  (the Protocol's signature)
        """The stable wrapper around the markdown that callers of `skip` rely on."""
        await desk.progress(1, 1)
        value = {
            "markdown_s3_key": reading.markdown_key,
            "provider_task_id": reading.provider_task_id,
            "metadata": reading.metadata,
            "filename": filename,
            "page_count": reading.page_count,
        }
        return ExtractionResult(value=value, strategy="skip")


class FieldsShaper:
    """Fills the rule's schema from the labels, lines and tables of the pages."""

    def __init__(self, blobs: Blobs, sandbox: Sandbox, scratch: Path, limits: SandboxLimits = USUAL_BOUNDS) -> None:
        self._blobs = blobs
        self._sandbox = sandbox
        self._scratch = scratch
        self._limits = limits

    def identity(self, rule: ExtractionRule) -> None:
        """Not cached: finding labels is as fast as copying a cached result."""

    async def shape(self, filename: str, reading: Reading, rule: ExtractionRule, desk: Desk) -> ExtractionResult:
        """A result with all properties of the schema, null where the document has no value."""
        schema = _written(rule.json_schema)
        await desk.progress(0, 1)
        async with local_copy(self._blobs, reading.pages_key, self._scratch) as pages:
            found = await self._find(filename, pages, schema)
        await desk.progress(1, 1)
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


def _written(schema: dict[str, Any] | None) -> bytes:
    if schema is None:
        raise FieldsSchemaUnusable(reason="the rule has none")
    try:
        written = msgspec.json.encode(schema)
    except RecursionError as error:
        raise FieldsSchemaUnusable(reason="it is nested too deeply") from error
    if len(written) > MAX_SCHEMA_BYTES:
        raise FieldsSchemaUnusable(reason=f"it is longer than {MAX_SCHEMA_BYTES} bytes")
    return written
