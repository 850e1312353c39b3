"""Watching documents to their end, whoever works on them."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import delete

from penstock.access.domain import Caller, Scope
from penstock.cli.etl_files import Document
from penstock.cli.etl_watch import Watch, new_bar
from penstock.etl import receive, submit
from penstock.etl.domain import EtlTask, Status
from penstock.etl.receive import Sent
from penstock.etl.store.tables import etl_task
from penstock.etl.submit import NewTask
from penstock.etl.worker import ROOM
from penstock.kernel.processes import Heartbeat, ProcessKind, delete_process
from penstock.settings import Settings
from penstock.wiring import Runtime, open_runtime
from tests.fakes.gate import until

ANN = Caller(name="ann", user_id=1, scope=Scope.ADMIN)
OTHER = "another-process"
SOON = 60


class Counter:
    """Brings documents to the house, and writes down how they ended."""

    def __init__(self, house: Runtime, folder: Path) -> None:
        self.house = house
        self.path = folder / "a.md"
        self.path.write_text("# A note")
        self.ended: list[EtlTask] = []
        self.brought = asyncio.Event()

    async def bring(self, document: Document) -> EtlTask:
        sent = Sent(file=document.path, filename=document.name, project_id=1)
        async with receive.kept(self.house.rooms.etl, ANN, sent) as kept:
            self.brought.set()
            new = NewTask(project_id=1, filename=kept.filename, s3_key=kept.key)
            return await submit.submit(self.house.rooms.etl, ANN, new)

    async def end(self, document: Document, task: EtlTask) -> None:
        self.ended.append(task)

    async def watch(self) -> None:
        """Watch one document to its end."""
        with new_bar() as bar:
            watching = Watch(self.house, ANN, bar, bring=self.bring, ended=self.end)
            await watching.run([Document(path=self.path, name=self.path.name)])


@pytest.fixture
async def counter(tmp_path: Path) -> AsyncIterator[Counter]:
    async with open_runtime(Settings(data_dir=tmp_path / "data")) as house:
        heart = Heartbeat(house.db, owner=OTHER, kind=ProcessKind.WORK, rooms=[ROOM], version="1")
        await heart.beat()
        yield Counter(house, tmp_path)


async def test_a_task_that_somebody_removed_is_not_waited_for(counter: Counter):
    async with asyncio.timeout(SOON), asyncio.TaskGroup() as group:
        group.create_task(counter.watch())
        await counter.brought.wait()
        await until(partial(removed, counter.house), every_seconds=0.01)  # it is submitted in a moment
    [task] = counter.ended
    assert (task.status, task.error) == (Status.CANCELLED, "Somebody removed the task.")


async def removed(house: Runtime) -> bool:
    async with house.db.tx() as tx:
        return bool((await tx.conn.execute(delete(etl_task))).rowcount)


async def test_when_the_worker_it_relied_on_is_gone_the_command_works_itself(counter: Counter):
    async with asyncio.timeout(SOON), asyncio.TaskGroup() as group:
        group.create_task(counter.watch())
        await counter.brought.wait()
        async with counter.house.db.tx() as tx:
            await delete_process(tx, OTHER)
    [task] = counter.ended
    assert task.status is Status.COMPLETED
