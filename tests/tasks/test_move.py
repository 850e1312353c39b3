"""Moving tasks between queues, into one and out of all."""

from dataclasses import replace

import pytest

from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite
from tests.tasks.records import audited, changes, counted, pulled, stored

MOVE = f"{PROJECT}/tasks/t1/move"


@pytest.fixture
async def api(api: TasksApi) -> TasksApi:
    """With a second queue q2."""
    await api.submit(queue="q2")
    return api


async def test_a_task_goes_into_a_queue_on_to_another_and_out_again(api: TasksApi) -> None:
    (made,) = await api.plan("t1", status="error")
    for number, target in enumerate(("q1", "q2", None), 1):
        moved = await api.data("POST", MOVE, {"queueId": target})
        assert (moved["queue_id"], moved["version"]) == (target, made["version"] + number)
        counts = [(await counted(api, queue)).error for queue in ("q1", "q2", None)]
        assert counts == [target == "q1", target == "q2", 1]
    assert [kind for _, kind, _ in await changes(api)] == ["created", "moved", "moved", "moved"]


async def test_a_move_keeps_the_lease(api: TasksApi) -> None:
    await api.plan("t1", queue="q1", tags=["x"])
    await api.pull(client="w")
    before = await stored(api, "t1", "q1")
    api.clock.advance(seconds=60)
    moved = await api.data("POST", MOVE, {"queueId": "q2"})
    assert (moved["pull_state"], moved["pulled_by"]) == ("pulled_not_pushed", "w")
    after = await stored(api, "t1", "q2")
    there = replace(before, queue_pk=after.queue_pk, queue_id="q2", updated_at=api.clock.now(), updated_by="root")
    assert after == replace(there, version=before.version + 1)
    assert await pulled(api, "t1", "q2") == [("w", None, None)]
    await api.data("PATCH", "/tasks/p1/q2/t1/status", {"status": "done"}, x_client_id="w")
    assert await pulled(api, "t1", "q2") == [("w", "w", "pushed")]


async def test_a_move_keeps_a_client_task_client_owned(api: TasksApi) -> None:
    await api.submit({"id": "t1"}, key="anna")
    moved = await api.data("POST", MOVE, {"queueId": "q2"})
    assert (moved["source"], moved["origin"], moved["server_modified_at"]) == ("client", "client", None)
    assert await api.pull() == []


async def test_a_moved_task_is_pulled_from_its_new_queue(api: TasksApi) -> None:
    await api.plan("t1", tags=["x"])
    await api.data("POST", MOVE, {"queue_id": "q2"})
    assert await api.pull(queue="q1") == []
    assert [task["task_id"] for task in await api.pull("tags=x", queue="q2")] == ["t1"]


@on_sqlite
async def test_a_move_to_where_a_task_is_is_refused(api: TasksApi) -> None:
    await api.plan("t1", queue="q1")
    feed = await changes(api)
    status, error = await api.error("POST", MOVE, {"queueId": "q1"})
    assert (status, error["code"]) == (400, "VALIDATION_ERROR")
    assert await changes(api) == feed
    assert await audited(api, "tasks.move") == []


async def test_a_move_to_a_queue_with_the_same_id_is_refused(api: TasksApi) -> None:
    await api.plan("t1")
    await api.plan("t1", queue="q1")
    await api.plan("t1", queue="q2")
    await api.data("DELETE", f"{PROJECT}/queues/q2/tasks/t1")
    for target in ("q1", "q2"):
        status, error = await api.error("POST", MOVE, {"queueId": target})
        assert (status, error["details"]["code"], error["details"]["queue_id"]) == (409, "TASK_EXISTS", target)
    status, error = await api.error("POST", f"{PROJECT}/queues/q1/tasks/t1/move", {"queueId": None})
    assert (status, error["details"]["code"]) == (409, "TASK_EXISTS")


async def test_equal_ids_are_distinguished_by_their_source_queue(api: TasksApi) -> None:
    await api.submit(queue="q3")
    for queue in ("q1", "q2"):
        await api.plan("t1", queue=queue)
    status, error = await api.error("POST", MOVE, {"queueId": "q3"})
    assert (status, error["details"]["code"]) == (409, "AMBIGUOUS_TASK")
    await api.data("POST", MOVE, {"queueId": "q3", "fromQueueId": "q2"})
    await api.data("POST", f"{PROJECT}/queues/q1/tasks/t1/move", {"queueId": "q2"})
    totals = [(await counted(api, queue)).pending for queue in ("q1", "q2", "q3")]
    assert totals == [0, 1, 1]


@on_sqlite
async def test_a_move_says_where_to(api: TasksApi) -> None:
    await api.plan("t1")
    for body in ({}, {"queueId": ""}, {"queueId": 5}, {"queueId": "q" * 256}):
        status, error = await api.error("POST", MOVE, body)
        assert (status, error["details"]["field"]) == (400, "queueId")


@on_sqlite
async def test_what_is_not_there_cannot_be_moved(api: TasksApi) -> None:
    await api.plan("t1")
    await api.plan("gone")
    await api.data("DELETE", f"{PROJECT}/tasks/gone")
    for path, body, expected in (
        ("/projects/p9/tasks/t1", {"queueId": "q1"}, (404, "PROJECT_NOT_FOUND")),
        ("/projects/p1/tasks/t9", {"queueId": "q1"}, (404, "TASK_NOT_FOUND")),
        ("/projects/p1/tasks/t1", {"queueId": "q9"}, (404, "QUEUE_NOT_FOUND")),
        ("/projects/p1/tasks/t1", {"queueId": "q1", "fromQueueId": "q9"}, (404, "QUEUE_NOT_FOUND")),
        ("/projects/p1/tasks/t1", {"queueId": "q1", "fromQueueId": "q2"}, (404, "TASK_NOT_FOUND")),
        ("/projects/p1/tasks/gone", {"queueId": "q1"}, (404, "TASK_NOT_FOUND")),
    ):
        status, error = await api.error("POST", f"{path}/move", body)
        assert (status, error["details"]["code"]) == expected


@on_sqlite
async def test_a_move_is_audited_and_only_for_keys_of_the_project(api: TasksApi) -> None:
    await api.plan("t1", queue="q1")
    for path in (MOVE, f"{PROJECT}/queues/q1/tasks/t1/move"):
        status, error = await api.error("POST", path, {"queueId": "q2"}, key="elsewhere")
        assert (status, error["details"]["code"]) == (403, "OTHER_PROJECT")
    await api.data("POST", f"{PROJECT}/queues/q1/tasks/t1/move", {"queueId": "q2"})
    (line,) = await audited(api, "tasks.move")
    assert line.detail == {
        "by": "root",
        "to": "q2",
        "count": 1,
        "tasks": ["t1"],
        "queues": ["q1"],
        "taken_from": [],
    }
