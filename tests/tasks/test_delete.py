"""Deleting tasks, which keeps their rows and history, and undoing it."""

from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite
from tests.tasks.records import audited, changes, counted, pulled, stored

TASK = f"{PROJECT}/tasks/t1"
IN_QUEUE = f"{PROJECT}/queues/q1/tasks/t1"


async def test_a_deleted_task_is_marked_and_not_offered(api: TasksApi) -> None:
    await api.plan("t1", queue="q1", tags=["x"])
    api.clock.advance(seconds=60)
    gone = await api.data("DELETE", IN_QUEUE)
    assert gone == {
        "task_id": "t1",
        "id": "t1",
        "project_id": "p1",
        "queue_id": "q1",
        "deleted": True,
        "deleted_at": "2026-01-01T00:01:00.000Z",
    }
    task = await stored(api, "t1", "q1")
    assert (task.deleted_at, task.updated_by, task.state) == (api.clock.now(), "root", "idle")
    assert await api.pull() == await api.pull("tags=x") == []
    assert ((await counted(api, "q1")).total, (await counted(api)).total) == (0, 0)
    assert [(name, kind) for name, kind, _ in await changes(api)] == [("t1", "created"), ("t1", "deleted")]


@on_sqlite
async def test_a_deleted_task_is_not_found_again(api: TasksApi) -> None:
    await api.plan("t1")
    await api.data("DELETE", TASK)
    feed = await changes(api)
    status, error = await api.error("DELETE", TASK)
    assert (status, error["code"], error["details"]["code"]) == (404, "RESOURCE_NOT_FOUND", "TASK_NOT_FOUND")
    assert await changes(api) == feed
    assert len(await audited(api, "tasks.delete")) == 1


async def test_deleting_a_held_task_revokes_the_lease_and_records_it(api: TasksApi) -> None:
    await api.plan("t1", queue="q1")
    await api.pull(client="w")
    await api.data("DELETE", TASK)
    assert (await stored(api, "t1", "q1")).lease_owner is None
    assert await pulled(api, "t1", "q1") == [("w", "root", "revoked")]
    (line,) = await audited(api, "tasks.delete")
    assert line.detail == {"by": "root", "count": 1, "tasks": ["t1"], "queues": ["q1"], "taken_from": ["w"]}


async def test_the_history_of_a_deleted_task_stays(api: TasksApi) -> None:
    await api.plan("t1", queue="q1")
    await api.pull(client="w")
    await api.data("PATCH", "/tasks/p1/q1/t1/status", {"status": "done"}, x_client_id="w")
    await api.data("DELETE", TASK)
    assert await pulled(api, "t1", "q1") == [("w", "w", "pushed")]


@on_sqlite
async def test_what_is_not_there_cannot_be_deleted_or_restored(api: TasksApi) -> None:
    await api.plan("t1")
    for path, code in (
        ("/projects/p9/tasks/t1", "PROJECT_NOT_FOUND"),
        ("/projects/p1/tasks/t9", "TASK_NOT_FOUND"),
        ("/projects/p1/queues/q9/tasks/t1", "QUEUE_NOT_FOUND"),
        ("/projects/p1/queues/q1/tasks/t1", "TASK_NOT_FOUND"),
    ):
        for method, target in (("DELETE", path), ("POST", f"{path}/restore")):
            status, error = await api.error(method, target)
            assert (status, error["details"]["code"]) == (404, code)


async def test_equal_ids_are_distinguished_by_their_queue(api: TasksApi) -> None:
    await api.submit(queue="q2")
    for queue in ("q1", "q2"):
        await api.plan("t1", queue=queue)
    status, error = await api.error("DELETE", TASK)
    assert (status, error["details"]["code"]) == (409, "AMBIGUOUS_TASK")
    await api.data("DELETE", IN_QUEUE)
    assert (await api.data("DELETE", TASK))["queue_id"] == "q2"
    status, error = await api.error("POST", f"{TASK}/restore")
    assert (status, error["details"]["code"]) == (409, "AMBIGUOUS_TASK")
    for _ in range(2):
        assert (await api.data("POST", f"{IN_QUEUE}/restore"))["queue_id"] == "q1"
    assert (await api.data("POST", f"{TASK}/restore"))["queue_id"] == "q2"


async def test_a_restored_task_is_offered_again(api: TasksApi) -> None:
    await api.plan("t1", queue="q1", tags=["x"])
    await api.data("DELETE", TASK)
    restored = await api.data("POST", f"{TASK}/restore")
    assert (restored["deleted_at"], restored["pull_state"], restored["status"]) == (None, "unpulled", "pending")
    assert (await counted(api, "q1")).pending == 1
    assert [task["task_id"] for task in await api.pull("tags=x")] == ["t1"]
    assert [kind for _, kind, _ in await changes(api)][-2:] == ["deleted", "restored"]
    (line,) = await audited(api, "tasks.restore")
    assert (line.detail["queues"], line.detail["tasks"]) == (["q1"], ["t1"])


async def test_a_task_deleted_while_held_is_restored_in_its_status_at_pull(api: TasksApi) -> None:
    await api.plan("t1", queue="q1")
    await api.pull(client="w")
    await api.data("PATCH", "/tasks/p1/q1/t1/status", {"status": "running"}, x_client_id="w")
    await api.data("DELETE", TASK)
    await api.data("POST", f"{TASK}/restore")
    assert [task["status"] for task in await api.pull(client="w")] == ["pending"]


async def test_a_clients_task_is_restored_but_not_offered(api: TasksApi) -> None:
    await api.submit({"id": "t1"}, key="anna")
    await api.data("DELETE", TASK)
    restored = await api.data("POST", f"{TASK}/restore")
    assert (restored["source"], restored["deleted_at"]) == ("client", None)
    assert await api.pull() == []


@on_sqlite
async def test_restoring_what_is_not_deleted_changes_nothing(api: TasksApi) -> None:
    await api.plan("t1")
    await api.pull(client="w")
    before = await stored(api, "t1")
    assert (await api.data("POST", f"{TASK}/restore"))["pulled_by"] == "w"
    assert await stored(api, "t1") == before
    assert await audited(api, "tasks.restore") == []


@on_sqlite
async def test_a_key_of_another_project_may_neither_delete_nor_restore(api: TasksApi) -> None:
    await api.plan("t1", queue="q1")
    for path in (TASK, IN_QUEUE):
        for method, target in (("DELETE", path), ("POST", f"{path}/restore")):
            status, error = await api.error(method, target, key="elsewhere")
            assert (status, error["details"]["code"]) == (403, "OTHER_PROJECT")
