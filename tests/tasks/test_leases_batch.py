"""Leases confirmed, renewed, released or reset in a batch: failures are listed, the rest is done."""

from typing import Any

from penstock.access import audit
from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite

PULL = f"{PROJECT}/tasks/pull"
VERBS = ("confirm", "renew", "release", "reset")


async def hold(api: TasksApi, *task_ids: str, client: str = "one", key: str = "anna") -> dict[str, str]:
    """Pull tasks as a client; their lease tokens by task id."""
    await api.plan(*task_ids)
    return {task["task_id"]: task["lease_token"] for task in await api.pull(client=client, key=key)}


def failed(said: dict[str, Any]) -> list[tuple[str, str]]:
    assert said["failed_count"] == len(said["failed_tasks"])
    assert all(one["reason"] for one in said["failed_tasks"])
    return [(one["task_id"], one["code"]) for one in said["failed_tasks"]]


async def states(api: TasksApi) -> dict[str, str]:
    page = await api.data("GET", f"{PROJECT}/tasks?queue=any")
    return {task["task_id"]: task["pull_state"] for task in page["items"]}


async def test_tasks_are_released_and_failures_listed(api: TasksApi):
    await hold(api, "a", "b")
    await hold(api, "c", client="two", key="bert")
    await api.plan("free", "gone")
    await api.data("DELETE", f"{PROJECT}/tasks/gone")
    body = {"taskIds": ["a", "c", "free", "gone", "none", "b"]}
    said = await api.data("POST", f"{PULL}/release/batch", body, key="anna", x_client_id="one")
    assert set(said) == {"released", "released_count", "failed", "failed_count", "failed_tasks"}
    assert [one["task_id"] for one in said["released"]] == ["a", "b"]
    assert said["failed"] == said["failed_tasks"]
    assert said["released_count"] == 2
    assert failed(said) == [
        ("c", "NOT_THE_HOLDER"),
        ("free", "TASK_NOT_PULLED"),
        ("gone", "TASK_DELETED"),
        ("none", "TASK_NOT_FOUND"),
    ]
    assert await states(api) == {"a": "unpulled", "b": "unpulled", "c": "pulled_not_pushed", "free": "unpulled"}
    async with api.db.read() as tx:
        [noted] = await audit.list_lines(tx, action="tasks.release")
    assert noted.detail["tasks"] == ["a", "b"]


async def test_each_task_may_come_with_its_own_lease(api: TasksApi):
    first = await hold(api, "a")
    second = await hold(api, "b", client="two", key="bert")
    meant = [
        {"task_id": "a", "lease_token": first["a"]},
        {"task_id": "b", "lease_token": second["b"]},
        {"task_id": "b", "lease_token": first["a"]},
    ]
    said = await api.data("POST", f"{PULL}/release/batch", {"tasks": meant[:1] + meant[2:]}, key="anna")
    assert (said["released_count"], failed(said)) == (1, [("b", "PULL_LOST")])
    said = await api.data("POST", f"{PULL}/release/batch", {"tasks": meant[1:2]}, key="anna")
    assert said["released_count"] == 1


async def test_a_task_that_is_listed_twice_is_handled_once(api: TasksApi):
    await hold(api, "a")
    body = {"taskIds": ["a", "a"], "tasks": [{"task_id": "a"}]}
    said = await api.data("POST", f"{PULL}/release/batch", body, key="anna", x_client_id="one")
    assert (said["released_count"], said["failed_count"]) == (1, 0)


async def test_tasks_of_a_queue_are_named_with_it(api: TasksApi):
    await api.plan("a")
    await api.plan("a", "b", queue="q1")
    await api.pull(client="one", queue="q1")
    said = await api.data("POST", f"{PULL}/release/batch", {"taskIds": ["a", "b"], "queueId": "q1"}, x_client_id="one")
    assert said["released_count"] == 2
    said = await api.data("POST", f"{PULL}/release/batch", {"tasks": [{"task_id": "b", "queue_id": "q9"}]})
    assert failed(said) == [("b", "QUEUE_NOT_FOUND")]


async def test_pulls_are_confirmed_together(api: TasksApi):
    await hold(api, "a", "b")
    api.clock.advance(seconds=60)
    body = {"taskIds": ["a", "b", "none"]}
    said = await api.data("POST", f"{PULL}/confirm/batch", body, key="anna", x_client_id="one")
    assert (said["confirmed_count"], failed(said)) == (2, [("none", "TASK_NOT_FOUND")])
    assert said["tasks"] == [{"task_id": task_id, "leased_until": "2026-01-01T01:01:00.000Z"} for task_id in ("a", "b")]
    for task_id in ("a", "b"):
        task = await api.data("GET", f"{PROJECT}/tasks/{task_id}")
        assert (task["confirmed_at"], task["leased_until"]) == ("2026-01-01T00:01:00.000Z", "2026-01-01T01:01:00.000Z")
        history = await api.data("GET", f"{PROJECT}/tasks/{task_id}/pull/history")
        assert history["pull_history"][0]["confirmed_at"] == "2026-01-01T00:01:00.000Z"


async def test_pulls_are_renewed_together(api: TasksApi):
    tokens = await hold(api, "a", "b")
    body = {
        "tasks": [{"task_id": "a", "lease_token": tokens["a"]}, {"task_id": "b", "lease_token": "x"}],
        "seconds": 60,
    }
    said = await api.data("POST", f"{PULL}/renew/batch", body, key="anna")
    assert (said["renewed_count"], failed(said)) == (1, [("b", "PULL_LOST")])
    assert said["tasks"] == [{"task_id": "a", "leased_until": "2026-01-01T00:01:00.000Z"}]
    body = {"taskIds": ["a"], "seconds": 3601}
    status, error = await api.error("POST", f"{PULL}/renew/batch", body, key="anna")
    assert (status, error["details"]["field"]) == (400, "seconds")


async def test_pulls_are_reset_together(api: TasksApi):
    await hold(api, "a", "b")
    await api.plan("c")
    said = await api.data("POST", f"{PULL}/reset/batch", {"taskIds": ["a", "b", "c", "none"]}, key="warden")
    assert (said["reset_count"], failed(said)) == (3, [("none", "TASK_NOT_FOUND")])
    assert await states(api) == dict.fromkeys("abc", "unpulled")


@on_sqlite
async def test_a_batch_has_some_tasks_and_not_too_many(api: TasksApi):
    too_many = {"taskIds": ["x"] * 900, "tasks": [{"task_id": "y"}] * 101}
    bodies: list[object] = [{}, {"taskIds": []}, {"tasks": []}, {"taskIds": ["x"] * 1001}, too_many]
    for verb in VERBS:
        for body in bodies:
            status, error = await api.error("POST", f"{PULL}/{verb}/batch", body)
            assert (status, error["code"], error["details"]["field"]) == (400, "VALIDATION_ERROR", "taskIds")


@on_sqlite
async def test_a_field_of_one_task_is_named(api: TasksApi):
    body = {"tasks": [{"task_id": "a"}, {"task_id": ""}]}
    status, error = await api.error("POST", f"{PULL}/release/batch", body)
    assert (status, error["details"]["field"]) == (400, "tasks[1].task_id")


async def test_a_thousand_at_once_work(api: TasksApi):
    generous = api.with_config(batch_size=1000)
    many = [{"taskId": f"t{number}", "name": "n", "prompt": "p"} for number in range(1000)]
    await generous.data("POST", f"{PROJECT}/tasks/batch", {"tasks": many})
    assert len(await generous.pull("limit=1000", client="one")) == 1000
    body = {"taskIds": [one["taskId"] for one in many]}
    for verb, count in (("confirm", "confirmed_count"), ("renew", "renewed_count"), ("release", "released_count")):
        assert (await generous.data("POST", f"{PULL}/{verb}/batch", body, x_client_id="one"))[count] == 1000


@on_sqlite
async def test_a_key_of_another_project_is_refused(api: TasksApi):
    for verb in VERBS:
        status, error = await api.error("POST", f"{PULL}/{verb}/batch", {"taskIds": ["a"]}, key="elsewhere")
        assert (status, error["details"]["code"]) == (403, "OTHER_PROJECT")


@on_sqlite
async def test_a_project_that_is_not_there_is_not_found(api: TasksApi):
    for verb in VERBS:
        status, error = await api.error("POST", f"/projects/p9/tasks/pull/{verb}/batch", {"taskIds": ["a"]})
        assert (status, error["details"]["code"]) == (404, "PROJECT_NOT_FOUND")


@on_sqlite
async def test_reasons_are_available_in_chinese(api: TasksApi):
    await api.plan("a")
    said = await api.data("POST", f"{PULL}/release/batch", {"taskIds": ["a"]}, accept_language="zh")
    assert said["failed_tasks"][0]["reason"] == "任务 a 不能释放：没有人持有该任务。"
