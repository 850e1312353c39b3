"""Workers of the etl module are killed and frozen, and Redis is flushed: each document is processed, no page twice."""

from collections.abc import AsyncIterator, Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from msgspec import json

from penstock import settings as all_settings
from penstock.access.domain import Caller, Scope
from penstock.etl.api import actions, status
from penstock.etl.domain import EtlTask, Phase, Status
from penstock.etl.retry import RetryOptions
from penstock.etl.upload import UploadedDocument
from penstock.kernel.queue import JobState, job
from penstock.kernel.transitions import list_transitions
from penstock.settings import Settings
from penstock.wiring import Runtime, open_runtime
from tests.fakes.blocking_handler import wait_until
from tests.journeys.profiles import Profile
from tests.servers.valkey import AnyRedis
from tests.storms import etl_stops, processes
from tests.storms.etl_stops import Stops, at_page, begun, shaping, unsettled, write_scan

PATIENCE = 90  # seconds; on a busy machine a process takes long to start
LEASE_SECONDS = 4  # long enough that nobody loses it by being slow
ATTEMPTS = 2
ANN = Caller(name="ann", user_id=7, scope=Scope.WRITE)
SIZES = (3, 4, 5, 6, 7)  # pages of the documents, each of its own length
MORE_SIZES = (8, 9, 10, 11)

pytestmark = pytest.mark.timeout(240)


class Storm:
    """A runtime to inspect, workers to kill, and a folder where they log what they did."""

    def __init__(self, runtime: Runtime, folder: Path) -> None:
        self.runtime = runtime
        self.tools = runtime.modules.etl
        self.folder = folder
        self._workers = 0

    async def submit(self, pages: int) -> EtlTask:
        """A scan of so many pages, sent in."""
        path = self.folder / f"{pages}.tiff"
        write_scan(path, pages)
        sent = UploadedDocument(file=path, filename=path.name, project_id=1)
        return await actions.upload_task(self.tools, ANN, sent)

    def stops(self, *points: str) -> Stops:
        """Where the next worker stops."""
        return Stops(folder=self.folder, points=frozenset(points))

    def start(self, stops: Stops) -> ForkServerProcess:
        """A worker."""
        self._workers += 1
        return processes.start(etl_stops.work, self.runtime.settings, stops, str(self.log(self._workers)))

    def log(self, number: int) -> Path:
        """What the first, second, … worker has to say."""
        return self.folder / f"worker-{number}.log"

    async def wait_until(self, satisfied: Callable[[], bool]) -> None:
        """Wait for other processes. Expired leases are rescued here too, in case a worker died rescuing."""

        async def holds() -> bool:
            await self.rescue()
            return satisfied()

        await wait_until(holds, seconds=PATIENCE, every_seconds=0.1)

    async def until_over(self, tasks: list[EtlTask]) -> None:
        """Wait until these tasks are over by what their owner sees."""

        async def are_over() -> bool:
            await self.rescue()
            return all([(await status.get_status(self.tools, ANN, task.id)).is_final for task in tasks])

        await wait_until(are_over, seconds=PATIENCE, every_seconds=0.1)

    async def rescue(self) -> None:
        """Let jobs wait again whose worker fell silent."""
        async with self.runtime.db.tx(actor="storm") as tx:
            await self.runtime.queue.rescue(tx)

    async def judge(self, task: EtlTask, pages: int) -> None:
        """It is completed, once, with its result, and nothing of it is left running."""
        shown = await status.get_status(self.tools, ANN, task.id)
        assert (shown.status, shown.progress, shown.error) == (Status.COMPLETED, 100, None)
        key = await actions.artifact_key(self.tools, ANN, task.id, "result")
        assert json.decode(await self.runtime.blobs.get(key)) == {"pages": pages}
        markdown = await self.runtime.blobs.get(await actions.artifact_key(self.tools, ANN, task.id, "markdown"))
        assert [f"This is page {number}." in markdown.decode() for number in range(1, pages + 1)] == [True] * pages
        async with self.runtime.db.read() as tx:
            moves = await list_transitions(tx, "etl task", str(task.id))
            states = (await tx.conn.scalars(job.select().with_only_columns(job.c.state))).all()
        assert [move.trigger for move in moves] == ["submit", "complete"]
        assert set(states) == {JobState.DONE}


@pytest.fixture
def settings(profile: Profile) -> Settings:
    short = {"PENSTOCK_LEASE_SECONDS": str(LEASE_SECONDS), "ETL_OCR_MAX_ATTEMPTS": str(ATTEMPTS)}
    return all_settings.load(profile.settings | short)


@pytest.fixture
async def storm(settings: Settings, tmp_path: Path) -> AsyncIterator[Storm]:
    folder = tmp_path / "storm"
    folder.mkdir()
    async with open_runtime(settings) as runtime:
        yield Storm(runtime, folder)


def once_each(*sizes: int, twice: tuple[str, ...] = ()) -> dict[str, int]:
    """The journal of documents of these lengths: every page and every result once, these twice."""
    pages = [at_page(number, of=size) for size in sizes for number in range(1, size + 1)]
    return {line: 2 if line in twice else 1 for line in (*pages, *map(shaping, sizes))}


def points(tasks: list[EtlTask]) -> list[str]:
    """A point for each document: in OCR, after it, between the stages, in post-processing, after it."""
    return [
        at_page(2, of=SIZES[0]),
        unsettled(Phase.OCR, tasks[1].id),
        begun(Phase.POSTPROCESS, tasks[2].id),
        shaping(SIZES[3]),
        unsettled(Phase.POSTPROCESS, tasks[4].id),
    ]


async def test_a_worker_killed_at_any_point_costs_one_page_of_ocr_at_the_most(storm: Storm):
    tasks = [await storm.submit(pages) for pages in SIZES]
    stops = storm.stops(*points(tasks))
    worker = storm.start(stops)
    await storm.wait_until(stops.all_reached)
    processes.kill(worker)
    storm.start(storm.stops())
    await storm.until_over(tasks)
    for task, pages in zip(tasks, SIZES, strict=True):
        await storm.judge(task, pages)
    assert stops.journal() == once_each(*SIZES, twice=(at_page(2, of=SIZES[0]), shaping(SIZES[3])))


async def test_a_task_whose_worker_dies_in_every_attempt_ends_as_failed_and_can_be_tried_again(
    storm: Storm,
):
    task = await storm.submit(SIZES[0])
    stops = storm.stops(at_page(2, of=SIZES[0]))
    for _ in range(ATTEMPTS):
        worker = storm.start(stops)
        await storm.wait_until(stops.all_reached)
        processes.kill(worker)
        stops.forget()
    storm.start(storm.stops())
    await storm.until_over([task])
    shown = await status.get_status(storm.tools, ANN, task.id)
    assert (shown.status, shown.metadata["error_stage"]) == (Status.FAILED, "stale")
    assert stops.journal() == {at_page(1, of=SIZES[0]): 1, at_page(2, of=SIZES[0]): ATTEMPTS}
    await actions.retry_task(storm.tools, ANN, task.id, RetryOptions())
    await storm.until_over([task])
    assert (await status.get_status(storm.tools, ANN, task.id)).status is Status.COMPLETED


async def test_a_worker_that_was_frozen_and_comes_late_changes_nothing(storm: Storm):
    pages = SIZES[0]
    task = await storm.submit(pages)
    stopped_at = at_page(2, of=pages)
    stops = storm.stops(stopped_at)
    first = storm.start(stops)
    await storm.wait_until(stops.all_reached)
    await processes.freeze_between_writes(first, storm.runtime.db)
    storm.start(storm.stops())
    await storm.until_over([task])
    stops.let_go()
    processes.thaw(first)
    await storm.wait_until(lambda: "lease" in storm.log(1).read_text())
    await storm.judge(task, pages)
    assert stops.journal() == once_each(pages, twice=(stopped_at,))


@pytest.mark.parametrize("profile", ["scale"], indirect=True)
async def test_a_flushed_redis_costs_nothing(storm: Storm, redis_server: AnyRedis):
    tasks = [await storm.submit(pages) for pages in SIZES]
    stops = storm.stops(*points(tasks))
    storm.start(stops)
    await storm.wait_until(stops.all_reached)
    waiting = [await storm.submit(pages) for pages in MORE_SIZES]  # some have no slot, and their tickets are lost
    redis_server.flush()
    stops.let_go()
    await storm.until_over([*tasks, *waiting])
    for task, pages in zip([*tasks, *waiting], SIZES + MORE_SIZES, strict=True):
        await storm.judge(task, pages)
    assert stops.journal() == once_each(*SIZES, *MORE_SIZES)
