"""Concurrent requests share one run."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.kernel import coalescer as coalescer_module
from penstock.kernel.coalescer import Coalescer
from penstock.kernel.errors import Unavailable


class BatchRunner:
    """Runs batches, blocks until released, and doubles each request."""

    def __init__(self, *, blocked: bool = False) -> None:
        self.batches: list[list[Any]] = []
        self.started = asyncio.Event()  # set while a batch runs
        self.unblock = asyncio.Event()
        self.error: BaseException | None = None
        if not blocked:
            self.unblock.set()

    async def run(self, requests: Sequence[Any]) -> Sequence[Any]:
        self.batches.append(list(requests))
        self.started.set()
        await self.unblock.wait()
        if self.error is not None:
            raise self.error
        return [request * 2 for request in requests]


@pytest.fixture
def coalescer() -> Coalescer:
    return Coalescer()


async def submitted(
    coalescer: Coalescer, runner: BatchRunner, *requests: int, key: str = "k"
) -> list[asyncio.Task[Any]]:
    """Submit requests: the first runs, the others wait for the next batch."""
    first = asyncio.create_task(coalescer.submit(key, requests[0], runner.run))
    await runner.started.wait()
    others = [asyncio.create_task(coalescer.submit(key, request, runner.run)) for request in requests[1:]]
    await asyncio.sleep(0)
    return [first, *others]


async def drained(coalescer: Coalescer) -> None:
    """Every batch has ended, and nothing is left of it."""
    await coalescer.drain()
    assert coalescer._pending == {}
    assert coalescer._running == set()


class TestTogether:
    async def test_a_single_request_runs_at_once(self, coalescer: Coalescer):
        runner = BatchRunner()
        assert await coalescer.submit("k", 21, runner.run) == 42
        assert runner.batches == [[21]]
        await drained(coalescer)

    async def test_requests_during_a_run_share_the_next_batch(self, coalescer: Coalescer):
        runner = BatchRunner(blocked=True)
        calls = await submitted(coalescer, runner, 1, 2, 3, 4)
        runner.unblock.set()
        assert await asyncio.gather(*calls) == [2, 4, 6, 8]
        assert runner.batches == [[1], [2, 3, 4]]
        await drained(coalescer)

    async def test_other_keys_do_not_wait(self, coalescer: Coalescer):
        blocked, free = BatchRunner(blocked=True), BatchRunner()
        [stuck] = await submitted(coalescer, blocked, 1, key="stuck")
        assert await coalescer.submit("free", 5, free.run) == 10
        blocked.unblock.set()
        assert await stuck == 2

    async def test_a_batch_has_a_maximum_size(self, coalescer: Coalescer, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(coalescer_module, "MAX_BATCH", 2)
        runner = BatchRunner(blocked=True)
        calls = await submitted(coalescer, runner, *range(6))
        runner.unblock.set()
        assert await asyncio.gather(*calls) == [0, 2, 4, 6, 8, 10]
        assert runner.batches == [[0], [1, 2], [3, 4], [5]]

    async def test_a_request_after_the_last_run_starts_a_new_one(self, coalescer: Coalescer):
        runner = BatchRunner()
        for request in range(3):
            assert await coalescer.submit("k", request, runner.run) == request * 2
            await drained(coalescer)
        assert runner.batches == [[0], [1], [2]]

    async def test_each_of_many_requests_gets_its_own_result(self, coalescer: Coalescer):
        runner = BatchRunner()
        calls = await asyncio.gather(
            *(coalescer.submit(f"k{request % 3}", request, runner.run) for request in range(1000))
        )
        assert calls == [request * 2 for request in range(1000)]
        assert len(runner.batches) < 20
        await drained(coalescer)


class TestCancelledCallers:
    async def test_a_request_cancelled_before_its_batch_is_not_run(self, coalescer: Coalescer):
        runner = BatchRunner(blocked=True)
        first, gone, last = await submitted(coalescer, runner, 1, 2, 3)
        gone.cancel()
        await asyncio.wait([gone])
        runner.unblock.set()
        assert [await first, await last] == [2, 6]
        assert runner.batches == [[1], [3]]
        assert gone.cancelled()

    async def test_a_request_cancelled_during_a_run_does_not_stop_the_others(self, coalescer: Coalescer):
        runner = BatchRunner(blocked=True)
        first, second = await submitted(coalescer, runner, 1, 2)
        first.cancel()
        await asyncio.wait([first])
        runner.unblock.set()
        assert await second == 4
        await drained(coalescer)

    async def test_when_all_requests_are_cancelled_nothing_runs(self, coalescer: Coalescer):
        runner = BatchRunner(blocked=True)
        calls = await submitted(coalescer, runner, 1, 2, 3)
        for one in calls:
            one.cancel()
        await asyncio.wait(calls)
        runner.unblock.set()
        await drained(coalescer)
        assert runner.batches == [[1]]


class TestFailures:
    async def test_an_error_is_raised_in_every_caller_of_the_batch(self, coalescer: Coalescer):
        runner = BatchRunner(blocked=True)
        calls = await submitted(coalescer, runner, 1, 2, 3)
        runner.error = Unavailable(reason="no water")
        runner.unblock.set()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(error) for error in ended] == [Unavailable] * 3
        await drained(coalescer)

    async def test_after_a_failure_the_next_batch_runs(self, coalescer: Coalescer):
        runner = BatchRunner()
        runner.error = Unavailable(reason="no water")
        with pytest.raises(Unavailable):
            await coalescer.submit("k", 1, runner.run)
        runner.error = None
        assert await coalescer.submit("k", 1, runner.run) == 2

    async def test_a_failure_that_nobody_waits_for_is_no_stray_error(self, coalescer: Coalescer):
        runner = BatchRunner(blocked=True)
        [calls] = await submitted(coalescer, runner, 1)
        calls.cancel()
        await asyncio.wait([calls])
        runner.error = Unavailable(reason="no water")
        runner.unblock.set()
        await drained(coalescer)

    async def test_too_few_answers_are_an_error_and_leave_nobody_waiting(self, coalescer: Coalescer):
        async def forget_one(requests: Sequence[Any]) -> Sequence[Any]:
            return requests[1:]

        async with asyncio.timeout(10):
            calls = [coalescer.submit("k", request, forget_one) for request in range(3)]
            ended = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(error) for error in ended] == [ValueError] * 3
        await drained(coalescer)


class TestStopping:
    async def test_a_stop_in_the_middle_leaves_nobody_waiting(self, coalescer: Coalescer):
        runner = BatchRunner(blocked=True)
        calls = await submitted(coalescer, runner, 1, 2, 3)
        for task in coalescer._running:
            task.cancel()
        async with asyncio.timeout(10):
            await asyncio.wait(calls)
        assert all(one.cancelled() for one in calls)
        assert runner.batches == [[1]]
        await drained(coalescer)

    async def test_drain_waits_for_a_run_whose_callers_were_cancelled(self, coalescer: Coalescer):
        runner = BatchRunner(blocked=True)
        [calls] = await submitted(coalescer, runner, 1)
        calls.cancel()
        waiting = asyncio.create_task(coalescer.drain())
        await asyncio.wait({calls})
        assert not waiting.done()
        runner.unblock.set()
        async with asyncio.timeout(10):
            await waiting

    def test_runs_end_with_their_event_loop(self):
        ended: list[str] = []

        async def endless(_wishes: Sequence[Any]) -> Sequence[Any]:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("stopped")
            raise AssertionError

        async def main() -> None:
            calls = asyncio.create_task(Coalescer().submit("k", 1, endless))
            await asyncio.sleep(0.01)
            assert not calls.done()

        asyncio.run(main())
        assert ended == ["stopped"]
