"""A scan that was read before comes again under other names: what that costs beside the first time.

A house on SQLite and a folder, with the real reader, warm from another scan. Time runs from the submission to the
result, as the rows have both, one document after another; CPU is that of all processes while the same number of
documents is sent at once, and in it is what a house does every second anyway.
"""

import asyncio
import statistics
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench import databases
from bench.etl_documents import write_scan
from bench.etl_works import CALLER, PROJECT, Works, alone, cpu_seconds, working
from bench.rounds import ROUNDS, Finding, summary
from penstock.documents.ocr.provider import Desk, OCRProvider, Reading, Source
from penstock.etl import papers
from penstock.etl.domain import EtlTask
from penstock.etl.submit import NewTask, submit
from penstock.kernel.json_object import JsonObject
from penstock.settings import EtlSettings, Settings
from penstock.wiring import open_runtime

PAGES = 5
AGAIN = 10
LEAST_GAIN = 20


class CountedReader:
    """A reader, and how often it was asked."""

    def __init__(self, reader: OCRProvider) -> None:
        self._reader = reader
        self.name = reader.name
        self.calls = 0

    @property
    def identity(self) -> JsonObject:
        """The reader's own."""
        return self._reader.identity

    async def read(self, source: Source, desk: Desk) -> Reading:
        """Read as the reader does."""
        self.calls += 1
        return await self._reader.read(source, desk)


@dataclass(frozen=True, kw_only=True)
class Course:
    """What the document cost by the clock and by the processors: the first time, and when it was known."""

    first: tuple[float, float]
    again: tuple[float, float]
    calls: int  # of the reader, after the first time


def run() -> list[Finding]:
    """A fresh house each time."""
    with databases.folder() as folder:
        scan, other = write_scan(folder / "scan.pdf", PAGES), write_scan(folder / "other.pdf", 1)
        rounds = [alone(course, scan, other) for _ in range(ROUNDS)]
    what = f"a scan of {PAGES} pages, fast, that is known beside the first time"
    calls = sum(one.calls for one in rounds)
    clock, processors = ([(1 / one.first[at], 1 / one.again[at]) for one in rounds] for at in (0, 1))
    return [
        summary(f"{what}, by the clock", "documents/s", clock, at_least=LEAST_GAIN).noted(reader_calls=calls),
        summary(f"{what}, by CPU", "documents/CPU s", processors, at_least=LEAST_GAIN).noted(reader_calls=calls),
    ]


def course(scan: Path, other: Path) -> Course:
    """One house."""
    return asyncio.run(_course(scan, other))


async def _course(scan: Path, other: Path) -> Course:
    async with _open_works() as (works, reader):
        await _read(works, other, ["warm.pdf"])
        before = cpu_seconds()
        first = await _read(works, scan, ["first.pdf"]), cpu_seconds() - before
        calls = reader.calls
        seconds = await _read(works, scan, [f"again-{number}.pdf" for number in range(AGAIN)])
        before = cpu_seconds()
        sent = [await _send(works, scan, f"at-once-{number}.pdf") for number in range(AGAIN)]
        for task in sent:
            await works.ended(task)
        again = seconds, (cpu_seconds() - before) / AGAIN
        return Course(first=first, again=again, calls=reader.calls - calls)


@asynccontextmanager
async def _open_works() -> AsyncIterator[tuple[Works, CountedReader]]:
    with databases.folder() as folder:
        settings = Settings(data_dir=folder, log_level="WARNING", etl=EtlSettings(ocr_profile="fast", worker_count=1))
        async with open_runtime(settings) as house:
            reader = CountedReader(house.modules.etl.provider)
            modules = replace(house.modules, etl=replace(house.modules.etl, provider=reader))
            counted = replace(house, modules=modules)
            async with working(counted):
                yield Works(house=counted), reader


async def _read(works: Works, document: Path, names: Sequence[str]) -> float:
    """The median of the seconds that these take, one after another."""
    done = [await works.ended(await _send(works, document, name)) for name in names]
    return statistics.median((task.updated_at - task.created_at).total_seconds() for task in done)


async def _send(works: Works, document: Path, name: str) -> EtlTask:
    await works.house.blobs.put(papers.raw_key(CALLER.user_id, PROJECT, name), document.read_bytes())
    return await submit(works.house.modules.etl, CALLER, NewTask(project_id=PROJECT, filename=name))
