"""Check answers in the sandbox: validate them against the schema and ground their values in the document.

An answer that cannot be checked within limits has a problem, which the model is told. Only a timeout, which may be due
to a busy host, is not the answer's fault.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

import msgspec

from penstock.documents.blob_files import temporary_file
from penstock.documents.errors import DocumentTookTooLong
from penstock.documents.extract.llm.responses import ParsedResponse, ResponseProblem, parse_response
from penstock.documents.grounding import Grounded, ground_value
from penstock.kernel.errors import Invalid
from penstock.kernel.json_object import JsonObject
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.sandbox.errors import SandboxTimedOut
from penstock.kernel.sandbox.limits import SandboxLimits

GroundFunction: TypeAlias = Callable[[BinaryIO, bool, bytes], Grounded]

PRELOAD = (__name__, parse_response.__module__, ground_value.__module__)  # modules the sandbox should import up front
READING = SandboxLimits(memory_bytes=512 * 1024 * 1024, cpu_seconds=20, seconds=120.0, result_bytes=16 * 1024 * 1024)
GROUNDING = SandboxLimits(memory_bytes=512 * 1024 * 1024, cpu_seconds=120, seconds=300.0, result_bytes=32 * 1024 * 1024)


def ground_result(file: BinaryIO, null_ungrounded: bool, schema_json: bytes) -> Grounded:
    """Ground the values of a result in pages. The first line of the file is the result, which may be large."""
    return ground_value(file, file.readline(), null_ungrounded, schema_json)


@dataclass(frozen=True, kw_only=True)
class AnswerChecker:
    """Checks answers in a sandbox."""

    sandbox: Sandbox
    scratch: Path
    ground: GroundFunction = ground_result

    async def validate(self, filename: str, answer: str, schema_json: bytes) -> ParsedResponse:
        """Validate an answer."""
        async with self._scratch_file(answer.encode(errors="replace")) as path:
            try:
                return await self.sandbox.run(parse_response, schema_json, file=path, limits=READING)
            except SandboxTimedOut as error:
                raise DocumentTookTooLong(filename=filename, reason=str(error).rstrip(".")) from error
            except Invalid as error:  # it hung, crashed, or exceeded a limit
                return ParsedResponse(problems=(ResponseProblem("", f"the answer cannot be checked: {error}"),))

    async def find(
        self, filename: str, value: JsonObject, pages: Path, schema_json: bytes, *, null_ungrounded: bool
    ) -> Grounded:
        """Ground each value in the document. `limit_exceeded` is set if the result is too large for that."""
        async with self._scratch_file(msgspec.json.encode(value) + b"\n", pages) as path:
            try:
                return await self.sandbox.run(self.ground, null_ungrounded, schema_json, file=path, limits=GROUNDING)
            except SandboxTimedOut as error:
                raise DocumentTookTooLong(filename=filename, reason=str(error).rstrip(".")) from error
            except Invalid as error:
                return Grounded(value=value, limit_exceeded=str(error).rstrip("."))

    @asynccontextmanager
    async def _scratch_file(self, content: bytes, then: Path | None = None) -> AsyncIterator[Path]:
        """A temporary file with this content, followed by that of another file."""
        async with temporary_file(self.scratch) as path:
            await asyncio.to_thread(_write, path, content, then)
            yield path


def _write(path: Path, content: bytes, then: Path | None) -> None:
    with path.open("wb") as file:
        file.write(content)
        if then is not None:
            with then.open("rb") as more:
                shutil.copyfileobj(more, file)
