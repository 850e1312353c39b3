"""Alerts: one event when an alert starts, and one when it ends."""

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import select

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.dialect.bulk import insert_rows
from penstock.kernel.events import event
from penstock.tasks import alerts, worker
from penstock.tasks.alerts import AlertThresholds
from penstock.tasks.domain import AlertRule
from penstock.tasks.metrics import MIN_ENDED_PULLS, PullHealthMetrics
from penstock.tasks.store import alerts as alert_store
from penstock.tasks.store import projects, pulls
from penstock.tasks.store.tables import task_pull
from tests.conftest import open_db, sequence
from tests.plans import explain, recorded
from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite
from tests.tasks.ended_pulls import end_pulls

NEVER = AlertThresholds(success_rate=0, overdue=0, requests=0, operations=0)


async def alert_events(db: Db) -> list[tuple[str, Mapping[str, Any]]]:
    """Alert events, oldest first."""
    await sequence(db)
    async with db.read() as tx:
        mine = select(event).where(event.c.kind.in_(["alert", "alert_over"])).order_by(event.c.id)
        rows = list(await tx.conn.execute(mine))
    assert all(row.topic == row.audience == "project:p1" for row in rows)
    return [(row.kind, row.data) for row in rows]


async def kinds(db: Db) -> list[tuple[str, str]]:
    return [(kind, data["rule"]) for kind, data in await alert_events(db)]


class TestRules:
    @pytest.mark.parametrize(
        ("rule", "value", "broken"),
        [
            (AlertRule.SUCCESS_RATE, 79.9, True),
            (AlertRule.SUCCESS_RATE, 80, False),
            (AlertRule.OVERDUE, 101, True),
            (AlertRule.OVERDUE, 100, False),
            (AlertRule.REQUESTS, 60_001, True),
            (AlertRule.REQUESTS, 60_000, False),
            (AlertRule.OPERATIONS, 101, True),
            (AlertRule.OPERATIONS, 100, False),
        ],
    )
    def test_a_rule_is_broken_beyond_its_threshold(self, rule: AlertRule, value: float, broken: bool):
        assert AlertThresholds().is_broken(rule, value) is broken

    @pytest.mark.parametrize("rule", list(AlertRule))
    def test_zero_disables_a_rule(self, rule: AlertRule):
        assert not NEVER.is_broken(rule, 0)
        assert not NEVER.is_broken(rule, 1e9)


class TestSuccessRate:
    async def test_a_low_success_rate_starts_one_alert_and_ends_it_once(self, api: TasksApi, clock: ManualClock):
        await end_pulls(api, "bad", pushed=7, released=3)
        began = clock.now()
        for _ in range(3):
            await worker.check_alerts(api.db, AlertThresholds())
            clock.advance(seconds=60)
        about = {"rule": "success_rate", "threshold": 80.0, "since": began.isoformat()}
        assert await alert_events(api.db) == [("alert", {**about, "value": 70.0})]
        await end_pulls(api, "good", pushed=5)
        for _ in range(3):
            await worker.check_alerts(api.db, AlertThresholds())
        assert (await alert_events(api.db))[1:] == [("alert_over", {**about, "value": 80.0})]

    @on_sqlite
    async def test_too_few_pulls_start_no_alert(self, api: TasksApi):
        await end_pulls(api, "bad", released=MIN_ENDED_PULLS - 1)
        await worker.check_alerts(api.db, AlertThresholds())
        assert await alert_events(api.db) == []

    @on_sqlite
    async def test_it_ends_after_an_hour(self, api: TasksApi, clock: ManualClock):
        await end_pulls(api, "bad", released=MIN_ENDED_PULLS)
        await worker.check_alerts(api.db, AlertThresholds())
        clock.advance(seconds=3601)
        await worker.check_alerts(api.db, AlertThresholds())
        assert await kinds(api.db) == [("alert", "success_rate"), ("alert_over", "success_rate")]
        assert (await alert_events(api.db))[1][1]["value"] is None, (
            "nothing has ended since: there is nothing to measure"
        )

    @on_sqlite
    async def test_it_can_start_again(self, api: TasksApi, clock: ManualClock):
        for round_ in ("one", "two"):
            await end_pulls(api, round_, released=MIN_ENDED_PULLS)
            await worker.check_alerts(api.db, AlertThresholds())
            clock.advance(seconds=3601)
            await worker.check_alerts(api.db, AlertThresholds())
        assert [kind for kind, _ in await kinds(api.db)] == ["alert", "alert_over"] * 2


class TestOtherRules:
    async def test_expired_leases_start_an_alert(self, api: TasksApi):
        await end_pulls(api, "silent", timed_out=3)
        await worker.check_alerts(api.db, AlertThresholds(overdue=3))
        assert await alert_events(api.db) == []
        await worker.check_alerts(api.db, AlertThresholds(overdue=2))
        assert await kinds(api.db) == [("alert", "overdue")]

    async def test_too_many_pull_requests_start_an_alert(self, api: TasksApi, clock: ManualClock):
        await end_pulls(api, "much", pushed=4)
        await worker.check_alerts(api.db, AlertThresholds(requests=4))
        assert await alert_events(api.db) == []
        await worker.check_alerts(api.db, AlertThresholds(requests=3))
        clock.advance(seconds=61)
        await worker.check_alerts(api.db, AlertThresholds(requests=3))
        assert await kinds(api.db) == [("alert", "requests"), ("alert_over", "requests")]

    @on_sqlite
    async def test_one_pull_of_many_tasks_is_one_request(self, api: TasksApi):
        await api.plan(*(f"t{number}" for number in range(5)))
        assert len(await api.pull("limit=5")) == 5
        async with api.db.read() as tx:
            project = await projects.get_project(tx, "p1")
            counted = await alert_store.count_requests_by_project(tx, since=project.created_at.replace(year=2000))
        assert counted == {project.id: 1}

    @pytest.mark.parametrize("operation", ["reset", "reset-error", "re-run"])
    async def test_every_queue_operation_counts(self, api: TasksApi, clock: ManualClock, operation: str):
        for _ in range(3):
            await api.data("POST", f"{PROJECT}/queues/q1/{operation}")
        await worker.check_alerts(api.db, AlertThresholds(operations=2))
        clock.advance(seconds=3601)
        await worker.check_alerts(api.db, AlertThresholds(operations=2))
        assert await kinds(api.db) == [("alert", "operations"), ("alert_over", "operations")]

    @on_sqlite
    async def test_disabled_rules_start_no_alert(self, api: TasksApi):
        await end_pulls(api, "bad", released=MIN_ENDED_PULLS, timed_out=1)
        await api.data("POST", f"{PROJECT}/queues/q1/reset")
        await worker.check_alerts(api.db, NEVER)
        assert await alert_events(api.db) == []


class TestManyProcesses:
    async def test_concurrent_processes_send_one_event(self, api: TasksApi, db_url: str, clock: ManualClock):
        await end_pulls(api, "bad", released=MIN_ENDED_PULLS)
        others = [open_db(db_url, clock) for _ in range(3)]
        await asyncio.gather(*(worker.check_alerts(db, AlertThresholds()) for db in others))
        assert await kinds(api.db) == [("alert", "success_rate")]
        clock.advance(seconds=3601)
        await asyncio.gather(*(worker.check_alerts(db, AlertThresholds()) for db in others))
        assert await kinds(api.db) == [("alert", "success_rate"), ("alert_over", "success_rate")]
        for db in others:
            await db.close()

    async def test_a_deleted_project_leaves_no_alert(self, api: TasksApi):
        await end_pulls(api, "bad", released=MIN_ENDED_PULLS)
        await worker.check_alerts(api.db, AlertThresholds())
        await api.data("DELETE", PROJECT)
        await worker.check_alerts(api.db, AlertThresholds())
        assert await kinds(api.db) == [("alert", "success_rate")]
        async with api.db.read() as tx:
            assert await alert_store.list_alerts(tx) == []

    async def test_the_number_of_events_per_run_is_bounded(self, api: TasksApi, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(alerts, "MAX_EVENTS", 1)
        await end_pulls(api, "bad", released=MIN_ENDED_PULLS, timed_out=1)
        rules = AlertThresholds(overdue=0.5)
        await worker.check_alerts(api.db, rules)
        assert await kinds(api.db) == [("alert", "overdue")]
        await worker.check_alerts(api.db, rules)
        assert await kinds(api.db) == [("alert", "overdue"), ("alert", "success_rate")]


class TestCosts:
    @pytest.fixture
    async def many_pulls(self, api: TasksApi, clock: ManualClock) -> TasksApi:
        """An hour of pulls that ended, one a second."""
        rows = []
        for number in range(3600):
            row = ("p", "q", f"t{number}", f"pull{number // 2}", "token", clock.now(), "w", "key")
            rows.append((*row, clock.now(), "w", "pushed", 0.0))
            clock.advance(seconds=1)
        async with api.db.tx() as tx:
            ended = ("ended_at", "ended_by", "outcome", "seconds")
            await insert_rows(tx, task_pull, (*pulls.NAMES, *ended), rows)
        return api

    async def test_a_minute_is_found_in_a_long_history(self, many_pulls: TasksApi, clock: ManualClock):
        async with many_pulls.db.read() as tx:
            since = clock.now() - alerts.MINUTE
            assert await alert_store.count_requests_by_project(tx, since=since) == {"p": 30}
            bound = await alert_store._find_pull_before(tx, since)
            assert bound > 0, "the beginning of the history is not read"

    @pytest.mark.parametrize("table", ["task_pull", "audit_log", "project", "task"])
    async def test_every_count_is_served_by_an_index(self, many_pulls: TasksApi, table: str):
        with recorded(many_pulls.db, table) as statements:
            await worker.check_alerts(many_pulls.db, AlertThresholds())
            await PullHealthMetrics(many_pulls.db, pull_timeout=60).refresh()
        assert statements
        for statement, parameters in statements:
            steps = await explain(many_pulls.db, statement, parameters)
            read = [step for step in steps if re.match(rf"(SCAN|Seq Scan) {table}\b(?!.*INDEX)", step)]
            assert not read, (statement, steps)


@on_sqlite
async def test_alerts_are_checked_every_minute(api: TasksApi):
    periodic_task = worker.alert_task(api.db, AlertThresholds(operations=0.5))
    assert (periodic_task.name, periodic_task.every_seconds) == ("watch-pulls", 60)
    await api.data("POST", f"{PROJECT}/queues/q1/reset")
    await periodic_task.run()
    assert await kinds(api.db) == [("alert", "operations")]
