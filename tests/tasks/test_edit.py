"""Editing tasks, and what that does to their holders."""

from typing import Any

from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite
from tests.tasks.records import audited, counted, pulled, stored

TASK = f"{PROJECT}/tasks/t1"
BAD: list[tuple[str, Any]] = [
    ("name", None),
    ("name", " "),
    ("name", "n" * 1001),
    ("prompt", None),
    ("prompt", ""),
    ("prompt", "p" * 100_001),
    ("status", None),
    ("status", "finished"),
    ("priority", 0),
    ("priority", 11),
    ("priority", "urgent"),
    ("tags", [f"t{number}" for number in range(21)]),
    ("tags[0]", ["t" * 51]),
    ("spec_file", ["a.md", "a.md"]),
    ("spec_file[0]", [""]),
    ("report", 5),
    ("report", "r" * 1_000_001),
    ("result", "r" * 1_000_000),
    ("expires_at", "soon"),
    ("expires_at", "2025-12-31T00:00:00"),
    ("result_schema", {"type": 5}),
]


async def test_an_edit_writes_what_was_sent_and_leaves_the_rest(api: TasksApi) -> None:
    (made,) = await api.plan("t1", tags=["x"], report="So far.")
    api.clock.advance(seconds=60)
    sent = {
        "name": "New",
        "prompt": "Do that.",
        "status": "Error",
        "spec_file": ["a.md"],
        "priority": "high",
        "expires_at": "2026-06-01T00:00:00",
        "result": {"sum": 3},
        "result_schema": {"type": "object"},
    }
    edited = await api.data("PUT", TASK, sent)
    assert {name: edited[name] for name in sent} == {
        **sent,
        "status": "error",
        "priority": 8,
        "expires_at": "2026-06-01T00:00:00.000Z",
    }
    assert (edited["tags"], edited["report"], edited["created_at"]) == (["x"], "So far.", made["created_at"])
    assert edited["server_modified_at"] == edited["updated_at"] == "2026-01-01T00:01:00.000Z"
    assert edited["version"] == (await stored(api, "t1")).version > made["version"]
    task = await stored(api, "t1")
    assert (task.name, task.result, task.shown_priority) == ("New", {"sum": 3}, 8)
    counts = await counted(api)
    assert (counts.pending, counts.error) == (0, 1)


async def test_null_clears_what_may_be_absent(api: TasksApi) -> None:
    there: dict[str, Any] = {
        "report": "r",
        "expires_at": "2026-06-01",
        "tags": ["x"],
        "spec_file": ["a"],
        "priority": 9,
    }
    await api.plan("t1", result_schema={"type": "object"}, **there)
    await api.data("PUT", TASK, {"result": {}})
    cleared = await api.data("PUT", TASK, dict.fromkeys((*there, "result", "result_schema")))
    assert {name: cleared[name] for name in (*there, "result", "result_schema")} == {
        "report": None,
        "expires_at": None,
        "tags": [],
        "spec_file": [],
        "priority": None,
        "result": None,
        "result_schema": None,
    }


async def test_a_held_task_is_revoked_and_offered_again(api: TasksApi) -> None:
    await api.plan("t1", queue="q1")
    (held,) = await api.pull(client="first")
    api.clock.advance(seconds=5)
    edited = await api.data("PUT", f"{PROJECT}/queues/q1/tasks/t1", {"prompt": "Other."})
    assert (edited["pulled_at"], edited["pulled_by"], edited["pull_state"]) == (None, None, "unpulled")
    assert (edited["leased_until"], edited["pull_attempts"]) == (None, 0)
    (again,) = await api.pull(client="second")
    assert (again["task_id"], again["prompt"]) == ("t1", "Other.")
    assert again["lease_token"] != held["lease_token"]
    assert await pulled(api, "t1", "q1") == [("first", "root", "revoked"), ("second", None, None)]
    (line,) = await audited(api, "tasks.edit")
    assert (line.detail["taken_from"], line.detail["fields"]) == (["first"], ["prompt"])


async def test_a_task_that_was_pushed_back_is_offered_again(api: TasksApi) -> None:
    await api.plan("t1", queue="q1")
    await api.pull(client="w")
    await api.data("PATCH", "/tasks/p1/q1/t1/status", {"status": "done"}, x_client_id="w")
    assert (await stored(api, "t1", "q1")).source == "client"
    edited = await api.data("PUT", TASK, {"status": "pending"})
    assert (edited["source"], edited["origin"], edited["pull_state"]) == ("server", "server", "unpulled")
    assert (edited["pulled_at"], edited["pushed_at"], edited["pushed_by"]) == (None, None, None)
    assert [task["task_id"] for task in await api.pull()] == ["t1"]


async def test_the_status_set_by_the_holder_ends_with_the_lease(api: TasksApi) -> None:
    """Else it would stay running, and pulls that ask for what is pending would pass it by."""
    await api.plan("t1", queue="q1")
    await api.pull(client="w")
    await api.data("PATCH", "/tasks/p1/q1/t1/status", {"status": "running"}, x_client_id="w")
    assert (await stored(api, "t1", "q1")).status == "running"
    assert (await api.data("PUT", TASK, {"name": "New"}))["status"] == "pending"
    assert (await counted(api, "q1")).pending == 1


@on_sqlite
async def test_a_requested_status_wins_for_a_held_task_too(api: TasksApi) -> None:
    await api.plan("t1")
    await api.pull()
    assert (await api.data("PUT", TASK, {"status": "cancelled"}))["status"] == "cancelled"
    assert await api.pull("status=pending") == []
    assert [task["task_id"] for task in await api.pull("status=cancelled")] == ["t1"]


@on_sqlite
async def test_the_error_reason_is_cleared_with_the_error(api: TasksApi) -> None:
    once = api.with_config(max_attempts=1)
    await once.plan("t1")
    (held,) = await once.pull(client="w")
    await once.data("POST", f"{TASK}/pull/release", x_client_id="w", x_lease_token=held["lease_token"])
    assert (await once.data("PUT", TASK, {"name": "New"}))["error_reason"]
    assert (await once.data("PUT", TASK, {"status": "done"}))["error_reason"] is None


async def test_an_edit_that_changes_no_field_ends_the_pull_too(api: TasksApi) -> None:
    await api.plan("t1", tags=["x"], priority=7)
    for same in ({}, {"name": "Task t1", "tags": ["x"], "priority": 7, "status": "pending", "expires_at": None}):
        await api.pull(client="w")
        api.clock.advance(seconds=60)
        edited = await api.data("PUT", TASK, same)
        assert (edited["pulled_by"], edited["pull_state"]) == (None, "unpulled")
        assert edited["server_modified_at"] == edited["updated_at"]
    assert len(await audited(api, "tasks.edit")) == 2


async def test_an_edited_client_task_becomes_a_server_task_and_can_be_pulled(api: TasksApi) -> None:
    await api.submit({"id": "t1"}, key="anna")
    assert await api.pull() == []
    edited = await api.data("PUT", TASK, {"name": "New"})
    assert (edited["source"], edited["origin"], edited["queue_id"]) == ("server", "client", "q1")
    assert [task["task_id"] for task in await api.pull()] == ["t1"]


async def test_an_edited_task_is_found_by_its_new_tags_only(api: TasksApi) -> None:
    await api.plan("t1", tags=["old"])
    await api.data("PUT", TASK, {"tags": ["new"]})
    assert await api.pull("tags=old") == []
    assert [task["task_id"] for task in await api.pull("tags=new")] == ["t1"]


async def test_an_expired_task_is_offered_again_with_a_later_expiry(api: TasksApi) -> None:
    for later in ("2026-03-01T00:00:00Z", None):
        task_id = f"t-{later}"
        await api.plan(task_id, expires_at=api.clock.now().timestamp() + 60)
        api.clock.advance(seconds=61)
        still_over = await api.data("PUT", f"{PROJECT}/tasks/{task_id}", {"name": "New"})
        assert still_over["expired_at"] is not None
        assert await api.pull() == []
        edited = await api.data("PUT", f"{PROJECT}/tasks/{task_id}", {"expires_at": later})
        assert (edited["expired_at"], edited["archived_at"]) == (None, None)
        assert [task["task_id"] for task in await api.pull()] == [task_id]


async def test_an_archived_task_is_offered_again_with_a_later_expiry(api: TasksApi) -> None:
    archiving = api.with_config(expired_action="archive")
    await archiving.plan("t1", expires_at="2026-01-01T00:01:00Z")
    api.clock.advance(seconds=61)
    await archiving.run_periodic_tasks()
    await archiving.run_periodic_tasks()
    assert (await stored(api, "t1")).archived_at is not None
    assert (await counted(api)).total == 0
    edited = await api.data("PUT", TASK, {"expires_at": "2027-01-01"})
    assert (edited["archived_at"], edited["expired_at"]) == (None, None)
    assert (await counted(api)).pending == 1
    assert [task["task_id"] for task in await api.pull()] == ["t1"]


@on_sqlite
async def test_a_past_expiry_may_be_sent_again_unchanged(api: TasksApi) -> None:
    await api.plan("t1", expires_at="2026-01-01T00:01:00Z")
    api.clock.advance(seconds=61)
    edited = await api.data("PUT", TASK, {"expires_at": "2026-01-01T00:01:00Z", "name": "New"})
    assert edited["name"] == "New"


@on_sqlite
async def test_a_result_must_fit_the_schema_of_its_task(api: TasksApi) -> None:
    await api.plan("t1", result_schema={"properties": {"sum": {"type": "integer"}}})
    status, error = await api.error("PUT", TASK, {"result": {"sum": "three"}})
    assert (status, error["details"]["field"]) == (400, "result")
    assert "sum: " in error["details"]["reason"]
    assert (await api.data("PUT", TASK, {"result": {"sum": 3}}))["result"] == {"sum": 3}
    status, error = await api.error("PUT", TASK, {"result_schema": {"type": "string"}})
    assert (status, error["details"]["field"]) == (400, "result")
    both = await api.data("PUT", TASK, {"result_schema": {"type": "string"}, "result": "3"})
    assert both["result"] == "3"


@on_sqlite
async def test_a_field_out_of_range_is_refused_and_nothing_is_written(api: TasksApi) -> None:
    await api.plan("t1")
    before = await stored(api, "t1")
    for field, value in BAD:
        status, error = await api.error("PUT", TASK, {"name": "New", field.partition("[")[0]: value})
        assert (status, error["code"], error["details"]["field"]) == (400, "VALIDATION_ERROR", field), value
    assert await stored(api, "t1") == before


async def test_a_task_without_a_queue_is_preferred_among_equal_ids(api: TasksApi) -> None:
    await api.submit(queue="q2")
    for queue in ("q1", "q2"):
        await api.plan("t1", queue=queue)
    status, error = await api.error("PUT", TASK, {"name": "New"})
    assert (status, error["details"]["code"], error["details"]["queues"]) == (409, "AMBIGUOUS_TASK", ["q1", "q2"])
    assert (await api.data("PUT", f"{PROJECT}/queues/q2/tasks/t1", {"name": "New"}))["queue_id"] == "q2"
    await api.plan("t1")
    assert (await api.data("PUT", TASK, {"name": "New"}))["queue_id"] is None


@on_sqlite
async def test_what_is_not_there_cannot_be_edited(api: TasksApi) -> None:
    await api.plan("t1")
    await api.plan("gone", queue="q1")
    await api.data("DELETE", f"{PROJECT}/tasks/gone")
    for path, expected in (
        ("/projects/p9/tasks/t1", (404, "PROJECT_NOT_FOUND")),
        ("/projects/p1/tasks/t9", (404, "TASK_NOT_FOUND")),
        ("/projects/p1/queues/q9/tasks/t1", (404, "QUEUE_NOT_FOUND")),
        ("/projects/p1/queues/q1/tasks/t1", (404, "TASK_NOT_FOUND")),
        ("/projects/p1/tasks/gone", (404, "TASK_NOT_FOUND")),
        ("/projects/p1/queues/q1/tasks/gone", (404, "TASK_NOT_FOUND")),
    ):
        status, error = await api.error("PUT", path, {"name": "New"})
        assert (status, error["details"]["code"]) == expected


@on_sqlite
async def test_a_key_of_another_project_may_not_edit(api: TasksApi) -> None:
    await api.plan("t1", queue="q1")
    for path in (TASK, f"{PROJECT}/queues/q1/tasks/t1"):
        status, error = await api.error("PUT", path, {"name": "New"}, key="elsewhere")
        assert (status, error["details"]["code"]) == (403, "OTHER_PROJECT")


async def test_a_finished_task_is_offered_again_by_an_edit(api: TasksApi) -> None:
    await api.plan("t1", queue="q1")
    await api.pull(client="w")
    await api.data("PATCH", "/tasks/p1/q1/t1/status", {"status": "done"}, x_client_id="w")
    assert await api.pull() == []
    edited = await api.data("PUT", f"{PROJECT}/queues/q1/tasks/t1", {"prompt": "Better."})
    assert (edited["status"], edited["source"], edited["pulled_at"]) == ("done", "server", None)
    assert [(one["task_id"], one["status"]) for one in await api.pull()] == [("t1", "done")]
