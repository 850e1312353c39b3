"""Workers of the etl module that halt at given points, so that a storm can kill, freeze or resume them there.

Each worker is a process with its own runtime, as `penstock work` opens it, and the real reader; only the OCR engine
and the post-processor are the storm's. They write a line into a journal for every page that is read and every result
that is made: whatever is done twice is found out, whichever process did it. Documents are told apart by their length.
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image

from penstock.adapters.local_reader import LocalReader, ReaderLimits, parser_sandbox
from penstock.documents.ocr.engine import RecognizedPage
from penstock.documents.ocr.provider import Reading, StageContext
from penstock.documents.pages import Page
from penstock.documents.postprocessor import ExtractionResult, ExtractionRule
from penstock.etl import worker
from penstock.etl.deps import Deps
from penstock.etl.domain import Mode, Phase
from penstock.etl.lifecycle import KINDS
from penstock.kernel.processes import ProcessKind
from penstock.kernel.queue import Job
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.sandbox.limits import SandboxLimits
from penstock.kernel.sandbox.session import SandboxSession
from penstock.kernel.workers import JobHandler, Settle
from penstock.settings import Settings
from penstock.wiring import Runtime, open_runtime
from tests.fakes.blocking_handler import wait_until

STAY_SECONDS = 600  # longer than any storm
SLOTS = 8  # every document of a storm stands at its own point


def at_page(number: int, *, of: int) -> str:
    """Where this page of a document is being read."""
    return f"page {number} of {of}"


def begun(phase: Phase, task_id: int) -> str:
    """Where a stage has been taken up, and nothing of it is done."""
    return f"{phase} of {task_id} begins"


def unsettled(phase: Phase, task_id: int) -> str:
    """Where all of a stage is done, and nobody knows yet."""
    return f"{phase} of {task_id} is not settled"


def shaping(pages: int) -> str:
    """Where a result is being made of a document of so many pages."""
    return f"shaping {pages} pages"


def write_scan(path: Path, pages: int) -> None:
    """An image file of small blank pages."""
    first, *rest = (Image.new("L", (60, 80), 200) for _ in range(pages))
    first.save(path, save_all=True, append_images=rest)


@dataclass(frozen=True, kw_only=True)
class Stops:
    """Where a worker stops: at each of these points, until the file `go` is there. All of a storm share the folder."""

    folder: Path
    points: frozenset[str] = frozenset()

    def write(self, line: str) -> None:
        """A line of the journal, written atomically."""
        journal = os.open(self.folder / "journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(journal, f"{line}\n".encode())
        os.close(journal)

    async def reach(self, point: str) -> None:
        """Go past a point, or stay there."""
        if point not in self.points:
            return
        (self.folder / f"{point}.stopped").touch()
        await wait_until((self.folder / "go").exists, seconds=STAY_SECONDS, every_seconds=0.02)

    def all_reached(self) -> bool:
        """Whether the worker stands at every one of its points."""
        return all((self.folder / f"{point}.stopped").exists() for point in self.points)

    def forget(self) -> None:
        """Take it that nobody stands anywhere: those who did are dead."""
        for point in self.points:
            (self.folder / f"{point}.stopped").unlink()

    def let_go(self) -> None:
        """Let the worker go on."""
        (self.folder / "go").touch()

    def journal(self) -> Counter[str]:
        """How often each line was written, by whomever."""
        path = self.folder / "journal"
        return Counter(path.read_text().splitlines() if path.exists() else ())


class JournalEngine(Sandbox):
    """An OCR engine that sees nothing, and writes down which page it was shown."""

    def __init__(self, stops: Stops) -> None:
        super().__init__()
        self._stops = stops

    def session(self, file: Path) -> SandboxSession:
        """For one document."""
        return JournalSession(file, self._stops)


class JournalSession(SandboxSession):
    """A session without a child process."""

    def __init__(self, file: Path, stops: Stops) -> None:
        self.file = file
        self._stops = stops

    async def close(self) -> None:
        """Nothing to close."""

    async def run(self, function: Callable[..., Any], *arguments: object, limits: SandboxLimits) -> Any:
        """A page with its number on it."""
        number, total = arguments[0], getattr(Image.open(self.file), "n_frames", 1)
        assert isinstance(number, int)
        self._stops.write(at_page(number, of=total))
        await self._stops.reach(at_page(number, of=total))
        page = Page(number=number, origin="ocr", markdown=f"This is page {number}.", width=60, height=80)
        return RecognizedPage(page=page)


class JournalPostProcessor:
    """A post-processor that writes down that it was asked."""

    def __init__(self, stops: Stops) -> None:
        self._stops = stops

    def identity(self, rule: ExtractionRule) -> None:
        """Each result is to be made."""

    async def extract(
        self, filename: str, reading: Reading, rule: ExtractionRule, context: StageContext
    ) -> ExtractionResult:
        """How many pages there are."""
        self._stops.write(shaping(reading.page_count))
        await self._stops.reach(shaping(reading.page_count))
        return ExtractionResult(value={"pages": reading.page_count}, strategy="journal")


def work(settings: Settings, stops: Stops, log: str) -> None:
    """A worker process: until it is killed."""
    logging.basicConfig(filename=log, level=logging.INFO, force=True)
    asyncio.run(_work(settings, stops))


async def _work(settings: Settings, stops: Stops) -> None:
    async with open_runtime(settings) as runtime, parser_sandbox() as parsers, asyncio.TaskGroup() as tasks:
        post_processors = dict.fromkeys(Mode, JournalPostProcessor(stops))
        tools = replace(runtime.modules.etl, provider=_reader(runtime, parsers, stops), post_processors=post_processors)
        tasks.create_task(runtime.run_background(kind=ProcessKind.WORK, modules=[worker.MODULE]))
        tasks.create_task(runtime.workers(_handlers(tools, stops), [worker.MODULE], slots=SLOTS).run())


def _reader(runtime: Runtime, parsers: Sandbox, stops: Stops) -> LocalReader:
    return LocalReader(
        runtime.blobs,
        parsers=parsers,
        engine=JournalEngine(stops),
        scratch=runtime.modules.etl.scratch,
        profile="accurate",
        limits=ReaderLimits(),
    )


def _handlers(tools: Deps, stops: Stops) -> dict[str, JobHandler]:
    """The module's own, with a stop before and after each stage."""
    handlers = worker.handlers(tools)
    return {kind: _stopping(handlers[kind], phase, stops) for phase, kind in KINDS.items()}


def _stopping(handler: JobHandler, phase: Phase, stops: Stops) -> JobHandler:
    async def stage(job: Job) -> Settle | None:
        await stops.reach(begun(phase, job.payload["task_id"]))
        settle = await handler(job)
        await stops.reach(unsettled(phase, job.payload["task_id"]))
        return settle

    return stage
