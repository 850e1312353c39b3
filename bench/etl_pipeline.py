"""A runtime that processes documents in its own process, and the CPU time of all of its processes.

Measured is a worker after its first documents: started, with warm zygotes. Its CPU time is that of the whole process
tree: the worker, its zygotes, and their reaped children.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

import psutil

from bench import databases
from penstock.access.domain import Caller, Scope
from penstock.documents.ocr.provider import Source
from penstock.etl import artifacts
from penstock.etl.api import actions
from penstock.etl.domain import EtlTask, Status
from penstock.etl.store import tasks
from penstock.etl.submit import NewTask
from penstock.etl.worker import MODULE
from penstock.kernel.events import CHANNEL
from penstock.kernel.processes import ProcessKind
from penstock.settings import EtlSettings, Settings
from penstock.wiring import Runtime, open_runtime

P = ParamSpec("P")
T = TypeVar("T")

CALLER = Caller(name="bench", user_id=5, scope=Scope.WRITE, key_id="k-bench")
PROJECT = 1
POLL_SECONDS = 0.5  # if other processes do the work
NOTIFIED_SECONDS = 5.0  # if the notifier wakes us: polling costs CPU time that would be counted


def in_fresh_process(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Call a function in a fresh process."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments, **named).result()


def cpu_seconds(pid: int | None = None) -> float:
    """CPU seconds of a process (this one by default) and its descendants, including reaped ones."""
    top = psutil.Process(pid)
    spent = [each.cpu_times() for each in (top, *top.children(recursive=True))]
    return float(sum(each.user + each.system + each.children_user + each.children_system for each in spent))


@dataclass(frozen=True, kw_only=True)
class EtlPipeline:
    """A runtime to send documents to."""

    runtime: Runtime
    poll_seconds: float = POLL_SECONDS

    async def read(self, documents: Sequence[Path]) -> list[EtlTask]:
        """Submit documents, and wait until all have passed both stages."""
        sent = [await self.send(document, str(number)) for number, document in enumerate(documents)]
        return [await self.ended(task) for task in sent]

    async def send(self, document: Path, folder: str = "0") -> EtlTask:
        """Store a document and submit it."""
        name = f"{folder}/{document.name}"
        await self.runtime.blobs.put(artifacts.raw_key(CALLER.user_id, PROJECT, name), document.read_bytes())
        return await actions.submit_task(
            self.runtime.modules.etl, CALLER, NewTask(project_id=PROJECT, filename=name, force=True)
        )

    async def ended(self, task: EtlTask) -> EtlTask:
        """Wait until a task is completed."""
        listener = self.runtime.db.wakeups.listen([CHANNEL])
        try:
            while not (row := await self._row(task)).is_final:
                await listener.wait(seconds=self.poll_seconds)
        finally:
            self.runtime.db.wakeups.unlisten(listener)
        assert row.status is Status.COMPLETED, row.error
        return row

    async def _row(self, task: EtlTask) -> EtlTask:
        async with self.runtime.db.read() as tx:
            row = await tasks.find_task(tx, task.id)
        assert row is not None
        return row

    async def markdown(self, task: EtlTask) -> str:
        """The markdown of a task."""
        return (await self.runtime.blobs.get(artifacts.markdown_key(task))).decode()


@asynccontextmanager
async def open_pipeline(*, profile: str) -> AsyncIterator[EtlPipeline]:
    """A runtime on SQLite and local disk, with one etl worker slot."""
    with databases.folder() as folder:
        settings = Settings(data_dir=folder, log_level="WARNING", etl=EtlSettings(ocr_profile=profile, worker_count=1))
        async with open_runtime(settings) as runtime, working(runtime):
            yield EtlPipeline(runtime=runtime, poll_seconds=NOTIFIED_SECONDS)


@asynccontextmanager
async def working(runtime: Runtime) -> AsyncIterator[None]:
    """Run what `penstock work --modules etl` runs."""
    async with asyncio.TaskGroup() as parts:
        running = [
            parts.create_task(runtime.run_background(kind=ProcessKind.WORK, modules=[MODULE])),
            parts.create_task(runtime.work([MODULE])),
        ]
        yield
        for part in running:
            part.cancel()


@dataclass(frozen=True, kw_only=True)
class SilentContext:
    """A stage context for warming up a reader; it ignores progress."""

    folder: str
    provider_task_id: str | None = None

    async def progress(self, done: int, of: int) -> None:
        """Ignore it."""

    async def remember(self, provider_task_id: str) -> None:
        """Ignore it."""


async def warm_up(runtime: Runtime, document: Path, folder: str) -> None:
    """Read a document with this process's reader, so that its models are loaded."""
    key = f"{folder}{document.name}"
    content = document.read_bytes()
    await runtime.blobs.put(key, content)
    source = Source(key=key, filename=document.name, size_bytes=len(content))
    await runtime.modules.etl.provider.read(source, SilentContext(folder=folder))
