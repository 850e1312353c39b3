"""The server of the demo and its guided run: a worker is killed and the next one resumes its job."""

import asyncio
import dataclasses
import logging
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec import json
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from penstock import settings as all_settings
from penstock.cli.demo import chain, documents, tasks
from penstock.cli.signals import run_until_signal
from penstock.etl import worker as etl_worker
from penstock.kernel.errors import Unavailable
from penstock.kernel.processes import ProcessKind
from penstock.kernel.queue import JobState, get_job
from penstock.kernel.runstate import RunSnapshot
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
LEASE_SECONDS = 2.0  # short, so that the killed worker's job is rescued soon
STEP_TIMEOUT_SECONDS = 60.0
OCR_TIMEOUT_SECONDS = 180.0  # OCR takes three seconds on an idle machine
console = Console()


class DemoStuck(Unavailable):
    """A step of the demo did not finish in time."""

    code = "DEMO_STUCK"
    message = "The demo made no progress within {seconds:g} s."
    message_zh = "演示在 {seconds:g} 秒内没有进展。"
    hint = "Run it again. If it fails again, start `penstock serve` and read its log."
    hint_zh = "请重新运行；如果再次失败，请启动 `penstock serve` 并查看日志。"


def run_demo(*, port: int, leave: bool, worker: bool) -> None:
    """Run the demo, or with `worker` the worker process that the demo starts and kills."""
    if worker:
        run_until_signal(_work(dataclasses.replace(all_settings.load(), lease_seconds=LEASE_SECONDS)))
        return
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        settings = Settings(data_dir=Path(folder), lease_seconds=LEASE_SECONDS)
        run_until_signal(_demo(settings, port=port, leave=leave))


async def _work(settings: Settings) -> None:
    async with open_runtime(settings) as runtime:
        await runtime.workers(chain.handlers(runtime), modules=[chain.MODULE]).run()


async def _demo(settings: Settings, *, port: int, leave: bool) -> None:
    check_port("127.0.0.1", port)
    async with open_runtime(settings) as runtime:
        background = asyncio.create_task(runtime.run_background(kind=ProcessKind.SERVE, modules=[etl_worker.MODULE]))
        server = asyncio.create_task(serve_http(runtime, host="127.0.0.1", port=port))
        workers = asyncio.create_task(runtime.work([etl_worker.MODULE]))
        try:
            requests = logging.getLogger("penstock.access")
            requests.setLevel(logging.WARNING)  # the demo prints what it does itself
            await _run_steps(runtime, port)
            requests.setLevel(logging.NOTSET)
            if not leave:
                console.print(f"\nThe server stays up at http://127.0.0.1:{port}/api/v1/health - stop it with Ctrl-C.")
                await server
        finally:
            for task in (background, server, workers):
                task.cancel()
            await asyncio.gather(background, server, workers, return_exceptions=True)


async def _run_steps(runtime: Runtime, port: int) -> None:
    console.print(f"[bold]1.[/] A server is up at http://127.0.0.1:{port} on SQLite and local files.")
    letter = "\f".join("\n".join((f"Page {page}.", *SENTENCES[: 1 + page % 4])) for page in range(1, PAGES + 1))
    stored = await runtime.blobs.put(chain.LETTER, letter.encode())
    console.print(
        f"[bold]2.[/] A letter of {PAGES} pages is stored as a blob: {stored.key}, {stored.size_bytes} bytes."
    )
    async with runtime.db.tx(actor="demo") as tx:
        [job_id] = await runtime.queue.enqueue(tx, chain.first_job())
    console.print(f"[bold]3.[/] Job {job_id} is enqueued: read the letter, then count its words.")
    with Progress(
        TextColumn("   {task.description:<34}"), BarColumn(30), TextColumn("{task.completed}/{task.total}")
    ) as bar:
        await _run_chain(runtime, bar)
    await _print_summary(runtime)
    await tasks.run_step(runtime, port, console)
    try:
        async with asyncio.timeout(OCR_TIMEOUT_SECONDS):
            await documents.run_step(runtime, port, console)
    except TimeoutError as error:
        raise DemoStuck(seconds=OCR_TIMEOUT_SECONDS) from error


async def _run_chain(runtime: Runtime, bar: Progress) -> None:
    reading = bar.add_task("reading, first worker", total=PAGES)
    first = await _start_worker(runtime)
    await _show_until(runtime, bar, reading, lambda run: run.fields.get("page", 0) >= KILL_AT_PAGE)
    first.send_signal(signal.SIGKILL)
    await first.wait()
    bar.update(reading, description=f"reading, killed -9 (pid {first.pid})")
    second = await _start_worker(runtime)
    try:
        resumed = bar.add_task("reading on, second worker", total=PAGES, completed=KILL_AT_PAGE)
        await _show_until(runtime, bar, resumed, lambda run: run.fields.get("stage") == "counting")
        bar.update(resumed, completed=PAGES)
        counting = bar.add_task("counting, second worker", total=PAGES)
        await _show_until(runtime, bar, counting, lambda run: run.status == "done")
        bar.update(counting, completed=PAGES)
        await _until_job_done(runtime)
    finally:
        second.terminate()
        await second.wait()


async def _start_worker(runtime: Runtime) -> Process:
    command = (sys.executable, "-m", "penstock", "demo", "--worker")
    return await asyncio.create_subprocess_exec(*command, env=child_environment(runtime.settings))


async def _show_until(runtime: Runtime, bar: Progress, task: TaskID, reached: Callable[[RunSnapshot], bool]) -> None:
    """Show the run state in the progress bar until it satisfies `reached`."""

    async def poll() -> bool:
        run = await runtime.runs.get(chain.RUN)
        if run is None:
            return False
        bar.update(task, completed=run.fields.get("page", 0))
        return reached(run)

    await _poll_until(poll)


async def _until_job_done(runtime: Runtime) -> None:
    async def poll() -> bool:
        async with runtime.db.read() as tx:
            return (await get_job(tx, chain.COUNT_ID)).state is JobState.DONE

    await _poll_until(poll)


async def _poll_until(poll: Callable[[], Awaitable[bool]]) -> None:
    try:
        async with asyncio.timeout(STEP_TIMEOUT_SECONDS):
            while not await poll():  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # the worker is another process: there is no event to wait for
    except TimeoutError as error:
        raise DemoStuck(seconds=STEP_TIMEOUT_SECONDS) from error


async def _print_summary(runtime: Runtime) -> None:
    result = json.decode(await runtime.blobs.get(chain.RESULT))
    async with runtime.db.read() as tx:
        transitions = await list_transitions(tx, "job", chain.READ_ID)
    history = " → ".join(transition.trigger for transition in transitions)
    console.print(f"[bold]4.[/] Done: {result['pages']} pages, {result['total']} words, stored in {chain.RESULT}.")
    console.print(f"   State transitions of the first job: {history}.")
    console.print("   One worker was killed in the middle; the next one resumed where it had stopped.")
