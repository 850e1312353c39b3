"""Reading tasks: lists with filters, and one task with its messages and log."""

from typing import Any
from urllib.parse import quote

from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite

TASKS = f"{PROJECT}/tasks"
QUEUE_TASKS = f"{PROJECT}/queues/q1/tasks"


async def found(api: TasksApi, path: str) -> tuple[list[str], int]:
    """The ids of a list, and its total."""
    data = await api.data("GET", path)
    return [item["task_id"] for item in data["items"]], data["pagination"]["total"]


async def refused(api: TasksApi, path: str, expected: int, code: str) -> Any:
    status, error = await api.error("GET", path)
    assert (status, error["details"]["code"]) == (expected, code), path
    return error


async def take(api: TasksApi, task_id: str) -> None:
    """Pull one task by id."""
    data = await api.data("POST", f"{TASKS}/pull/batch", {"taskIds": [task_id]}, x_client_id="worker-1")
    assert [task["task_id"] for task in data["tasks"]] == [task_id]


async def test_tasks_of_a_queue_come_in_pages_in_the_order_they_were_made(api: TasksApi):
    await api.submit(*({"id": f"t{number}"} for number in range(5)))
    assert await found(api, f"{QUEUE_TASKS}?pageSize=2") == (["t0", "t1"], 5)
    assert await found(api, f"{QUEUE_TASKS}?page=2&pageSize=2") == (["t2", "t3"], 5)
    assert await found(api, f"{QUEUE_TASKS}?page=3&pageSize=2") == (["t4"], 5)


async def test_tasks_are_filtered_by_status(api: TasksApi):
    words = ("pending", "running", "done", "error", "cancelled")
    await api.submit(*({"id": word, "status": word} for word in words))
    for word in words:
        assert await found(api, f"{QUEUE_TASKS}?status={word}") == ([word], 1)
        assert await found(api, f"{TASKS}?queue=any&status={word.upper()}") == ([word], 1)
    assert await found(api, f"{QUEUE_TASKS}?status=") == (list(words), 5)


async def test_tasks_are_filtered_by_tags_in_any_case(api: TasksApi):
    await api.submit({"id": "one", "tags": ["Fr", " de "]}, {"id": "two", "tags": ["中文", "É"]}, {"id": "none"})
    for place in (f"{QUEUE_TASKS}?", f"{TASKS}?queue=any&"):
        assert await found(api, f"{place}tags=fr") == (["one"], 1)
        assert await found(api, f"{place}tags=FR,{quote('中文')}") == (["one", "two"], 2)
        assert await found(api, f"{place}tags=DE&tags={quote('É')}") == (["one", "two"], 2)
        assert await found(api, f"{place}tags=f") == ([], 0)
        assert await found(api, f"{place}tags=") == (["one", "two", "none"], 3)


async def test_tasks_are_filtered_by_priority_source_and_expiry(api: TasksApi):
    await api.submit({"id": "pushed", "priority": 9})
    await api.plan("low", priority="low", expires_at="2026-01-02T00:00:00Z")
    await api.plan("high", priority="high", expires_at="2026-03-01T00:00:00Z")
    await api.plan("plain")
    place = f"{TASKS}?queue=any"
    for query, ids in {
        "priority=high": ["pushed", "high"],
        "priority=2": ["low"],
        "priority=1-8": ["low", "high"],
        "source=client": ["pushed"],
        "source=SERVER&priority=high": ["high"],
        "expires_before=2026-02-01T00:00:00Z": ["low"],
        "expires_after=2026-02-01T00:00:00Z": ["high"],
        "expired=true": [],
        "expired=false&source=server": ["low", "high", "plain"],
    }.items():
        assert await found(api, f"{place}&{query}") == (ids, len(ids)), query
    api.clock.advance(seconds=2 * 86400)
    assert await found(api, f"{place}&expired=true") == (["low"], 1)
    assert await found(api, f"{QUEUE_TASKS}?priority=9&status=pending&source=client") == (["pushed"], 1)


@on_sqlite
async def test_a_bad_filter_is_refused_by_name(api: TasksApi):
    for path in (TASKS, QUEUE_TASKS):
        for query in (
            *("status=bogus", "pull_state=held", f"search={'x' * 1001}", "priority=11", "priority=8-5", "source=robot"),
            *("expired=maybe", "expires_after=soon"),
        ):
            status, error = await api.error("GET", f"{path}?{query}")
            assert (status, error["code"]) == (400, "VALIDATION_ERROR"), query
            assert error["details"]["field"] == query.partition("=")[0]
    status, error = await api.error("GET", f"{TASKS}?queue=q1")
    assert (status, error["details"]["field"]) == (400, "queue")


async def test_tasks_are_searched_by_id_and_name_in_any_case(api: TasksApi):
    await api.submit({"id": "Alpha-1", "name": "Ärger"}, {"id": "b_2", "name": "50%"}, {"id": "c", "name": "中文名"})
    wanted = {"ALPHA": "Alpha-1", "äRGER": "Alpha-1", "_": "b_2", "%": "b_2", "中文": "c", "zzz": ""}
    for search, task_id in wanted.items():
        expected = ([task_id] * bool(task_id), int(bool(task_id)))
        assert await found(api, f"{QUEUE_TASKS}?search={quote(search)}") == expected, search
        assert await found(api, f"{TASKS}?queue=any&search={quote(search)}") == expected, search
    assert await found(api, f"{QUEUE_TASKS}?search=a&status=done") == ([], 0)


async def test_tasks_are_filtered_by_pull_state(api: TasksApi):
    await api.submit({"id": "mine"})
    await api.plan("offered", "held", "closed", queue="q1")
    for task in ("held", "closed"):
        await take(api, task)
    await api.data("PATCH", "/tasks/p1/q1/closed/status", {"status": "done"}, x_client_id="worker-1")
    wanted = {"unpulled": ["mine", "offered"], "pulled_not_pushed": ["held"], "pulled": ["closed"]}
    wanted[""] = ["mine", "offered", "held", "closed"]
    for state, ids in wanted.items():
        for path in (f"{QUEUE_TASKS}?", f"{TASKS}?queue=any&"):
            assert await found(api, f"{path}pull_state={state}") == (ids, len(ids)), (path, state)
    shown = {item["id"]: item["pull_state"] for item in (await api.data("GET", QUEUE_TASKS))["items"]}
    assert shown == {"mine": "unpulled", "offered": "unpulled", "held": "pulled_not_pushed", "closed": "pulled"}


async def test_a_project_lists_tasks_outside_its_queues_or_all(api: TasksApi):
    await api.plan("beside-1", "beside-2", "beside-3")
    await api.plan("inside", queue="q1")
    assert await found(api, TASKS) == (["beside-3", "beside-2", "beside-1"], 3)
    assert await found(api, f"{TASKS}?page=2&pageSize=2") == (["beside-1"], 3)
    assert await found(api, f"{TASKS}?status=pending&search=2") == (["beside-2"], 1)
    assert await found(api, f"{TASKS}?status=done") == ([], 0)
    assert await found(api, f"{TASKS}?queue=any&page=2&pageSize=3") == (["inside"], 4)
    assert await found(api, QUEUE_TASKS) == (["inside"], 1)


async def test_totals_stay_right_when_tasks_change(api: TasksApi):
    await api.submit({"id": "a"}, {"id": "b"}, {"id": "c"})
    await api.submit({"id": "a", "status": "done"}, {"id": "b"})
    await api.plan("beside", "gone")
    await api.data("DELETE", f"{TASKS}/gone")
    await api.data("DELETE", f"{QUEUE_TASKS}/b")
    assert await found(api, QUEUE_TASKS) == (["a"], 1)
    assert await found(api, f"{QUEUE_TASKS}?status=done") == (["a"], 1)
    assert await found(api, f"{QUEUE_TASKS}?status=pending") == ([], 0)
    assert await found(api, f"{TASKS}?queue=any") == (["a", "beside"], 2)


@on_sqlite
async def test_a_task_is_shown_with_its_messages_and_log(api: TasksApi):
    said = [{"role": "user", "content": "Hello"}, {"role": "Assistant", "content": "你好", "session_id": "s1"}]
    await api.submit({"id": "t1", "messages": said, "logs": [{"content": "one"}, {"content": "two"}]})
    shown = await api.data("GET", f"{QUEUE_TASKS}/t1", key="bound")
    at = "2026-01-01T00:00:00.000Z"
    assert shown["messages"] == [
        {"message_id": 0, "role": "user", "content": "Hello", "session_id": None, "created_at": at},
        {"message_id": 1, "role": "assistant", "content": "你好", "session_id": "s1", "created_at": at},
    ]
    assert shown["logs"] == [
        {"log_id": 1, "content": "two", "created_at": at},
        {"log_id": 0, "content": "one", "created_at": at},
    ]
    assert (shown["task_id"], shown["id"], shown["queue_id"], shown["source"]) == ("t1", "t1", "q1", "client")
    assert await api.data("GET", f"{TASKS}/t1") == shown


@on_sqlite
async def test_no_list_contains_a_lease_token(api: TasksApi):
    await api.plan("t1")
    [pulled] = await api.pull()
    for path in (TASKS, f"{TASKS}/t1", f"{TASKS}?queue=any"):
        answer = await api.call("GET", path)
        assert pulled["lease_token"].encode() not in answer.body


async def test_a_task_outside_all_queues_is_preferred(api: TasksApi):
    await api.submit({"id": "t1", "name": "inside"})
    await api.plan("t1", name="beside")
    assert (await api.data("GET", f"{TASKS}/t1"))["name"] == "beside"
    assert (await api.data("GET", f"{QUEUE_TASKS}/t1"))["name"] == "inside"


@on_sqlite
async def test_a_task_in_several_queues_must_be_asked_for_by_its_queue(api: TasksApi):
    await api.submit({"id": "t1"})
    await api.submit({"id": "t1"}, queue="q2")
    error = await refused(api, f"{TASKS}/t1", 409, "AMBIGUOUS_TASK")
    assert error["details"]["queues"] == ["q1", "q2"]
    assert (await api.data("GET", f"{PROJECT}/queues/q2/tasks/t1"))["queue_id"] == "q2"


@on_sqlite
async def test_a_deleted_task_and_an_unknown_one_are_not_found(api: TasksApi):
    await api.plan("t1")
    await api.plan("t2", queue="q1")
    await api.data("DELETE", f"{TASKS}/t1")
    await api.data("DELETE", f"{QUEUE_TASKS}/t2")
    for path in (f"{TASKS}/t1", f"{TASKS}/t2", f"{QUEUE_TASKS}/t2"):
        await refused(api, path, 404, "TASK_NOT_FOUND")
    for path in (f"{TASKS}/t3", f"{QUEUE_TASKS}/t3", f"{QUEUE_TASKS}/t1"):
        error = await refused(api, path, 404, "TASK_NOT_FOUND")
        assert (error["details"]["project_id"], error["details"]["task_id"]) == ("p1", path[-2:])


async def test_the_pull_state_has_an_older_name(api: TasksApi):
    await api.plan("held", "closed", queue="q1")
    for task in ("held", "closed"):
        await take(api, task)
    await api.plan("offered", queue="q1")
    await api.data("PATCH", "/tasks/p1/q1/closed/status", {"status": "done"}, x_client_id="worker-1")
    for query, ids in {
        "pulled_status=pulled": ["held", "closed"],
        "pulled_status=not_pulled": ["offered"],
        "pulled_status=pulled_not_pushed": ["held"],
        "pull_state=not_pulled": ["offered"],
        "pull_state=pulled": ["closed"],
    }.items():
        assert await found(api, f"{QUEUE_TASKS}?{query}") == (ids, len(ids)), query
    for item in (await api.data("GET", QUEUE_TASKS))["items"]:
        assert item["pulled_status"] == item["pull_state"]
