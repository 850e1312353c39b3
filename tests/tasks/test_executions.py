"""Executions in statistics: tasks that clients report as done or failed, with the names that existing clients know."""

from typing import Any

import pytest

from penstock.tasks.executions import find_error_type
from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite

HOST: dict[str, Any] = {"clientInfo": {"username": "ann", "hostname": "box"}}


@pytest.fixture
def fresh(api: TasksApi) -> TasksApi:
    """The module without a statistics cache."""
    return api.with_config(stats_seconds=0)


def summary(total: int, success: int, rate: float) -> dict[str, Any]:
    return {
        "total_execution": total,
        "total_success": success,
        "total_failure": total - success,
        "success_rate": rate,
    }


async def run(api: TasksApi, task_id: str, status: str, *, seconds: float, report: str | None = None) -> None:
    """Push a task as pending, then in a final status."""
    await api.submit({"id": task_id}, **HOST)
    api.clock.advance(seconds=seconds)
    await api.submit({"id": task_id, "status": status, "report": report}, **HOST)


async def work(api: TasksApi) -> None:
    """Three executions on the first day, at midnight and 02:00, and one on the third."""
    await run(api, "a", "done", seconds=30)
    await run(api, "b", "error", seconds=120, report="Request timed out")
    api.clock.advance(seconds=7200)
    await api.submit({"id": "c"}, queue="q2")
    api.clock.advance(seconds=700)
    await api.data("PATCH", "/tasks/p1/q2/c/status", {"status": "done"})
    api.clock.advance(seconds=2 * 86400)
    await run(api, "d", "error", seconds=400, report="It broke.")


async def test_days_have_executions_and_the_tasks_at_their_end(fresh: TasksApi):
    await work(fresh)
    system = await fresh.data("GET", "/stats/system")
    assert system["summary"] == summary(4, 2, 0.5)
    assert system["daily_stats"] == [
        {
            "date": "2026-01-01",
            "execution": {"total": 3, "success": 2, "failure": 1},
            "task_status": {"total": 2, "pending": 0, "done": 1, "error": 1},
        },
        {
            "date": "2026-01-03",
            "execution": {"total": 1, "success": 0, "failure": 1},
            "task_status": {"total": 2, "pending": 0, "done": 1, "error": 1},
        },
    ]
    one = await fresh.data("GET", "/stats/project/p1")
    assert (one["project_id"], one["project_name"]) == ("p1", "P")
    assert (one["summary"], one["daily_stats"]) == (system["summary"], system["daily_stats"])


async def test_dates_are_inclusive_and_thirty_days_by_default(fresh: TasksApi):
    await work(fresh)
    for query, total in {
        "startDate=2026-01-01&endDate=2026-01-01": 3,
        "startDate=2026-01-02&endDate=2026-01-03": 1,
        "startDate=2026-01-02": 1,
        "endDate=2026-01-01": 3,
        "endDate=2026-01-30": 4,
        "endDate=2026-01-31": 1,
    }.items():
        assert (await fresh.data("GET", f"/stats/system?{query}"))["summary"]["total_execution"] == total, query
    fresh.clock.advance(seconds=40 * 86400)
    assert (await fresh.data("GET", "/stats/system"))["summary"] == summary(0, 0, 0.0)


async def test_projects_queues_and_hosts_have_a_summary(fresh: TasksApi):
    await work(fresh)
    await fresh.make_project("p2", "Idle")
    listed = (await fresh.data("GET", "/stats/projects"))["projects"]
    assert listed == [
        {"project_id": "p1", "project_name": "P", "summary": summary(4, 2, 0.5)},
        {"project_id": "p2", "project_name": "Idle", "summary": summary(0, 0, 0.0)},
    ]
    queues = (await fresh.data("GET", "/stats/by-queue?projectId=p1"))["queues"]
    assert queues == [
        {"queue_id": "q1", "summary": summary(3, 1, 0.33)},
        {"queue_id": "q2", "summary": summary(1, 1, 1.0)},
    ]
    clients = (await fresh.data("GET", "/stats/by-client?projectId=p1"))["clients"]
    assert clients == [{"hostname": "box", "summary": summary(4, 2, 0.5)}]
    assert (await fresh.data("GET", "/stats/by-client?projectId=p2"))["clients"] == []


async def test_a_day_has_24_hours(fresh: TasksApi):
    await work(fresh)
    told = await fresh.data("GET", "/stats/by-hour?date=2026-01-01&projectId=p1")
    assert told["date"] == "2026-01-01"
    assert [one["hour"] for one in told["hourly_stats"]] == list(range(24))
    assert [one["execution"]["total"] for one in told["hourly_stats"]] == [2, 0, 1, *[0] * 21]
    assert (await fresh.data("GET", "/stats/by-hour"))["date"] == "2026-01-03"


async def test_errors_and_durations_are_counted(fresh: TasksApi):
    await work(fresh)
    assert (await fresh.data("GET", "/stats/error-types"))["error_types"] == [
        {"type": "other", "count": 1, "percentage": 50.0, "label": "Other"},
        {"type": "timeout", "count": 1, "percentage": 50.0, "label": "Timeout"},
    ]
    told = await fresh.data("GET", "/stats/execution-duration?projectId=p1")
    assert told["summary"] == {
        "avg_duration": 312_500,
        "min_duration": 30_000,
        "max_duration": 700_000,
        "total_count": 4,
    }
    assert [(one["range"], one["count"]) for one in told["distribution"]] == [
        ("0-1分钟", 1),
        ("1-5分钟", 1),
        ("5-10分钟", 1),
        ("10分钟以上", 1),
    ]
    nothing = await fresh.data("GET", "/stats/execution-duration?startDate=2020-01-01&endDate=2020-01-02")
    assert nothing["summary"] == {"avg_duration": 0, "min_duration": 0, "max_duration": 0, "total_count": 0}


async def test_only_the_end_of_an_execution_counts_and_once(fresh: TasksApi):
    await fresh.plan("loose")
    await fresh.submit({"id": "new", "status": "done"}, {"id": "loose", "status": "running"})
    await fresh.pull()
    body = {"id": "loose", "name": "n", "prompt": "p", "status": "done"}
    push = {"project_id": "p1", "project_name": "P", "queue_id": "q1", "queue_name": "Q"}
    for status in ("done", "done", "error"):
        tasks = [{**body, "status": status}, {**body, "id": "new"}]
        await fresh.data("POST", "/submit", {**push, "tasks": tasks}, x_client_id="worker-1")
    await fresh.data("PATCH", "/tasks/p1/q1/new/status", {"status": "cancelled"})
    assert (await fresh.data("GET", "/stats/system"))["summary"] == summary(1, 1, 1.0)


async def test_counts_are_deleted_with_their_project_and_after_their_retention(fresh: TasksApi):
    await work(fresh)
    fresh.clock.advance(seconds=366 * 86400)
    await fresh.run_periodic_tasks("forget-pulls")
    wide = "startDate=2026-01-01&endDate=2027-02-01"
    assert (await fresh.data("GET", f"/stats/system?{wide}"))["summary"]["total_execution"] == 0
    await run(fresh, "e", "done", seconds=1)
    assert (await fresh.data("GET", f"/stats/system?{wide}"))["summary"]["total_execution"] == 1
    await fresh.data("DELETE", PROJECT)
    await fresh.run_jobs()
    assert (await fresh.data("GET", f"/stats/system?{wide}"))["summary"]["total_execution"] == 0


@on_sqlite
async def test_dates_that_cannot_be_are_named(fresh: TasksApi):
    for query, field in {
        "startDate=soon": "startDate",
        "endDate=2026-13-01": "endDate",
        "startDate=2026-01-02&endDate=2026-01-01": "endDate",
        "startDate=1000-01-01": "endDate",
    }.items():
        status, error = await fresh.error("GET", f"/stats/system?{query}")
        assert (status, error["code"], error["details"]["field"]) == (400, "VALIDATION_ERROR", field), query
    status, error = await fresh.error("GET", "/stats/by-hour?date=x")
    assert (status, error["details"]["field"]) == (400, "date")


@on_sqlite
async def test_the_totals_have_the_names_that_existing_clients_know(fresh: TasksApi):
    await work(fresh)
    await fresh.plan("loose")
    told = await fresh.data("GET", "/stats")
    assert (told["project_count"], told["queue_count"], told["task_count"]) == (1, 2, 2)
    assert (told["task_stats"]["total"], told["task_stats"]["error"], told["unqueued_count"]) == (2, 1, 1)


def test_the_words_of_a_report_decide_the_type_of_an_error():
    for text, kind in {
        "Gateway Timeout": "timeout",
        "请求超时": "timeout",
        "Connection refused": "network",
        "Permission denied": "permission",
        "File not found": "not_found",
        "文件不存在": "not_found",
        "Invalid argument": "validation",
        "Something": "other",
        "": "other",
    }.items():
        assert find_error_type(text) == kind, text
