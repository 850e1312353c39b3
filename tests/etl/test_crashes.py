"""A worker is killed at every call to the outside; the next one resumes, and little is done twice."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import Any, cast

from penstock.etl import artifacts, worker
from penstock.etl.domain import Status
from penstock.kernel.blobs import Blobs
from penstock.kernel.queue import JobState
from penstock.kernel.runstate import RunState
from tests.etl.harness import EtlHarness, on_both_profiles
from tests.fakes.ocr import EchoOcr, EchoPostProcessor, PostProcessorThatCosts


class Killed(BaseException):
    """The process was killed: nothing catches this, nothing is settled."""


class Fuse:
    """Raises `Killed` before the n-th call."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.blown = False

    def set(self, calls: int) -> None:
        self.left, self.blown = calls, False

    def burn(self) -> None:
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            self.left, self.blown = None, True
            raise Killed


class Wired:
    """A proxy that counts every call with the fuse."""

    def __init__(self, inner: Any, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    async def stream(self, key: str) -> AsyncIterator[bytes]:
        """The only call that returns an iterator."""
        self._fuse.burn()
        async for chunk in self._inner.stream(key):
            yield chunk

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._inner, name)

        async def call(*args: Any, **options: Any) -> Any:
            self._fuse.burn()
            return await method(*args, **options)

        @asynccontextmanager
        async def opened(*args: Any, **options: Any) -> AsyncIterator[Any]:
            self._fuse.burn()
            async with method(*args, **options) as value:
                yield value

        return opened if name == "open_file" else call


class Line:
    """A worker that runs both jobs of a task, until it is killed."""

    def __init__(self, harness: EtlHarness, *, costs: bool = False) -> None:
        self.fuse = Fuse()
        self.harness = harness
        blobs = cast(Blobs, Wired(harness.deps.blobs, self.fuse))
        runs = cast(RunState, Wired(harness.deps.runs, self.fuse))
        self.ocr = EchoOcr(blobs)
        self.post_processor = PostProcessorThatCosts() if costs else EchoPostProcessor()
        harness.set(provider=self.ocr, post_processor=self.post_processor)
        self.deps = replace(harness.deps, blobs=blobs, runs=runs)

    async def run(self) -> None:
        harness = self.harness
        for _ in range(2):
            held = await harness.claim()
            settle = await worker.handlers(self.deps)[held.kind](held)
            self.fuse.burn()
            await harness.settle(held, settle)
            self.fuse.burn()


async def die_at(line: Line, point: int) -> bool:
    """Whether a worker that is killed at this call is killed before the task is completed."""
    line.fuse.set(point)
    try:
        await line.run()
    except Killed:
        return True
    return line.fuse.blown


@on_both_profiles
async def test_a_worker_that_dies_anywhere_leaves_a_task_that_is_completed_once(harness: EtlHarness):
    line = Line(harness)
    step = 1 if harness.link is None else 3  # the calls are the same; storms kill real processes on this profile
    for point in count(step=step):
        line.ocr.pages_read.clear()
        line.ocr.calls = line.post_processor.calls = 0
        task = await harness.submit(f"{point}.txt", text=f"one\ftwo of {point}")
        died = await die_at(line, point)
        line.fuse.left = None
        await harness.rescue()
        await harness.work()
        row = await harness.row(task)
        assert (row.status, await harness.status(task)) == (Status.COMPLETED, Status.COMPLETED), point
        assert await harness.transitions(task) == ["submit", "complete"], point
        assert line.ocr.pages_read.total() <= 3, point  # at most one of two pages is read twice
        assert line.post_processor.calls <= 2, point
        left = [key for key in await harness.keys(f"users/5/etl_artifacts/3/{task.id}/") if "/pages/" in key]
        assert left == [], point
        if not died:
            assert point > 20
            return


@on_both_profiles
async def test_a_worker_that_dies_anywhere_while_it_copies_what_is_known_makes_nothing_anew(
    harness: EtlHarness,
):
    line = Line(harness, costs=True)
    first = await harness.submit("first.txt", text="one\ftwo")
    await harness.work()
    for point in count():
        line.ocr.calls = line.post_processor.calls = 0
        task = await harness.submit(f"{point}.txt", text="one\ftwo")
        died = await die_at(line, point)
        line.fuse.left = None
        await harness.rescue()
        await harness.work()
        row = await harness.row(task)
        assert (row.status, line.ocr.calls, line.post_processor.calls) == (Status.COMPLETED, 0, 0), point
        assert [row.metadata["cache"][stage]["hit"] for stage in ("ocr", "postprocess")] == [True, True], point
        blobs = harness.deps.blobs
        assert await blobs.get(artifacts.result_key(row)) == await blobs.get(artifacts.public_key_of(row)), point
        assert await blobs.get(artifacts.markdown_key(row)) == await blobs.get(artifacts.markdown_key(first)), point
        if not died:
            assert point > 20
            return


@on_both_profiles
async def test_ocr_that_was_done_is_never_paid_for_again(harness: EtlHarness):
    task = await harness.submit()
    for _ in range(harness.deps.config.ocr_attempts):
        await harness.do(await harness.claim())  # killed after its last run state update, on every attempt
        await harness.rescue()
    assert (await harness.job(task, "ocr")).state is JobState.FAILED
    await harness.reconcile()
    await harness.work()
    assert (await harness.row(task)).status is Status.COMPLETED
    assert harness.ocr.calls == 1


@on_both_profiles
async def test_a_result_that_was_made_is_not_made_again(harness: EtlHarness):
    task = await harness.submit()
    held = await harness.claim()
    settle = await harness.do(held)
    assert settle is not None
    await harness.settle(held, settle)
    await harness.do(await harness.claim())
    await harness.rescue()
    await harness.work()
    assert (await harness.row(task)).status is Status.COMPLETED
    assert harness.post_processor.calls == 1
