"""Deleting and moving many tasks in one call."""

from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite
from tests.tasks.records import audited, changes, counted, event_counts, pulled, stored

DELETE = f"{PROJECT}/tasks/delete/batch"
MOVE = f"{PROJECT}/tasks/move/batch"


async def test_many_tasks_are_deleted_and_the_others_named_with_reasons(api: TasksApi) -> None:
    await api.submit(queue="q2")
    await api.plan("a", "gone")
    await api.plan("b", "twice", queue="q1")
    await api.plan("twice", queue="q2")
    await api.data("DELETE", f"{PROJECT}/tasks/gone")
    done = await api.data("POST", DELETE, {"taskIds": ["a", "b", "a", "gone", "twice", "never"]})
    assert (done["deleted_count"], done["failed_count"]) == (2, 3)
    assert [(bad["task_id"], bad["code"]) for bad in done["failed_tasks"]] == [
        ("gone", "TASK_NOT_FOUND"),
        ("twice", "AMBIGUOUS_TASK"),
        ("never", "TASK_NOT_FOUND"),
    ]
    assert all(bad["reason"] for bad in done["failed_tasks"])
    assert (await counted(api)).pending == 2
    assert (await counted(api, "q1")).pending == 1


async def test_a_queue_id_distinguishes_equal_task_ids(api: TasksApi) -> None:
    await api.plan("a")
    await api.plan("a", "b", queue="q1")
    done = await api.data("POST", DELETE, {"task_ids": ["a", "b"], "queue_id": "q1"})
    assert (done["deleted_count"], done["failed_tasks"]) == (2, [])
    assert (await stored(api, "a")).deleted_at is None
    assert (await counted(api, "q1")).total == 0


async def test_a_batch_ends_the_pulls_of_what_it_deletes_and_is_one_line_of_the_audit(api: TasksApi) -> None:
    await api.plan("a", "b", queue="q1")
    await api.pull("limit=1", client="w")
    await api.data("POST", DELETE, {"taskIds": ["a", "b"]})
    assert await pulled(api, "a", "q1") == [("w", "root", "revoked")]
    (line,) = await audited(api, "tasks.delete")
    assert line.detail == {
        "by": "root",
        "count": 2,
        "tasks": ["a", "b"],
        "queues": ["q1"],
        "taken_from": ["w"],
    }


async def test_many_tasks_are_moved_and_keep_their_holders(api: TasksApi) -> None:
    await api.plan("a", "b", "taken")
    await api.plan("taken", "there", queue="q1")
    await api.pull("limit=1", client="w")
    feed = len(await changes(api))
    done = await api.data("POST", MOVE, {"taskIds": ["a", "b", "taken", "there", "never"], "queueId": "q1"})
    assert (done["moved_count"], done["failed_count"]) == (2, 3)
    assert [(bad["task_id"], bad["code"]) for bad in done["failed_tasks"]] == [
        ("taken", "TASK_EXISTS"),
        ("there", "BAD_TASK"),
        ("never", "TASK_NOT_FOUND"),
    ]
    assert [(name, kind) for name, kind, _ in await changes(api)][feed:] == [("a", "moved"), ("b", "moved")]
    assert (await stored(api, "a", "q1")).lease_owner == "w"
    assert (await counted(api, "q1")).pending == 4
    assert (await counted(api)).pending == 5
    (line,) = await audited(api, "tasks.move")
    assert (line.detail["to"], line.detail["tasks"], line.detail["taken_from"]) == ("q1", ["a", "b"], [])


async def test_many_tasks_are_moved_from_one_queue_out_of_all(api: TasksApi) -> None:
    await api.plan("a", "b", queue="q1")
    done = await api.data("POST", MOVE, {"taskIds": ["a", "b"], "queueId": None, "fromQueueId": "q1"})
    assert done["moved_count"] == 2
    assert ((await counted(api, "q1")).total, (await counted(api)).total) == (0, 2)


@on_sqlite
async def test_a_batch_that_changes_nothing_writes_nothing(api: TasksApi) -> None:
    await api.plan("a", queue="q1")
    feed = await changes(api)
    assert (await api.data("POST", DELETE, {"taskIds": ["never"]}))["deleted_count"] == 0
    assert (await api.data("POST", MOVE, {"taskIds": ["a"], "queueId": "q1"}))["moved_count"] == 0
    assert await changes(api) == feed
    assert await audited(api, "tasks.delete") == await audited(api, "tasks.move") == []


@on_sqlite
async def test_a_batch_names_between_one_and_a_thousand_tasks(api: TasksApi) -> None:
    wrong: list[dict[str, object]] = [{}, {"taskIds": []}, {"taskIds": ["a"] * 1001}, {"taskIds": "a"}]
    for body in wrong:
        for path in (DELETE, MOVE):
            status, error = await api.error("POST", path, {"queueId": "q1", **body})
            assert (status, error["details"]["field"]) == (400, "taskIds")
    status, error = await api.error("POST", DELETE, {"taskIds": ["a", ""]})
    assert (status, error["details"]["field"]) == (400, "taskIds[1]")


async def test_a_thousand_tasks_are_moved_and_deleted_at_once(api: TasksApi) -> None:
    names = [f"t{number}" for number in range(1000)]
    tasks = [{"taskId": name, "name": "n", "prompt": "p", "tags": ["x"]} for name in names]
    await api.data("POST", f"{PROJECT}/tasks/batch", {"tasks": tasks})
    assert (await api.data("POST", MOVE, {"taskIds": names, "queueId": "q1"}))["moved_count"] == 1000
    assert (await counted(api, "q1")).pending == 1000
    assert (await api.data("POST", DELETE, {"taskIds": names}))["deleted_count"] == 1000
    assert (await counted(api, "q1")).total == 0
    (line,) = await audited(api, "tasks.delete")
    assert (line.detail["count"], len(line.detail["tasks"])) == (1000, 100)


@on_sqlite
async def test_a_queue_that_nobody_knows_is_not_found(api: TasksApi) -> None:
    await api.plan("a")
    for path, body in (
        (DELETE, {"queueId": "q9"}),
        (MOVE, {"queueId": "q9"}),
        (MOVE, {"queueId": "q1", "fromQueueId": "q9"}),
    ):
        status, error = await api.error("POST", path, {"taskIds": ["a"], **body})
        assert (status, error["details"]["code"]) == (404, "QUEUE_NOT_FOUND")


async def test_one_event_is_sent_per_call_that_changed_something(api: TasksApi) -> None:
    before = len(await event_counts(api))
    plans = [{"taskId": name, "name": name, "prompt": "p"} for name in ("a", "b")]
    await api.data("POST", f"{PROJECT}/tasks/batch", {"tasks": plans})
    await api.data("PUT", f"{PROJECT}/tasks/a", {"name": "New"})
    await api.data("PUT", f"{PROJECT}/tasks/a", {"name": "New"})
    await api.data("POST", MOVE, {"taskIds": ["a", "b"], "queueId": "q1"})
    await api.data("POST", DELETE, {"taskIds": ["a", "b"]})
    await api.data("POST", f"{PROJECT}/tasks/a/restore")
    await api.data("POST", f"{PROJECT}/tasks/a/restore")
    assert (await event_counts(api))[before:] == [2, 1, 1, 2, 2, 1]


@on_sqlite
async def test_a_key_of_another_project_may_not_use_the_batch_forms(api: TasksApi) -> None:
    await api.plan("a")
    for path in (DELETE, MOVE):
        status, error = await api.error("POST", path, {"taskIds": ["a"], "queueId": "q1"}, key="elsewhere")
        assert (status, error["details"]["code"]) == (403, "OTHER_PROJECT")
