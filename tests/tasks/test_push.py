"""Pushing a queue: what is created, replaced and kept, and validation of the body."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
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
            "overwritten_tasks": [],
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
        await api.submit({"id": "a"}, project_name="Other", queue_name="Another")
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
    async def test_a_priority_is_not_checked_and_what_is_stored_wins(self, api: TasksApi) -> None:
        known = [(1, 1), (10, 10), ("high", 8), ("MEDIUM", 5), ("low", 2), ("7", 7), (" 10 ", 10)]
        sent = [*known, (None, None), (0, None), (11, None), ("urgent", None), (5.5, None), (True, None), ([], None)]
        await api.submit(*({"id": f"t-{number}", "priority": one} for number, (one, _) in enumerate(sent)))
        shown = [(await task_of(api, f"t-{number}")).shown_priority for number in range(len(sent))]
        assert shown == [kept for _, kept in sent]
        await api.submit({"id": "t-0", "priority": 9}, {"id": "t-7", "priority": 9})
        assert [(await task_of(api, name)).shown_priority for name in ("t-0", "t-7")] == [1, 9]

    @on_sqlite
    async def test_an_expiry_is_not_checked_and_what_is_stored_wins(self, api: TasksApi) -> None:
        await api.submit({"id": "a", "expires_at": "2026-06-01T00:00:00Z"}, {"id": "b", "expires_at": "soon"})
        await api.submit({"id": "a", "expires_at": "2027-06-01T00:00:00Z"}, {"id": "b", "expires_at": None})
        assert (await task_of(api, "a")).expires_at == datetime(2026, 6, 1, tzinfo=UTC)
        assert (await task_of(api, "b")).expires_at is None

    @on_sqlite
    async def test_tags_are_kept_as_sent_and_not_checked(self, api: TasksApi) -> None:
        await api.submit({"id": "a", "tags": ["Red", " red ", "Red", 3, None]}, {"id": "b", "tags": "one"})
        assert (await task_of(api, "a")).tags == ["Red", " red ", "Red", "3"]
        assert (await task_of(api, "b")).tags == ["one"]
        await api.submit({"id": "a"}, {"id": "b", "tags": []})
        assert (await task_of(api, "a")).tags == ["Red", " red ", "Red", "3"]
        assert (await task_of(api, "b")).tags == []

    @on_sqlite
    async def test_a_spec_file_may_be_one_text(self, api: TasksApi) -> None:
        await api.submit({"id": "a", "spec_file": "docs/a.md"}, {"id": "b", "spec_file": None})
        assert [(await task_of(api, name)).spec_file for name in ("a", "b")] == [["docs/a.md"], []]

    @on_sqlite
    async def test_a_status_comes_in_any_case(self, api: TasksApi) -> None:
        for status in ["pending", "RUNNING", "Done", "error", "cancelled"]:
            await api.submit({"id": "a", "status": status})
            assert (await task_of(api, "a")).status == status.lower()

    @on_sqlite
    async def test_unknown_fields_are_ignored(self, api: TasksApi) -> None:
        await api.submit({"id": "a", "colour": "red"}, sender="an older client")
        assert (await task_of(api, "a")).name == "n"

    async def test_the_client_is_replaced_as_a_whole_and_its_repository_by_parts(self, api: TasksApi) -> None:
        one, client = {"id": "a"}, {"username": " anna ", "hostname": "box", "project_path": "/src"}
        await api.submit(one, clientInfo=client, gitInfo={"repository": " git@host:x.git ", "branch": "main"})
        await api.submit(one, gitInfo={"branch": "  "})
        project = await project_of(api)
        assert (project.username, project.hostname, project.project_path) == ("anna", "box", "/src")
        assert (project.repository, project.branch) == ("git@host:x.git", None)
        await api.submit(one, clientInfo={"hostname": "other"})
        project = await project_of(api)
        assert (project.username, project.hostname, project.project_path) == (None, "other", None)
        assert project.repository == "git@host:x.git"

    async def test_the_meta_of_a_queue_is_anything_and_replaced_by_each_push(self, api: TasksApi) -> None:
        for meta in ({"prompts": ["one", "two"]}, ["one"], "text", 0, None):
            await api.submit({"id": "a"}, meta=meta)
            assert (await queue_of(api)).meta == meta
        await api.submit({"id": "a"}, meta={"prompts": []})
        await api.submit({"id": "a"})
        assert (await queue_of(api)).meta is None

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
    async def test_the_same_push_twice_moves_only_times(self, api: TasksApi) -> None:
        await api.submit(FULL, {"id": "b"}, {"id": "c"})
        before = await project_of(api), await queue_of(api), await task_of(api, "t-1"), await task_of(api, "c")
        api.clock.advance(seconds=60)
        data = await api.submit(FULL, {"id": "b"}, {"id": "c"})
        assert (data["created_tasks"], data["updated_tasks"]) == (0, 3)
        now = api.clock.now()
        project, queue, *tasks = before
        assert await project_of(api) == replace(project, last_task_at=now, updated_at=now)
        assert await queue_of(api) == replace(queue, last_task_at=now, updated_at=now)
        for task in tasks:
            assert await task_of(api, task.task_id) == replace(task, updated_at=now)
        shown = await api.data("GET", "/projects/p1/queues/q1/tasks/t-1")
        assert {one["created_at"] for one in shown["messages"]} == {"2026-01-01T00:00:00.000Z"}

    async def test_a_push_lists_its_tasks_in_its_order_and_server_tasks_last(self, api: TasksApi) -> None:
        await api.plan("planned", queue="q1")
        for names in ("abc", "cab", "cxab", "b"):
            await api.submit(*({"id": name} for name in names))
            items = (await api.data("GET", "/projects/p1/queues/q1/tasks"))["items"]
            assert [item["id"] for item in items] == [*names, "planned"]
        await api.submit({"id": "planned"}, {"id": "b"})
        items = (await api.data("GET", "/projects/p1/queues/q1/tasks?status=pending"))["items"]
        assert [item["id"] for item in items] == ["planned", "b"]

    async def test_a_finished_task_keeps_what_was_said_when_its_status_is_the_same(self, api: TasksApi) -> None:
        for status in ("done", "error"):
            await api.submit({**FULL, "status": status})
            sent: list[dict[str, Any]] = [{"messages": [], "logs": []}, {}, {"messages": FULL["messages"][:1]}]
            for again in sent:
                await api.submit({"id": "t-1", "status": status, **again})
                assert [said[2] for said in await messages_of(api, "t-1")] == ["Hello", "Hi"]
                assert await log_of(api, "t-1") == [(0, "began"), (1, "went on")]
            assert (await task_of(api, "t-1")).message_count == 2
        await api.submit({"id": "t-1", "status": "done"})
        assert (await messages_of(api, "t-1"), await log_of(api, "t-1")) == ([], [])

    async def test_messages_and_logs_keep_the_times_that_were_sent(self, api: TasksApi) -> None:
        def told(at: str) -> dict[str, Any]:
            message = {"role": "user", "content": "Hello", "createdAt": at}
            logs = [{"content": "l", "createdAt": at}]
            return {"id": "a", "messages": [message, {**message, "createdAt": None}], "logs": logs}

        for at in ("2025-05-01T10:00:00.123Z", "2025-06-01T10:00:00.000Z"):
            await api.submit(told(at))
            shown = await api.data("GET", "/projects/p1/queues/q1/tasks/a")
            assert [one["created_at"] for one in shown["messages"]] == [at, "2026-01-01T00:00:00.000Z"]
            assert [one["created_at"] for one in shown["logs"]] == [at]

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
        assert (data["created_tasks"], data["updated_tasks"]) == (0, 2)

    async def test_server_tasks_missing_from_a_push_stay(self, api: TasksApi) -> None:
        await api.plan("planned", queue="q1")
        await api.submit({"id": "a"})
        assert (await task_of(api, "planned")).state == "offered"
        assert (await queue_of(api)).counts.total == 2

    async def test_other_queues_are_not_changed(self, api: TasksApi) -> None:
        await api.submit({"id": "a"}, queue="q2")
        await api.submit({"id": "a"}, {"id": "b"})
        await api.submit({"id": "b"})
        assert (await queue_of(api, "q2")).counts.total == 1
        assert (await project_of(api)).queue_count == 2

    async def test_what_is_not_given_stays_and_what_is_empty_empties(self, api: TasksApi) -> None:
        await api.submit(FULL)
        await api.submit({"id": "t-1"})
        task = await task_of(api, "t-1")
        assert (task.tags, task.report, task.shown_priority) == (["red", "blue"], "Half done.", 8)
        assert task.spec_file == ["docs/a.md", "docs/b.md"]
        await api.submit({"id": "t-1", "tags": [], "report": None, "spec_file": None})
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
        assert (await api.submit({"id": "a"}, key="bound"))["tasks_count"] == 1
        status, error = await api.error("POST", "/submit", pushed({"id": "a"}, project_id="p2"), key="bound")
        assert (status, error["code"], error["details"]["project_id"]) == (401, "INVALID_API_KEY", "p2")
        assert error["details"]["code"] == "OTHER_PROJECT_PUSH"
        status, _ = await api.error("POST", "/submit", pushed({"id": "a", "name": ""}, project_id="p2"), key="bound")
        assert status == 400

    @on_sqlite
    async def test_a_client_gives_its_own_name(self, api: TasksApi) -> None:
        await api.data("POST", "/submit", pushed({"id": "a"}), key="anna", x_client_id="laptop-7")
        assert (await task_of(api, "a")).created_by == "laptop-7"
