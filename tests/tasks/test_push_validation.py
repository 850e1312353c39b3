"""Validation of the body of a push: every invalid field is named."""

from typing import Any

from tests.tasks.conftest import TasksApi, on_sqlite
from tests.tasks.stored_state import project_of, task_of


def pushed(*tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A whole body of a push."""
    full = [{"name": "n", "prompt": "p", "status": "pending", **task} for task in tasks]
    return {"project_id": "p1", "project_name": "P", "queue_id": "q1", "queue_name": "Q", "tasks": full, **more}


MESSAGE = {"role": "user", "content": "x"}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"project_id": ""}, "project_id"),
    ({"project_id": None}, "project_id"),
    ({"project_id": "   "}, "project_id"),
    ({"project_id": 7}, "project_id"),
    ({"project_id": "x" * 256}, "project_id"),
    ({"project_id": "a\nb"}, "project_id"),
    ({"project_name": ""}, "project_name"),
    ({"project_name": "x" * 1001}, "project_name"),
    ({"queue_id": "x" * 256}, "queue_id"),
    ({"queue_id": ""}, "queue_id"),
    ({"queue_name": "x" * 1001}, "queue_name"),
    ({"queue_name": None}, "queue_name"),
    ({"clientInfo": "anna"}, "clientInfo"),
    ({"clientInfo": {"username": "x" * 256}}, "clientInfo.username"),
    ({"clientInfo": {"hostname": "x" * 256}}, "clientInfo.hostname"),
    ({"clientInfo": {"project_path": "x" * 1001}}, "clientInfo.project_path"),
    ({"gitInfo": {"repository": "x" * 501}}, "gitInfo.repository"),
    ({"gitInfo": {"branch": "x" * 256}}, "gitInfo.branch"),
    ({"gitInfo": {"branch": 1}}, "gitInfo.branch"),
    ({"clientInfo": None}, "clientInfo"),
    ({"clientInfo": {"hostname": None}}, "clientInfo.hostname"),
    ({"gitInfo": None}, "gitInfo"),
    ({"gitInfo": {"branch": None}}, "gitInfo.branch"),
    ({"meta": {"x": "x" * 1_000_001}}, "meta"),
    ({"tasks": None}, "tasks"),
    ({"tasks": {}}, "tasks"),
    ({"tasks": []}, "tasks"),
    ({"tasks": ["a"]}, "tasks[0]"),
]
BAD_TASKS: list[tuple[dict[str, Any], str]] = [
    ({"id": ""}, "id"),
    ({"id": None}, "id"),
    ({"id": 5}, "id"),
    ({"id": "x" * 256}, "id"),
    ({"id": "pull"}, "id"),
    ({"id": "Batch"}, "id"),
    ({"id": "CHECK"}, "id"),
    ({"id": "tags"}, "id"),
    ({"id": "stats"}, "id"),
    ({"name": ""}, "name"),
    ({"name": "x" * 1001}, "name"),
    ({"prompt": None}, "prompt"),
    ({"prompt": " "}, "prompt"),
    ({"prompt": "x" * 100_001}, "prompt"),
    ({"status": "finished"}, "status"),
    ({"status": None}, "status"),
    ({"status": 1}, "status"),
    ({"spec_file": ["a.md", "a.md"]}, "spec_file"),
    ({"spec_file": {}}, "spec_file"),
    ({"spec_file": [1]}, "spec_file[0]"),
    ({"spec_file": " "}, "spec_file[0]"),
    ({"spec_file": ["x" * 501]}, "spec_file[0]"),
    ({"report": 1}, "report"),
    ({"report": "x" * 501}, "report"),
    ({"tags": ["x" * 256]}, "tags[0]"),
    ({"tags": [str(number) for number in range(101)]}, "tags"),
    ({"messages": None}, "messages"),
    ({"logs": None}, "logs"),
    ({"messages": MESSAGE}, "messages"),
    ({"messages": [{**MESSAGE, "role": "system"}]}, "messages[0].role"),
    ({"messages": [MESSAGE, {"role": "user"}]}, "messages[1].content"),
    ({"messages": [{**MESSAGE, "content": "x" * 100_001}]}, "messages[0].content"),
    ({"messages": [{**MESSAGE, "content": " "}]}, "messages[0].content"),
    ({"messages": [{**MESSAGE, "createdAt": "soon"}]}, "messages[0].createdAt"),
    ({"messages": [{**MESSAGE, "session_id": "x" * 256}]}, "messages[0].session_id"),
    ({"messages": [MESSAGE] * 10_001}, "messages"),
    ({"logs": [{"content": 5}]}, "logs[0].content"),
    ({"logs": [{"content": ""}]}, "logs[0].content"),
    ({"logs": [{"content": "x" * 100_001}]}, "logs[0].content"),
    ({"result": "x" * 1_000_001}, "result"),
    ({"lease_token": "x" * 65}, "lease_token"),
]


class TestBadInput:
    @on_sqlite
    async def test_a_field_of_the_push_out_of_range_is_named(self, api: TasksApi) -> None:
        for wrong, field in BAD:
            status, error = await api.error("POST", "/submit", {**pushed({"id": "a"}), **wrong})
            assert (status, error["code"]) == (400, "VALIDATION_ERROR"), wrong
            assert error["details"]["field"] == field
            assert [one["field"] for one in error["details"]["all_errors"]] == [field]
            assert error["details"]["reason"]
        assert (await project_of(api)).counts.total == 0

    @on_sqlite
    async def test_a_field_of_a_task_out_of_range_is_named(self, api: TasksApi) -> None:
        for wrong, field in BAD_TASKS:
            status, error = await api.error("POST", "/submit", pushed({"id": "fine"}, {"id": "a", **wrong}))
            assert (status, error["code"]) == (400, "VALIDATION_ERROR"), wrong
            assert error["details"]["field"] == f"tasks[1].{field}"
        assert (await project_of(api)).counts.total == 0

    @on_sqlite
    async def test_all_errors_are_reported_at_once(self, api: TasksApi) -> None:
        body = pushed({"id": "", "status": "no"}, {"id": "b", "messages": [{"role": "x", "content": "y"}]}, queue_id="")
        _, error = await api.error("POST", "/submit", body)
        assert {one["field"] for one in error["details"]["all_errors"]} == {
            "queue_id", "tasks[0].id", "tasks[0].status", "tasks[1].messages[0].role",
        }  # fmt: skip

    @on_sqlite
    async def test_an_id_that_comes_twice_is_named_by_its_place(self, api: TasksApi) -> None:
        ids = ["a", "b", "c", "a", "c"]
        status, error = await api.error("POST", "/submit", pushed(*({"id": one} for one in ids)))
        assert (status, error["code"], error["details"]["field"]) == (400, "VALIDATION_ERROR", "tasks[3].id")
        assert [one["field"] for one in error["details"]["all_errors"]] == ["tasks[3].id", "tasks[4].id"]

    @on_sqlite
    async def test_more_tasks_than_a_push_may_have_are_refused(self, api: TasksApi) -> None:
        many = ({"id": str(number)} for number in range(20_001))
        status, error = await api.error("POST", "/submit", pushed(*many))
        assert (status, error["details"]["field"]) == (400, "tasks")


SCHEMA = {"type": "object", "properties": {"score": {"type": "integer", "minimum": 0}}, "required": ["score"]}


class TestResults:
    async def test_a_pushed_task_may_carry_a_result(self, api: TasksApi) -> None:
        await api.submit({"id": "a", "status": "done", "result": {"files": ["x"], "ok": True, "n": 1.5}})
        assert (await task_of(api, "a")).result == {"files": ["x"], "ok": True, "n": 1.5}

    @on_sqlite
    async def test_a_result_must_fit_the_schema_of_its_task(self, api: TasksApi) -> None:
        await api.plan("a", queue="q1", result_schema=SCHEMA)
        wrong = pushed({"id": "b"}, {"id": "a", "status": "done", "result": {"score": -1}})
        status, error = await api.error("POST", "/submit", wrong)
        assert (status, error["code"], error["details"]["field"]) == (400, "VALIDATION_ERROR", "tasks[1].result")
        assert "score" in error["details"]["reason"]
        assert (await task_of(api, "a")).status == "pending"
        await api.submit({"id": "a", "status": "done", "result": {"score": 3}})
        assert (await task_of(api, "a")).result == {"score": 3}

    @on_sqlite
    async def test_clients_cannot_send_a_schema(self, api: TasksApi) -> None:
        await api.submit({"id": "a", "result_schema": {"type": "string"}, "result": 5})
        task = await task_of(api, "a")
        assert (task.result, task.result_schema) == (5, None)
