"""Push conflicts: leases that are closed, renewed or lost, server edits, deletions, and the project's policy."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.tasks.domain import Holder, Policy, Side, Status, Task
from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite
from tests.tasks.stored_state import changes_after, project_of, pulls_of, queue_of, set_policy, task_of

HOUR = 3600


def body_of(*tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    full = [{"name": "n", "prompt": "p", "status": "pending", **task} for task in tasks]
    return {"project_id": "p1", "project_name": "P", "queue_id": "q1", "queue_name": "Q", "tasks": full, **more}


async def push(api: TasksApi, *tasks: dict[str, Any], client: str = "worker-1", **headers: str) -> Any:
    """A push by a client of that name; the data."""
    return await api.data("POST", "/submit", body_of(*tasks), x_client_id=client, **headers)


async def refused(
    api: TasksApi, *tasks: dict[str, Any], client: str = "worker-1", **headers: str
) -> tuple[int, str, list[str]]:
    """Status, error code, and the tasks that a rejected push names."""
    status, error = await api.error("POST", "/submit", body_of(*tasks), x_client_id=client, **headers)
    return status, error["details"]["code"], error["details"]["tasks"]


class TestClosingAPull:
    async def test_a_final_status_of_the_holder_closes_the_pull(self, api: TasksApi) -> None:
        await api.plan("a", queue="q1")
        [held] = await api.pull()
        api.clock.advance(seconds=90)
        await push(api, {"id": "a", "status": "done", "lease_token": held["lease_token"]})
        task = await task_of(api, "a")
        assert (task.state, task.status, task.source, task.origin) == ("closed", "done", "client", "server")
        assert (task.pushed_by, task.pushed_at, task.lease_owner) == ("worker-1", api.clock.now(), "worker-1")
        assert (task.lease_token, task.leased_until, task.lease_count) == (None, None, 0)
        [pull] = await pulls_of(api, "a")
        assert (pull.outcome, pull.ended_by, pull.seconds) == ("pushed", "worker-1", 90)
        assert await api.pull() == []

    @on_sqlite
    async def test_every_final_status_closes(self, api: TasksApi) -> None:
        await api.plan("a", "b", "c", queue="q1")
        await api.pull()
        await push(api, *({"id": name, "status": status} for name, status in FINAL))
        assert [(await task_of(api, name)).state for name, _ in FINAL] == ["closed"] * 3

    async def test_without_a_token_the_name_is_the_holders(self, api: TasksApi) -> None:
        await set_policy(api, Policy.REJECT)
        await api.plan("a", queue="q1")
        await api.pull(client="worker-1")
        await push(api, {"id": "a", "status": "error"}, client="worker-1")
        assert (await task_of(api, "a")).state == "closed"

    async def test_a_status_that_is_not_final_keeps_the_task_with_its_holder(self, api: TasksApi) -> None:
        await api.plan("a", queue="q1")
        [held] = await api.pull()
        for _ in range(2):  # the second says nothing new, and still keeps it
            api.clock.advance(seconds=HOUR / 2)
            await push(api, {"id": "a", "status": "running", "lease_token": held["lease_token"]})
            task = await task_of(api, "a")
            assert (task.state, task.status, task.source) == ("held", "running", "client")
            assert task.lease_token == held["lease_token"]
            assert task.leased_until == api.clock.now() + timedelta(seconds=HOUR)

    async def test_a_renewed_lease_is_not_in_the_feed(self, api: TasksApi) -> None:
        await api.plan("a", queue="q1")
        await api.pull()
        await push(api, {"id": "a", "status": "running"})
        version = (await project_of(api)).version
        await push(api, {"id": "a", "status": "running"})
        assert await changes_after(api, version) == []

    async def test_an_offered_task_that_is_pushed_is_withdrawn(self, api: TasksApi) -> None:
        await api.plan("a", queue="q1", tags=["red"])
        await push(api, {"id": "a", "status": "pending"})
        task = await task_of(api, "a")
        assert (task.state, task.source, task.origin) == ("idle", "client", "server")
        assert await api.pull() == []
        assert await api.pull("tags=red") == []

    async def test_a_push_of_a_closed_task_is_an_ordinary_update(self, api: TasksApi) -> None:
        await api.plan("a", queue="q1")
        await api.pull()
        await push(api, {"id": "a", "status": "done"})
        await push(api, {"id": "a", "status": "running", "report": "Once more."}, client="worker-2")
        task = await task_of(api, "a")
        assert (task.state, task.status, task.report, task.updated_by) == (
            "closed",
            "running",
            "Once more.",
            "worker-2",
        )

    async def test_counts_follow_what_is_pushed(self, api: TasksApi) -> None:
        await api.plan("a", "b", queue="q1")
        await api.pull()
        await push(api, {"id": "a", "status": "done"}, {"id": "mine"})
        counts = (await queue_of(api)).counts
        assert (counts.pending, counts.done, counts.total) == (2, 1, 3)
        assert (await project_of(api)).counts == counts

    @on_sqlite
    async def test_closed_pulls_are_counted(self, api: TasksApi) -> None:
        await api.plan("a", queue="q1")
        await api.pull()
        api.clock.advance(seconds=5)
        await push(api, {"id": "a", "status": "done"})
        counted = {sample.name: sample.value for family in api.deps.metrics.collect() for sample in family.samples}
        assert (counted["penstock_pull_ended_total"], counted["penstock_pull_seconds_sum"]) == (1, 5)


FINAL = [("a", "done"), ("b", "error"), ("c", "cancelled")]


class TestClientUpdates:
    NOW = datetime(2026, 1, 1, tzinfo=UTC)

    def test_an_expired_or_failed_task_becomes_client_owned(self) -> None:
        times = {"scheduled_at": self.NOW, "created_at": self.NOW, "updated_at": self.NOW}
        names = {"id": "t", "partition_key": "p", "task_id": "a", "name": "n", "prompt": "p"}
        sides = {"source": Side.SERVER, "origin": Side.SERVER}
        fresh = Task(**names, **times, **sides, status=Status.ERROR, created_by="x", updated_by="x")  # type: ignore[arg-type]  # each part has its own type
        stale = replace(fresh, error_reason="Nobody pushed it.", expired_at=self.NOW, archived_at=self.NOW)
        told = stale.updated_by_client(Holder(name="worker-1"), seconds=60, now=self.NOW)
        assert told == replace(fresh, source=Side.CLIENT)
        assert told.updated_by_client(Holder(name="worker-1"), seconds=60, now=self.NOW) is told


class TestTokens:
    async def test_pushing_twice_with_the_token_is_harmless(self, api: TasksApi) -> None:
        await set_policy(api, Policy.REJECT)
        await api.plan("a", queue="q1")
        [held] = await api.pull()
        told = {"id": "a", "status": "done", "result": {"n": 1}, "lease_token": held["lease_token"]}
        await push(api, told)
        before = await task_of(api, "a")
        api.clock.advance(seconds=1)
        assert (await push(api, told))["updated_tasks"] == 1
        assert await task_of(api, "a") == replace(before, updated_at=api.clock.now())

    async def test_a_token_that_closed_its_pull_cannot_change_the_task(self, api: TasksApi) -> None:
        await api.plan("a", queue="q1")
        [held] = await api.pull()
        await push(api, {"id": "a", "status": "done", "lease_token": held["lease_token"]})
        late = {"id": "a", "status": "error", "lease_token": held["lease_token"]}
        assert await refused(api, late) == (409, "PULL_LOST", ["a"])
        assert (await task_of(api, "a")).status == "done"

    async def test_a_late_token_is_refused_whatever_the_policy(self, api: TasksApi) -> None:
        await api.plan("a", "b", queue="q1")
        held = await api.pull(client="slow")
        await api.data("POST", f"{PROJECT}/queues/q1/reset")
        await api.pull(client="quick")
        late = [{"id": one["id"], "status": "done", "lease_token": one["lease_token"]} for one in held]
        assert await refused(api, *late, {"id": "mine"}, client="slow") == (409, "PULL_LOST", ["a", "b"])
        assert (await task_of(api, "a")).lease_owner == "quick"
        assert (await queue_of(api)).counts.total == 2

    @on_sqlite
    async def test_an_unknown_token_is_refused(self, api: TasksApi) -> None:
        await api.plan("a", queue="q1")
        assert await refused(api, {"id": "a", "lease_token": "0" * 32}) == (409, "PULL_LOST", ["a"])

    async def test_the_token_in_the_header_stands_for_what_its_pull_took(self, api: TasksApi) -> None:
        await set_policy(api, Policy.REJECT)
        await api.plan("a", "b", queue="q1")
        [held, _] = await api.pull(client="worker-1")
        tasks = [{"id": "a", "status": "done"}, {"id": "b", "status": "done"}, {"id": "mine", "status": "done"}]
        await push(api, *tasks, client="another name", x_lease_token=held["lease_token"])
        assert [(await task_of(api, one)).state for one in ("a", "b", "mine")] == ["closed", "closed", "idle"]
        late = refused(api, {"id": "a"}, client="another name", x_lease_token=held["lease_token"])
        assert await late == (409, "PULL_LOST", ["a"])


class TestPolicies:
    async def test_by_default_a_push_overwrites_server_edits(self, api: TasksApi) -> None:
        await api.submit({"id": "a"})
        await api.data("PUT", f"{PROJECT}/queues/q1/tasks/a", {"name": "Edited here"})
        await push(api, {"id": "a", "name": "Pushed", "status": "running"})
        task = await task_of(api, "a")
        assert (task.name, task.source, task.state) == ("Pushed", "client", "idle")

    async def test_by_default_a_push_closes_another_clients_pull(self, api: TasksApi) -> None:
        await api.plan("a", queue="q1")
        await api.pull(client="worker-1")
        await push(api, {"id": "a", "status": "running"}, client="worker-2")
        task = await task_of(api, "a")
        assert (task.state, task.status, task.lease_owner) == ("held", "running", "worker-1")
        api.clock.advance(seconds=1)
        await push(api, {"id": "a", "status": "done"}, client="worker-2")
        task = await task_of(api, "a")
        assert (task.state, task.lease_owner, task.pushed_by) == ("closed", "worker-1", "worker-2")

    async def test_another_clients_push_does_not_renew_the_lease(self, api: TasksApi) -> None:
        await api.plan("a", queue="q1")
        await api.pull(client="worker-1")
        until = (await task_of(api, "a")).leased_until
        api.clock.advance(seconds=60)
        await push(api, {"id": "a", "status": "running"}, client="worker-2")
        assert (await task_of(api, "a")).leased_until == until

    async def test_policy_reject_refuses_to_overwrite_server_edits_and_names_all(self, api: TasksApi) -> None:
        await api.submit({"id": "a"}, {"id": "b"}, {"id": "c"})
        await set_policy(api, Policy.REJECT)
        for name in ("a", "c"):
            await api.data("PUT", f"{PROJECT}/queues/q1/tasks/{name}", {"name": "Edited here"})
        tasks = [{"id": "a"}, {"id": "b", "status": "done"}, {"id": "c"}, {"id": "d"}]
        assert await refused(api, *tasks) == (409, "PUSH_CONFLICT", ["a", "c"])
        assert (await task_of(api, "b")).status == "pending"
        assert (await task_of(api, "a")).name == "Edited here"
        assert (await queue_of(api)).counts.total == 3

    async def test_policy_reject_accepts_it_after_a_new_pull(self, api: TasksApi) -> None:
        await api.submit({"id": "a"})
        await set_policy(api, Policy.REJECT)
        await api.data("PUT", f"{PROJECT}/queues/q1/tasks/a", {"name": "Edited here"})
        assert (await refused(api, {"id": "a", "status": "done"}))[0] == 409
        await api.pull()
        await push(api, {"id": "a", "name": "Edited here", "status": "done"})
        assert (await task_of(api, "a")).state == "closed"

    async def test_policy_reject_refuses_what_another_client_holds(self, api: TasksApi) -> None:
        await set_policy(api, Policy.REJECT)
        await api.plan("a", queue="q1")
        await api.pull(client="worker-1")
        assert await refused(api, {"id": "a", "status": "done"}, client="worker-2") == (409, "PUSH_CONFLICT", ["a"])
        assert (await task_of(api, "a")).state == "held"

    async def test_policy_reject_refuses_to_drop_server_edits(self, api: TasksApi) -> None:
        await api.submit({"id": "a"}, {"id": "b"})
        await set_policy(api, Policy.REJECT)
        await api.data("PUT", f"{PROJECT}/queues/q1/tasks/a", {"name": "Edited here"})
        assert await refused(api, {"id": "b"}) == (409, "PUSH_CONFLICT", ["a"])
        await set_policy(api, Policy.OVERWRITE)
        await push(api, {"id": "b"})
        assert (await queue_of(api)).counts.total == 1


class TestDeletedTasks:
    async def test_deleted_tasks_refuse_the_whole_push_and_are_all_named(self, api: TasksApi) -> None:
        await api.plan("a", "b", queue="q1")
        await api.submit({"id": "mine"})
        for name in ("a", "mine"):
            await api.data("DELETE", f"{PROJECT}/queues/q1/tasks/{name}")
        tasks = [{"id": "a"}, {"id": "b", "status": "done"}, {"id": "mine"}, {"id": "new"}]
        status, error = await api.error("POST", "/submit", body_of(*tasks, queue_name="Renamed"))
        assert (status, error["code"]) == (410, "GONE")
        assert (error["details"]["code"], error["details"]["tasks"]) == ("TASKS_DELETED", ["a", "mine"])
        assert (await task_of(api, "b")).state == "offered"
        assert (await queue_of(api)).name == "Q"

    async def test_a_deleted_task_is_not_restored_by_a_push_without_it(self, api: TasksApi) -> None:
        await api.submit({"id": "mine"})
        await api.data("DELETE", f"{PROJECT}/queues/q1/tasks/mine")
        await api.submit({"id": "other"})
        assert await refused(api, {"id": "mine"}) == (410, "TASKS_DELETED", ["mine"])
