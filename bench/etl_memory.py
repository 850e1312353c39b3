"""Memory of a worker over a report of a thousand pages, beside one of fifty: it should not grow with the document.

Both are read by a fresh house that has read a short report already. What it and the processes below it hold is looked
at all the time, and the most of it counts. Pages that processes share are counted in each.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench import databases
from bench.etl_documents import write_report
from bench.etl_works import alone, open_works
from bench.rounds import ROUNDS, Finding, summary

FEW, MANY = 50, 1000
LOOK_SECONDS = 0.01
MB = 1e6
TARGET = 1.2


@dataclass(kw_only=True)
class Peak:
    """The most that was held at a time, in megabytes: by all together, and by each kind of process."""

    all: float = 0
    worker: float = 0
    zygotes: float = 0
    children: float = 0

    def look(self, me: psutil.Process) -> None:
        """Look once."""
        zygotes = [_megabytes(each) for each in me.children()]
        below = _megabytes_below(me) - sum(zygotes)
        worker = _megabytes(me)
        self.worker, self.zygotes = max(self.worker, worker), max(self.zygotes, sum(zygotes))
        self.children, self.all = max(self.children, below), max(self.all, worker + sum(zygotes) + below)


def run() -> list[Finding]:
    """Both in turn."""
    with databases.folder() as folder:
        few, many = (write_report(folder / f"{pages}.pdf", pages) for pages in (FEW, MANY))
        rounds = [(alone(peak, few), alone(peak, many)) for _ in range(ROUNDS)]
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
    """The most memory while this document is read."""
    return asyncio.run(_peak(document))


async def _peak(document: Path) -> Peak:
    first = write_report(document.with_name("first.pdf"), 2)
    async with open_works(profile="fast") as works:
        await works.read([first])
        with _watching() as seen:
            await works.read([document])
        return seen


@contextmanager
def _watching() -> Iterator[Peak]:
    """Look from a thread of its own, so that nothing is missed while the loop is busy."""
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
