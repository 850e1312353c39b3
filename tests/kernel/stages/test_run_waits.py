"""Requests that wait for the end of runs share one poll."""

from collections.abc import Sequence
from contextlib import ExitStack

from penstock.kernel.clock import ManualClock
from penstock.kernel.runstate import RunSnapshot
from penstock.kernel.stages.run_waits import RunWaits
from penstock.kernel.wakeups import Wakeups
from tests.fakes.blocking_handler import wait_until


class EndedRuns:
    """Run state in which every run has ended; it records what it is asked for."""

    in_rows = False

    def __init__(self) -> None:
        self.asked: list[set[str]] = []

    async def get_many(self, keys: Sequence[str]) -> Sequence[RunSnapshot]:
        self.asked.append(set(keys))
        return [RunSnapshot(key=key, run=1, order=1, status="done", final=True) for key in keys]

    async def get(self, key: str) -> RunSnapshot | None:
        raise AssertionError("one poll asks for all")

    async def put(self, snapshot: RunSnapshot) -> None:
        raise AssertionError("a wait writes nothing")

    async def put_held(self, snapshot: RunSnapshot) -> None:
        raise AssertionError("a wait writes nothing")

    async def list_by_status(self, status: str, *, after: str = "", limit: int = 100) -> Sequence[RunSnapshot]:
        raise AssertionError("one poll asks for all")


async def test_one_poll_asks_for_all_runs_that_are_waited_for_and_stops_with_the_last(clock: ManualClock):
    runs, wakeups = EndedRuns(), Wakeups(clock)
    waits = RunWaits(runs, wakeups)
    with ExitStack() as stack:
        listeners = [stack.enter_context(waits.listening(key)) for key in ("a", "b", "b")]

        def is_polled() -> bool:
            clock.advance(seconds=1)
            return bool(runs.asked)

        await wait_until(is_polled)
        for listener in listeners:
            assert listener is not None
            await listener.wait(seconds=60)
    assert runs.asked[0] == {"a", "b"}
    clock.advance(seconds=1)
    assert waits._polling is not None
    await waits._polling
    assert not wakeups._listeners
