"""A harness for the provider `mineru`: a store, a stage context, a sandbox, and a reader for a fake server."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from penstock.adapters.disk import DiskBlobs
from penstock.adapters.mineru.config import MineruConfig
from penstock.adapters.mineru.reader import MineruReader
from penstock.documents.ocr.provider import Reading, Source
from penstock.documents.pages import Page, read_pages
from penstock.kernel.blobs import Blobs
from penstock.kernel.clock import Clock, SystemClock
from penstock.kernel.sandbox.call import Sandbox
from tests.fakes.mineru_server import TOKEN, MineruApi, MineruCloud

PRELOAD = ("penstock.adapters.mineru.unpack", "penstock.adapters.mineru.split", "penstock.documents.pdf", "pikepdf")
KEY = "users/7/raw/1/paper"


class HastyClock:
    """A clock on which sleeping takes no time: it advances at once."""

    def __init__(self) -> None:
        self._now = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)
        self.slept: list[float] = []

    def now(self) -> datetime:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0.001)
        self._now += timedelta(seconds=seconds)


@dataclass
class RecordingContext:
    """Stores the provider's task id and records progress."""

    folder: str = "users/7/etl_artifacts/1/1/pages/1/"
    provider_task_id: str | None = None
    told: list[tuple[int, int]] = field(default_factory=list)
    remembered: list[str] = field(default_factory=list)
    rang: asyncio.Event = field(default_factory=asyncio.Event)

    async def progress(self, done: int, of: int) -> None:
        self.told.append((done, of))
        self.rang.set()

    async def until_told(self, *, more: int) -> None:
        """Wait for so many more progress updates."""
        enough = len(self.told) + more
        while len(self.told) < enough:
            self.rang.clear()
            await self.rang.wait()

    async def remember(self, provider_task_id: str) -> None:
        self.provider_task_id = provider_task_id
        self.remembered.append(provider_task_id)


@dataclass
class ReaderHarness:
    """A store and a stage context, and readers that use them."""

    blobs: Blobs
    sandbox: Sandbox
    scratch: Path
    context: RecordingContext = field(default_factory=RecordingContext)
    clock: Clock = field(default_factory=SystemClock)

    @asynccontextmanager
    async def reader(self, server: MineruCloud | MineruApi, **terms: Any) -> AsyncIterator[MineruReader]:
        usual = {"endpoint": server.endpoint, "api_key": TOKEN, "poll_interval": 0.01, "timeout": 30.0}
        reader = MineruReader(
            self.blobs,
            sandbox=self.sandbox,
            scratch=self.scratch,
            clock=self.clock,
            config=MineruConfig(**{**usual, **terms}),
        )
        try:
            yield reader
        finally:
            await reader.close()

    async def read(
        self, server: MineruCloud | MineruApi, content: bytes, filename: str = "paper.pdf", **terms: Any
    ) -> Reading:
        receipt = await self.blobs.put(KEY, content)
        source = Source(key=KEY, filename=filename, size_bytes=receipt.size_bytes)
        async with self.reader(server, **terms) as reader:
            return await reader.read(source, self.context)

    async def pages(self, reading: Reading) -> list[Page]:
        return list(read_pages(io.BytesIO(await self.blobs.get(reading.pages_key))))

    async def markdown(self, reading: Reading) -> str:
        return (await self.blobs.get(reading.markdown_key)).decode()

    async def kept(self) -> set[str]:
        listed = await self.blobs.list(self.context.folder)
        return {blob.key.removeprefix(self.context.folder) for blob in listed.blobs}

    def left_over(self) -> list[Path]:
        """Scratch files, of which none should be left."""
        return list(self.scratch.iterdir()) if self.scratch.exists() else []


def harness_in(folder: Path, sandbox: Sandbox) -> ReaderHarness:
    """An empty harness."""
    return ReaderHarness(blobs=DiskBlobs(folder / "blobs"), sandbox=sandbox, scratch=folder / "scratch")
