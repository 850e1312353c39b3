"""Statistics of pulls, and pending (held) tasks."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from penstock.kernel.db import Db
from penstock.kernel.dialect.bulk import insert_rows
from penstock.tasks.store import locations
from penstock.tasks.store.claims import HISTORY
from penstock.tasks.store.tables import task_pull
from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite

STATS = f"{PROJECT}/tasks/pull/stats"
QUEUE_STATS = f"{PROJECT}/queues/q1/tasks/pull/stats"
PENDING = f"{PROJECT}/tasks/pull/pending"
NOTHING: dict[str, Any] = {
    "total_server_tasks": 0,
    "not_pulled": 0,
    "pulled": 0,
    "pulled_not_pushed": 0,
    "pull_success_rate": 0.0,
    "average_pull_duration": None,
    "median_pull_duration": 0.0,
    "p95_pull_duration": 0.0,
    "pulls_total": 0,
    "pushed": 0,
    "released": 0,
    "timed_out": 0,
    "revoked": 0,
    "overwritten": 0,
    "held": 0,
    "by_client": [],
}


@pytest.fixture
def fresh(api: TasksApi) -> TasksApi:
    """The module without a statistics cache."""
    return api.with_config(stats_seconds=0)


async def take(api: TasksApi, *task_ids: str, name: str = "anna", queue: str = "q1") -> None:
    """Create tasks in a queue and pull them."""
    await api.plan(*task_ids, queue=queue)
    pulled = await api.pull(f"limit={len(task_ids)}", client=name, key=name, queue=queue)
    assert sorted(task["task_id"] for task in pulled) == sorted(task_ids)


async def finish(api: TasksApi, task_id: str, name: str = "anna", status: str = "done") -> None:
    await api.submit({"id": task_id, "status": status}, key=name)


async def release(api: TasksApi, task_id: str, name: str = "anna") -> None:
    await api.data("POST", f"{PROJECT}/tasks/{task_id}/pull/release", key=name)


@contextmanager
def said_of_pulls(db: Db) -> Iterator[list[str]]:
    """The statements that read the history of pulls during the block."""
    said: list[str] = []

    def note(_conn: object, _cursor: object, statement: str, *_: object) -> None:
        if "task_pull" in statement:
            said.append(statement)

    event.listen(db._reader.sync_engine, "before_cursor_execute", note)
    yield said
    event.remove(db._reader.sync_engine, "before_cursor_execute", note)


async def end_in_every_way(api: TasksApi) -> None:
    """Five pulls: one in q2 that timed out, and in q1 one pushed after 10 s, one released, one revoked, one open."""
    await api.submit(queue="q2")
    await take(api, "silent", queue="q2")
    api.clock.advance(seconds=3601)
    await api.run_periodic_tasks()
    await take(api, "pushed", "released", "revoked", "open")
    api.clock.advance(seconds=10)
    await finish(api, "pushed")
    await release(api, "released")
    await api.data("PUT", f"{PROJECT}/tasks/revoked", {"name": "Another"})


class TestRates:
    async def test_an_empty_project_has_zeros(self, fresh: TasksApi):
        for path in (STATS, QUEUE_STATS):
            told = await fresh.data("GET", path)
            assert told.pop("cached_at") == "2026-01-01T00:00:00.000Z"
            assert told == NOTHING

    async def test_success_is_what_was_pushed_of_all_pulls_that_ended(self, fresh: TasksApi):
        await end_in_every_way(fresh)
        told = await fresh.data("GET", STATS)
        assert (told["pushed"], told["released"], told["timed_out"], told["revoked"]) == (1, 1, 1, 1)
        assert (told["held"], told["pulls_total"]) == (1, 5)
        assert told["pull_success_rate"] == 25.0
        assert told["average_pull_duration"] == 10.0

    async def test_tasks_are_counted_by_pull_state(self, fresh: TasksApi):
        await end_in_every_way(fresh)
        told = await fresh.data("GET", STATS)
        assert (told["total_server_tasks"], told["not_pulled"], told["pulled"]) == (5, 3, 2)
        assert told["pulled_not_pushed"] == 1

    async def test_a_queue_has_its_own_statistics(self, fresh: TasksApi):
        await end_in_every_way(fresh)
        told = await fresh.data("GET", QUEUE_STATS)
        assert (told["pulls_total"], told["timed_out"], told["pull_success_rate"]) == (4, 0, 33.33)
        assert (told["total_server_tasks"], told["not_pulled"], told["pulled"]) == (4, 2, 2)
        assert (told["median_pull_duration"], told["p95_pull_duration"]) == (10.0, 10.0)
        other = await fresh.data("GET", f"{PROJECT}/queues/q2/tasks/pull/stats")
        assert (other["pulls_total"], other["timed_out"], other["pull_success_rate"]) == (1, 1, 0.0)
        assert (other["average_pull_duration"], other["median_pull_duration"]) == (None, 0.0)

    async def test_what_a_client_made_counts_only_once_the_server_offers_it(self, fresh: TasksApi):
        await fresh.submit({"id": "mine"}, {"id": "yours"})
        assert (await fresh.data("GET", STATS))["total_server_tasks"] == 0
        await fresh.data("PUT", f"{PROJECT}/tasks/yours", {"name": "Another"})
        told = await fresh.data("GET", STATS)
        assert (told["total_server_tasks"], told["not_pulled"]) == (1, 1)

    async def test_a_deleted_task_is_no_longer_counted_but_its_pulls_are(self, fresh: TasksApi):
        await take(fresh, "a")
        await finish(fresh, "a")
        await fresh.data("DELETE", f"{PROJECT}/queues/q1/tasks/a")
        told = await fresh.data("GET", STATS)
        assert (told["total_server_tasks"], told["pushed"], told["pull_success_rate"]) == (0, 1, 100.0)


class TestDurations:
    async def test_mean_median_and_p95_are_exact(self, fresh: TasksApi):
        names = [f"t{number:02}" for number in range(1, 21)]
        await take(fresh, *names)
        for name in names:  # the first after one second, the last after twenty
            fresh.clock.advance(seconds=1)
            await finish(fresh, name)
        for path in (STATS, QUEUE_STATS):
            told = await fresh.data("GET", path)
            assert told["average_pull_duration"] == 10.5
            assert told["median_pull_duration"] == 10.0
            assert told["p95_pull_duration"] == 19.0

    async def test_only_pulls_that_were_pushed_have_a_duration(self, fresh: TasksApi):
        await take(fresh, "a", "b")
        fresh.clock.advance(seconds=2)
        await finish(fresh, "a")
        fresh.clock.advance(seconds=1000)
        await release(fresh, "b")
        told = await fresh.data("GET", STATS)
        assert (told["average_pull_duration"], told["p95_pull_duration"]) == (2.0, 2.0)


class TestClients:
    async def test_each_client_has_its_own_line_the_busiest_first(self, fresh: TasksApi):
        await take(fresh, "a", "b", "c", name="bert")
        await take(fresh, "d", name="anna")
        fresh.clock.advance(seconds=4)
        await finish(fresh, "a", "bert")
        await finish(fresh, "b", "bert")
        await release(fresh, "c", "bert")
        told = await fresh.data("GET", STATS)
        assert told["by_client"] == [
            {"client": "bert", "pulls": 3, "pushed": 2, "success_rate": 66.67, "average_duration": 4.0},
            {"client": "anna", "pulls": 1, "pushed": 0, "success_rate": 0.0, "average_duration": 0.0},
        ]

    async def test_no_more_than_fifty_are_listed(self, fresh: TasksApi):
        async with fresh.db.tx() as tx:
            pk = (await locations.get_location(tx, "p1", None)).project_pk
            rows = [(pk, "", f"t{n}", "pull", "token", tx.now, f"client-{n:02}", "actor") for n in range(55)]
            await insert_rows(tx, task_pull, HISTORY, rows)
        told = await fresh.data("GET", STATS)
        assert [line["client"] for line in told["by_client"]] == [f"client-{number:02}" for number in range(50)]
        assert told["held"] == 55


class TestCache:
    @on_sqlite
    async def test_statistics_are_cached(self, api: TasksApi):
        first = await api.data("GET", STATS)
        await take(api, "a")
        api.clock.advance(seconds=9)
        assert await api.data("GET", STATS) == first
        api.clock.advance(seconds=1)
        told = await api.data("GET", STATS)
        assert told["cached_at"] == "2026-01-01T00:00:10.000Z"
        assert (first["held"], told["held"]) == (0, 1)

    @on_sqlite
    async def test_the_setting_says_for_how_long(self, api: TasksApi):
        longer = api.with_config(stats_seconds=60)
        first = await longer.data("GET", STATS)
        longer.clock.advance(seconds=59)
        assert (await longer.data("GET", STATS))["cached_at"] == first["cached_at"]
        longer.clock.advance(seconds=1)
        assert (await longer.data("GET", STATS))["cached_at"] != first["cached_at"]

    @on_sqlite
    async def test_concurrent_requests_are_counted_once(self, api: TasksApi):
        with said_of_pulls(api.db) as alone:
            await api.data("GET", STATS)
        api.clock.advance(seconds=10)
        with said_of_pulls(api.db) as crowd:
            told = await asyncio.gather(*(api.data("GET", STATS) for _ in range(20)))
        assert all(one == told[0] for one in told)
        assert 0 < len(crowd) == len(alone)

    @on_sqlite
    async def test_a_project_and_its_queue_are_cached_separately(self, api: TasksApi):
        await api.plan("beside")
        assert (await api.data("GET", STATS))["total_server_tasks"] == 1
        assert (await api.data("GET", QUEUE_STATS))["total_server_tasks"] == 0


class TestPending:
    async def test_what_is_held_for_too_long_is_listed_the_longest_first(self, api: TasksApi):
        patient = api.with_config(pull_timeout=86400)
        await take(patient, "early")
        patient.clock.advance(seconds=1800)
        await patient.plan("later")
        await patient.pull(client="bert", key="bert")
        patient.clock.advance(seconds=3600)
        await take(patient, "now")
        told = await patient.data("GET", PENDING)
        assert (told["total"], told["count"], told["timeout_seconds"], told["timeout_hours"]) == (2, 2, 3600, 1.0)
        assert told["tasks"] == [
            {
                "task_id": "early",
                "name": "Task early",
                "status": "pending",
                "type": "queue",
                "queue_id": "q1",
                "queue_name": "Q",
                "pulled_at": "2026-01-01T00:00:00.000Z",
                "pulled_by": "anna",
                "leased_until": "2026-01-02T00:00:00.000Z",
                "timeout_hours": 1.5,
            },
            {
                "task_id": "later",
                "name": "Task later",
                "status": "pending",
                "type": "project",
                "queue_id": None,
                "queue_name": None,
                "pulled_at": "2026-01-01T00:30:00.000Z",
                "pulled_by": "bert",
                "leased_until": "2026-01-02T00:30:00.000Z",
                "timeout_hours": 1.0,
            },
        ]

    async def test_the_timeout_is_in_seconds_and_none_lists_all(self, api: TasksApi):
        await take(api, "a")
        api.clock.advance(seconds=60)
        await take(api, "b")
        api.clock.advance(seconds=60)
        for timeout, names in ((0, ["a", "b"]), (60, ["a", "b"]), (61, ["a"]), (121, [])):
            told = await api.data("GET", f"{PENDING}?timeout={timeout}")
            assert [task["task_id"] for task in told["tasks"]] == names
            assert told["total"] == len(names)

    async def test_a_returned_task_is_not_listed(self, api: TasksApi):
        await take(api, "pushed", "released", "open")
        await finish(api, "pushed")
        await release(api, "released")
        told = await api.data("GET", f"{PENDING}?timeout=0")
        assert [task["task_id"] for task in told["tasks"]] == ["open"]

    async def test_it_comes_in_pages(self, api: TasksApi):
        for number in range(5):
            await take(api, f"t{number}")
            api.clock.advance(seconds=1)
        told = await api.data("GET", f"{PENDING}?timeout=0&page=2&pageSize=2")
        assert [task["task_id"] for task in told["tasks"]] == ["t2", "t3"]
        assert told["pagination"] == {"page": 2, "pageSize": 2, "total": 5, "totalPages": 3}

    @on_sqlite
    async def test_nothing_held_is_an_empty_list(self, api: TasksApi):
        told = await api.data("GET", PENDING)
        assert (told["tasks"], told["total"]) == ([], 0)

    @on_sqlite
    async def test_a_timeout_that_cannot_be_is_refused(self, api: TasksApi):
        for timeout in ("-1", "x", "99999999999"):
            status, error = await api.error("GET", f"{PENDING}?timeout={timeout}")
            assert (status, error["code"], error["details"]["field"]) == (400, "VALIDATION_ERROR", "timeout")


class TestWhoMaySee:
    @on_sqlite
    async def test_a_key_of_another_project_is_refused(self, api: TasksApi):
        for path in (STATS, QUEUE_STATS, PENDING):
            status, error = await api.error("GET", path, key="elsewhere")
            assert (status, error["details"]["code"]) == (403, "OTHER_PROJECT"), path

    @on_sqlite
    async def test_a_key_of_the_project_may_read(self, api: TasksApi):
        for path in (STATS, QUEUE_STATS, PENDING):
            assert (await api.call("GET", path, key="bound")).status == 200, path

    @on_sqlite
    async def test_what_is_not_there_is_not_counted(self, api: TasksApi):
        for path, code in (
            ("/projects/nowhere/tasks/pull/stats", "PROJECT_NOT_FOUND"),
            ("/projects/nowhere/tasks/pull/pending", "PROJECT_NOT_FOUND"),
            ("/projects/p1/queues/nowhere/tasks/pull/stats", "QUEUE_NOT_FOUND"),
        ):
            status, error = await api.error("GET", path)
            assert (status, error["details"]["code"]) == (404, code), path

    async def test_a_deleted_project_is_not_served_from_the_cache(self, api: TasksApi):
        told: Any = await api.data("GET", STATS)
        assert told["total_server_tasks"] == 0
        await api.data("DELETE", PROJECT)
        status, error = await api.error("GET", STATS)
        assert (status, error["details"]["code"]) == (404, "PROJECT_NOT_FOUND")
