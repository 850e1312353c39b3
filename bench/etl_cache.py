"""A cached scan, submitted again under other names. The reference is reading it for the first time.

The runtime uses SQLite and local disk, with the real reader, warmed up by another scan. Time runs from submission to
result, from the timestamps of the rows, one document after another. CPU time is that of all processes while the same
number of documents is submitted at once; it includes the idle cost of a runtime.
"""

import asyncio
import statistics
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench import databases
from bench.comparison import ROUNDS, Finding, summary
from bench.etl_documents import write_scan
from bench.etl_pipeline import CALLER, PROJECT, EtlPipeline, cpu_seconds, in_fresh_process, working
from penstock.documents.ocr.provider import OCRProvider, Reading, Source, StageContext
from penstock.etl import artifacts
from penstock.etl.api import actions
from penstock.etl.domain import EtlTask
from penstock.etl.module import etl_module
from penstock.etl.submit import NewTask
from penstock.kernel.json_object import JsonObject
from penstock.settings import EtlSettings, Settings
from penstock.wiring import open_runtime

PAGES = 5
AGAIN = 10
MIN_GAIN = 20


class CountedReader:
    """A reader that counts its calls."""

    def __init__(self, reader: OCRProvider) -> None:
        self._reader = reader
        self.name = reader.name
        self.calls = 0

    @property
    def identity(self) -> JsonObject:
        """The identity of the wrapped reader."""
        return self._reader.identity

    async def read(self, source: Source, context: StageContext) -> Reading:
        """Count the call and read."""
        self.calls += 1
        return await self._reader.read(source, context)


@dataclass(frozen=True, kw_only=True)
class CacheTimes:
    """Wall and CPU seconds of a document: the first time, and as a cache hit."""

    first: tuple[float, float]
    again: tuple[float, float]
    calls: int  # of the reader, after the first document


def run() -> list[Finding]:
    """A fresh runtime in each round."""
    with databases.folder() as folder:
        scan, other = write_scan(folder / "scan.pdf", PAGES), write_scan(folder / "other.pdf", 1)
        rounds = [in_fresh_process(measure, scan, other) for _ in range(ROUNDS)]
    what = f"a scan of {PAGES} pages, fast, that is known beside the first time"
    calls = sum(one.calls for one in rounds)
    clock, processors = ([(1 / one.first[at], 1 / one.again[at]) for one in rounds] for at in (0, 1))
    return [
        summary(f"{what}, by the clock", "documents/s", clock, at_least=MIN_GAIN).noted(reader_calls=calls),
        summary(f"{what}, by CPU", "documents/CPU s", processors, at_least=MIN_GAIN).noted(reader_calls=calls),
    ]


def measure(scan: Path, other: Path) -> CacheTimes:
    """One round."""
    return asyncio.run(_measure(scan, other))


async def _measure(scan: Path, other: Path) -> CacheTimes:
    async with _open_works() as (pipeline, reader):
        await _read(pipeline, other, ["warm.pdf"])
        before = cpu_seconds()
        first = await _read(pipeline, scan, ["first.pdf"]), cpu_seconds() - before
        calls = reader.calls
        seconds = await _read(pipeline, scan, [f"again-{number}.pdf" for number in range(AGAIN)])
        before = cpu_seconds()
        sent = [await _send(pipeline, scan, f"at-once-{number}.pdf") for number in range(AGAIN)]
        for task in sent:
            await pipeline.ended(task)
        again = seconds, (cpu_seconds() - before) / AGAIN
        return CacheTimes(first=first, again=again, calls=reader.calls - calls)


@asynccontextmanager
async def _open_works() -> AsyncIterator[tuple[EtlPipeline, CountedReader]]:
    with databases.folder() as folder:
        settings = Settings(data_dir=folder, log_level="WARNING", etl=EtlSettings(ocr_profile="fast", worker_count=1))
        async with open_runtime(settings) as runtime:
            reader = CountedReader(runtime.modules.etl.provider)
            modules = runtime.modules.replacing(etl_module(replace(runtime.modules.etl, provider=reader)))
            counted = replace(runtime, modules=modules)
            async with working(counted):
                yield EtlPipeline(runtime=counted), reader


async def _read(pipeline: EtlPipeline, document: Path, names: Sequence[str]) -> float:
    """Median seconds per document, one after another."""
    done = [await pipeline.ended(await _send(pipeline, document, name)) for name in names]
    return statistics.median((task.updated_at - task.created_at).total_seconds() for task in done)


async def _send(pipeline: EtlPipeline, document: Path, name: str) -> EtlTask:
    await pipeline.runtime.blobs.put(artifacts.raw_key(CALLER.user_id, PROJECT, name), document.read_bytes())
    return await actions.submit_task(pipeline.runtime.modules.etl, CALLER, NewTask(project_id=PROJECT, filename=name))
