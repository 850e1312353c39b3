"""The exact response bodies that clients expect: every field, by name."""

from typing import Any

import pytest

from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite

TIMES = {"created_at", "updated_at", "server_modified_at", "pulled_at", "expires_at", "deleted_at"}
TASK = TIMES | {"task_id", "id", "name", "prompt", "spec_file", "status", "source", "priority", "pulled_by", "tags"}
COUNTS = {"total", "pending", "running", "done", "error", "cancelled"}
PROJECT_ITEM = {
    "id", "project_id", "name", "displayTitle", "metadata", "clientInfo", "gitInfo", "queue_count", "task_count",
    "task_stats", "last_task_at", "created_at", "updated_at",
}  # fmt: skip
WHEN = "2026-01-01T00:00:00.000Z"


def has(shown: Any, names: set[str]) -> bool:
    return names <= set(shown)


@on_sqlite
async def test_an_answer_has_four_fields_and_a_list_its_pages(api: TasksApi):
    answer = await api.call("GET", "/projects")
    assert set(answer.json) == {"success", "data", "message", "timestamp"}
    assert (answer.json["success"], answer.json["timestamp"]) == (True, WHEN)
    assert answer.data["pagination"] == {"page": 1, "pageSize": 100, "total": 1, "totalPages": 1}
    assert has(answer.data["items"][0], PROJECT_ITEM)
    assert set(answer.data["items"][0]["task_stats"]) == COUNTS


@on_sqlite
async def test_an_error_has_a_code_a_message_and_details(api: TasksApi):
    answer = await api.call("POST", "/submit", {"tasks": [{}]})
    assert set(answer.json) == {"success", "error", "timestamp"}
    assert set(answer.error) == {"code", "message", "details"}
    assert answer.error["code"] == "VALIDATION_ERROR"
    details = answer.error["details"]
    assert {"field": details["field"], "reason": details["reason"]} == details["all_errors"][0]
    assert "tasks[0].id" in {one["field"] for one in details["all_errors"]}


@on_sqlite
async def test_a_push_is_answered_with_its_counts(api: TasksApi):
    await api.submit({"id": "a"})
    answer = await api.submit({"id": "a"}, {"id": "b"})
    assert answer == {
        "project_id": "p1",
        "queue_id": "q1",
        "tasks_count": 2,
        "created_tasks": 0,
        "updated_tasks": 2,
        "overwritten_tasks": [],
    }


@on_sqlite
async def test_a_push_of_an_older_client_is_accepted(api: TasksApi):
    body = {
        "project_id": "p1",
        "project_name": "P",
        "queue_id": "q1",
        "queue_name": "Q",
        "clientInfo": {"username": "ann", "hostname": "box", "project_path": "C:/ann/p"},
        "gitInfo": {"repository": "git@host:p.git", "branch": " main "},
        "meta": {"prompts": ["Be brief."]},
        "tasks": [
            {
                "id": "a",
                "name": "A",
                "prompt": "Do it.",
                "status": "done",
                "spec_file": ["a.md"],
                "report": "Done.",
                "messages": [{"role": "user", "content": "Go."}, {"role": "ASSISTANT", "content": "Gone."}],
                "logs": [{"content": "Started."}],
                "created_by_an_older_client": True,
            }
        ],
    }
    await api.data("POST", "/submit", body, key="anna")
    task = await api.data("GET", f"{PROJECT}/queues/q1/tasks/a")
    assert (task["source"], task["status"], task["pulled_at"]) == ("client", "done", None)
    assert [(one["role"], one["content"]) for one in task["messages"]] == [("user", "Go."), ("assistant", "Gone.")]
    assert [one["content"] for one in task["logs"]] == ["Started."]
    project = await api.data("GET", PROJECT)
    assert (project["clientInfo"]["username"], project["gitInfo"]["branch"]) == ("ann", "main")


@on_sqlite
async def test_messages_logs_and_status_have_the_expected_fields(api: TasksApi):
    await api.submit({"id": "a"})
    place = "/tasks/p1/q1/a"
    message = await api.data("POST", f"{place}/message", {"role": "User", "content": "Hello."})
    said = {"message_id": 0, "role": "USER", "content": "Hello.", "session_id": None, "created_at": WHEN}
    assert message == said
    log = await api.data("POST", f"{place}/log", {"content": "A line."})
    assert log == {"log_id": 0, "content": "A line.", "created_at": WHEN}
    status = await api.data("PATCH", f"{place}/status", {"status": "Running"})
    assert status == {"task_id": "a", "status": "RUNNING", "previous_status": "PENDING", "updated_at": WHEN}


@on_sqlite
async def test_a_task_has_every_field_of_the_data_model(api: TasksApi):
    [made] = await api.plan("a", queue="q1", priority="high", expires_at="2027-01-01T00:00:00Z")
    assert has(made, TASK)
    assert (made["task_id"], made["id"], made["source"], made["priority"]) == ("a", "a", "server", 8)
    assert (made["server_modified_at"], made["pulled_at"], made["pulled_by"]) == (WHEN, None, None)
    assert has(await api.data("GET", f"{PROJECT}/queues/q1"), {"last_reset_at", "last_operation"})


@on_sqlite
async def test_a_pull_is_answered_with_tasks_and_their_number(api: TasksApi):
    await api.plan("a")
    data = await api.data("GET", f"{PROJECT}/tasks/pull", x_client_id="w")
    assert data["pulled_count"] == 1
    assert has(data["tasks"][0], TASK)
    assert (data["tasks"][0]["pulled_at"], data["tasks"][0]["pulled_by"]) == (WHEN, "w")


@pytest.mark.parametrize("body", [{"taskIds": ["a", "never"]}, {"filters": {"status": "pending"}}, {}])
@on_sqlite
async def test_a_batch_pull_adds_what_failed(api: TasksApi, body: object):
    await api.plan("a")
    data = await api.data("POST", f"{PROJECT}/tasks/pull/batch", body)
    assert data["pulled_count"] == 1
    assert all(has(failed, {"task_id", "reason"}) for failed in data["failed_tasks"])


@on_sqlite
async def test_releases_have_the_expected_fields(api: TasksApi):
    await api.plan("a", "b")
    await api.pull()
    one = await api.data("POST", f"{PROJECT}/tasks/a/pull/release", x_client_id="worker-1")
    assert one == {"task_id": "a", "released": True, "released_at": WHEN}
    body = {"taskIds": ["b", "never"]}
    several = await api.data("POST", f"{PROJECT}/tasks/pull/release/batch", body, x_client_id="worker-1")
    assert (several["released_count"], several["failed_count"]) == (1, 1)
    assert has(several["failed_tasks"][0], {"task_id", "reason"})


@on_sqlite
async def test_history_pending_and_statistics_have_the_expected_fields(api: TasksApi):
    await api.plan("a")
    await api.pull()
    history = await api.data("GET", f"{PROJECT}/tasks/a/pull/history")
    assert has(history["pull_history"][0], {"pulled_at", "pulled_by", "released_at", "released_by"})
    pending = await api.data("GET", f"{PROJECT}/tasks/pull/pending?timeout=0")
    assert has(pending["tasks"][0], {"task_id", "name", "pulled_at", "pulled_by", "timeout_hours"})
    assert pending["total"] == 1
    statistics = await api.data("GET", f"{PROJECT}/tasks/pull/stats")
    names = {"total_server_tasks", "not_pulled", "pulled", "pull_success_rate", "average_pull_duration"}
    assert has(statistics, names)


@pytest.mark.parametrize(
    "path",
    [
        "/stats",
        "/stats/project/p1",
        "/stats/projects",
        "/stats/by-queue",
        "/stats/by-hour",
        "/stats/by-client",
        "/stats/error-types",
        "/stats/execution-duration",
        "/stats/system",
    ],
)
@on_sqlite
async def test_every_statistics_route_exists(api: TasksApi, path: str):
    assert (await api.call("GET", path, key="anna")).status == 200
