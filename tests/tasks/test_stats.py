"""Statistics of projects, queues, clients and hours."""

from typing import Any

import pytest

from penstock import __version__
from penstock.tasks.store import statistics
from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite

EVERY = [
    "/stats",
    "/stats/projects",
    "/stats/by-queue",
    "/stats/by-hour",
    "/stats/by-client",
    "/stats/error-types",
    "/stats/execution-duration",
    "/stats/system",
]
ALL = [*EVERY, "/stats/project/p1"]
BY_PROJECT = [path for path in EVERY if path != "/stats/projects"]
NO_TASKS = {"total": 0, "pending": 0, "running": 0, "done": 0, "error": 0, "cancelled": 0}


@pytest.fixture
def fresh(api: TasksApi) -> TasksApi:
    """The module without a statistics cache."""
    return api.with_config(stats_seconds=0)


async def push_elsewhere(api: TasksApi, *tasks: dict[str, Any], project: str = "p2", **more: Any) -> None:
    full = [{"name": "n", "prompt": "p", **task} for task in tasks]
    body = {"project_id": project, "project_name": "Other", "queue_id": "q9", "queue_name": "Nine", "tasks": full}
    await api.data("POST", "/submit", {**body, **more})


def some(**statuses: int) -> list[dict[str, Any]]:
    """So many tasks in each status."""
    return [{"id": f"{status}{n}", "status": status} for status, many in statuses.items() for n in range(many)]


class TestOverview:
    async def test_all_projects_are_added_up(self, fresh: TasksApi):
        await fresh.submit(*some(pending=1, done=2))
        await push_elsewhere(fresh, *some(error=1, running=1, cancelled=1))
        told = await fresh.data("GET", "/stats")
        assert (told["projects"], told["queues"], told["task_count"]) == (2, 2, 6)
        assert told["task_stats"] == {"total": 6, "pending": 1, "running": 1, "done": 2, "error": 1, "cancelled": 1}
        assert told["success_rate"] == 66.67
        assert told["cached_at"] == "2026-01-01T00:00:00.000Z"

    async def test_pulls_of_all_projects_are_counted(self, fresh: TasksApi):
        await fresh.plan("a", "b", "c", queue="q1")
        await fresh.pull(client="anna", key="anna")
        fresh.clock.advance(seconds=8)
        await fresh.submit({"id": "a", "status": "done"}, key="anna")
        await fresh.data("POST", f"{PROJECT}/tasks/b/pull/release", key="anna")
        pulls = (await fresh.data("GET", "/stats"))["pulls"]
        assert pulls == {
            "total": 3,
            "pushed": 1,
            "released": 1,
            "timed_out": 0,
            "revoked": 0,
            "overwritten": 0,
            "held": 1,
            "success_rate": 50.0,
            "average_duration": 8.0,
            "counted": 3,
        }

    async def test_only_the_latest_pulls_count(self, fresh: TasksApi, monkeypatch: pytest.MonkeyPatch):
        await fresh.plan("a", "b", "c")
        await fresh.pull()
        monkeypatch.setattr(statistics, "LATEST_PULLS", 2)
        assert (await fresh.data("GET", "/stats"))["pulls"]["counted"] == 2
        assert (await fresh.data("GET", "/stats/project/p1"))["pulls"]["total"] == 2

    async def test_one_project_is_counted_alone(self, fresh: TasksApi):
        await fresh.submit(*some(pending=1, done=1))
        await push_elsewhere(fresh, *some(error=1))
        told = await fresh.data("GET", "/stats/project/p1")
        assert (told["project_id"], told["queue_count"], told["task_count"]) == ("p1", 1, 2)
        assert (told["task_stats"]["done"], told["success_rate"]) == (1, 100.0)
        assert told["pulls"]["total"] == 0

    async def test_a_deleted_project_is_counted_no_more(self, fresh: TasksApi):
        await fresh.submit(*some(done=3))
        await push_elsewhere(fresh, *some(error=1))
        await fresh.data("DELETE", PROJECT)
        told = await fresh.data("GET", "/stats")
        assert (told["projects"], told["queues"], told["task_count"]) == (1, 1, 1)
        assert [one["project_id"] for one in (await fresh.data("GET", "/stats/projects"))["items"]] == ["p2"]
        assert [one["project_id"] for one in (await fresh.data("GET", "/stats/by-queue"))["items"]] == ["p2"]
        status, error = await fresh.error("GET", "/stats/project/p1")
        assert (status, error["details"]["code"]) == (404, "PROJECT_NOT_FOUND")


class TestLists:
    async def test_projects_come_with_their_counts_in_pages(self, fresh: TasksApi):
        await fresh.submit(*some(done=1, error=3))
        fresh.clock.advance(seconds=1)
        await push_elsewhere(fresh, *some(pending=1))
        told = await fresh.data("GET", "/stats/projects?pageSize=1")
        [other] = told["items"]
        assert (other["project_id"], other["name"], other["task_count"]) == ("p2", "Other", 1)
        assert other["last_task_at"] == "2026-01-01T00:00:01.000Z"
        assert told["pagination"] == {"page": 1, "pageSize": 1, "total": 2, "totalPages": 2}
        [first] = (await fresh.data("GET", "/stats/projects?pageSize=1&page=2"))["items"]
        assert (first["project_id"], first["queue_count"], first["success_rate"]) == ("p1", 1, 25.0)

    async def test_queues_come_with_their_counts(self, fresh: TasksApi):
        await fresh.submit(*some(done=2))
        fresh.clock.advance(seconds=1)
        await fresh.submit(*some(error=1), queue="q2")
        await push_elsewhere(fresh, *some(pending=1))
        mine = await fresh.data("GET", "/stats/by-queue?project_id=p1")
        assert [(one["queue_id"], one["task_stats"]["total"]) for one in mine["items"]] == [("q2", 1), ("q1", 2)]
        assert mine["pagination"]["total"] == 2
        every = await fresh.data("GET", "/stats/by-queue")
        assert [(one["project_id"], one["queue_id"]) for one in every["items"]] == [
            ("p2", "q9"),
            ("p1", "q2"),
            ("p1", "q1"),
        ]
        second = await fresh.data("GET", "/stats/by-queue?pageSize=2&page=2")
        assert [one["queue_id"] for one in second["items"]] == ["q1"]
        assert second["pagination"] == {"page": 2, "pageSize": 2, "total": 3, "totalPages": 2}


class TestByHour:
    async def test_finished_tasks_are_counted_in_their_hour(self, fresh: TasksApi):
        await fresh.submit({"id": "a", "status": "done"}, {"id": "b", "status": "error"}, queue="qa")
        fresh.clock.advance(seconds=3599.999)  # still the first hour
        await fresh.submit({"id": "c", "status": "done"}, queue="qb")
        fresh.clock.advance(seconds=0.001)  # the second has begun
        await fresh.submit({"id": "d", "status": "cancelled"}, {"id": "e", "status": "running"}, queue="qc")
        fresh.clock.advance(seconds=3600)
        told = await fresh.data("GET", "/stats/by-hour?hours=3")
        assert told["hours"] == [
            {"hour": "2026-01-01T00:00:00.000Z", "done": 2, "error": 1, "cancelled": 0, "total": 3},
            {"hour": "2026-01-01T01:00:00.000Z", "done": 0, "error": 0, "cancelled": 1, "total": 1},
            {"hour": "2026-01-01T02:00:00.000Z", "done": 0, "error": 0, "cancelled": 0, "total": 0},
        ]
        assert told["counted_from"] is None

    @on_sqlite
    async def test_one_project_can_be_asked_for(self, fresh: TasksApi):
        await fresh.submit(*some(done=1))
        await push_elsewhere(fresh, *some(done=2))
        for query, done in (("project_id=p1", 1), ("project_id=p2", 2), ("", 3)):
            told = await fresh.data("GET", f"/stats/by-hour?{query}")
            assert (len(told["hours"]), told["hours"][-1]["done"]) == (24, done)

    async def test_deleted_tasks_are_counted_no_more(self, fresh: TasksApi):
        await fresh.submit(*some(done=1, error=2))
        await fresh.data("DELETE", f"{PROJECT}/tasks/error0")
        [hour] = (await fresh.data("GET", "/stats/by-hour?hours=1"))["hours"]
        assert (hour["done"], hour["error"]) == (1, 1)
        assert (await fresh.data("GET", "/stats/by-hour?hours=1&project_id=p1"))["hours"] == [hour]
        assert sum(one["count"] for one in (await fresh.data("GET", "/stats/error-types"))["reasons"]) == 1

    @on_sqlite
    async def test_a_week_is_the_most(self, fresh: TasksApi):
        assert len((await fresh.data("GET", "/stats/by-hour?hours=168"))["hours"]) == 168
        for hours in (0, 169):
            status, error = await fresh.error("GET", f"/stats/by-hour?hours={hours}")
            assert (status, error["details"]["field"]) == (400, "hours")

    async def test_a_count_past_its_bound_is_cut_and_reported(self, fresh: TasksApi, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(statistics, "MAX_FINISHED", 1)
        for queue in ("qa", "qb", "qc"):
            await fresh.submit({"id": "t", "status": "done"}, queue=queue)
            fresh.clock.advance(seconds=1)
        told = await fresh.data("GET", "/stats/by-hour?hours=1")
        assert told["counted_from"] == "2026-01-01T00:00:01.000Z"
        assert told["hours"][0]["done"] == 1
        fresh.clock.advance(seconds=7200)
        later = await fresh.data("GET", "/stats/by-hour?hours=1")
        assert (later["counted_from"], later["hours"][0]["done"]) == (None, 0)


class TestByClient:
    async def test_pullers_are_listed_by_name(self, fresh: TasksApi):
        await fresh.plan("a", "b", queue="q1")
        await fresh.pull(client="anna", key="anna")
        fresh.clock.advance(seconds=5)
        await fresh.submit({"id": "a", "status": "done"}, key="anna")
        for query in ("", "?project_id=p1"):
            told = await fresh.data("GET", f"/stats/by-client{query}")
            assert told["pullers"] == [
                {"client": "anna", "pulls": 2, "pushed": 1, "success_rate": 100.0, "average_duration": 5.0}
            ]

    async def test_pushers_are_listed_by_user_and_host(self, fresh: TasksApi):
        info = {"username": "ann", "hostname": "box", "project_path": "/x"}
        await push_elsewhere(fresh, *some(done=1), project="p2", clientInfo=info)
        await push_elsewhere(fresh, *some(done=1, error=1), project="p3", clientInfo=info)
        told = await fresh.data("GET", "/stats/by-client")
        first, unnamed = told["pushers"]
        assert (first["username"], first["hostname"], first["projects"], first["task_count"]) == ("ann", "box", 2, 3)
        assert first["success_rate"] == 66.67
        assert (unnamed["username"], unnamed["projects"]) == (None, 1)


class TestErrorTypes:
    async def test_reasons_are_first_lines_the_most_frequent_first(self, fresh: TasksApi):
        reports = ["Disk full\nat line 3", "Disk full\r\nat line 9", "No route", "  \n", None]
        failed = [
            {"id": f"t{number}", "status": "error", **({} if report is None else {"report": report})}
            for number, report in enumerate(reports)
        ]
        await fresh.submit(*failed, {"id": "fine", "status": "done", "report": "Disk full"})
        told = await fresh.data("GET", "/stats/error-types?project_id=p1")
        assert told["reasons"] == [
            {"reason": None, "count": 2},
            {"reason": "Disk full", "count": 2},
            {"reason": "No route", "count": 1},
        ]
        assert told["counted"] == 5

    async def test_the_error_reason_is_preferred_to_the_report(self, fresh: TasksApi):
        often = fresh.with_config(max_attempts=1)
        await often.plan("a")
        await often.pull()
        often.clock.advance(seconds=3601)
        await often.run_periodic_tasks()
        task = await often.data("GET", f"{PROJECT}/tasks/a")
        assert task["status"] == "error"
        [line] = (await often.data("GET", "/stats/error-types"))["reasons"]
        assert line == {"reason": task["error_reason"], "count": 1}

    @on_sqlite
    async def test_twenty_reasons_are_listed(self, fresh: TasksApi):
        failed = [{"id": f"t{n}", "status": "error", "report": f"reason {n:02}"} for n in range(25)]
        await fresh.submit(*failed)
        told = await fresh.data("GET", "/stats/error-types")
        assert [line["reason"] for line in told["reasons"]] == [f"reason {n:02}" for n in range(20)]
        assert told["counted"] == 25


class TestExecutionDuration:
    async def test_mean_median_and_p95_are_exact(self, fresh: TasksApi):
        names = [f"t{number:02}" for number in range(1, 21)]
        statuses = dict.fromkeys(names, "running")
        for number, name in enumerate(["", *names]):
            statuses |= {name: ("done", "error", "cancelled")[number % 3]} if name else {}
            await fresh.submit(*({"id": one, "status": status} for one, status in statuses.items()))
            fresh.clock.advance(seconds=1)
        for query in ("", "?project_id=p1"):
            told = await fresh.data("GET", f"/stats/execution-duration{query}")
            assert (told["mean"], told["p50"], told["p95"], told["counted"]) == (10.5, 10.0, 19.0, 20)

    async def test_the_pull_is_the_start_if_none_was_reported(self, fresh: TasksApi):
        await fresh.plan("a", queue="q1")
        await fresh.pull(client="anna", key="anna")
        fresh.clock.advance(seconds=7)
        await fresh.submit({"id": "a", "status": "done"}, key="anna")
        told = await fresh.data("GET", "/stats/execution-duration")
        assert (told["mean"], told["counted"]) == (7.0, 1)

    async def test_what_never_started_is_left_out(self, fresh: TasksApi):
        await fresh.submit(*some(done=2))
        told = await fresh.data("GET", "/stats/execution-duration")
        assert (told["mean"], told["p50"], told["p95"], told["counted"]) == (0.0, 0.0, 0.0, 0)

    async def test_only_the_latest_count(self, fresh: TasksApi, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(statistics, "LATEST_FINISHED", 2)
        await fresh.submit(*({"id": name, "status": "running"} for name in "abc"))
        finals = {"a": "done", "b": "error", "c": "done"}
        statuses = dict.fromkeys("abc", "running")
        for name, final in finals.items():
            fresh.clock.advance(seconds=10)
            statuses[name] = final
            await fresh.submit(*({"id": one, "status": status} for one, status in statuses.items()))
        told = await fresh.data("GET", "/stats/execution-duration")
        assert (told["mean"], told["counted"]) == (25.0, 2)


class TestSystem:
    async def test_it_reports_version_database_and_counts(self, fresh: TasksApi):
        await fresh.plan("a", "b", "c")
        await fresh.pull("limit=1")
        told = await fresh.data("GET", "/stats/system")
        assert told["version"] == __version__
        assert told["database"] == fresh.db.database_name
        assert (told["projects"], told["queues"], told["tasks"]) == (1, 1, 3)
        assert (told["offered"], told["held"]) == (2, 1)

    async def test_counting_is_bounded(self, fresh: TasksApi, monkeypatch: pytest.MonkeyPatch):
        await fresh.plan("a", "b", "c")
        monkeypatch.setattr(statistics, "MAX_OPEN", 2)
        assert (await fresh.data("GET", "/stats/system"))["offered"] == 2


class TestEverywhere:
    @on_sqlite
    async def test_an_empty_database_has_zeros(self, api: TasksApi):
        for path in ALL:
            told = await api.data("GET", path)
            assert told["cached_at"] == "2026-01-01T00:00:00.000Z"
            assert told.get("task_stats", NO_TASKS) == NO_TASKS
            assert told.get("success_rate", 0.0) == 0.0

    @on_sqlite
    async def test_statistics_are_cached(self, api: TasksApi):
        first = [await api.data("GET", path) for path in ALL]
        await api.submit(*some(done=1, error=1))
        api.clock.advance(seconds=9)
        assert [await api.data("GET", path) for path in ALL] == first
        api.clock.advance(seconds=1)
        for path in ALL:
            assert (await api.data("GET", path))["cached_at"] == "2026-01-01T00:00:10.000Z"

    @on_sqlite
    async def test_a_key_of_another_project_is_refused(self, api: TasksApi):
        for path in ["/stats/project/p1", *(f"{path}?project_id=p1" for path in BY_PROJECT)]:
            status, error = await api.error("GET", path, key="elsewhere")
            assert (status, error["details"]["code"]) == (403, "OTHER_PROJECT"), path

    @on_sqlite
    async def test_an_unknown_project_has_no_statistics(self, api: TasksApi):
        for path in ["/stats/project/nowhere", *(f"{path}?project_id=nowhere" for path in BY_PROJECT)]:
            status, error = await api.error("GET", path)
            assert (status, error["details"]["code"]) == (404, "PROJECT_NOT_FOUND"), path

    async def test_a_bound_key_sees_its_own_project_only(self, fresh: TasksApi):
        await fresh.submit(*some(done=1, error=1), clientInfo={"username": "ann", "hostname": "box"})
        await fresh.plan("mine", queue="q1")
        await fresh.pull(client="anna", key="anna")
        fresh.clock.advance(seconds=5)
        await fresh.submit({"id": "mine", "status": "done"}, key="anna")
        await push_elsewhere(fresh, *some(running=1), clientInfo={"username": "bob", "hostname": "hut"})
        fresh.clock.advance(seconds=50)
        await push_elsewhere(fresh, {"id": "running0", "status": "error"})
        for path in BY_PROJECT:
            bound = await fresh.data("GET", path, key="bound")
            assert bound == await fresh.data("GET", f"{path}?project_id=p1"), path
            assert bound != await fresh.data("GET", path), path

    async def test_a_bound_key_is_listed_its_own_project_only(self, fresh: TasksApi):
        await push_elsewhere(fresh, *some(done=1))
        told = await fresh.data("GET", "/stats/projects", key="bound")
        assert [one["project_id"] for one in told["items"]] == ["p1"]
        assert told["pagination"]["total"] == 1

    @on_sqlite
    async def test_the_cache_does_not_leak_between_keys(self, api: TasksApi):
        await push_elsewhere(api, *some(done=1))
        assert (await api.data("GET", "/stats", key="bound"))["projects"] == 1
        assert (await api.data("GET", "/stats"))["projects"] == 2
        assert (await api.data("GET", "/stats/projects", key="bound"))["pagination"]["total"] == 1
        assert (await api.data("GET", "/stats/projects"))["pagination"]["total"] == 2
