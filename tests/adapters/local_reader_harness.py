"""A harness for the provider `local` with its fast models: a store, a stage context and sandboxes."""

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from penstock.adapters.disk import DiskBlobs
from penstock.adapters.local_reader import LocalReader, ReaderLimits, engine_sandbox, parser_sandbox
from penstock.documents.ocr.provider import Reading, Source
from penstock.documents.pages import Page, read_pages
from penstock.kernel.sandbox.call import Sandbox

Sandboxes = tuple[Sandbox, Sandbox]


@dataclass
class RecordingContext:
    """A stage context that records its progress."""

    folder: str = "users/7/etl_artifacts/1/1/"
    provider_task_id: str | None = None
    told: list[tuple[int, int]] = field(default_factory=list)

    async def progress(self, done: int, of: int) -> None:
        self.told.append((done, of))

    async def remember(self, provider_task_id: str) -> None:
        raise AssertionError(f"{provider_task_id} is nobody's task far away")


@dataclass
class ReaderHarness:
    """A store and a reader."""

    blobs: DiskBlobs
    parsers: Sandbox
    engine: Sandbox
    scratch: Path
    limits: ReaderLimits = field(default_factory=ReaderLimits)
    context: RecordingContext = field(default_factory=RecordingContext)

    async def read(self, content: bytes, filename: str = "paper.pdf") -> Reading:
        receipt = await self.blobs.put("users/7/raw/1/paper", content)
        reader = LocalReader(
            self.blobs,
            parsers=self.parsers,
            engine=self.engine,
            scratch=self.scratch,
            profile="fast",
            limits=self.limits,
        )
        source = Source(key=receipt.key, filename=filename, size_bytes=receipt.size_bytes)
        return await reader.read(source, self.context)

    async def pages(self, reading: Reading) -> list[Page]:
        return list(read_pages(io.BytesIO(await self.blobs.get(reading.pages_key))))

    async def markdown(self, reading: Reading) -> str:
        return (await self.blobs.get(reading.markdown_key)).decode()

    def leftovers(self) -> list[Path]:
        """Temporary files, in the scratch folder and in that of the store."""
        return [*self.scratch.glob("*"), *(self.scratch.parent / "blobs/incoming").glob("*")]

    async def keys(self) -> set[str]:
        listed = await self.blobs.list(self.context.folder)
        return {blob.key.removeprefix(self.context.folder) for blob in listed.blobs}


@asynccontextmanager
async def open_sandboxes() -> AsyncIterator[Sandboxes]:
    """The parser and OCR sandboxes, shared by a file of tests: they take seconds to load."""
    async with parser_sandbox() as parsers, engine_sandbox("fast") as engine:
        yield parsers, engine


def harness_in(folder: Path, sandboxes: Sandboxes) -> ReaderHarness:
    """An empty harness."""
    parsers, engine = sandboxes
    return ReaderHarness(blobs=DiskBlobs(folder / "blobs"), parsers=parsers, engine=engine, scratch=folder / "scratch")
