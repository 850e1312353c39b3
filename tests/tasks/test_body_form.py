"""Messages, log lines and statuses with the ids in the body, as existing clients send them."""

from typing import Any

import pytest

from tests.tasks.conftest import TasksApi, on_sqlite

IDS = {"project_id": "p1", "queue_id": "q1", "task_id": "a"}
MESSAGE = {"role": "User", "content": " Hello. ", "session_id": "s-1"}
CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "message", MESSAGE),
    ("POST", "log", {"content": " A line. "}),
    ("PATCH", "status", {"status": "Done"}),
]


async def test_both_forms_answer_the_same(api: TasksApi) -> None:
    await api.submit({"id": "a"}, {"id": "b"})
    for method, what, body in CALLS:
        in_body = await api.data(method, f"/tasks/{what}", {**IDS, "queue_id": " q1 ", **body}, key="anna")
        in_path = await api.data(method, f"/tasks/p1/q1/b/{what}", body, key="anna")
        assert in_body == in_path | ({"task_id": "a"} if what == "status" else {})
    assert await api.data("POST", "/tasks/message", {**IDS, "role": "assistant", "content": "x"}) == {
        "message_id": 1,
        "role": "ASSISTANT",
        "content": "x",
        "session_id": None,
        "created_at": "2026-01-01T00:00:00.000Z",
    }
    shown = await api.data("GET", "/projects/p1/queues/q1/tasks/a")
    assert [(one["role"], one["content"]) for one in shown["messages"]] == [("user", "Hello."), ("assistant", "x")]
    assert ([one["content"] for one in shown["logs"]], shown["status"]) == (["A line."], "done")


@on_sqlite
@pytest.mark.parametrize(("method", "what", "body"), CALLS)
async def test_the_ids_are_checked_first_then_the_key_then_the_task(
    api: TasksApi, method: str, what: str, body: dict[str, Any]
) -> None:
    await api.submit({"id": "a"})
    for name in IDS:
        for wrong in (None, " ", 5, "x" * 256):
            status, error = await api.error(method, f"/tasks/{what}", {**IDS, **body, name: wrong}, key="elsewhere")
            assert (status, error["code"], error["details"]["field"]) == (400, "VALIDATION_ERROR", name)
        status, error = await api.error(method, f"/tasks/{what}", {**IDS, **body, name: "never"})
        assert (status, error["code"]) == (404, "RESOURCE_NOT_FOUND")
        ids = {one: error["details"][one] for one in IDS}
        assert ids == {**IDS, name: "never"}
    status, error = await api.error(method, f"/tasks/{what}", {**IDS, **body, "task_id": "never"}, key="elsewhere")
    assert (status, error["code"], error["details"]["project_id"]) == (401, "INVALID_API_KEY", "p1")


@on_sqlite
async def test_a_blank_text_an_unknown_role_or_status_is_named(api: TasksApi) -> None:
    await api.submit({"id": "a"})
    for what, method, body, field in (
        ("message", "POST", {"role": "user", "content": "  "}, "content"),
        ("message", "POST", {"role": "user", "content": "x" * 100_001}, "content"),
        ("message", "POST", {"role": "system", "content": "x"}, "role"),
        ("log", "POST", {}, "content"),
        ("log", "POST", {"content": ""}, "content"),
        ("status", "PATCH", {"status": "finished"}, "status"),
    ):
        status, error = await api.error(method, f"/tasks/{what}", {**IDS, **body})
        assert (status, error["details"]["field"]) == (400, field)


@on_sqlite
async def test_only_tasks_of_queues_are_reached(api: TasksApi) -> None:
    await api.plan("loose")
    status, _ = await api.error("PATCH", "/tasks/status", {**IDS, "task_id": "loose", "status": "done"})
    assert status == 404
