"""Scans by two worker processes. The reference is one: pages per second by wall time, and the CPU cost of a page.

If other processes use the cores too, wall time says little; equal CPU cost per page shows that the workers do not slow
each other down. The processes are warm: each has read a page before. They claim tasks from PostgreSQL and share one
blob folder, with one slot each and the fast models.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Semaphore
from pathlib import Path

from bench import databases
from bench.comparison import ROUNDS, Finding, summary
from bench.etl_documents import write_scan
from bench.etl_pipeline import EtlPipeline, cpu_seconds, warm_up
from penstock.cli.signals import run_until_signal
from penstock.etl.worker import MODULE
from penstock.kernel.processes import ProcessKind
from penstock.settings import EtlSettings, Settings
from penstock.wiring import open_runtime

TASKS, PAGES = 8, 2
MIN_GAIN = 1.7
READY_SECONDS = 120
STOP_SECONDS = 30


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How quickly pages went, and what one cost all workers together."""

    pages_per_second: float
    cpu_seconds_per_page: float


def run() -> list[Finding]:
    """One worker, then a second beside it, three times over."""
    with databases.postgres() as server, databases.folder() as folder:
        asyncio.run(databases.new_database(server, "etl"))
        settings = Settings(
            data_dir=folder,
            database_url=server.url("etl"),
            log_level="WARNING",
            etl=EtlSettings(ocr_profile="fast", worker_count=1),
        )
        scan, first = write_scan(folder / "scan.pdf", PAGES), write_scan(folder / "first.pdf", 1)
        rounds = [asyncio.run(_round(settings, scan, first)) for _ in range(ROUNDS)]
    what = f"{TASKS} scans of {PAGES} pages by two worker processes beside one"
    rates = [(one.pages_per_second, two.pages_per_second) for one, two in rounds]
    costs = [(one.cpu_seconds_per_page, two.cpu_seconds_per_page) for one, two in rounds]
    return [
        summary(what, "pages/s", rates, at_least=MIN_GAIN),
        summary(f"CPU of {what}", "CPU s/page", costs, at_most=2 / MIN_GAIN),
    ]


async def _round(settings: Settings, scan: Path, first: Path) -> tuple[Pace, Pace]:
    async with AsyncExitStack() as closing:
        pipeline = EtlPipeline(runtime=await closing.enter_async_context(open_runtime(settings)))
        workers, paces = [], []
        for _ in range(2):
            workers.append(await _start(settings, first))
            closing.push_async_callback(asyncio.to_thread, _stop, workers[-1])
            paces.append(await _pace(pipeline, scan, workers))
    return paces[0], paces[1]


async def _pace(pipeline: EtlPipeline, scan: Path, workers: Sequence[SpawnProcess]) -> Pace:
    before, began = _cpu_seconds(workers), time.perf_counter()
    sent = [await pipeline.send(scan, str(number)) for number in range(TASKS)]
    for task in sent:
        await pipeline.ended(task)
    seconds, pages = time.perf_counter() - began, TASKS * PAGES
    spent = _cpu_seconds(workers) - before
    return Pace(pages_per_second=pages / seconds, cpu_seconds_per_page=spent / pages)


def _cpu_seconds(workers: Sequence[SpawnProcess]) -> float:
    return sum(cpu_seconds(worker.pid) for worker in workers)


async def _start(settings: Settings, first: Path) -> SpawnProcess:
    """A worker that is ready."""
    context = get_context("spawn")
    ready = context.Semaphore(0)
    worker = context.Process(target=work, args=(settings, first, ready))
    worker.start()
    deadline = time.monotonic() + READY_SECONDS
    while not ready.acquire(block=False):
        if not worker.is_alive() or time.monotonic() > deadline:
            _stop(worker)
            raise RuntimeError("a worker does not come up")
        await asyncio.sleep(0.1)
    return worker


def _stop(worker: SpawnProcess) -> None:
    worker.terminate()
    worker.join(STOP_SECONDS)
    if worker.is_alive():
        worker.kill()
        worker.join()


def work(settings: Settings, first: Path, ready: Semaphore) -> None:
    """A process as `penstock work --modules etl` is one, which warms up before it says that it is there."""
    run_until_signal(_work(settings, first, ready))


async def _work(settings: Settings, first: Path, ready: Semaphore) -> None:
    async with open_runtime(settings) as runtime, asyncio.TaskGroup() as parts:
        await warm_up(runtime, first, f"warm/{runtime.owner}/")
        parts.create_task(runtime.run_background(kind=ProcessKind.WORK, modules=[MODULE]))
        parts.create_task(runtime.work([MODULE]))
        ready.release()
