"""Pushes of tasks that the client pulled elsewhere, or no longer holds."""

from datetime import timedelta
from typing import Any

from penstock.tasks.api.views import format_time
from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite
from tests.tasks.stored_state import task_of


def body_of(*tasks: dict[str, Any]) -> dict[str, Any]:
    full = [{"name": "n", "prompt": "p", "status": "pending", **task} for task in tasks]
    return {"project_id": "p1", "project_name": "P", "queue_id": "q1", "queue_name": "Q", "tasks": full}


async def push(api: TasksApi, *tasks: dict[str, Any], client: str = "worker-1") -> Any:
    """A push by a client of that name; the data."""
    return await api.data("POST", "/submit", body_of(*tasks), x_client_id=client)


async def refused(api: TasksApi, *tasks: dict[str, Any], client: str = "worker-1") -> tuple[int, str, list[str]]:
    """Status, error code, and the tasks that a rejected push names."""
    status, error = await api.error("POST", "/submit", body_of(*tasks), x_client_id=client)
    return status, error["details"]["code"], error["details"]["tasks"]


class TestPulledElsewhere:
    """A client pushes what it pulled without a queue, or from another queue, in a queue of its own."""

    async def hold(self, api: TasksApi) -> str:
        """Two tasks held by worker-1: one without a queue and one of q2. The token of the pull."""
        await api.submit(queue="q2")
        await api.plan("loose", result_schema={"type": "object"})
        await api.plan("other", queue="q2", spec_file=["a.md"])
        held = await api.pull()
        api.clock.advance(seconds=60)
        token: str = held[0]["lease_token"]
        return token

    async def test_a_push_in_its_own_queue_closes_the_pulls_and_the_tasks_stay_where_they_are(
        self, api: TasksApi
    ) -> None:
        await self.hold(api)
        await api.submit({"id": "mine"})
        loose = {"id": "loose", "status": "done", "report": "Well.", "result": {"n": 1}}
        data = await push(api, {"id": "mine"}, loose, {"id": "other", "status": "error"}, {"id": "new"})
        assert (data["tasks_count"], data["updated_tasks"], data["overwritten_tasks"]) == (4, 4, [])
        for name, place, status in (("loose", "", "done"), ("other", "/queues/q2", "error")):
            task = await api.data("GET", f"{PROJECT}{place}/tasks/{name}")
            assert (task["status"], task["pull_state"], task["pushed_by"]) == (status, "pulled", "worker-1")
            [pull] = task["pull_history"]
            assert (pull["outcome"], pull["pushed_by"], pull["seconds"]) == ("pushed", "worker-1", 60)
            own = await api.data("GET", f"{PROJECT}/queues/q1/tasks/{name}")
            assert (own["status"], own["source"], own["pulled_at"]) == (status, "client", None)
        loose = await api.data("GET", f"{PROJECT}/tasks/loose")
        assert (loose["report"], loose["result"], loose["queue_id"]) == ("Well.", {"n": 1}, None)
        assert await api.pull(client="worker-2") == []

    async def test_a_status_that_is_not_final_renews_the_lease(self, api: TasksApi) -> None:
        await self.hold(api)
        for _ in range(2):
            await push(api, {"id": "loose", "status": "running"})
            task = await api.data("GET", f"{PROJECT}/tasks/loose")
            assert (task["status"], task["pull_state"]) == ("running", "pulled_not_pushed")
            assert task["leased_until"] == format_time(api.clock.now() + timedelta(hours=1))
            api.clock.advance(seconds=60)

    async def test_a_token_finds_the_pull_whoever_pushes_and_the_push_may_be_repeated(self, api: TasksApi) -> None:
        token = await self.hold(api)
        told = {"id": "loose", "status": "done", "lease_token": token}
        for _ in range(2):
            await push(api, told, {"id": "new"}, client="worker-2")
        assert (await api.data("GET", f"{PROJECT}/tasks/loose"))["pull_state"] == "pulled"
        assert await refused(api, {**told, "status": "error"}, client="worker-2") == (409, "PULL_LOST", ["loose"])

    async def test_the_token_of_the_request_finds_it_too(self, api: TasksApi) -> None:
        token = await self.hold(api)
        body = body_of({"id": "loose", "status": "done"}, {"id": "new"})
        await api.data("POST", "/submit", body, x_client_id="worker-2", x_lease_token=token)
        assert (await api.data("GET", f"{PROJECT}/tasks/loose"))["pushed_by"] == "worker-2"

    async def test_a_token_of_a_pull_that_is_over_is_refused(self, api: TasksApi) -> None:
        token = await self.hold(api)
        await api.data("POST", f"{PROJECT}/tasks/loose/pull/reset")
        body = body_of({"id": "loose", "status": "done"})
        status, error = await api.error("POST", "/submit", body, x_lease_token=token)
        assert (status, error["details"]["code"]) == (409, "PULL_LOST")
        for lost in (token, "another"):
            told = {"id": "loose", "status": "done", "lease_token": lost}
            assert await refused(api, told) == (409, "PULL_LOST", ["loose"])

    async def test_what_another_client_holds_elsewhere_stays_with_it(self, api: TasksApi) -> None:
        await self.hold(api)
        await push(api, {"id": "loose", "status": "done"}, client="worker-2")
        task = await api.data("GET", f"{PROJECT}/tasks/loose")
        assert (task["status"], task["pulled_by"], task["pull_state"]) == ("pending", "worker-1", "pulled_not_pushed")

    async def test_a_moved_task_is_found_in_its_new_queue(self, api: TasksApi) -> None:
        await api.submit(queue="q2")
        await api.plan("x", queue="q1")
        await api.pull()
        await api.data("POST", f"{PROJECT}/tasks/x/move", {"queueId": "q2"})
        await push(api, {"id": "x", "status": "done"})
        assert (await api.data("GET", f"{PROJECT}/queues/q2/tasks/x"))["pull_state"] == "pulled"

    @on_sqlite
    async def test_a_result_must_fit_the_schema_of_the_task_elsewhere(self, api: TasksApi) -> None:
        await self.hold(api)
        body = body_of({"id": "new"}, {"id": "loose", "status": "done", "result": "text"})
        status, error = await api.error("POST", "/submit", body, x_client_id="worker-1")
        assert (status, error["details"]["field"]) == (400, "tasks[1].result")


class TestLateClients:
    """A client that lost its lease, and reports that it is still at work."""

    async def lose(self, api: TasksApi) -> None:
        await api.plan("a", queue="q1")
        await api.pull(client="late")
        api.clock.advance(seconds=3601)
        await api.run_periodic_tasks()

    async def test_a_status_that_is_not_final_leaves_the_task_on_offer(self, api: TasksApi) -> None:
        await self.lose(api)
        data = await api.data("PATCH", "/tasks/p1/q1/a/status", {"status": "running"}, x_client_id="late")
        assert (data["status"], data["previous_status"]) == ("RUNNING", "PENDING")
        task = await task_of(api, "a")
        assert (task.state, task.source) == ("offered", "server")
        assert [one["task_id"] for one in await api.pull(client="next")] == ["a"]

    async def test_a_push_that_is_not_final_leaves_the_task_on_offer_as_the_server_wrote_it(
        self, api: TasksApi
    ) -> None:
        await self.lose(api)
        await api.data("PUT", f"{PROJECT}/queues/q1/tasks/a", {"prompt": "Better."})
        await push(api, {"id": "a", "prompt": "Old.", "status": "running"}, client="late")
        [again] = await api.pull(client="next")
        assert (again["task_id"], again["prompt"], again["source"]) == ("a", "Better.", "server")

    async def test_a_push_by_a_client_that_never_held_it_makes_it_the_clients(self, api: TasksApi) -> None:
        await api.plan("a", queue="q1")
        await push(api, {"id": "a"}, client="other")
        task = await task_of(api, "a")
        assert (task.state, task.source) == ("idle", "client")

    async def test_a_final_status_ends_the_offer(self, api: TasksApi) -> None:
        await self.lose(api)
        await api.data("PATCH", "/tasks/p1/q1/a/status", {"status": "done"}, x_client_id="late")
        assert await api.pull(client="next") == []

    async def test_history_tells_who_pushed_and_that_it_was_not_the_holder(self, api: TasksApi) -> None:
        await api.plan("a", "b", queue="q1")
        await api.pull(client="one")
        data = await push(api, {"id": "a", "status": "done"}, {"id": "b"}, client="two")
        assert data["overwritten_tasks"] == ["a", "b"]
        await api.data("PATCH", "/tasks/p1/q1/b/status", {"status": "done"}, x_client_id="one")
        overwritten, pushed = [
            (await api.data("GET", f"{PROJECT}/tasks/{name}/pull/history"))["pull_history"][0] for name in "ab"
        ]
        assert (overwritten["outcome"], overwritten["pulled_by"], overwritten["pushed_by"]) == (
            "overwritten",
            "one",
            "two",
        )
        assert (pushed["outcome"], pushed["pushed_by"], pushed["released_by"]) == ("pushed", "one", None)
        stats = await api.data("GET", f"{PROJECT}/tasks/pull/stats")
        assert (stats["overwritten"], stats["pull_success_rate"]) == (1, 50.0)
