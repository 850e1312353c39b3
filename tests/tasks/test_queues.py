"""Queues: listing, creating and changing them."""

from urllib.parse import quote

from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite
from tests.tasks.records import audited

QUEUES = f"{PROJECT}/queues"


async def make(api: TasksApi, queue_id: str, name: str = "A name", **more: object) -> None:
    await api.data("POST", QUEUES, {"queue_id": queue_id, "name": name, **more})


async def test_a_queue_is_shown_with_all_its_fields(api: TasksApi):
    await api.submit({"id": "t1"}, {"id": "t2", "status": "error"}, meta={"prompts": ["x"]})
    shown = await api.data("GET", f"{QUEUES}/q1")
    assert shown == {
        "id": "q1",
        "queue_id": "q1",
        "project_id": "p1",
        "name": "Q",
        "meta": {"prompts": ["x"]},
        "task_count": 2,
        "task_stats": {"total": 2, "pending": 1, "running": 0, "done": 0, "error": 1, "cancelled": 0},
        "last_task_at": "2026-01-01T00:00:00.000Z",
        "last_reset_at": None,
        "last_operation": None,
        "last_operation_by": None,
        "created_at": "2026-01-01T00:00:00.000Z",
        "updated_at": "2026-01-01T00:00:00.000Z",
    }
    assert (await api.data("GET", QUEUES))["items"] == [shown]


async def test_queues_come_in_pages_with_the_newest_task_first(api: TasksApi):
    for number in range(2, 6):
        api.clock.advance(seconds=1)
        await make(api, f"q{number}")
    api.clock.advance(seconds=1)
    await api.submit({"id": "t1"})
    first = await api.data("GET", f"{QUEUES}?pageSize=2")
    second = await api.data("GET", f"{QUEUES}?page=2&pageSize=2")
    assert [item["id"] for item in first["items"] + second["items"]] == ["q1", "q5", "q4", "q3"]
    assert second["pagination"] == {"page": 2, "pageSize": 2, "total": 5, "totalPages": 3}
    assert (await api.data("GET", PROJECT))["queue_count"] == 5


async def test_queues_are_searched_by_id_and_name_in_any_case(api: TasksApi):
    await make(api, "Build-7", "Сборка")
    await make(api, "q_x", "100%")
    for search, found in {"build": "Build-7", "сБОРКА": "Build-7", "_": "q_x", "%": "q_x", "zzz": ""}.items():
        data = await api.data("GET", f"{QUEUES}?search={quote(search)}")
        assert [item["id"] for item in data["items"]] == [found] * bool(found), search
        assert data["pagination"]["total"] == bool(found)


async def test_a_queue_can_be_made_without_a_push(api: TasksApi):
    answer = await api.call("POST", QUEUES, {"queue_id": " q2 ", "name": " Two ", "meta": {"a": [1]}})
    assert answer.status == 201
    assert (answer.data["id"], answer.data["name"], answer.data["meta"]) == ("q2", "Two", {"a": [1]})
    assert await api.data("GET", f"{QUEUES}/q2") == answer.data
    line, *_ = await audited(api, "tasks.create_queue")
    assert (line.target, line.detail["queue"]) == ("project:p1", "q2")


async def test_a_queue_cannot_be_made_twice(api: TasksApi):
    status, error = await api.error("POST", QUEUES, {"queue_id": "q1", "name": "x"})
    assert (status, error["code"], error["details"]["code"]) == (409, "DUPLICATE_KEY", "QUEUE_EXISTS")
    assert (await api.data("GET", PROJECT))["queue_count"] == 1


@on_sqlite
async def test_an_unknown_queue_is_not_found(api: TasksApi):
    changes = [("GET", "", None), ("PUT", "", {"name": "x"}), ("DELETE", "", None)]
    for method, path, body in [*changes, ("GET", "/tasks", None), ("GET", "/tasks/t1", None)]:
        status, error = await api.error(method, f"{QUEUES}/nobody{path}", body)
        assert (status, error["details"]["code"]) == (404, "QUEUE_NOT_FOUND"), path
        assert (error["details"]["project_id"], error["details"]["queue_id"]) == ("p1", "nobody")


async def test_a_queue_is_renamed_and_given_a_meta_each_alone(api: TasksApi):
    api.clock.advance(seconds=1)
    await api.data("PUT", f"{QUEUES}/q1", {"meta": {"a": 1}})
    changed = await api.data("PUT", f"{QUEUES}/q1", {"name": " New "})
    assert (changed["name"], changed["meta"]) == ("New", {"a": 1})
    assert changed["updated_at"] == "2026-01-01T00:00:01.000Z"
    assert await api.data("GET", f"{QUEUES}/q1") == changed
    assert (await api.data("GET", f"{QUEUES}?search=new"))["pagination"]["total"] == 1
    assert (await api.data("PUT", f"{QUEUES}/q1", {"meta": None}))["meta"] is None
    assert len(await audited(api, "tasks.change_queue")) == 3


@on_sqlite
async def test_a_queue_that_does_not_fit_is_refused_by_field(api: TasksApi):
    new = [
        ({"name": "x"}, "queue_id"),
        ({"queue_id": "q2"}, "name"),
        ({"queue_id": "x" * 256, "name": "x"}, "queue_id"),
        ({"queue_id": "check", "name": "x"}, "queue_id"),
        ({"queue_id": "q2", "name": "x" * 1001}, "name"),
        ({"queue_id": "q2", "name": "x", "meta": {"a": "x" * 1_000_001}}, "meta"),
    ]
    for body, field in new:
        status, error = await api.error("POST", QUEUES, body)
        assert (status, error["code"], error["details"]["field"]) == (400, "VALIDATION_ERROR", field)
    for edit, field in [({}, "name"), ({"name": ""}, "name"), ({"name": None}, "name")]:
        status, error = await api.error("PUT", f"{QUEUES}/q1", edit)
        assert (status, error["code"], error["details"]["field"]) == (400, "VALIDATION_ERROR", field)
    assert (await api.data("GET", QUEUES))["pagination"]["total"] == 1


async def test_an_id_and_a_name_of_255_characters_in_any_script_survive(api: TasksApi):
    await make(api, "队" * 255, "🧵" * 255)
    assert (await api.data("GET", f"{QUEUES}/{quote('队' * 255)}"))["name"] == "🧵" * 255
