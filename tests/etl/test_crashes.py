"""A worker dies at every point where it talks to the outside; the next one goes on, and little is done twice."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from itertools import count
from typing import Any, cast

from penstock.etl import papers, worker
from penstock.etl.domain import Status
from penstock.kernel.blobs import Blobs
from penstock.kernel.queue import JobState
from penstock.kernel.runstate import RunState
from tests.etl.workshop import Workshop
from tests.fakes.ocr import EchoOcr, EchoShaper, ShaperThatCosts


class Killed(BaseException):
    """The process is gone: nothing catches this, nothing is settled."""


class Fuse:
    """Kills whoever is about to make a certain call."""

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
    """Something whose every call burns the fuse."""

    def __init__(self, inner: Any, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    async def stream(self, key: str) -> AsyncIterator[bytes]:
        """The one call whose answer comes in pieces."""
        self._fuse.burn()
        async for chunk in self._inner.stream(key):
            yield chunk

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._inner, name)

        async def call(*args: Any, **options: Any) -> Any:
            self._fuse.burn()
            return await method(*args, **options)

        return call


class Line:
    """A worker that does one job after another of a task, until it is killed or there is none left."""

    def __init__(self, shop: Workshop, *, costs: bool = False) -> None:
        self.fuse = Fuse()
        self.shop = shop
        blobs = cast(Blobs, Wired(shop.tools.blobs, self.fuse))
        runs = cast(RunState, Wired(shop.tools.runs, self.fuse))
        self.ocr = EchoOcr(blobs)
        self.shaper = ShaperThatCosts() if costs else EchoShaper()
        shop.set(provider=self.ocr, shaper=self.shaper)
        self.tools = replace(shop.tools, blobs=blobs, runs=runs)

    async def run(self) -> None:
        shop = self.shop
        for _ in range(2):
            held = await shop.claim()
            settle = await worker.handlers(self.tools)[held.kind](held)
            self.fuse.burn()
            await shop.settle(held, settle)
            self.fuse.burn()


async def die_at(line: Line, point: int) -> bool:
    """Whether a worker that dies at this point dies before the task is done."""
    line.fuse.set(point)
    try:
        await line.run()
    except Killed:
        return True
    return line.fuse.blown


async def test_a_worker_that_dies_anywhere_leaves_a_task_that_is_completed_once(shop: Workshop):
    line = Line(shop)
    for point in count():
        line.ocr.pages_read.clear()
        line.ocr.calls = line.shaper.calls = 0
        task = await shop.submit(f"{point}.txt", text=f"one\ftwo of {point}")
        died = await die_at(line, point)
        line.fuse.left = None
        await shop.rescue()
        await shop.work()
        row = await shop.row(task)
        assert (row.status, await shop.status(task)) == (Status.COMPLETED, Status.COMPLETED), point
        assert await shop.life(task) == ["submit", "complete"], point
        assert line.ocr.pages_read.total() <= 3, point  # at most one of two pages twice
        assert line.shaper.calls <= 2, point
        left = [key for key in await shop.keys(f"users/5/etl_artifacts/3/{task.id}/") if "/pages/" in key]
        assert left == [], point
        if not died:
            assert point > 20
            return


async def test_a_worker_that_dies_anywhere_while_it_copies_what_is_known_makes_nothing_anew(
    shop: Workshop,
):
    line = Line(shop, costs=True)
    first = await shop.submit("first.txt", text="one\ftwo")
    await shop.work()
    for point in count():
        line.ocr.calls = line.shaper.calls = 0
        task = await shop.submit(f"{point}.txt", text="one\ftwo")
        died = await die_at(line, point)
        line.fuse.left = None
        await shop.rescue()
        await shop.work()
        row = await shop.row(task)
        assert (row.status, line.ocr.calls, line.shaper.calls) == (Status.COMPLETED, 0, 0), point
        assert [row.metadata["cache"][stage]["hit"] for stage in ("ocr", "postprocess")] == [True, True], point
        blobs = shop.tools.blobs
        assert await blobs.get(papers.result_key(row)) == await blobs.get(papers.public_key_of(row)), point
        assert await blobs.get(papers.markdown_key(row)) == await blobs.get(papers.markdown_key(first)), point
        if not died:
            assert point > 20
            return


async def test_ocr_that_was_done_is_never_paid_for_again(shop: Workshop):
    task = await shop.submit()
    for _ in range(shop.tools.terms.ocr_attempts):
        await shop.do(await shop.claim())  # dies after its last word to run state, as often as it may
        await shop.rescue()
    assert (await shop.job(task, "ocr")).state is JobState.FAILED
    await shop.reconcile()
    await shop.work()
    assert (await shop.row(task)).status is Status.COMPLETED
    assert shop.ocr.calls == 1


async def test_a_result_that_was_made_is_not_made_again(shop: Workshop):
    task = await shop.submit()
    held = await shop.claim()
    settle = await shop.do(held)
    assert settle is not None
    await shop.settle(held, settle)
    await shop.do(await shop.claim())
    await shop.rescue()
    await shop.work()
    assert (await shop.row(task)).status is Status.COMPLETED
    assert shop.shaper.calls == 1
