"""Progress of a task: messages, log lines and its status."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from penstock.kernel.clock import ManualClock
from penstock.tasks.deps import Deps
from penstock.tasks.domain import Policy, Status
from penstock.tasks.lifecycle import open_unit_of_work
from penstock.tasks.store import task_messages
from tests.conftest import open_db
from tests.plans import recorded
from tests.tasks.conftest import PROJECT, Profile, TasksApi, on_sqlite
from tests.tasks.stored_state import (
    changes_after,
    events_of,
    log_of,
    messages_of,
    project_of,
    pulls_of,
    queue_of,
    set_policy,
    task_of,
)

HOUR = 3600
TASK = "/tasks/p1/q1/a"
ALONE = f"{PROJECT}/tasks/alone"
SAID = {"role": "user", "content": "Hello"}


@pytest.fixture
async def planned(api: TasksApi) -> TasksApi:
    """With a client's task `a` in q1, and a server task without a queue."""
    await api.submit({"id": "a"})
    await api.plan("alone")
    api.clock.advance(seconds=60)
    return api


async def time_left(api: TasksApi, task_id: str) -> float:
    """When the lease of a task ends."""
    until = (await task_of(api, task_id)).leased_until
    assert until is not None
    return (until - api.clock.now()).total_seconds()


class TestMessages:
    async def test_a_message_is_numbered_from_zero(self, planned: TasksApi) -> None:
        data = await planned.data("POST", f"{TASK}/message", {**SAID, "session_id": "s-1"}, key="anna")
        assert data == {
            "message_id": 0,
            "role": "USER",
            "content": "Hello",
            "session_id": "s-1",
            "created_at": "2026-01-01T00:01:00.000Z",
        }
        data = await planned.data("POST", f"{TASK}/message", {"role": "Assistant", "content": "مرحبا 👋"})
        assert (data["message_id"], data["role"]) == (1, "ASSISTANT")
        assert await messages_of(planned, "a") == [(0, "USER", "Hello", "s-1"), (1, "ASSISTANT", "مرحبا 👋", None)]

    async def test_it_updates_the_times_of_task_queue_and_project(self, planned: TasksApi) -> None:
        await planned.data("POST", f"{TASK}/message", SAID)
        now = planned.clock.now()
        task, queue, project = await task_of(planned, "a"), await queue_of(planned), await project_of(planned)
        assert (task.updated_at, queue.updated_at, project.updated_at) == (now, now, now)
        assert (queue.last_task_at, project.last_task_at) == (now, now)

    async def test_it_is_neither_in_the_feed_nor_an_event(self, planned: TasksApi) -> None:
        version, told = (await project_of(planned)).version, len(await events_of(planned))
        await planned.data("POST", f"{TASK}/message", SAID)
        assert await changes_after(planned, version) == []
        assert len(await events_of(planned)) == told

    async def test_a_task_without_a_queue_has_messages_too(self, planned: TasksApi) -> None:
        data = await planned.data("POST", f"{ALONE}/message", SAID)
        assert (data["message_id"], data["role"]) == (0, "USER")
        assert (await task_of(planned, "alone")).state == "offered"
        assert (await project_of(planned)).last_task_at == planned.clock.now()

    async def test_the_oldest_are_deleted_past_the_limit(
        self, planned: TasksApi, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(task_messages, "MAX_KEPT", 3)
        for number in range(5):
            await planned.data("POST", f"{TASK}/message", {"role": "user", "content": str(number)})
            await planned.data("POST", f"{TASK}/log", {"content": str(number)})
        assert [said[:1] + said[2:3] for said in await messages_of(planned, "a")] == [(2, "2"), (3, "3"), (4, "4")]
        assert await log_of(planned, "a") == [(2, "2"), (3, "3"), (4, "4")]


class TestLogs:
    async def test_a_line_is_numbered_from_zero(self, planned: TasksApi) -> None:
        data = await planned.data("POST", f"{TASK}/log", {"content": "began"})
        assert data == {"log_id": 0, "content": "began", "created_at": "2026-01-01T00:01:00.000Z"}
        assert (await planned.data("POST", f"{TASK}/log", {"content": "x" * 100_000}))["log_id"] == 1
        assert (await planned.data("POST", f"{ALONE}/log", {"content": "alone"}))["log_id"] == 0
        assert [number for number, _ in await log_of(planned, "a")] == [0, 1]

    async def test_it_changes_the_time_of_the_queue_only(self, planned: TasksApi) -> None:
        before = await task_of(planned, "a"), await queue_of(planned), await project_of(planned)
        await planned.data("POST", f"{TASK}/log", {"content": "began"})
        task, queue, project = await task_of(planned, "a"), await queue_of(planned), await project_of(planned)
        assert (task.updated_at, project) == (before[0].updated_at, before[2])
        assert queue == replace(before[1], updated_at=planned.clock.now())

    async def test_it_does_not_wait_for_the_project(
        self, postgres_url: str, clock: ManualClock, deps: Deps, profile: Profile
    ) -> None:
        """Only on PostgreSQL: SQLite has a single writer."""
        db = open_db(postgres_url, clock)
        api = TasksApi(replace(deps, db=db), clock, profile)
        await api.submit({"id": "a"})
        async with db.tx() as tx:
            await open_unit_of_work(tx, "p1")
            line = await asyncio.wait_for(api.data("POST", f"{TASK}/log", {"content": "meanwhile"}), timeout=20)
        assert line["log_id"] == 0
        await db.close()


class TestStatus:
    @on_sqlite
    async def test_a_status_is_accepted_in_any_case_and_shown_in_capitals(self, planned: TasksApi) -> None:
        data = await planned.data("PATCH", f"{TASK}/status", {"status": "Running"}, key="anna")
        assert data == {
            "task_id": "a",
            "status": "RUNNING",
            "previous_status": "PENDING",
            "updated_at": "2026-01-01T00:01:00.000Z",
        }
        task = await task_of(planned, "a")
        assert (task.status, task.started_at, task.updated_by) == ("running", planned.clock.now(), "anna")
        assert (await queue_of(planned)).counts.running == 1

    async def test_repeating_it_moves_only_times(self, planned: TasksApi) -> None:
        await planned.data("PATCH", f"{TASK}/status", {"status": "done"})
        before = await task_of(planned, "a"), (await project_of(planned)).version
        planned.clock.advance(seconds=5)
        data = await planned.data("PATCH", f"{TASK}/status", {"status": "DONE"})
        assert (data["status"], data["previous_status"]) == ("DONE", "DONE")
        assert data["updated_at"] == "2026-01-01T00:01:05.000Z"
        assert await task_of(planned, "a") == replace(before[0], updated_at=planned.clock.now())
        project = await project_of(planned)
        assert (project.version, project.last_task_at) == (before[1], planned.clock.now())

    async def test_it_is_in_the_feed_but_not_an_event(self, planned: TasksApi) -> None:
        version, told = (await project_of(planned)).version, len(await events_of(planned))
        await planned.data("PATCH", f"{TASK}/status", {"status": "error"})
        assert [line.kind.value for line in await changes_after(planned, version)] == ["pushed"]
        assert len(await events_of(planned)) == told

    async def test_it_may_bring_a_report_and_a_result(self, planned: TasksApi) -> None:
        body = {"status": "done", "report": "All well.", "result": {"files": 3}}
        await planned.data("PATCH", f"{TASK}/status", body)
        task = await task_of(planned, "a")
        assert (task.report, task.result) == ("All well.", {"files": 3})
        await planned.data("PATCH", f"{TASK}/status", {"status": "done"})
        assert (await task_of(planned, "a")).report == "All well."

    @on_sqlite
    async def test_a_result_must_fit_the_schema_of_its_task(self, planned: TasksApi) -> None:
        await planned.plan("strict", queue="q1", result_schema={"type": "integer"})
        status, error = await planned.error("PATCH", "/tasks/p1/q1/strict/status", {"status": "done", "result": "x"})
        assert (status, error["code"], error["details"]["field"]) == (400, "VALIDATION_ERROR", "result")
        assert (await task_of(planned, "strict")).status == "pending"
        await planned.data("PATCH", "/tasks/p1/q1/strict/status", {"status": "done", "result": 7})
        assert (await task_of(planned, "strict")).result == 7

    async def test_a_task_without_a_queue_has_a_status_too(self, planned: TasksApi) -> None:
        await planned.pull()
        data = await planned.data("PATCH", f"{ALONE}/status", {"status": "done"}, x_client_id="worker-1")
        assert (data["task_id"], data["status"]) == ("alone", "DONE")
        assert (await task_of(planned, "alone")).state == "closed"


class TestHolders:
    async def test_all_three_renew_the_lease(self, planned: TasksApi) -> None:
        [held] = await planned.pull()
        calls: list[tuple[str, str, dict[str, Any]]] = [
            ("PATCH", "status", {"status": "running"}),
            ("PATCH", "status", {"status": "running"}),
            ("POST", "message", SAID),
            ("POST", "log", {"content": "x"}),
        ]
        for method, what, body in calls:
            planned.clock.advance(seconds=HOUR / 2)
            await planned.data(method, f"{ALONE}/{what}", body, x_client_id="worker-1")
            assert await time_left(planned, "alone") == HOUR
            planned.clock.advance(seconds=HOUR / 2)
            token = {"lease_token": held["lease_token"]}
            await planned.data(method, f"{ALONE}/{what}", {**body, **token}, x_client_id="another name")
            assert await time_left(planned, "alone") == HOUR

    async def test_other_clients_do_not_renew_it(self, planned: TasksApi) -> None:
        [held] = await planned.pull()
        planned.clock.advance(seconds=60)
        await planned.data("POST", f"{ALONE}/message", SAID, x_client_id="worker-2")
        await planned.data("POST", f"{ALONE}/log", {"content": "x"}, x_client_id="worker-2")
        late = {"content": "x", "lease_token": held["lease_token"][::-1]}
        await planned.data("POST", f"{ALONE}/log", late, x_client_id="worker-1")
        await planned.data("PATCH", f"{ALONE}/status", {"status": "running"}, x_client_id="worker-2")
        assert await time_left(planned, "alone") == HOUR - 60

    async def test_a_final_status_closes_the_pull(self, planned: TasksApi) -> None:
        [held] = await planned.pull()
        planned.clock.advance(seconds=30)
        await planned.data("PATCH", f"{ALONE}/status", {"status": "done"}, x_lease_token=held["lease_token"])
        task = await task_of(planned, "alone")
        assert (task.state, task.source, task.pushed_at) == ("closed", "client", planned.clock.now())
        [pull] = await pulls_of(planned, "alone")
        assert (pull.outcome, pull.seconds) == ("pushed", 30)

    async def test_with_a_token_the_same_final_status_may_come_twice_but_no_other(self, planned: TasksApi) -> None:
        [held] = await planned.pull()
        token = held["lease_token"]
        for _ in range(2):
            await planned.data("PATCH", f"{ALONE}/status", {"status": "done", "lease_token": token})
        status, error = await planned.error("PATCH", f"{ALONE}/status", {"status": "error", "lease_token": token})
        assert (status, error["code"], error["details"]["code"]) == (409, "CONFLICT", "PULL_LOST")
        assert error["details"]["task_id"] == "alone"

    async def test_a_lost_token_is_refused_whatever_the_policy(self, planned: TasksApi) -> None:
        [held] = await planned.pull(client="slow")
        await planned.data("POST", f"{PROJECT}/tasks/alone/pull/reset")
        await planned.pull(client="quick")
        status, error = await planned.error(
            "PATCH", f"{ALONE}/status", {"status": "done"}, x_lease_token=held["lease_token"], x_client_id="slow"
        )
        assert (status, error["details"]["code"]) == (409, "PULL_LOST")
        assert (await task_of(planned, "alone")).lease_owner == "quick"

    async def test_a_careful_project_refuses_what_another_holds_or_the_server_wrote(self, planned: TasksApi) -> None:
        await set_policy(planned, Policy.REJECT)
        status, error = await planned.error("PATCH", f"{ALONE}/status", {"status": "done"})
        assert (status, error["details"]["code"], error["details"]["tasks"]) == (409, "PUSH_CONFLICT", ["alone"])
        await planned.pull(client="worker-1")
        status, _ = await planned.error("PATCH", f"{ALONE}/status", {"status": "done"}, x_client_id="worker-2")
        assert status == 409
        await planned.data("PATCH", f"{ALONE}/status", {"status": "done"}, x_client_id="worker-1")


class TestCoalescing:
    """Concurrent updates are coalesced, and each gets its own result."""

    async def test_each_update_is_applied_under_its_own_client(self, api: TasksApi) -> None:
        names = [f"t{number}" for number in range(20)]
        await api.plan(*names, queue="q1")
        for name in names:
            await api.pull("limit=1", queue="q1", client=f"client-of-{name}")
        version = (await project_of(api)).version
        said = (
            api.data("PATCH", f"/tasks/p1/q1/{name}/status", {"status": "done"}, x_client_id=f"client-of-{name}")
            for name in names
        )
        with recorded(api.db, "project") as statements:
            told = await asyncio.gather(*said)
        assert [(one["task_id"], one["previous_status"]) for one in told] == [(name, "PENDING") for name in names]
        assert len([text for text, _ in statements if text.startswith("UPDATE")]) < 10, "each took a lock of its own"
        lines = await changes_after(api, version)
        assert [line.version for line in lines] == list(range(version + 1, version + 21))
        assert {(line.task_id, line.by, line.holder) for line in lines} == {
            (name, f"client-of-{name}", f"client-of-{name}") for name in names
        }
        for name in names:
            [pull] = await pulls_of(api, name)
            assert (pull.outcome, pull.ended_by) == ("pushed", f"client-of-{name}")
        assert (await queue_of(api)).counts.done == (await project_of(api)).counts.done == 20

    async def test_an_error_of_one_does_not_stop_the_others(self, planned: TasksApi) -> None:
        await planned.submit({"id": "b"}, queue="q2")
        await planned.data("DELETE", f"{PROJECT}/queues/q2/tasks/b")
        calls = {
            "/tasks/p1/q1/nowhere": 404,
            "/tasks/p1/nowhere/a": 404,
            "/tasks/p1/q2/b": 410,
            ALONE: 409,
            TASK: 200,
        }
        answers = await asyncio.gather(
            *(
                planned.call("PATCH", f"{path}/status", {"status": "done"}, x_lease_token=token)
                for path in calls
                for token in ["lost" if path == ALONE else ""]
            )
        )
        assert [answer.status for answer in answers] == list(calls.values())
        assert (await task_of(planned, "a")).status == "done"
        assert (await task_of(planned, "alone")).status == "pending"

    async def test_updates_of_one_task_are_applied_in_order(self, planned: TasksApi) -> None:
        version = (await project_of(planned)).version
        words = [Status.RUNNING, Status.ERROR, Status.RUNNING, Status.DONE]
        said = (planned.data("PATCH", f"{PROJECT}/tasks/a/status", {"status": word}) for word in words)
        previous = [moved["previous_status"].lower() for moved in await asyncio.gather(*said)]
        assert previous == [Status.PENDING, *words[:-1]]
        assert [line.status for line in await changes_after(planned, version)] == words
        assert (await task_of(planned, "a")).version == version + 4


CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "message", SAID),
    ("POST", "log", {"content": "x"}),
    ("PATCH", "status", {"status": "done"}),
]


class TestRefusals:
    @on_sqlite
    async def test_an_unknown_task_is_named_with_all_ids(self, planned: TasksApi) -> None:
        for method, what, body in CALLS:
            for names in (("none", "q1", "a"), ("p1", "none", "a"), ("p1", "q1", "none"), ("p1", "q1", "alone")):
                status, error = await planned.error(method, f"/tasks/{'/'.join(names)}/{what}", body)
                details = error["details"]
                assert (status, error["code"]) == (404, "RESOURCE_NOT_FOUND")
                assert (details["project_id"], details["queue_id"], details["task_id"]) == names
            status, error = await planned.error(method, f"{PROJECT}/tasks/none/{what}", body)
            assert (status, error["details"]["task_id"]) == (404, "none")

    @on_sqlite
    async def test_a_deleted_task_is_gone(self, planned: TasksApi) -> None:
        await planned.data("DELETE", f"{PROJECT}/queues/q1/tasks/a")
        for method, what, body in CALLS:
            status, error = await planned.error(method, f"{TASK}/{what}", body)
            assert (status, error["code"]) == (410, "GONE")
            assert error["details"]["task_id"] == "a"

    @on_sqlite
    async def test_equal_ids_in_several_queues_need_the_queue(self, planned: TasksApi) -> None:
        await planned.submit({"id": "a"}, queue="q2")
        for method, what, body in CALLS:
            status, error = await planned.error(method, f"{PROJECT}/tasks/a/{what}", body)
            assert (status, error["details"]["code"]) == (409, "AMBIGUOUS_TASK")

    @on_sqlite
    async def test_a_key_of_another_project_is_refused(self, planned: TasksApi) -> None:
        for method, what, body in CALLS:
            status, error = await planned.error(method, f"{TASK}/{what}", body, key="elsewhere")
            assert (status, error["code"], error["details"]["project_id"]) == (401, "INVALID_API_KEY", "p1")
            status, error = await planned.error(method, f"{ALONE}/{what}", body, key="elsewhere")
            assert (status, error["code"], error["details"]["code"]) == (403, "FORBIDDEN", "OTHER_PROJECT")
            assert (await planned.call(method, f"{TASK}/{what}", body, key="bound")).status == 200

    @on_sqlite
    async def test_fields_out_of_range_are_named(self, planned: TasksApi) -> None:
        bad: list[tuple[str, str, dict[str, Any], str]] = [
            ("POST", "message", {"role": "system", "content": "x"}, "role"),
            ("POST", "message", {"content": "x"}, "role"),
            ("POST", "message", {"role": "user", "content": ""}, "content"),
            ("POST", "message", {"role": "user", "content": "x" * 100_001}, "content"),
            ("POST", "message", {**SAID, "session_id": "x" * 256}, "session_id"),
            ("POST", "log", {"content": ""}, "content"),
            ("POST", "log", {"content": "x" * 100_001}, "content"),
            ("POST", "log", {}, "content"),
            ("PATCH", "status", {"status": "finished"}, "status"),
            ("PATCH", "status", {"status": None}, "status"),
            ("PATCH", "status", {"status": "done", "lease_token": "x" * 65}, "lease_token"),
        ]
        for method, what, body, field in bad:
            status, error = await planned.error(method, f"{TASK}/{what}", body)
            assert (status, error["code"], error["details"]["field"]) == (400, "VALIDATION_ERROR", field)
            assert [one["field"] for one in error["details"]["all_errors"]] == [field]
