"""A house that reads documents, in a process of its own, and what all of its processes cost.

What is measured is a worker as it is after its first documents: started, with its zygotes warm. Its CPU is that of the
whole tree: itself, its zygotes, and the children that these have buried.
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
from penstock.etl import papers
from penstock.etl.domain import EtlTask, Status
from penstock.etl.store import tasks
from penstock.etl.submit import NewTask, submit
from penstock.etl.worker import MODULE
from penstock.kernel.events import CHANNEL
from penstock.kernel.processes import ProcessKind
from penstock.settings import EtlSettings, Settings
from penstock.wiring import Runtime, open_runtime

P = ParamSpec("P")
T = TypeVar("T")

CALLER = Caller(name="bench", user_id=5, scope=Scope.WRITE, key_id="k-bench")
PROJECT = 1
LOOK_SECONDS = 0.5  # where work is done by other processes
RUNG_SECONDS = 5.0  # where a bell tells: looking costs too, and is ours


def alone(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What a function returns in a fresh process."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments, **named).result()


def cpu_seconds(pid: int | None = None) -> float:
    """What a process, or this one, and all below it have used so far, the dead ones included."""
    top = psutil.Process(pid)
    spent = [each.cpu_times() for each in (top, *top.children(recursive=True))]
    return float(sum(each.user + each.system + each.children_user + each.children_system for each in spent))


@dataclass(frozen=True, kw_only=True)
class Works:
    """A house to send documents to."""

    house: Runtime
    look_seconds: float = LOOK_SECONDS

    async def read(self, documents: Sequence[Path]) -> list[EtlTask]:
        """Submit documents, and wait until all are through both stages."""
        sent = [await self.send(document, str(number)) for number, document in enumerate(documents)]
        return [await self.ended(task) for task in sent]

    async def send(self, document: Path, folder: str = "0") -> EtlTask:
        """Store a document and submit it."""
        name = f"{folder}/{document.name}"
        await self.house.blobs.put(papers.raw_key(CALLER.user_id, PROJECT, name), document.read_bytes())
        return await submit(self.house.modules.etl, CALLER, NewTask(project_id=PROJECT, filename=name, force=True))

    async def ended(self, task: EtlTask) -> EtlTask:
        """The task when it is over, which must be a success."""
        ear = self.house.db.wakeups.listen([CHANNEL])
        try:
            while not (row := await self._row(task)).is_final:
                await ear.wait(seconds=self.look_seconds)
        finally:
            self.house.db.wakeups.unlisten(ear)
        assert row.status is Status.COMPLETED, row.error
        return row

    async def _row(self, task: EtlTask) -> EtlTask:
        async with self.house.db.read() as tx:
            row = await tasks.find_task(tx, task.id)
        assert row is not None
        return row

    async def markdown(self, task: EtlTask) -> str:
        """What was read."""
        return (await self.house.blobs.get(papers.markdown_key(task))).decode()


@asynccontextmanager
async def open_works(*, profile: str) -> AsyncIterator[Works]:
    """A house on SQLite and a folder, with one slot for documents."""
    with databases.folder() as folder:
        settings = Settings(data_dir=folder, log_level="WARNING", etl=EtlSettings(ocr_profile=profile, worker_count=1))
        async with open_runtime(settings) as house, working(house):
            yield Works(house=house, look_seconds=RUNG_SECONDS)


@asynccontextmanager
async def working(house: Runtime) -> AsyncIterator[None]:
    """The house does what `penstock work --modules etl` does."""
    async with asyncio.TaskGroup() as parts:
        running = [
            parts.create_task(house.run_background(kind=ProcessKind.WORK, modules=[MODULE])),
            parts.create_task(house.work([MODULE])),
        ]
        yield
        for part in running:
            part.cancel()


@dataclass(frozen=True, kw_only=True)
class Aside:
    """A desk at which a reader warms up: nobody is told anything."""

    folder: str
    provider_task_id: str | None = None

    async def progress(self, done: int, of: int) -> None:
        """Nobody wants to know."""

    async def remember(self, provider_task_id: str) -> None:
        """Nothing is remembered."""


async def warm_up(house: Runtime, document: Path, folder: str) -> None:
    """Let the reader of this process read a document, so that what it needs is loaded."""
    key = f"{folder}{document.name}"
    content = document.read_bytes()
    await house.blobs.put(key, content)
    source = Source(key=key, filename=document.name, size_bytes=len(content))
    await house.modules.etl.provider.read(source, Aside(folder=folder))
