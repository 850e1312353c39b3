"""What is counted about tasks."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.metrics import Metrics
from penstock.tasks.domain import Outcome
from penstock.tasks.metrics import LEAST_ENDED, MOST_PAIRS, Meters, PullFigures
from tests.conftest import open_db
from tests.tasks.conftest import PROJECT, Room
from tests.tasks.ended_pulls import end_pulls

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def read(db: Db, meters: Meters, *, pull_timeout: float = 3600) -> Samples:
    metrics = Metrics(db, version="1", more=[meters, PullFigures(db, pull_timeout=pull_timeout)])
    families = text_string_to_metric_families((await metrics.page()).decode())
    samples = [sample for family in families for sample in family.samples]
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}


def value(samples: Samples, name: str, /, **labels: str) -> float | None:
    return samples.get((name, frozenset(labels.items())))


def series(samples: Samples, name: str) -> int:
    return sum(known == name for known, _ in samples)


class TestMeters:
    async def test_pulls_are_counted_by_project_and_queue(self, db: Db):
        meters = Meters()
        for queue_id, taken in (("q1", 3), ("q1", 0), ("", 2)):
            meters.count_pull("p1", queue_id, taken)
        samples = await read(db, meters)
        assert value(samples, "penstock_pull_requests_total", project="p1", queue="q1") == 2
        assert value(samples, "penstock_pull_requests_total", project="p1", queue="") == 1
        assert value(samples, "penstock_pull_tasks_total", project="p1") == 5

    async def test_names_without_end_are_counted_together(self, db: Db):
        meters = Meters()
        for number in range(MOST_PAIRS + 50):
            meters.count_pull(f"p{number}", "q", 1)
        meters.count_pull("p0", "q", 1)
        samples = await read(db, meters)
        assert series(samples, "penstock_pull_requests_total") == MOST_PAIRS + 1
        assert series(samples, "penstock_pull_tasks_total") == MOST_PAIRS + 1
        assert value(samples, "penstock_pull_requests_total", project="other", queue="other") == 50
        assert value(samples, "penstock_pull_tasks_total", project="other") == 50
        assert value(samples, "penstock_pull_requests_total", project="p0", queue="q") == 2

    async def test_a_name_may_hold_whatever_names_hold(self, db: Db):
        meters, name = Meters(), 'a "b"\\\n👩‍🚀' + "x" * 200
        meters.count_pull(name, name, 1)
        assert value(await read(db, meters), "penstock_pull_requests_total", project=name, queue=name) == 1

    async def test_refusals_operations_and_ends_are_counted(self, db: Db):
        meters = Meters()
        meters.count_limited()
        for operation in ("reset", "re-run", "reset"):
            meters.count_operation(operation)
        meters.count_ended(Outcome.RELEASED, 5)
        samples = await read(db, meters)
        assert value(samples, "penstock_pull_limited_total") == 1
        assert value(samples, "penstock_queue_operations_total", operation="reset") == 2
        assert value(samples, "penstock_queue_operations_total", operation="re-run") == 1
        assert value(samples, "penstock_pull_ended_total", outcome="released") == 1

    async def test_only_pushes_tell_how_long_pulls_take(self, db: Db):
        meters = Meters()
        for outcome, seconds in (("pushed", 0.5), ("pushed", 100), ("pushed", 1e6), ("timed_out", 3600)):
            meters.count_ended(outcome, seconds)
        samples = await read(db, meters)
        assert value(samples, "penstock_pull_seconds_bucket", le="1.0") == 1
        assert value(samples, "penstock_pull_seconds_bucket", le="300.0") == 2
        assert value(samples, "penstock_pull_seconds_bucket", le="86400.0") == 2
        assert value(samples, "penstock_pull_seconds_count") == 3
        assert value(samples, "penstock_pull_seconds_sum") == pytest.approx(1_000_100.5)


class TestPullFigures:
    async def test_the_success_ratio_is_that_of_the_last_hour(self, room: Room, clock: ManualClock):
        await end_pulls(room, "early", timed_out=LEAST_ENDED)
        clock.advance(seconds=3601)
        await end_pulls(room, "late", pushed=9, released=2, timed_out=1)
        assert value(await read(room.db, room.tools.meters), "penstock_pull_success_ratio") == 0.75

    async def test_of_too_few_pulls_no_ratio_is_told(self, room: Room):
        await end_pulls(room, "few", released=LEAST_ENDED - 1)
        assert value(await read(room.db, Meters()), "penstock_pull_success_ratio") is None

    async def test_what_is_held_for_too_long_is_overdue(self, room: Room, clock: ManualClock):
        await room.plan("t1", "t2", "t3")
        await room.pull("limit=2")
        clock.advance(seconds=3599)
        assert value(await read(room.db, Meters()), "penstock_pulls_overdue") == 0
        clock.advance(seconds=1)
        assert value(await read(room.db, Meters()), "penstock_pulls_overdue") == 2
        await room.tidy("time-out-pulls")
        assert value(await read(room.db, Meters()), "penstock_pulls_overdue") == 0

    async def test_who_renews_for_longer_than_a_pull_may_take_is_overdue_too(self, room: Room):
        await room.plan("t1")
        await room.pull()
        assert value(await read(room.db, Meters(), pull_timeout=0), "penstock_pulls_overdue") == 1

    async def test_without_a_database_the_other_figures_are_told(self, clock: ManualClock):
        db, meters = open_db("postgresql://nobody@127.0.0.1:1/nowhere", clock), Meters()
        meters.count_limited()
        samples = await read(db, meters)
        assert value(samples, "penstock_pull_limited_total") == 1
        assert value(samples, "penstock_pulls_overdue") is None
        await db.close()


class TestWhoCounts:
    async def test_a_pull_its_push_and_a_reset_are_counted(self, room: Room, clock: ManualClock):
        await room.plan("t1", "t2", queue="q1")
        await room.pull("limit=5", queue="q1")
        clock.advance(seconds=30)
        await room.submit({"id": "t1", "status": "done"}, {"id": "t2", "status": "running"}, key="root")
        await room.data("POST", f"{PROJECT}/queues/q1/reset")
        samples = await read(room.db, room.tools.meters)
        assert value(samples, "penstock_pull_requests_total", project="p1", queue="q1") == 1
        assert value(samples, "penstock_pull_tasks_total", project="p1") == 2
        assert value(samples, "penstock_queue_operations_total", operation="reset") == 1

    async def test_how_pulls_end_is_counted(self, room: Room, clock: ManualClock):
        await end_pulls(room, "some", pushed=2, released=1, timed_out=1)
        samples = await read(room.db, room.tools.meters)
        assert value(samples, "penstock_pull_ended_total", outcome="pushed") == 2
        assert value(samples, "penstock_pull_ended_total", outcome="released") == 1
        assert value(samples, "penstock_pull_ended_total", outcome="timed_out") == 1
        assert value(samples, "penstock_pull_seconds_count") == 2

    async def test_a_pull_that_a_limit_refuses_is_counted(self, room: Room, clock: ManualClock):
        limited = room.limited("1/minute")
        for _ in range(3):
            await limited.call("GET", f"{PROJECT}/tasks/pull")
        assert value(await read(room.db, room.tools.meters), "penstock_pull_limited_total") == 2
