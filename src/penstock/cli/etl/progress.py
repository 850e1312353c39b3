"""Waiting for submitted documents: submit as the queue has space, show progress, and work if no worker runs.

If a worker process takes jobs of the etl module, this process only watches. If none does, it runs the jobs itself, so
that one command is enough on a machine where nothing else runs.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from penstock.access.domain import Caller
from penstock.cli.etl.files import InputFile
from penstock.cli.text import shorten
from penstock.etl.api import actions
from penstock.etl.domain import FINAL, EtlTask, Status
from penstock.etl.errors import QueueFull, QueueShareFull
from penstock.etl.worker import MODULE
from penstock.kernel.db import Db
from penstock.kernel.processes import ProcessKind, list_processes
from penstock.wiring import Runtime

POLL_SECONDS = 0.2  # workers may be other processes, so there is no event to wait for
POLLS_PER_WORKER_CHECK = 25  # every five seconds: is there still a worker?
NAME_WIDTH = 34
REMOVED = "The task was removed."
MAX_IN_PROGRESS = 50  # documents of one command; the rest wait here, not in the shared queue

Submit = Callable[[InputFile], Awaitable[EtlTask | None]]
OnFinished = Callable[[InputFile, EtlTask], Awaitable[None]]


async def has_worker(db: Db) -> bool:
    """Whether a live process takes jobs of the etl module."""
    async with db.read() as tx:
        return any(process.alive and MODULE in process.modules for process in await list_processes(tx))


class TaskWatcher:
    """Submits the documents of one command and follows their tasks until all have finished."""

    def __init__(
        self, runtime: Runtime, caller: Caller, bar: Progress, *, submit: Submit, on_finished: OnFinished
    ) -> None:
        self.in_progress: dict[int, InputFile] = {}
        self._runtime = runtime
        self._caller = caller
        self._bar = bar
        self._submit = submit
        self._on_finished = on_finished
        self._waiting: deque[InputFile] = deque()
        self._last_seen: dict[int, EtlTask] = {}
        self._bar_lines: dict[int, TaskID] = {}

    async def run(self, files: Sequence[InputFile]) -> None:
        """Return when all tasks have finished."""
        self._waiting.extend(files)
        total = self._bar.add_task("documents", total=len(files), unit="")
        async with asyncio.TaskGroup() as group:
            own_worker: list[asyncio.Task[None]] = []
            polls = 0
            while await self._poll(total):
                if polls % POLLS_PER_WORKER_CHECK == 0 and not own_worker and not await has_worker(self._runtime.db):
                    own_worker = self._start_worker(group)
                polls += 1
                await self._runtime.clock.sleep(POLL_SECONDS)
            for task in own_worker:
                task.cancel()

    def _start_worker(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        background = self._runtime.run_background(kind=ProcessKind.WORK, modules=(MODULE,))
        return [group.create_task(background), group.create_task(self._runtime.work((MODULE,)))]

    async def _poll(self, total: TaskID) -> bool:
        """Submit, and read the state of every task; True while some are not finished."""
        await self._submit_more(total)
        for task in await self._read_tasks():
            file = self.in_progress[task.id]
            self._show(file, task)
            if task.status in FINAL:
                del self.in_progress[task.id]
                self._bar.advance(total)
                await self._on_finished(file, task)
        return bool(self.in_progress or self._waiting)

    async def _submit_more(self, total: TaskID) -> None:
        while self._waiting and len(self.in_progress) < MAX_IN_PROGRESS:
            try:
                task = await self._submit(self._waiting[0])
            except (QueueFull, QueueShareFull):
                return  # the queue is shared; it has space again when other tasks finish
            file = self._waiting.popleft()
            if task is None:
                self._bar.advance(total)
            else:
                self.in_progress[task.id] = file
                self._last_seen[task.id] = task

    async def _read_tasks(self) -> Sequence[EtlTask]:
        """The tasks in progress. A task that was removed never finishes, so it counts as cancelled."""
        listed = await actions.list_by_ids(self._runtime.modules.etl, self._caller, [*self.in_progress])
        found = {task.id: task for task in reversed(listed)}  # oldest first
        removed = [self._last_seen[task_id] for task_id in self.in_progress if task_id not in found]
        self._last_seen = found
        return [*found.values(), *(replace(task, status=Status.CANCELLED, error=REMOVED) for task in removed)]

    def _show(self, file: InputFile, task: EtlTask) -> None:
        """Show a bar for each running task."""
        if task.status in FINAL:
            if task.id in self._bar_lines:
                self._bar.remove_task(self._bar_lines.pop(task.id))
        elif task.id in self._bar_lines:
            self._bar.update(self._bar_lines[task.id], completed=task.progress)
        elif task.status is not Status.PENDING:
            name = shorten(file.name, NAME_WIDTH)
            self._bar_lines[task.id] = self._bar.add_task(name, total=100, completed=task.progress, unit=" %")


def new_progress_bar() -> Progress:
    """A progress bar on standard error; standard output is for results."""
    columns = (
        TextColumn(f"{{task.description:<{NAME_WIDTH}}}", markup=False),
        BarColumn(30),
        TextColumn("{task.completed:.0f}/{task.total:.0f}{task.fields[unit]}"),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=Console(stderr=True))
