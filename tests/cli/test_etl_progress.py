"""Waiting for submitted documents, with and without another worker."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import delete

from penstock.access.domain import Caller, Scope
from penstock.cli.etl.files import InputFile
from penstock.cli.etl.progress import TaskWatcher, new_progress_bar
from penstock.etl.api import actions
from penstock.etl.domain import EtlTask, Status
from penstock.etl.store.tables import etl_task
from penstock.etl.upload import UploadedDocument
from penstock.etl.worker import MODULE
from penstock.kernel.processes import Heartbeat, ProcessKind, delete_process
from penstock.settings import Settings
from penstock.wiring import Runtime, open_runtime
from tests.fakes.blocking_handler import wait_until

ANN = Caller(name="ann", user_id=1, scope=Scope.ADMIN)
OTHER = "another-process"
SOON = 60


class RecordingSubmitter:
    """Submits one document and records how its task ended."""

    def __init__(self, runtime: Runtime, folder: Path) -> None:
        self.runtime = runtime
        self.path = folder / "a.md"
        self.path.write_text("# A note")
        self.finished: list[EtlTask] = []
        self.submitting = asyncio.Event()

    async def submit(self, file: InputFile) -> EtlTask:
        sent = UploadedDocument(file=file.path, filename=file.name, project_id=1)
        self.submitting.set()
        return await actions.upload_task(self.runtime.modules.etl, ANN, sent)

    async def on_finished(self, file: InputFile, task: EtlTask) -> None:
        self.finished.append(task)

    async def watch(self) -> None:
        """Submit the document and wait until its task has finished."""
        with new_progress_bar() as bar:
            watcher = TaskWatcher(self.runtime, ANN, bar, submit=self.submit, on_finished=self.on_finished)
            await watcher.run([InputFile(path=self.path, name=self.path.name)])


@pytest.fixture
async def submitter(tmp_path: Path) -> AsyncIterator[RecordingSubmitter]:
    async with open_runtime(Settings(data_dir=tmp_path / "data")) as runtime:
        heartbeat = Heartbeat(runtime.db, owner=OTHER, kind=ProcessKind.WORK, modules=[MODULE], version="1")
        await heartbeat.beat()
        yield RecordingSubmitter(runtime, tmp_path)


async def test_a_removed_task_is_not_waited_for(submitter: RecordingSubmitter):
    async with asyncio.timeout(SOON), asyncio.TaskGroup() as group:
        group.create_task(submitter.watch())
        await submitter.submitting.wait()
        await wait_until(partial(removed, submitter.runtime), every_seconds=0.01)  # it is submitted in a moment
    [task] = submitter.finished
    assert (task.status, task.error) == (Status.CANCELLED, "The task was removed.")


async def removed(runtime: Runtime) -> bool:
    async with runtime.db.tx() as tx:
        return bool((await tx.conn.execute(delete(etl_task))).rowcount)


async def test_when_the_worker_is_gone_the_command_runs_the_jobs_itself(submitter: RecordingSubmitter):
    async with asyncio.timeout(SOON), asyncio.TaskGroup() as group:
        group.create_task(submitter.watch())
        await submitter.submitting.wait()
        async with submitter.runtime.db.tx() as tx:
            await delete_process(tx, OTHER)
    [task] = submitter.finished
    assert task.status is Status.COMPLETED
