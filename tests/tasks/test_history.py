"""The pull history of a task: who pulled it, when, and how it ended."""

from typing import Any

import pytest

from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite

AT = "2026-01-01T00:{:02}:00.000Z"


async def history(api: TasksApi, task_id: str, query: str = "", *, queue: str = "", key: str = "root") -> Any:
    place = f"{PROJECT}/queues/{queue}" if queue else PROJECT
    return await api.data("GET", f"{place}/tasks/{task_id}/pull/history?{query}", key=key)


async def pull_as(api: TasksApi, name: str) -> None:
    assert await api.pull(client=name, key=name)


@on_sqlite
async def test_a_task_that_nobody_pulled_has_an_empty_history(api: TasksApi):
    await api.plan("a")
    told = await history(api, "a")
    assert told == {
        "task_id": "a",
        "current_pull": None,
        "pull_history": [],
        "total_pulls": 0,
        "pagination": {"page": 1, "pageSize": 100, "total": 0, "totalPages": 0},
    }


@on_sqlite
async def test_an_open_pull_has_no_end_yet(api: TasksApi):
    await api.plan("a")
    await pull_as(api, "anna")
    [line] = (await history(api, "a"))["pull_history"]
    assert line == {
        "pulled_at": AT.format(0),
        "pulled_by": "anna",
        "released_at": None,
        "released_by": None,
        "confirmed_at": None,
        "pushed_at": None,
        "pushed_by": None,
        "outcome": None,
        "seconds": None,
    }


async def test_a_push_is_distinguished_from_a_release_oldest_first(api: TasksApi):
    await api.plan("a", queue="q1")
    await pull_as(api, "anna")
    api.clock.advance(seconds=60)
    await api.data("POST", f"{PROJECT}/tasks/a/pull/release", key="anna")
    api.clock.advance(seconds=60)
    await pull_as(api, "bert")
    api.clock.advance(seconds=90)
    await api.submit({"id": "a", "status": "done"}, key="bert")
    released, pushed = (await history(api, "a"))["pull_history"]
    assert (pushed["pulled_by"], pushed["pulled_at"], pushed["outcome"]) == ("bert", AT.format(2), "pushed")
    assert (pushed["pushed_at"], pushed["pushed_by"], pushed["seconds"]) == ("2026-01-01T00:03:30.000Z", "bert", 90)
    assert (pushed["released_at"], pushed["released_by"]) == (None, None)
    assert (released["pulled_by"], released["pulled_at"], released["outcome"]) == ("anna", AT.format(0), "released")
    assert (released["released_at"], released["released_by"]) == (AT.format(1), "anna")
    assert (released["pushed_at"], released["seconds"]) == (None, 60)


@on_sqlite
async def test_a_confirmed_pull_says_when(api: TasksApi):
    await api.plan("a")
    await pull_as(api, "anna")
    api.clock.advance(seconds=60)
    await api.data("POST", f"{PROJECT}/tasks/a/pull/confirm", key="anna")
    [line] = (await history(api, "a"))["pull_history"]
    assert line["confirmed_at"] == AT.format(1)


async def test_a_timed_out_pull_and_a_revoked_one_say_so(api: TasksApi):
    await api.plan("a")
    await pull_as(api, "anna")
    api.clock.advance(seconds=3601)
    await api.run_periodic_tasks()
    await pull_as(api, "bert")
    await api.data("PUT", f"{PROJECT}/tasks/a", {"name": "Another"})
    timed_out, revoked = (await history(api, "a"))["pull_history"]
    assert (revoked["outcome"], revoked["released_by"]) == ("revoked", "root")
    assert (timed_out["outcome"], timed_out["pulled_by"], timed_out["pushed_at"]) == ("timed_out", "anna", None)
    assert timed_out["released_at"] is not None
    assert timed_out["released_by"] == "system-timeout"


async def test_a_long_history_comes_in_pages(api: TasksApi):
    await api.plan("a")
    for _ in range(5):
        await pull_as(api, "anna")
        await api.data("POST", f"{PROJECT}/tasks/a/pull/release", key="anna")
        api.clock.advance(seconds=60)
    second = await history(api, "a", "page=2&pageSize=2")
    assert [line["pulled_at"] for line in second["pull_history"]] == [AT.format(2), AT.format(3)]
    assert second["pagination"] == {"page": 2, "pageSize": 2, "total": 5, "totalPages": 3}
    last = await history(api, "a", "page=3&pageSize=2")
    assert [line["pulled_at"] for line in last["pull_history"]] == [AT.format(4)]


async def test_a_deleted_task_keeps_its_history(api: TasksApi):
    await api.plan("a", queue="q1")
    await pull_as(api, "anna")
    await api.data("DELETE", f"{PROJECT}/queues/q1/tasks/a")
    for queue in ("", "q1"):
        [line] = (await history(api, "a", queue=queue))["pull_history"]
        assert (line["pulled_by"], line["outcome"]) == ("anna", "revoked")


async def test_an_active_task_is_preferred_to_a_deleted_one_with_the_same_id(api: TasksApi):
    await api.plan("a", queue="q1")
    await pull_as(api, "anna")
    await api.data("DELETE", f"{PROJECT}/queues/q1/tasks/a")
    await api.plan("a")
    await pull_as(api, "bert")
    [line] = (await history(api, "a"))["pull_history"]
    assert line["pulled_by"] == "bert"
    [line] = (await history(api, "a", queue="q1"))["pull_history"]
    assert line["pulled_by"] == "anna"


@pytest.mark.parametrize("are_deleted", [False, True])
async def test_equal_ids_in_several_queues_need_the_queue(api: TasksApi, are_deleted: bool):
    await api.submit(queue="q2")
    for queue in ("q1", "q2"):
        await api.plan("a", queue=queue)
        if are_deleted:
            await api.data("DELETE", f"{PROJECT}/queues/{queue}/tasks/a")
    status, error = await api.error("GET", f"{PROJECT}/tasks/a/pull/history")
    assert (status, error["details"]["code"]) == (409, "AMBIGUOUS_TASK")
    assert (await history(api, "a", queue="q2"))["pull_history"] == []


@on_sqlite
async def test_what_is_not_there_has_no_history(api: TasksApi):
    for path, code in (
        ("/projects/nowhere/tasks/a/pull/history", "PROJECT_NOT_FOUND"),
        ("/projects/p1/queues/nowhere/tasks/a/pull/history", "QUEUE_NOT_FOUND"),
        ("/projects/p1/tasks/nothing/pull/history", "TASK_NOT_FOUND"),
        ("/projects/p1/queues/q1/tasks/nothing/pull/history", "TASK_NOT_FOUND"),
    ):
        status, error = await api.error("GET", path)
        assert (status, error["code"], error["details"]["code"]) == (404, "RESOURCE_NOT_FOUND", code)


@on_sqlite
async def test_only_keys_of_the_project_may_read(api: TasksApi):
    await api.plan("a", queue="q1")
    for place in ("", "/queues/q1"):
        status, error = await api.error("GET", f"{PROJECT}{place}/tasks/a/pull/history", key="elsewhere")
        assert (status, error["details"]["code"]) == (403, "OTHER_PROJECT")
        assert (await api.call("GET", f"{PROJECT}{place}/tasks/a/pull/history", key="bound")).status == 200


@on_sqlite
async def test_a_page_that_cannot_be_is_refused(api: TasksApi):
    await api.plan("a")
    for query in ("page=0", "pageSize=0", "page=x"):
        status, error = await api.error("GET", f"{PROJECT}/tasks/a/pull/history?{query}")
        assert (status, error["code"]) == (400, "VALIDATION_ERROR")
