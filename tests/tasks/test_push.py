"""Pushing a queue: what is created, replaced and kept, and validation of the body."""

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from penstock.tasks.store import task_messages
from tests.tasks.conftest import TasksApi, on_sqlite
from tests.tasks.stored_state import changes_after, events_of, log_of, messages_of, project_of, queue_of, task_of

FULL: dict[str, Any] = {
    "id": "t-1",
    "name": "Name",
    "prompt": "Prompt",
    "status": "pending",
    "spec_file": ["docs/a.md", "docs/b.md"],
    "report": "Half done.",
    "tags": ["red", "blue"],
    "priority": 8,
    "messages": [
        {"role": "user", "content": "Hello"},
        {"role": "Assistant", "content": "Hi", "session_id": "s-1"},
    ],
    "logs": [{"content": "began"}, {"content": "went on"}],
}
NAMES = ["🚰" * 255, "مهمة جديدة", "\u202eright to left\u202c", "任务 一", "x" * 255, "a.b_c-d", "q%20?x=1&y#z"]


def pushed(*tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A whole body of a push."""
    full = [{"name": "n", "prompt": "p", "status": "pending", **task} for task in tasks]
    return {"project_id": "p1", "project_name": "P", "queue_id": "q1", "queue_name": "Q", "tasks": full, **more}


class TestWhatAPushCreates:
    async def test_a_project_a_queue_and_tasks(self, api: TasksApi) -> None:
        body = pushed({"id": "a"}, {"id": "b", "status": "done"}, project_id="new", queue_id="main", queue_name="Main")
        data = await api.data("POST", "/submit", body, key="anna")
        assert data == {
            "project_id": "new", "queue_id": "main", "tasks_count": 2, "created_tasks": 2, "updated_tasks": 0,
        }  # fmt: skip
        project = await project_of(api, "new")
        assert (project.name, project.queue_count, project.counts.total) == ("P", 1, 2)
        assert (project.counts.pending, project.counts.done) == (1, 1)
        assert project.last_task_at == api.clock.now()

    async def test_concurrent_pushes_that_create_the_same_project_all_count(self, api: TasksApi) -> None:
        bodies = [pushed({"id": "a"}, project_id="new", queue_id=f"q-{number}") for number in range(5)]
        await asyncio.gather(*(api.data("POST", "/submit", body) for body in bodies))
        project = await project_of(api, "new")
        assert (project.queue_count, project.counts.total, project.version) == (5, 5, 5)

    async def test_names_that_differ_rename_the_project_and_the_queue(self, api: TasksApi) -> None:
        await api.submit(project_name="Other", queue_name="Another")
        assert (await project_of(api)).name == "Other"
        assert (await queue_of(api)).name == "Another"
        assert (await project_of(api)).queue_count == 1

    async def test_every_field_of_a_task_is_kept(self, api: TasksApi) -> None:
        await api.submit(FULL, key="anna")
        task = await task_of(api, "t-1")
        assert (task.name, task.prompt, task.status) == ("Name", "Prompt", "pending")
        assert (task.spec_file, task.tags) == (["docs/a.md", "docs/b.md"], ["red", "blue"])
        assert (task.report, task.shown_priority) == ("Half done.", 8)
        assert (task.source, task.origin, task.created_by) == ("client", "client", "anna")
        assert task.state == "idle"
        assert await messages_of(api, "t-1") == [(0, "USER", "Hello", None), (1, "ASSISTANT", "Hi", "s-1")]
        assert await log_of(api, "t-1") == [(0, "began"), (1, "went on")]

    @on_sqlite
    async def test_a_priority_is_a_number_or_a_word(self, api: TasksApi) -> None:
        for sent, kept in [(1, 1), (10, 10), ("high", 8), ("MEDIUM", 5), ("low", 2), ("7", 7), (" 10 ", 10)]:
            await api.submit({"id": "a", "priority": sent})
            assert (await task_of(api, "a")).shown_priority == kept, sent

    @on_sqlite
    async def test_the_default_priority_is_medium(self, api: TasksApi) -> None:
        await api.submit({"id": "a"}, {"id": "b", "priority": None})
        assert (await task_of(api, "a")).shown_priority == 5
        assert (await task_of(api, "b")).shown_priority == 5

    @on_sqlite
    async def test_a_status_comes_in_any_case(self, api: TasksApi) -> None:
        for status in ["pending", "RUNNING", "Done", "error", "cancelled"]:
            await api.submit({"id": "a", "status": status})
            assert (await task_of(api, "a")).status == status.lower()

    @on_sqlite
    async def test_unknown_fields_are_ignored(self, api: TasksApi) -> None:
        await api.submit({"id": "a", "colour": "red"}, sender="an older client")
        assert (await task_of(api, "a")).name == "n"

    async def test_the_client_and_its_repository_are_kept_each_part_alone(self, api: TasksApi) -> None:
        client = {"username": " anna ", "hostname": "box", "project_path": "/src"}
        await api.submit(clientInfo=client, gitInfo={"repository": " git@host:x.git ", "branch": "main"})
        await api.submit(gitInfo={"branch": "  "}, clientInfo={"hostname": "other"})
        project = await project_of(api)
        assert (project.username, project.hostname, project.project_path) == ("anna", "other", "/src")
        assert (project.repository, project.branch) == ("git@host:x.git", None)
        await api.submit()
        assert (await project_of(api)).repository == "git@host:x.git"

    async def test_the_meta_of_a_queue_is_kept_until_another_is_sent(self, api: TasksApi) -> None:
        await api.submit(meta={"prompts": ["one", "two"]})
        await api.submit()
        assert (await queue_of(api)).meta == {"prompts": ["one", "two"]}
        await api.submit(meta={"prompts": []})
        assert (await queue_of(api)).meta == {"prompts": []}

    async def test_ids_and_names_of_every_script_survive(self, api: TasksApi) -> None:
        for name in NAMES:
            body = pushed({"id": name, "name": name, "prompt": name, "tags": [name[:50]]})
            body |= {"project_id": name, "project_name": name, "queue_id": name, "queue_name": name}
            data = await api.data("POST", "/submit", body)
            assert (data["project_id"], data["queue_id"], data["created_tasks"]) == (name, name, 1)
            path = f"/tasks/{quote(name)}/{quote(name)}/{quote(name)}/status"
            told = await api.data("PATCH", path, {"status": "done"})
            assert (told["task_id"], told["status"]) == (name, "DONE")
            assert (await project_of(api, name)).name == name
            assert (await api.data("POST", "/submit", body))["updated_tasks"] == 1


class TestPushingAgain:
    async def test_the_same_push_twice_writes_nothing(self, api: TasksApi) -> None:
        await api.submit(FULL, {"id": "b"}, {"id": "c"})
        before = await project_of(api), await queue_of(api), await task_of(api, "t-1"), await task_of(api, "c")
        api.clock.advance(seconds=60)
        data = await api.submit(FULL, {"id": "b"}, {"id": "c"})
        assert (data["created_tasks"], data["updated_tasks"]) == (0, 3)
        after = await project_of(api), await queue_of(api), await task_of(api, "t-1"), await task_of(api, "c")
        assert after == before

    async def test_only_what_changed_is_in_the_feed(self, api: TasksApi) -> None:
        await api.submit({"id": "a"}, {"id": "b"}, {"id": "c"})
        version = (await project_of(api)).version
        await api.submit({"id": "a"}, {"id": "b", "status": "done"}, {"id": "d"})
        lines = await changes_after(api, version)
        assert {(line.task_id, line.kind.value) for line in lines} == {
            ("b", "pushed"), ("d", "created"), ("c", "dropped"),
        }  # fmt: skip

    async def test_client_tasks_missing_from_a_push_are_deleted(self, api: TasksApi) -> None:
        await api.submit({"id": "a"}, {"id": "b"})
        await api.submit({"id": "b"})
        assert (await queue_of(api)).counts.total == 1
        status, error = await api.error("PATCH", "/tasks/p1/q1/a/status", {"status": "done"})
        assert (status, error["code"]) == (404, "RESOURCE_NOT_FOUND")
        data = await api.submit({"id": "a"}, {"id": "b"})
        assert (data["created_tasks"], data["updated_tasks"]) == (1, 1)

    async def test_an_empty_list_empties_the_queue_of_the_clients_tasks(self, api: TasksApi) -> None:
        await api.submit({"id": "a"}, {"id": "b"})
        data = await api.submit()
        assert data["tasks_count"] == 0
        assert (await queue_of(api)).counts.total == 0
        assert (await project_of(api)).counts.total == 0

    async def test_server_tasks_missing_from_a_push_stay(self, api: TasksApi) -> None:
        await api.plan("planned", queue="q1")
        await api.submit({"id": "a"})
        assert (await task_of(api, "planned")).state == "offered"
        assert (await queue_of(api)).counts.total == 2

    async def test_other_queues_are_not_changed(self, api: TasksApi) -> None:
        await api.submit({"id": "a"}, queue="q2")
        await api.submit({"id": "a"}, {"id": "b"})
        await api.submit()
        assert (await queue_of(api, "q2")).counts.total == 1
        assert (await project_of(api)).queue_count == 2

    async def test_what_is_not_given_stays_and_what_is_empty_empties(self, api: TasksApi) -> None:
        await api.submit(FULL)
        await api.submit({"id": "t-1", "tags": None, "report": None, "messages": None})
        task = await task_of(api, "t-1")
        assert (task.tags, task.report, task.shown_priority) == (["red", "blue"], "Half done.", 8)
        assert len(await messages_of(api, "t-1")) == 2
        await api.submit({"id": "t-1", "tags": [], "report": "", "spec_file": [], "messages": [], "logs": []})
        task = await task_of(api, "t-1")
        assert (task.tags, task.report, task.spec_file) == ([], None, [])
        assert await messages_of(api, "t-1") == []
        assert await log_of(api, "t-1") == []

    async def test_messages_and_logs_that_are_given_replace_those_before(self, api: TasksApi) -> None:
        await api.submit(FULL)
        same_size = [{"role": "user", "content": "hELLO"}, {"role": "assistant", "content": "Hi", "session_id": "s-1"}]
        await api.submit({"id": "t-1", "messages": same_size, "logs": [{"content": "anew"}]})
        assert await messages_of(api, "t-1") == [(0, "USER", "hELLO", None), (1, "ASSISTANT", "Hi", "s-1")]
        assert await log_of(api, "t-1") == [(0, "anew")]
        assert (await task_of(api, "t-1")).updated_at == api.clock.now()

    async def test_messages_whose_oldest_were_deleted_are_renumbered(
        self, api: TasksApi, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(task_messages, "MAX_KEPT", 2)
        await api.submit({"id": "a"})
        for content in ("one", "two", "three"):
            await api.data("POST", "/tasks/p1/q1/a/message", {"role": "user", "content": content})
            await api.data("POST", "/tasks/p1/q1/a/log", {"content": content})
        kept = [{"role": "user", "content": "two"}, {"role": "user", "content": "three"}]
        await api.submit({"id": "a", "messages": kept, "logs": [{"content": "two"}, {"content": "three"}]})
        assert await messages_of(api, "a") == [(0, "USER", "two", None), (1, "USER", "three", None)]
        assert await log_of(api, "a") == [(0, "two"), (1, "three")]

    async def test_one_event_is_sent_and_only_for_changes(self, api: TasksApi) -> None:
        first = len(await events_of(api))
        for _ in range(2):
            await api.submit({"id": "a"}, {"id": "b"})
            [told] = (await events_of(api))[first:]
            assert (told.kind, told.data) == ("tasks_changed", {"version": 2, "changed": 2})


class TestWhoMayPush:
    @on_sqlite
    async def test_a_bound_key_pushes_into_its_own_project_only(self, api: TasksApi) -> None:
        assert (await api.submit({"id": "a"}, key="bound"))["created_tasks"] == 1
        status, error = await api.error("POST", "/submit", pushed(project_id="p2"), key="bound")
        assert (status, error["code"], error["details"]["code"]) == (403, "FORBIDDEN", "OTHER_PROJECT")
        status, _ = await api.error("POST", "/submit", pushed({"id": "x"}), key="elsewhere")
        assert status == 403

    @on_sqlite
    async def test_a_client_gives_its_own_name(self, api: TasksApi) -> None:
        await api.data("POST", "/submit", pushed({"id": "a"}), key="anna", x_client_id="laptop-7")
        assert (await task_of(api, "a")).created_by == "laptop-7"


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
    ({"meta": []}, "meta"),
    ({"meta": {"x": "x" * 1_000_001}}, "meta"),
    ({"tasks": None}, "tasks"),
    ({"tasks": {}}, "tasks"),
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
    ({"prompt": "x" * 1_000_001}, "prompt"),
    ({"status": "finished"}, "status"),
    ({"status": None}, "status"),
    ({"status": 1}, "status"),
    ({"spec_file": "a.md"}, "spec_file"),
    ({"spec_file": [1]}, "spec_file[0]"),
    ({"report": 1}, "report"),
    ({"tags": "red"}, "tags"),
    ({"tags": ["x" * 51]}, "tags[0]"),
    ({"tags": [str(number) for number in range(21)]}, "tags"),
    ({"priority": 0}, "priority"),
    ({"priority": 11}, "priority"),
    ({"priority": "urgent"}, "priority"),
    ({"priority": 5.5}, "priority"),
    ({"priority": True}, "priority"),
    ({"priority": "11"}, "priority"),
    ({"messages": MESSAGE}, "messages"),
    ({"messages": [{**MESSAGE, "role": "system"}]}, "messages[0].role"),
    ({"messages": [MESSAGE, {"role": "user"}]}, "messages[1].content"),
    ({"messages": [{**MESSAGE, "content": "x" * 100_001}]}, "messages[0].content"),
    ({"messages": [{**MESSAGE, "session_id": "x" * 256}]}, "messages[0].session_id"),
    ({"messages": [MESSAGE] * 10_001}, "messages"),
    ({"logs": [{"content": 5}]}, "logs[0].content"),
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
