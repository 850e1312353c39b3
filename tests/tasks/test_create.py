"""Creating tasks in a project or in a queue."""

from typing import Any

from penstock.tasks.api import manage
from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite
from tests.tasks.records import audited, changes, counted, stored

TASK = {"name": "n", "prompt": "p"}
QUEUE = f"{PROJECT}/queues/q1"
NOW = "2026-01-01T00:00:00.000Z"
BAD: list[tuple[str, Any]] = [
    ("name", None),
    ("name", ""),
    ("name", "  "),
    ("name", 7),
    ("name", "n" * 1001),
    ("prompt", None),
    ("prompt", ""),
    ("prompt", " "),
    ("prompt", "p" * 100_001),
    ("taskId", ""),
    ("taskId", "t" * 256),
    ("taskId", "line\nbreak"),
    ("taskId", 5),
    ("status", "finished"),
    ("status", 1),
    ("priority", 0),
    ("priority", 11),
    ("priority", "urgent"),
    ("priority", 5.5),
    ("priority", True),
    ("tags", "urgent"),
    ("tags", [f"t{number}" for number in range(21)]),
    ("tags[0]", ["t" * 51]),
    ("tags[1]", ["ok", ""]),
    ("tags[0]", [3]),
    ("spec_file", ["a.md", "a.md"]),
    ("spec_file[0]", " "),
    ("spec_file", [f"{number}.md" for number in range(101)]),
    ("spec_file[0]", ["a" * 501]),
    ("report", "r" * 1_000_001),
    ("report", {}),
    ("expires_at", "tomorrow"),
    ("expires_at", True),
    ("expires_at", "0001-01-01T00:00:00+14:00"),
    ("expires_at", 1e300),
    ("expires_at", "2025-12-31T23:59:59Z"),
    ("expires_at", NOW),
    ("result_schema", []),
    ("result_schema", {"type": "strin"}),
    ("result_schema", {"$ref": "https://example.com/schema.json"}),
]


async def test_a_task_created_in_a_project_is_in_no_queue_and_owned_by_the_server(api: TasksApi) -> None:
    answer = await api.call("POST", f"{PROJECT}/tasks", {"taskId": "t1", **TASK})
    assert answer.status == 201
    made = answer.data
    assert (made["task_id"], made["id"], made["project_id"], made["queue_id"]) == ("t1", "t1", "p1", None)
    assert (made["source"], made["origin"], made["status"], made["pull_state"]) == (
        "server",
        "server",
        "pending",
        "unpulled",
    )
    assert (made["created_by"], made["updated_by"]) == ("root", "root")
    assert {made[name] for name in ("created_at", "updated_at", "server_modified_at")} == {NOW}
    assert (made["priority"], made["tags"], made["spec_file"], made["expires_at"]) == (None, [], [], None)
    assert made["version"] == (await stored(api, "t1")).version > 0


async def test_a_task_created_in_a_queue_is_in_it(api: TasksApi) -> None:
    (made,) = await api.plan("t1", queue="q1")
    assert made["queue_id"] == "q1"
    assert [task["task_id"] for task in await api.pull(queue="q1")] == ["t1"]


async def test_everything_that_was_sent_is_kept(api: TasksApi) -> None:
    sent = {
        "taskId": "t1",
        "name": "Name",
        "prompt": " as it is ",
        "status": "Error",
        "spec_file": ["a.md", "b.md"],
        "tags": ["x", " y ", "x"],
        "priority": 9,
        "expires_at": "2026-06-01T08:00:00+08:00",
        "report": "So far.",
        "result_schema": {"type": "object"},
        "something": "that nobody here knows",
    }
    made = await api.data("POST", f"{QUEUE}/tasks", sent)
    kept = {name: made[name] for name in sent if name not in {"taskId", "something"}}
    assert kept == {
        "name": "Name",
        "prompt": " as it is ",
        "status": "error",
        "spec_file": ["a.md", "b.md"],
        "tags": ["x", " y ", "x"],
        "priority": 9,
        "expires_at": "2026-06-01T00:00:00.000Z",
        "report": "So far.",
        "result_schema": {"type": "object"},
    }
    task = await stored(api, "t1", "q1")
    assert (task.prompt, task.tags, task.shown_priority, task.report) == (" as it is ", ["x", " y ", "x"], 9, "So far.")
    assert task.finished_at == task.created_at


async def test_a_task_without_an_id_is_given_one(api: TasksApi) -> None:
    first, second = [await api.data("POST", f"{PROJECT}/tasks", {**TASK, **no_id}) for no_id in ({}, {"taskId": None})]
    assert first["task_id"] != second["task_id"]
    assert {task["task_id"] for task in await api.pull()} == {first["task_id"], second["task_id"]}


@on_sqlite
async def test_the_id_may_be_spelled_in_three_ways(api: TasksApi) -> None:
    for name in ("taskId", "task_id", "id"):
        assert (await api.data("POST", f"{PROJECT}/tasks", {name: f" {name} ", **TASK}))["task_id"] == name


@on_sqlite
async def test_null_is_treated_as_absent(api: TasksApi) -> None:
    optional = ("status", "spec_file", "tags", "priority", "expires_at", "report", "result_schema")
    made = await api.data("POST", f"{PROJECT}/tasks", {**TASK, **dict.fromkeys(optional)})
    assert (made["status"], made["priority"], made["tags"], made["spec_file"]) == ("pending", None, [], [])


@on_sqlite
async def test_a_priority_is_a_number_or_a_word(api: TasksApi) -> None:
    for sent, shown in (("high", 8), ("Medium", 5), ("low", 2), (None, None), (1, 1), (10, 10), ("7", 7)):
        assert (await api.data("POST", f"{PROJECT}/tasks", {**TASK, "priority": sent}))["priority"] == shown


@on_sqlite
async def test_a_time_without_a_zone_is_utc_and_may_be_a_number(api: TasksApi) -> None:
    for sent in ("2026-06-01T00:00:00", "2026-06-01T00:00:00Z", 1780272000, 1780272000000):
        made = await api.data("POST", f"{PROJECT}/tasks", {**TASK, "expires_at": sent})
        assert made["expires_at"] == "2026-06-01T00:00:00.000Z"


@on_sqlite
async def test_the_setting_gives_tasks_an_expiry_unless_they_have_one(api: TasksApi) -> None:
    hourly = api.with_config(expiry_time=3600.0)
    (by_rule,) = await hourly.plan("a")
    (own,) = await hourly.plan("b", expires_at="2026-01-02T00:00:00Z")
    assert by_rule["expires_at"] == "2026-01-01T01:00:00.000Z"
    assert own["expires_at"] == "2026-01-02T00:00:00.000Z"


@on_sqlite
async def test_a_field_out_of_range_is_refused_by_name(api: TasksApi) -> None:
    for field, value in BAD:
        body = {**TASK, field.partition("[")[0]: value}
        status, error = await api.error("POST", f"{PROJECT}/tasks", body)
        assert (status, error["code"], error["details"]["field"]) == (400, "VALIDATION_ERROR", field), value
        assert error["details"]["all_errors"][0]["field"] == field
        assert error["details"]["reason"]
    assert (await counted(api)).total == 0


@on_sqlite
async def test_all_errors_are_reported_at_once(api: TasksApi) -> None:
    body = {"taskId": "pull", "prompt": "", "priority": 0, "expires_at": "x"}
    _, error = await api.error("POST", f"{QUEUE}/tasks", body)
    wrong = [bad["field"] for bad in error["details"]["all_errors"]]
    assert wrong == ["taskId", "name", "prompt", "priority", "expires_at"]


@on_sqlite
async def test_a_reserved_id_is_refused(api: TasksApi) -> None:
    for word in ("pull", "batch", "check", "tags", "stats", "Pull", "BATCH"):
        status, error = await api.error("POST", f"{PROJECT}/tasks", {"taskId": word, **TASK})
        assert (status, error["details"]["field"]) == (400, "taskId")


async def test_names_of_any_script_survive(api: TasksApi) -> None:
    for name in ("🚰" * 255, "مهمة عاجلة", "任务一"):
        body = {"taskId": name, "name": name, "prompt": name, "tags": [name[:50]]}
        made = await api.data("POST", f"{PROJECT}/tasks", body)
        assert (made["task_id"], made["name"], made["prompt"], made["tags"]) == (name, name, name, [name[:50]])
        assert (await stored(api, name)).name == name


async def test_an_id_is_unique_in_its_queue(api: TasksApi) -> None:
    await api.plan("t1")
    await api.plan("t1", queue="q1")
    for place in (PROJECT, QUEUE):
        status, error = await api.error("POST", f"{place}/tasks", {"taskId": "t1", **TASK})
        assert (status, error["code"], error["details"]["code"]) == (409, "DUPLICATE_KEY", "TASK_EXISTS")


async def test_a_deleted_task_keeps_its_id(api: TasksApi) -> None:
    await api.plan("t1")
    await api.data("DELETE", f"{PROJECT}/tasks/t1")
    status, error = await api.error("POST", f"{PROJECT}/tasks", {"taskId": "t1", **TASK})
    assert (status, error["details"]["code"]) == (409, "TASK_EXISTS")


@on_sqlite
async def test_an_unknown_project_or_queue_is_not_found(api: TasksApi) -> None:
    for place, code in (("/projects/p9", "PROJECT_NOT_FOUND"), ("/projects/p1/queues/q9", "QUEUE_NOT_FOUND")):
        status, error = await api.error("POST", f"{place}/tasks", TASK)
        assert (status, error["code"], error["details"]["code"]) == (404, "RESOURCE_NOT_FOUND", code)


async def test_new_tasks_are_counted_announced_and_audited(api: TasksApi) -> None:
    await api.plan("a", "b", queue="q1")
    await api.plan("c", status="done")
    assert (await counted(api, "q1")).pending == 2
    assert ((await counted(api)).pending, (await counted(api)).done) == (2, 1)
    assert [(task, kind) for task, kind, _ in await changes(api)] == [
        ("a", "created"),
        ("b", "created"),
        ("c", "created"),
    ]
    newest, *_ = await audited(api, "tasks.create")
    assert (newest.actor, newest.target) == ("key:k-root", "project:p1")
    assert newest.detail == {"by": "root", "count": 1, "tasks": ["c"], "queues": [""], "taken_from": []}


async def test_tasks_of_a_batch_are_created_in_its_order(api: TasksApi) -> None:
    body = {"tasks": [{"taskId": "b", **TASK}, TASK, {"id": "a", **TASK}]}
    for place, queue_id in ((PROJECT, None), (QUEUE, "q1")):
        answer = await api.call("POST", f"{place}/tasks/batch", body)
        assert (answer.status, answer.data["created_count"]) == (201, 3)
        made = answer.data["tasks"]
        assert [made[0]["task_id"], made[2]["task_id"]] == ["b", "a"]
        assert [task["version"] for task in made] == list(range(made[0]["version"], made[0]["version"] + 3))
        assert {task["queue_id"] for task in made} == {queue_id}
    assert len(await audited(api, "tasks.create")) == 2


@on_sqlite
async def test_a_batch_with_one_bad_task_creates_none(api: TasksApi) -> None:
    first = {"taskId": "a", **TASK}
    for second, field in (
        ({"taskId": "x", "name": "n"}, "tasks[1].prompt"),
        (first, "tasks[0].taskId"),
        ({**TASK, "expires_at": "2020-01-01"}, "tasks[1].expires_at"),
        ({**TASK, "result_schema": {"$ref": "#"}}, "tasks[1].result_schema"),
    ):
        status, error = await api.error("POST", f"{PROJECT}/tasks/batch", {"tasks": [first, second]})
        assert (status, error["details"]["field"]) == (400, field)
    assert (await counted(api)).total == 0
    assert await changes(api) == []


async def test_a_batch_with_an_existing_id_creates_none(api: TasksApi) -> None:
    await api.plan("b")
    body = {"tasks": [{"taskId": "a", **TASK}, {"taskId": "b", **TASK}]}
    status, error = await api.error("POST", f"{PROJECT}/tasks/batch", body)
    assert (status, error["details"]["task_id"]) == (409, "b")
    assert (await counted(api)).total == 1


@on_sqlite
async def test_a_batch_has_a_thousand_tasks_at_most(api: TasksApi) -> None:
    for tasks in ([TASK] * 1001, []):
        status, error = await api.error("POST", f"{PROJECT}/tasks/batch", {"tasks": tasks})
        assert (status, error["details"]["field"]) == (400, "tasks")
    assert (await api.data("POST", f"{PROJECT}/tasks/batch", {"tasks": [TASK] * 1000}))["created_count"] == 1000
    assert (await counted(api)).pending == 1000


@on_sqlite
async def test_a_key_of_another_project_may_not_create_tasks(api: TasksApi) -> None:
    for path in ("tasks", "tasks/batch", "queues/q1/tasks", "queues/q1/tasks/batch"):
        status, error = await api.error("POST", f"{PROJECT}/{path}", {**TASK, "tasks": [TASK]}, key="elsewhere")
        assert (status, error["details"]["code"]) == (403, "OTHER_PROJECT")


def test_managing_tasks_takes_an_admin_key_which_may_be_bound() -> None:
    asked = [getattr(route, "openapi_extra", None) for route in manage.router.routes]
    assert asked == [{"x-scope": "admin", "x-bound": True}] * len(asked)
    assert asked


async def test_tasks_that_are_created_again_with_the_same_key_are_created_once(api: TasksApi):
    await api.plan("queued", queue="q1")
    places = (f"{PROJECT}/tasks", f"{QUEUE}/tasks", f"{PROJECT}/tasks/batch", f"{QUEUE}/tasks/batch")
    for number, place in enumerate(places):
        body = {"tasks": [TASK, TASK]} if place.endswith("batch") else TASK
        first, again = [await api.data("POST", place, body, idempotency_key=f"k{number}") for _ in range(2)]
        assert first == again, place
    assert (await counted(api)).pending == 1 + 1 + 1 + 2 + 2


async def test_another_task_with_the_key_is_refused(api: TasksApi):
    await api.data("POST", f"{PROJECT}/tasks", TASK, idempotency_key="k1")
    status, error = await api.error("POST", f"{PROJECT}/tasks", {**TASK, "name": "m"}, idempotency_key="k1")
    assert (status, error["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
