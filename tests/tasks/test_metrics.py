"""Prometheus metrics of tasks."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.metrics import Metrics
from penstock.tasks.domain import PullOutcome
from penstock.tasks.metrics import MAX_PAIRS, MIN_ENDED_PULLS, PullHealthMetrics, TaskMetrics
from tests.conftest import open_db
from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite
from tests.tasks.ended_pulls import end_pulls

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def read(db: Db, metrics: TaskMetrics, *, pull_timeout: float = 3600) -> Samples:
    page = Metrics(db, version="1", more=[metrics, PullHealthMetrics(db, pull_timeout=pull_timeout)])
    families = text_string_to_metric_families((await page.page()).decode())
    samples = [sample for family in families for sample in family.samples]
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}


def value(samples: Samples, name: str, /, **labels: str) -> float | None:
    return samples.get((name, frozenset(labels.items())))


def series(samples: Samples, name: str) -> int:
    return sum(known == name for known, _ in samples)


class TestTaskMetrics:
    @on_sqlite
    async def test_pulls_are_counted_by_project_and_queue(self, db: Db):
        metrics = TaskMetrics()
        for queue_id, taken in (("q1", 3), ("q1", 0), ("", 2)):
            metrics.count_pull("p1", queue_id, taken)
        samples = await read(db, metrics)
        assert value(samples, "penstock_pull_requests_total", project="p1", queue="q1") == 2
        assert value(samples, "penstock_pull_requests_total", project="p1", queue="") == 1
        assert value(samples, "penstock_pull_tasks_total", project="p1") == 5

    @on_sqlite
    async def test_label_cardinality_is_bounded(self, db: Db):
        metrics = TaskMetrics()
        for number in range(MAX_PAIRS + 50):
            metrics.count_pull(f"p{number}", "q", 1)
        metrics.count_pull("p0", "q", 1)
        samples = await read(db, metrics)
        assert series(samples, "penstock_pull_requests_total") == MAX_PAIRS + 1
        assert series(samples, "penstock_pull_tasks_total") == MAX_PAIRS + 1
        assert value(samples, "penstock_pull_requests_total", project="other", queue="other") == 50
        assert value(samples, "penstock_pull_tasks_total", project="other") == 50
        assert value(samples, "penstock_pull_requests_total", project="p0", queue="q") == 2

    @on_sqlite
    async def test_labels_may_contain_any_character(self, db: Db):
        metrics, name = TaskMetrics(), 'a "b"\\\n👩‍🚀' + "x" * 200
        metrics.count_pull(name, name, 1)
        assert value(await read(db, metrics), "penstock_pull_requests_total", project=name, queue=name) == 1

    @on_sqlite
    async def test_refusals_operations_and_ends_are_counted(self, db: Db):
        metrics = TaskMetrics()
        metrics.count_limited()
        for operation in ("reset", "re-run", "reset"):
            metrics.count_operation(operation)
        metrics.count_ended(PullOutcome.RELEASED, 5)
        samples = await read(db, metrics)
        assert value(samples, "penstock_pull_limited_total") == 1
        assert value(samples, "penstock_queue_operations_total", operation="reset") == 2
        assert value(samples, "penstock_queue_operations_total", operation="re-run") == 1
        assert value(samples, "penstock_pull_ended_total", outcome="released") == 1

    @on_sqlite
    async def test_only_pushes_count_in_the_duration_histogram(self, db: Db):
        metrics = TaskMetrics()
        for outcome, seconds in (("pushed", 0.5), ("pushed", 100), ("pushed", 1e6), ("timed_out", 3600)):
            metrics.count_ended(outcome, seconds)
        samples = await read(db, metrics)
        assert value(samples, "penstock_pull_seconds_bucket", le="1.0") == 1
        assert value(samples, "penstock_pull_seconds_bucket", le="300.0") == 2
        assert value(samples, "penstock_pull_seconds_bucket", le="86400.0") == 2
        assert value(samples, "penstock_pull_seconds_count") == 3
        assert value(samples, "penstock_pull_seconds_sum") == pytest.approx(1_000_100.5)


class TestPullHealthMetrics:
    async def test_the_success_ratio_is_that_of_the_last_hour(self, api: TasksApi, clock: ManualClock):
        await end_pulls(api, "early", timed_out=MIN_ENDED_PULLS)
        clock.advance(seconds=3601)
        await end_pulls(api, "late", pushed=9, released=2, timed_out=1)
        assert value(await read(api.db, api.deps.metrics), "penstock_pull_success_ratio") == 0.75

    @on_sqlite
    async def test_too_few_pulls_have_no_ratio(self, api: TasksApi):
        await end_pulls(api, "few", released=MIN_ENDED_PULLS - 1)
        assert value(await read(api.db, TaskMetrics()), "penstock_pull_success_ratio") is None

    async def test_what_is_held_for_too_long_is_overdue(self, api: TasksApi, clock: ManualClock):
        await api.plan("t1", "t2", "t3")
        await api.pull("limit=2")
        clock.advance(seconds=3599)
        assert value(await read(api.db, TaskMetrics()), "penstock_pulls_overdue") == 0
        clock.advance(seconds=1)
        assert value(await read(api.db, TaskMetrics()), "penstock_pulls_overdue") == 2
        await api.run_periodic_tasks("time-out-pulls")
        assert value(await read(api.db, TaskMetrics()), "penstock_pulls_overdue") == 0

    @on_sqlite
    async def test_who_renews_for_longer_than_a_pull_may_take_is_overdue_too(self, api: TasksApi):
        await api.plan("t1")
        await api.pull()
        assert value(await read(api.db, TaskMetrics(), pull_timeout=0), "penstock_pulls_overdue") == 1

    async def test_without_a_database_the_other_metrics_are_exported(self, clock: ManualClock):
        db, metrics = open_db("postgresql://nobody@127.0.0.1:1/nowhere", clock), TaskMetrics()
        metrics.count_limited()
        samples = await read(db, metrics)
        assert value(samples, "penstock_pull_limited_total") == 1
        assert value(samples, "penstock_pulls_overdue") is None
        await db.close()


class TestCounting:
    @on_sqlite
    async def test_a_pull_its_push_and_a_reset_are_counted(self, api: TasksApi, clock: ManualClock):
        await api.plan("t1", "t2", queue="q1")
        await api.pull("limit=5", queue="q1")
        clock.advance(seconds=30)
        await api.submit({"id": "t1", "status": "done"}, {"id": "t2", "status": "running"}, key="root")
        await api.data("POST", f"{PROJECT}/queues/q1/reset")
        samples = await read(api.db, api.deps.metrics)
        assert value(samples, "penstock_pull_requests_total", project="p1", queue="q1") == 1
        assert value(samples, "penstock_pull_tasks_total", project="p1") == 2
        assert value(samples, "penstock_queue_operations_total", operation="reset") == 1

    @on_sqlite
    async def test_how_pulls_end_is_counted(self, api: TasksApi, clock: ManualClock):
        await end_pulls(api, "some", pushed=2, released=1, timed_out=1)
        samples = await read(api.db, api.deps.metrics)
        assert value(samples, "penstock_pull_ended_total", outcome="pushed") == 2
        assert value(samples, "penstock_pull_ended_total", outcome="released") == 1
        assert value(samples, "penstock_pull_ended_total", outcome="timed_out") == 1
        assert value(samples, "penstock_pull_seconds_count") == 2

    @on_sqlite
    async def test_a_pull_that_a_limit_refuses_is_counted(self, api: TasksApi, clock: ManualClock):
        with_limits = api.with_limits("1/minute")
        for _ in range(3):
            await with_limits.call("GET", f"{PROJECT}/tasks/pull")
        assert value(await read(api.db, api.deps.metrics), "penstock_pull_limited_total") == 2
