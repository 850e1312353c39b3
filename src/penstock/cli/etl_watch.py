"""Seeing documents through to their end: submitted as there is room for them, shown as they go, worked on if need be.

Where a worker process takes jobs of the etl room, it is left to it, and only watched. Where none does, this process
works itself, so that one command is enough on a machine where nothing else runs.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from penstock.access.domain import Caller
from penstock.cli.etl_files import Document
from penstock.cli.etl_words import shortened
from penstock.etl import track
from penstock.etl.domain import FINAL, EtlTask, Status
from penstock.etl.errors import QueueFull
from penstock.etl.worker import ROOM
from penstock.kernel.db import Db
from penstock.kernel.processes import ProcessKind, list_processes
from penstock.wiring import Runtime

LOOK_SECONDS = 0.2  # workers may be other processes, so there is no event to wait for
LOOKS_PER_ROUND = 25  # every five seconds it is asked whether anybody still works
NAME_WIDTH = 34
REMOVED = "Somebody removed the task."
AT_ONCE = 50  # documents of one command that are under way; the rest wait here, not in the queue of all

Bring = Callable[[Document], Awaitable[EtlTask | None]]
Ended = Callable[[Document, EtlTask], Awaitable[None]]


async def someone_works(db: Db) -> bool:
    """Whether a process that lives takes jobs of the room."""
    async with db.read() as tx:
        return any(process.alive and ROOM in process.rooms for process in await list_processes(tx))


class Watch:
    """The documents of one command, from the first that is submitted to the last that is over."""

    def __init__(self, house: Runtime, caller: Caller, bar: Progress, *, bring: Bring, ended: Ended) -> None:
        self.under_way: dict[int, Document] = {}
        self._house = house
        self._caller = caller
        self._bar = bar
        self._bring = bring
        self._ended = ended
        self._waiting: deque[Document] = deque()
        self._known: dict[int, EtlTask] = {}
        self._lines: dict[int, TaskID] = {}

    async def run(self, documents: Sequence[Document]) -> None:
        """Return when all are over."""
        self._waiting.extend(documents)
        whole = self._bar.add_task("documents", total=len(documents), unit="")
        async with asyncio.TaskGroup() as group:
            helping: list[asyncio.Task[None]] = []
            looks = 0
            while await self._look(whole):
                if looks % LOOKS_PER_ROUND == 0 and not helping and not await someone_works(self._house.db):
                    helping = self._help(group)
                looks += 1
                await self._house.clock.sleep(LOOK_SECONDS)
            for task in helping:
                task.cancel()

    def _help(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        keeping = self._house.keep(kind=ProcessKind.WORK, rooms=(ROOM,))
        return [group.create_task(keeping), group.create_task(self._house.work((ROOM,)))]

    async def _look(self, whole: TaskID) -> bool:
        """One look at everything; True as long as something is not over."""
        await self._bring_some(whole)
        for task in await self._seen():
            document = self.under_way[task.id]
            self._show(document, task)
            if task.status in FINAL:
                del self.under_way[task.id]
                self._bar.advance(whole)
                await self._ended(document, task)
        return bool(self.under_way or self._waiting)

    async def _bring_some(self, whole: TaskID) -> None:
        while self._waiting and len(self.under_way) < AT_ONCE:
            try:
                task = await self._bring(self._waiting[0])
            except QueueFull:
                return  # the queue is everyone's; there is room again when others are done
            document = self._waiting.popleft()
            if task is None:
                self._bar.advance(whole)
            else:
                self.under_way[task.id] = document
                self._known[task.id] = task

    async def _seen(self) -> Sequence[EtlTask]:
        """Where they stand now. One that somebody removed meanwhile will never end: it is over, too."""
        listed = await track.list_these(self._house.rooms.etl, self._caller, [*self.under_way])
        found = {task.id: task for task in reversed(listed)}  # the oldest first
        gone = [self._known[task_id] for task_id in self.under_way if task_id not in found]
        self._known = found
        return [*found.values(), *(replace(task, status=Status.CANCELLED, error=REMOVED) for task in gone)]

    def _show(self, document: Document, task: EtlTask) -> None:
        """A line of its own for each that is being worked on."""
        if task.status in FINAL:
            if task.id in self._lines:
                self._bar.remove_task(self._lines.pop(task.id))
        elif task.id in self._lines:
            self._bar.update(self._lines[task.id], completed=task.progress)
        elif task.status is not Status.PENDING:
            name = shortened(document.name, NAME_WIDTH)
            self._lines[task.id] = self._bar.add_task(name, total=100, completed=task.progress, unit=" %")


def new_bar() -> Progress:
    """The bar as people see it; on standard error, so that standard output stays for results."""
    columns = (
        TextColumn(f"{{task.description:<{NAME_WIDTH}}}", markup=False),
        BarColumn(30),
        TextColumn("{task.completed:.0f}/{task.total:.0f}{task.fields[unit]}"),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=Console(stderr=True))
