"""Peak memory for a report of 1,000 pages. The reference is a report of 50: memory must not grow with the document.

A fresh runtime, warmed up by a short report, reads each. The memory of the runtime and its child processes is sampled
continuously, and the peak counts. Shared pages are counted in each process.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench import databases
from bench.comparison import ROUNDS, Finding, summary
from bench.etl_documents import write_report
from bench.etl_pipeline import in_fresh_process, open_pipeline

FEW, MANY = 50, 1000
LOOK_SECONDS = 0.01
MB = 1e6
TARGET = 1.2


@dataclass(kw_only=True)
class Peak:
    """Peak memory in megabytes: of all processes together, and by kind of process."""

    all: float = 0
    worker: float = 0
    zygotes: float = 0
    children: float = 0

    def look(self, me: psutil.Process) -> None:
        """Take a sample."""
        zygotes = [_megabytes(each) for each in me.children()]
        below = _megabytes_below(me) - sum(zygotes)
        worker = _megabytes(me)
        self.worker, self.zygotes = max(self.worker, worker), max(self.zygotes, sum(zygotes))
        self.children, self.all = max(self.children, below), max(self.all, worker + sum(zygotes) + below)


def run() -> list[Finding]:
    """Measure both in turn."""
    with databases.folder() as folder:
        few, many = (write_report(folder / f"{pages}.pdf", pages) for pages in (FEW, MANY))
        rounds = [(in_fresh_process(peak, few), in_fresh_process(peak, many)) for _ in range(ROUNDS)]
    what = f"a report of {MANY:,} pages beside one of {FEW}"
    return [
        _finding(f"peak memory of all processes, {what}", [(less.all, more.all) for less, more in rounds]),
        _finding(f"peak memory of the worker alone, {what}", [(less.worker, more.worker) for less, more in rounds]),
        _finding(f"peak memory of its zygotes, {what}", [(less.zygotes, more.zygotes) for less, more in rounds]),
        _finding(f"peak memory of their children, {what}", [(less.children, more.children) for less, more in rounds]),
    ]


def _finding(what: str, pairs: list[tuple[float, float]]) -> Finding:
    return summary(what, "MB", pairs, at_most=TARGET)


def peak(document: Path) -> Peak:
    """Peak memory while this document is read."""
    return asyncio.run(_peak(document))


async def _peak(document: Path) -> Peak:
    first = write_report(document.with_name("first.pdf"), 2)
    async with open_pipeline(profile="fast") as pipeline:
        await pipeline.read([first])
        with _watching() as seen:
            await pipeline.read([document])
        return seen


@contextmanager
def _watching() -> Iterator[Peak]:
    """Sample in a thread, so that nothing is missed while the event loop is busy."""
    seen, over, me = Peak(), threading.Event(), psutil.Process()

    def watch() -> None:
        while not over.wait(LOOK_SECONDS):
            seen.look(me)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def _megabytes_below(process: psutil.Process) -> float:
    return sum(map(_megabytes, process.children(recursive=True)))


def _megabytes(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss) / MB
    except psutil.NoSuchProcess:
        return 0.0
