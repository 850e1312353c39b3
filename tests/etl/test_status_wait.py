"""Status of tasks: the position in the queue, and requests that wait for the end of a task."""

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import QueuePool

from penstock.adapters.redis.client import RedisUnavailable
from penstock.etl import run_state
from penstock.etl.api import actions, status
from penstock.etl.domain import EtlTask, Status
from penstock.etl.store import tasks
from penstock.kernel import backlog
from penstock.kernel.db import Db
from penstock.kernel.stages import run_waits
from penstock.kernel.stages.run_handle import end_channel
from tests.etl.harness import ANNA, EtlHarness, on_both_profiles
from tests.fakes.blocking_handler import wait_until


class TestPosition:
    @on_both_profiles
    async def test_a_pending_task_knows_how_many_are_ahead(self, harness: EtlHarness):
        made = []
        for number in range(3):
            made.append(await harness.submit(f"{number}.txt"))
            harness.clock.advance(seconds=1)
        await harness.deliver()
        assert [await status.find_position(harness.deps, task) for task in made] == [1, 2, 3]
        await actions.cancel_task(harness.deps, ANNA, made[0].id)
        await harness.work()
        done = await status.get_status(harness.deps, ANNA, made[1].id)
        assert await status.find_position(harness.deps, done) is None

    async def test_what_is_too_far_back_to_be_counted_has_none(
        self, harness: EtlHarness, monkeypatch: pytest.MonkeyPatch
    ):
        made = [await harness.submit(f"{number}.txt") for number in range(3)]
        monkeypatch.setattr(backlog, "MAX_POSITION", 2)
        assert [await status.find_position(harness.deps, task) for task in made] == [1, 2, None]

    async def test_a_status_comes_without_it_while_redis_is_away(self, harness: EtlHarness):
        task = await harness.submit()
        harness.deps = replace(harness.deps, positions=PositionsAway())
        assert await status.find_position(harness.deps, task) is None


class PositionsAway:
    """Positions in a Redis that is unavailable."""

    async def find_position(self, module: str, job_id: str) -> int | None:
        raise RedisUnavailable(reason="gone")


class TestWait:
    @on_both_profiles
    async def test_the_end_of_the_task_ends_it(self, harness: EtlHarness):
        task = await harness.submit()
        waiting = asyncio.create_task(status.wait_for_end(harness.deps, ANNA, task.id, seconds=30))
        await wait_until(lambda: is_waited_for(harness, task))
        await harness.work()
        assert (await waiting).status is Status.COMPLETED  # the clock stands still: no poll and no timeout

    @on_both_profiles
    async def test_it_ends_in_time_and_holds_no_connection_meanwhile(self, harness: EtlHarness):
        task = await harness.submit()
        waiting = asyncio.create_task(status.wait_for_end(harness.deps, ANNA, task.id, seconds=30))
        await wait_until(lambda: is_waited_for(harness, task))
        await wait_until(lambda: not open_connections(harness.db))
        await wait_until(lambda: is_over(harness, waiting))
        assert waiting.result().status is Status.PENDING

    @on_both_profiles
    async def test_an_end_without_a_notification_is_found_by_a_poll(self, harness: EtlHarness):
        task = await harness.submit()
        waiting = asyncio.create_task(status.wait_for_end(harness.deps, ANNA, task.id, seconds=3600))
        await wait_until(lambda: is_waited_for(harness, task))
        ended = replace(task, status=Status.CANCELLED)
        async with harness.db.tx() as tx:  # as another process does it, whose wake-up got lost
            await tasks.move_task(tx, task, ended)
        await run_state.show(harness.deps, ended)
        await wait_until(lambda: is_over(harness, waiting, seconds=1))
        assert waiting.result().status is Status.CANCELLED

    async def test_a_task_that_has_ended_is_told_at_once(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.work()
        assert (await status.wait_for_end(harness.deps, ANNA, task.id, seconds=30)).status is Status.COMPLETED

    async def test_of_too_many_that_wait_the_last_are_told_at_once(
        self, harness: EtlHarness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(run_waits, "MAX_WAITS", 1)
        task = await harness.submit()
        waiting = asyncio.create_task(status.wait_for_end(harness.deps, ANNA, task.id, seconds=30))
        await wait_until(lambda: is_waited_for(harness, task))
        assert (await status.wait_for_end(harness.deps, ANNA, task.id, seconds=30)).status is Status.PENDING
        await wait_until(lambda: is_over(harness, waiting))


def is_over(harness: EtlHarness, *waiting: asyncio.Task[EtlTask], seconds: float = 31) -> bool:
    """Whether these requests were answered; the clock moves on each time, since they may not have begun to wait."""
    harness.clock.advance(seconds=seconds)
    return all(one.done() for one in waiting)


def is_waited_for(harness: EtlHarness, task: EtlTask) -> bool:
    return end_channel(f"etl:task:{task.id}") in harness.db.wakeups._listeners


def open_connections(db: Db) -> int:
    pools = {db._writer.pool, db._reader.pool}
    return sum(pool.checkedout() for pool in pools if isinstance(pool, QueuePool))
