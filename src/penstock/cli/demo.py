"""`penstock demo`: the server, and a guided run of what it can do, with a worker killed on the way."""

import asyncio
import dataclasses
import logging
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer
from msgspec import json
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from penstock import settings as all_settings
from penstock.cli import demo_chain, demo_etl, demo_tasks
from penstock.cli.running import run_until_signal
from penstock.etl import worker as etl_worker
from penstock.kernel.errors import Unavailable
from penstock.kernel.processes import ProcessKind
from penstock.kernel.queue import JobState, get_job
from penstock.kernel.runstate import RunEntry
from penstock.kernel.transitions import list_transitions
from penstock.settings import Settings, child_environment
from penstock.web.server import check_port, serve_http
from penstock.wiring import Runtime, open_runtime

SENTENCES = (
    "A penstock is the gated pipe that takes water in and feeds the mill.",
    "What comes in is written down before anyone says that it has arrived.",
    "Whoever works on a thing holds it under a lease, and a lease that falls silent goes to the next one.",
    "Nothing is done twice, because what was done can be found again under the name it always has.",
)
PAGES = 12
KILL_AT_PAGE = 5
LEASE_SECONDS = 2.0  # short, so that nobody waits long for the rescue
MOST_SECONDS = 60.0
READING_SECONDS = 180.0  # OCR takes three seconds where nothing else runs
console = Console()


class DemoStuck(Unavailable):
    """The guided run did not get on."""

    code = "DEMO_STUCK"
    message = "The demo did not get on within {seconds:g} s."
    message_zh = "演示在 {seconds:g} 秒内没有进展。"
    hint = "Run it again; if it stays so, start `penstock serve` and look at its log."
    hint_zh = "请重新运行；如仍如此，请启动 `penstock serve` 并查看日志。"


def demo(
    port: Annotated[int, typer.Option(help="The port to listen on.", min=1, max=65535)] = 8080,
    leave: Annotated[bool, typer.Option("--exit", help="End after the run instead of serving on.")] = False,
    worker: Annotated[bool, typer.Option("--worker", hidden=True)] = False,
) -> None:
    """Start everything on sample data: a worker dies and nothing is lost, a task is pulled, invoices are read."""
    settings = dataclasses.replace(all_settings.load(), lease_seconds=LEASE_SECONDS)
    if worker:
        run_until_signal(_work(settings))
        return
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        settings = Settings(data_dir=Path(folder), lease_seconds=LEASE_SECONDS)
        run_until_signal(_demo(settings, port=port, leave=leave))


async def _work(settings: Settings) -> None:
    async with open_runtime(settings) as house:
        await house.workers(demo_chain.handlers(house), rooms=[demo_chain.ROOM]).run()


async def _demo(settings: Settings, *, port: int, leave: bool) -> None:
    check_port("127.0.0.1", port)
    async with open_runtime(settings) as house:
        keeping = asyncio.create_task(house.keep(kind=ProcessKind.SERVE, rooms=[etl_worker.ROOM]))
        serving = asyncio.create_task(serve_http(house, host="127.0.0.1", port=port))
        working = asyncio.create_task(house.work([etl_worker.ROOM]))
        try:
            requests = logging.getLogger("penstock.access")
            requests.setLevel(logging.WARNING)  # the tour tells what it does in its own words
            await _tour(house, port)
            requests.setLevel(logging.NOTSET)
            if not leave:
                console.print(f"\nThe server stays up at http://127.0.0.1:{port}/api/v1/health - stop it with Ctrl-C.")
                await serving
        finally:
            for task in (keeping, serving, working):
                task.cancel()
            await asyncio.gather(keeping, serving, working, return_exceptions=True)


async def _tour(house: Runtime, port: int) -> None:
    console.print(f"[bold]1.[/] A server is up at http://127.0.0.1:{port} on SQLite and local files.")
    letter = "\f".join("\n".join((f"Page {page}.", *SENTENCES[: 1 + page % 4])) for page in range(1, PAGES + 1))
    stored = await house.blobs.put(demo_chain.LETTER, letter.encode())
    console.print(
        f"[bold]2.[/] A letter of {PAGES} pages is stored as a blob: {stored.key}, {stored.size_bytes} bytes."
    )
    async with house.db.tx(actor="demo") as tx:
        [job_id] = await house.queue.enqueue(tx, demo_chain.first_job())
    console.print(f"[bold]3.[/] Job {job_id} is in the ledger: read the letter, then count its words.")
    with Progress(
        TextColumn("   {task.description:<34}"), BarColumn(30), TextColumn("{task.completed}/{task.total}")
    ) as bar:
        await _run_chain(house, bar)
    await _sum_up(house)
    await demo_tasks.tour(house, port, console)
    try:
        async with asyncio.timeout(READING_SECONDS):
            await demo_etl.tour(house, port, console)
    except TimeoutError as error:
        raise DemoStuck(seconds=READING_SECONDS) from error


async def _run_chain(house: Runtime, bar: Progress) -> None:
    reading = bar.add_task("reading, first worker", total=PAGES)
    first = await _start_worker(house)
    await _watch(house, bar, reading, until=lambda run: run.fields.get("page", 0) >= KILL_AT_PAGE)
    first.send_signal(signal.SIGKILL)
    await first.wait()
    bar.update(reading, description=f"reading, killed -9 (pid {first.pid})")
    second = await _start_worker(house)
    try:
        again = bar.add_task("reading on, second worker", total=PAGES, completed=KILL_AT_PAGE)
        await _watch(house, bar, again, until=lambda run: run.fields.get("stage") == "counting")
        bar.update(again, completed=PAGES)
        counting = bar.add_task("counting, second worker", total=PAGES)
        await _watch(house, bar, counting, until=lambda run: run.status == "done")
        bar.update(counting, completed=PAGES)
        await _settled(house)
    finally:
        second.terminate()
        await second.wait()


async def _start_worker(house: Runtime) -> Process:
    command = (sys.executable, "-m", "penstock", "demo", "--worker")
    return await asyncio.create_subprocess_exec(*command, env=child_environment(house.settings))


async def _watch(house: Runtime, bar: Progress, task: TaskID, *, until: Callable[[RunEntry], bool]) -> None:
    """Show the run state in the bar until it satisfies."""

    async def look() -> bool:
        run = await house.runs.get(demo_chain.RUN)
        if run is None:
            return False
        bar.update(task, completed=run.fields.get("page", 0))
        return until(run)

    await _until(look)


async def _settled(house: Runtime) -> None:
    async def look() -> bool:
        async with house.db.read() as tx:
            return (await get_job(tx, demo_chain.COUNT_ID)).state is JobState.DONE

    await _until(look)


async def _until(look: Callable[[], Awaitable[bool]]) -> None:
    try:
        async with asyncio.timeout(MOST_SECONDS):
            while not await look():  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # the worker is another process: there is no event to wait for
    except TimeoutError as error:
        raise DemoStuck(seconds=MOST_SECONDS) from error


async def _sum_up(house: Runtime) -> None:
    result = json.decode(await house.blobs.get(demo_chain.RESULT))
    async with house.db.read() as tx:
        moves = await list_transitions(tx, "job", demo_chain.READ_ID)
    told = " → ".join(move.trigger for move in moves)
    console.print(f"[bold]4.[/] Done: {result['pages']} pages, {result['total']} words, kept in {demo_chain.RESULT}.")
    console.print(f"   The first job's life in the ledger: {told}.")
    console.print("   One worker was killed in the middle; the next read on where it had stopped.")
