"""What every run state does, whatever holds it."""

import asyncio
import random
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from penstock.adapters.redis.client import RedisClient
from penstock.adapters.redis.runs import RedisRunState
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.runstate import RunMovedOn, RunSnapshot, RunState, SqlRunState
from tests.conformance.conftest import Closing
from tests.conftest import open_db

LIVE_SECONDS, FINAL_SECONDS = 600, 60
SOMEONE_WAITS = text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
EXAMPLES = count()  # a fresh key per Hypothesis example: the run state is one for all of them
one_for_all = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class SqlRuns(SqlRunState):
    """Run state in a database of this test's own."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        self.db = open_db(url, clock, connections=4)
        super().__init__(self.db, live_seconds=LIVE_SECONDS, final_seconds=FINAL_SECONDS)

    async def close(self) -> None:
        await self.db.close()


class RedisRuns(RedisRunState):
    """Run state in a Redis of this test's own."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        self.link = RedisClient(url)
        super().__init__(self.link, clock, live_seconds=LIVE_SECONDS, final_seconds=FINAL_SECONDS)

    async def close(self) -> None:
        await self.link.close()


# The fixture that gives a URL, and what opens a run state there.
IMPLEMENTATIONS = [
    pytest.param(("sqlite_url", SqlRuns), id="sqlite"),
    pytest.param(("postgres_url", SqlRuns), id="postgres"),
    pytest.param(("redis_url", RedisRuns), id="redis"),
]
Connect = Callable[[], RunState]


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest, clock: ManualClock) -> Callable[[], Closing]:
    url_fixture, opener = request.param
    return partial(opener, request.getfixturevalue(url_fixture), clock)


@pytest.fixture
def runs(connect: Connect) -> RunState:
    return connect()


def entry(order: int = 1, *, key: str = "k", run: int = 1, status: str = "running", **more: Any) -> RunSnapshot:
    return RunSnapshot(key=key, run=run, order=order, status=status, **more)


async def keys_with(runs: RunState, status: str, **page: object) -> list[str]:
    return [found.key for found in await runs.list_by_status(status, **page)]  # type: ignore[arg-type]  # after, limit


class TestPutAndGet:
    async def test_an_entry_comes_back_as_it_was_put(self, runs: RunState):
        fields = {
            "owner": "u1",
            "文件": "第1页.pdf",
            "progress": 0.5,
            "pages": [1, 2],
            "error": None,
            "deep": {"a": {}},
        }
        whole = RunSnapshot(key="etl:42", run=3, order=2**40, status="ocr", final=False, fields=fields)
        await runs.put(whole)
        assert await runs.get("etl:42") == whole

    async def test_what_was_never_put_is_not_there(self, runs: RunState):
        assert await runs.get("k") is None

    async def test_a_later_order_replaces_everything(self, runs: RunState):
        await runs.put(RunSnapshot(key="k", run=1, order=1, status="ocr", fields={"page": 1}))
        later = RunSnapshot(key="k", run=1, order=2, status="shape", fields={"pages": 9})
        await runs.put(later)
        assert await runs.get("k") == later

    @pytest.mark.parametrize("order", [5, 4, 0])
    async def test_an_equal_or_earlier_order_is_refused_and_changes_nothing(self, runs: RunState, order: int):
        await runs.put(entry(5, status="shape"))
        with pytest.raises(RunMovedOn, match=f"k is already past run 1, order {order}"):
            await runs.put(entry(order, status="ocr"))
        assert await runs.get("k") == entry(5, status="shape")

    async def test_a_later_run_wins_whatever_its_order(self, runs: RunState):
        await runs.put(entry(1000, run=1))
        await runs.put(entry(0, run=2))
        assert await runs.get("k") == entry(0, run=2)

    async def test_an_earlier_run_is_refused_whatever_its_order(self, runs: RunState):
        await runs.put(entry(0, run=2))
        with pytest.raises(RunMovedOn):
            await runs.put(entry(1000, run=1))
        assert await runs.get("k") == entry(0, run=2)

    async def test_a_final_entry_ends_its_run_and_only_the_next_run_comes_after_it(self, runs: RunState):
        await runs.put(entry(5, status="cancelled", final=True))
        with pytest.raises(RunMovedOn):
            await runs.put(entry(6, status="done", final=True))
        assert await runs.get("k") == entry(5, status="cancelled", final=True)
        await runs.put(entry(0, run=2))
        assert await runs.get("k") == entry(0, run=2)

    async def test_large_orders_are_told_apart(self, runs: RunState):
        await runs.put(entry(2**62))
        await runs.put(entry(2**62 + 1))
        with pytest.raises(RunMovedOn):
            await runs.put(entry(2**62))
        assert await runs.get("k") == entry(2**62 + 1)

    async def test_keys_do_not_touch_each_other(self, runs: RunState):
        await runs.put(entry(9, key="a"))
        await runs.put(entry(1, key="A"))
        await runs.put(entry(2, key="a "))
        assert await runs.get("a") == entry(9, key="a")

    @given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5)), min_size=1, max_size=12))
    @one_for_all
    async def test_it_holds_the_greatest_of_all_puts(self, runs: RunState, puts: list[tuple[int, int]]):
        key, greatest = f"example {next(EXAMPLES)}", (0, 0)
        for run, order in puts:
            try:
                await runs.put(entry(order, key=key, run=run))
                assert (run, order) > greatest
            except RunMovedOn:
                assert (run, order) <= greatest
            greatest = max(greatest, (run, order))
        assert await runs.get(key) == entry(greatest[1], key=key, run=greatest[0])

    async def test_twenty_puts_at_once_leave_the_greatest(self, connect: Connect):
        processes = [connect() for _ in range(4)]
        puts = [entry(order, run=run) for run in (1, 2) for order in range(10)]
        random.Random(7).shuffle(puts)
        attempts = (processes[number % 4].put(put) for number, put in enumerate(puts))
        results = await asyncio.gather(*attempts, return_exceptions=True)
        assert {type(result) for result in results} <= {type(None), RunMovedOn}
        for process in processes:
            assert await process.get("k") == entry(9, run=2)

    async def test_of_equal_puts_at_once_exactly_one_counts(self, connect: Connect):
        processes = [connect() for _ in range(4)]
        puts = [RunSnapshot(key="k", run=1, order=1, status="running", fields={"by": number}) for number in range(20)]
        attempts = (processes[number % 4].put(put) for number, put in enumerate(puts))
        results = await asyncio.gather(*attempts, return_exceptions=True)
        [winner] = [number for number, result in enumerate(results) if result is None]
        assert await processes[0].get("k") == puts[winner]


class TestHolders:
    """A holder takes over with `put`; from then on only its own `put_held` counts."""

    async def test_a_holder_moves_what_it_took_over(self, runs: RunState):
        await runs.put(entry(0))
        await runs.put(entry(1, token="a"))
        await runs.put_held(entry(2, token="a"))
        assert await runs.get("k") == entry(2, token="a")

    async def test_a_late_holder_is_refused_whatever_its_order(self, runs: RunState):
        await runs.put(entry(1, token="late"))
        await runs.put(entry(2, token="holder"))
        with pytest.raises(RunMovedOn):
            await runs.put_held(entry(9, token="late"))
        assert await runs.get("k") == entry(2, token="holder")
        await runs.put_held(entry(3, token="holder"))
        assert list(await runs.list_by_status("running")) == [entry(3, token="holder")]

    @pytest.mark.parametrize("order", [5, 4])
    async def test_a_holder_cannot_move_a_run_back(self, runs: RunState, order: int):
        await runs.put(entry(5, token="a"))
        with pytest.raises(RunMovedOn):
            await runs.put_held(entry(order, token="a"))
        assert await runs.get("k") == entry(5, token="a")

    async def test_a_takeover_must_be_later_too(self, runs: RunState):
        await runs.put(entry(5, token="a"))
        with pytest.raises(RunMovedOn):
            await runs.put(entry(5, token="b"))
        assert await runs.get("k") == entry(5, token="a")

    async def test_a_holder_must_take_over_what_nobody_held(self, runs: RunState):
        await runs.put(entry(0))
        with pytest.raises(RunMovedOn):
            await runs.put_held(entry(1, token="a"))
        assert await runs.get("k") == entry(0)

    async def test_the_end_of_a_run_ends_its_holder(self, runs: RunState):
        await runs.put(entry(1, token="a"))
        await runs.put(entry(9, status="done", final=True))
        with pytest.raises(RunMovedOn):
            await runs.put_held(entry(10, token="a"))
        assert await runs.get("k") == entry(9, status="done", final=True)

    async def test_a_holder_of_an_earlier_run_is_refused(self, runs: RunState):
        await runs.put(entry(1, token="a"))
        await runs.put(entry(0, run=2))
        with pytest.raises(RunMovedOn):
            await runs.put_held(entry(2, token="a"))
        assert await runs.get("k") == entry(0, run=2)

    async def test_what_was_lost_or_has_expired_comes_back_with_the_holders_next_move(
        self, runs: RunState, clock: ManualClock
    ):
        await runs.put_held(entry(7, token="a"))
        assert await runs.get("k") == entry(7, token="a")
        await runs.put(entry(8, token="b"))
        clock.advance(seconds=LIVE_SECONDS)
        await runs.put_held(entry(9, token="a"))
        assert await runs.get("k") == entry(9, token="a")

    async def test_of_takeovers_at_once_one_counts_and_the_others_are_refused(self, connect: Connect):
        processes = [connect() for _ in range(4)]
        await processes[0].put(entry(0))
        puts = [entry(1, token=f"t{number}") for number in range(8)]
        attempts = (processes[number % 4].put(put) for number, put in enumerate(puts))
        results = await asyncio.gather(*attempts, return_exceptions=True)
        [winner] = [number for number, result in enumerate(results) if result is None]
        for number, put in enumerate(puts):
            move = processes[number % 4].put_held(entry(2, token=put.token))
            if number == winner:
                await move
            else:
                with pytest.raises(RunMovedOn):
                    await move
        assert await processes[0].get("k") == entry(2, token=f"t{winner}")


class TestGetMany:
    async def test_those_that_are_there_come_back(self, runs: RunState):
        await runs.put(entry(1, key="a"))
        await runs.put(entry(2, key="b", status="over", final=True))
        found = await runs.get_many(["b", "none", "a"])
        assert sorted(found, key=lambda one: one.key) == [
            entry(1, key="a"),
            entry(2, key="b", status="over", final=True),
        ]
        assert await runs.get_many([]) == []

    async def test_those_whose_time_is_over_do_not(self, runs: RunState, clock: ManualClock):
        await runs.put(entry(1, key="over", final=True))
        await runs.put(entry(1, key="live"))
        clock.advance(seconds=FINAL_SECONDS)
        assert [one.key for one in await runs.get_many(["over", "live"])] == ["live"]

    async def test_as_many_as_there_are(self, runs: RunState):
        keys = [f"k{number}" for number in range(450)]
        for key in keys[::9]:
            await runs.put(entry(1, key=key))
        assert {one.key for one in await runs.get_many(keys)} == set(keys[::9])


class TestListByStatus:
    async def test_entries_of_a_status_come_in_the_order_of_their_keys(self, runs: RunState):
        keys = ["b", "a", "B", "é", "中", "a-1", "😀", "～"]
        for key in keys:
            await runs.put(entry(key=key))
        await runs.put(entry(key="other", status="waiting"))
        assert await keys_with(runs, "running") == sorted(keys, key=str.encode)

    async def test_pages_follow_each_other_without_gap_or_repeat(self, runs: RunState):
        for number in range(7):
            await runs.put(entry(key=f"k{number}"))
        first = await keys_with(runs, "running", limit=3)
        second = await keys_with(runs, "running", after=first[-1], limit=3)
        third = await keys_with(runs, "running", after=second[-1], limit=3)
        assert (first, second, third) == (["k0", "k1", "k2"], ["k3", "k4", "k5"], ["k6"])
        assert await keys_with(runs, "running", after="k6") == []

    async def test_a_page_goes_on_after_a_key_that_is_gone(self, runs: RunState):
        for key in ("a", "c"):
            await runs.put(entry(key=key))
        assert await keys_with(runs, "running", after="b") == ["c"]

    async def test_an_entry_is_listed_under_its_newest_status_only(self, runs: RunState):
        for key in ("a", "b", "c"):
            await runs.put(entry(1, key=key, status="waiting"))
        await runs.put(entry(2, key="b", status="running"))
        assert await keys_with(runs, "waiting") == ["a", "c"]
        assert await keys_with(runs, "running") == ["b"]
        await runs.put(entry(3, key="b", status="waiting"))
        assert await keys_with(runs, "waiting") == ["a", "b", "c"]
        assert await keys_with(runs, "running") == []

    async def test_a_refused_put_changes_no_list(self, runs: RunState):
        await runs.put(entry(2, status="done"))
        with pytest.raises(RunMovedOn):
            await runs.put(entry(1, status="running"))
        assert (await keys_with(runs, "done"), await keys_with(runs, "running")) == (["k"], [])

    async def test_a_listed_entry_is_whole(self, runs: RunState):
        whole = RunSnapshot(key="k", run=2, order=3, status="done", final=True, fields={"pages": [1]})
        await runs.put(whole)
        assert list(await runs.list_by_status("done")) == [whole]


class TestTimeToLive:
    @pytest.mark.parametrize(("final", "seconds"), [(False, LIVE_SECONDS), (True, FINAL_SECONDS)])
    async def test_an_entry_goes_when_its_time_is_over(
        self, runs: RunState, clock: ManualClock, final: bool, seconds: float
    ):
        await runs.put(entry(final=final))
        clock.advance(seconds=seconds - 0.001)
        assert await runs.get("k") == entry(final=final)
        assert await keys_with(runs, "running") == ["k"]
        clock.advance(seconds=0.001)
        assert await runs.get("k") is None
        assert await keys_with(runs, "running") == []

    async def test_every_put_starts_its_time_anew(self, runs: RunState, clock: ManualClock):
        for order in range(3):
            await runs.put(entry(order))
            clock.advance(seconds=LIVE_SECONDS - 1)
        assert await runs.get("k") == entry(2)

    async def test_a_run_that_becomes_final_lives_shorter_from_then_on(self, runs: RunState, clock: ManualClock):
        await runs.put(entry(1))
        await runs.put(entry(2, status="done", final=True))
        clock.advance(seconds=FINAL_SECONDS)
        assert await runs.get("k") is None

    async def test_a_refused_put_gives_no_new_time(self, runs: RunState, clock: ManualClock):
        await runs.put(entry(2))
        clock.advance(seconds=LIVE_SECONDS - 1)
        with pytest.raises(RunMovedOn):
            await runs.put(entry(1))
        clock.advance(seconds=1)
        assert await runs.get("k") is None

    async def test_an_entry_whose_time_is_over_can_be_replaced_by_an_earlier_run(
        self, runs: RunState, clock: ManualClock
    ):
        await runs.put(entry(9, run=9))
        clock.advance(seconds=LIVE_SECONDS - 1)
        with pytest.raises(RunMovedOn):
            await runs.put(entry(1, run=1))
        clock.advance(seconds=1)
        await runs.put(entry(1, run=1))
        assert await runs.get("k") == entry(1, run=1)


class TestSqlSweep:
    """What the table's broom does; Redis's own is in tests/adapters."""

    @pytest.fixture
    def table(self, db: Db) -> SqlRunState:
        return SqlRunState(db, live_seconds=LIVE_SECONDS, final_seconds=FINAL_SECONDS)

    async def test_what_is_over_is_deleted_and_no_more_than_the_limit(self, table: SqlRunState, clock: ManualClock):
        for number in range(5):
            await table.put(entry(key=f"over {number}", final=True))
        await table.put(entry(key="live"))
        assert await table.sweep() == 0
        clock.advance(seconds=FINAL_SECONDS)
        assert [await table.sweep(limit=3) for _ in range(3)] == [3, 2, 0]
        assert await table.get("live") == entry(key="live")

    @pytest.mark.parametrize("db_url", ["postgres"], indirect=True)
    async def test_an_entry_that_is_replaced_during_the_sweep_stays(
        self, db: Db, table: SqlRunState, clock: ManualClock
    ):
        await table.put(entry(final=True))
        clock.advance(seconds=FINAL_SECONDS)
        async with db.tx() as replacing:
            later = "UPDATE run_state SET run = 2, expires_at = expires_at + interval '1 day'"
            await replacing.conn.execute(text(later))
            sweep = asyncio.create_task(table.sweep())
            async with asyncio.timeout(20), db.read() as tx:
                while not await tx.conn.scalar(SOMEONE_WAITS):
                    pass
        assert await sweep == 0
        assert await table.get("k") == entry(run=2, final=True)
