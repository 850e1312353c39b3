"""Leases: confirmed, renewed, released and reset, only by their holder or an admin."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.access import audit
from penstock.kernel.clock import ManualClock
from penstock.tasks.deps import Deps
from penstock.tasks.metrics import TaskMetrics
from penstock.tasks.store import projects
from tests.conftest import open_db
from tests.tasks.conftest import PROJECT, Profile, TasksApi, on_sqlite

HAND = f"{PROJECT}/tasks/a/pull"
VERBS = ("confirm", "renew", "release", "reset")


class RecordingMetrics(TaskMetrics):
    """Records how pulls ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[tuple[str, float]] = []

    def count_ended(self, outcome: str, seconds: float) -> None:
        self.ended.append((outcome, seconds))


async def hold(api: TasksApi, *, client: str = "one", key: str = "anna", **fields: Any) -> dict[str, Any]:
    """Pull task `a` as a client; the task as pulled."""
    await api.plan("a", **fields)
    [task] = await api.pull(client=client, key=key)
    shown: dict[str, Any] = task
    return shown


async def read(api: TasksApi, task_id: str = "a") -> dict[str, Any]:
    task: dict[str, Any] = await api.data("GET", f"{PROJECT}/tasks/{task_id}")
    return task


async def feed_kinds(api: TasksApi) -> list[str]:
    data = await api.data("GET", f"{PROJECT}/changes")
    return [line["kind"] for line in data["changes"]]


class TestConfirm:
    async def test_a_confirmation_is_recorded_and_renews_the_lease(self, api: TasksApi, clock: ManualClock):
        held = await hold(api)
        clock.advance(seconds=600)
        said = await api.data("POST", f"{HAND}/confirm", key="anna", x_lease_token=held["lease_token"])
        assert said == {
            "task_id": "a",
            "confirmed": True,
            "confirmed_at": "2026-01-01T00:10:00.000Z",
            "leased_until": "2026-01-01T01:10:00.000Z",
        }
        task = await read(api)
        assert (task["confirmed_at"], task["leased_until"]) == (said["confirmed_at"], said["leased_until"])
        history = await api.data("GET", f"{HAND}/history")
        assert history["pull_history"][0]["confirmed_at"] == said["confirmed_at"]

    async def test_the_first_confirmation_counts_and_each_renews_the_lease(self, api: TasksApi, clock: ManualClock):
        await hold(api)
        first = await api.data("POST", f"{HAND}/confirm", key="anna", x_client_id="one")
        clock.advance(seconds=60)
        second = await api.data("POST", f"{HAND}/confirm", key="anna", x_client_id="one")
        assert second["confirmed_at"] == first["confirmed_at"]
        assert second["leased_until"] == "2026-01-01T01:01:00.000Z"

    async def test_a_confirmation_is_not_in_the_feed(self, api: TasksApi):
        await hold(api)
        await api.data("POST", f"{HAND}/confirm", key="anna", x_client_id="one")
        assert await feed_kinds(api) == ["created"]

    async def test_only_the_holder_confirms(self, api: TasksApi):
        await hold(api)
        status, error = await api.error("POST", f"{HAND}/confirm", key="bert")
        assert (status, error["details"]["code"]) == (403, "NOT_THE_HOLDER")


class TestRenew:
    async def test_a_renewal_lasts_as_long_as_a_new_pull(self, api: TasksApi, clock: ManualClock):
        held = await hold(api)
        clock.advance(seconds=1800)
        said = await api.data("POST", f"{HAND}/renew", key="anna", x_lease_token=held["lease_token"])
        assert said == {"task_id": "a", "leased_until": "2026-01-01T01:30:00.000Z"}
        assert (await read(api))["leased_until"] == said["leased_until"]

    async def test_a_renewal_lasts_for_the_seconds_that_are_asked_for(self, api: TasksApi):
        held = await hold(api)
        body = {"seconds": 90, "lease_token": held["lease_token"]}
        said = await api.data("POST", f"{HAND}/renew", body, key="anna")
        assert said["leased_until"] == "2026-01-01T00:01:30.000Z"

    @on_sqlite
    async def test_no_renewal_outlasts_a_pull_or_lasts_no_time(self, api: TasksApi):
        await hold(api)
        for seconds in (0, -1, 3601, 1e300, "soon"):
            body = {"seconds": seconds}
            status, error = await api.error("POST", f"{HAND}/renew", body, key="anna", x_client_id="one")
            assert (status, error["code"], error["details"]["field"]) == (400, "VALIDATION_ERROR", "seconds")

    async def test_a_client_without_a_token_is_known_by_its_name(self, api: TasksApi):
        await hold(api)
        assert await api.data("POST", f"{HAND}/renew", key="anna", x_client_id="one")

    async def test_a_client_without_a_name_of_its_own_is_known_by_that_of_its_key(self, api: TasksApi):
        await api.plan("a")
        await api.data("GET", f"{PROJECT}/tasks/pull", key="anna")
        assert await api.data("POST", f"{HAND}/renew", key="anna")
        assert (await api.error("POST", f"{HAND}/renew", key="bert"))[0] == 403

    async def test_a_renewal_is_not_in_the_feed(self, api: TasksApi):
        await hold(api)
        await api.data("POST", f"{HAND}/renew", key="anna", x_client_id="one")
        assert await feed_kinds(api) == ["created"]

    async def test_not_even_an_admin_renews_what_another_holds(self, api: TasksApi):
        await hold(api)
        status, error = await api.error("POST", f"{HAND}/renew", key="root")
        assert (status, error["details"]["code"]) == (403, "NOT_THE_HOLDER")

    async def test_a_renewal_does_not_wait_for_the_project(
        self, postgres_url: str, deps: Deps, clock: ManualClock, profile: Profile
    ):
        db = open_db(postgres_url, clock)
        api = TasksApi(replace(deps, db=db), clock, profile)
        try:
            await api.make_project("p1")
            held = await hold(api)
            async with db.tx() as tx:
                await projects.claim_project(tx, "p1")
                assert await api.data("POST", f"{HAND}/renew", key="anna", x_lease_token=held["lease_token"])
        finally:
            await db.close()


class TestRelease:
    async def test_a_released_task_is_offered_again(self, api: TasksApi, clock: ManualClock):
        held = await hold(api, tags=["x"])
        clock.advance(seconds=60)
        said = await api.data("POST", f"{HAND}/release", key="anna", x_lease_token=held["lease_token"])
        assert said == {"task_id": "a", "released": True, "released_at": "2026-01-01T00:01:00.000Z"}
        task = await read(api)
        assert (task["pull_state"], task["pulled_at"], task["pulled_by"]) == ("unpulled", None, None)
        assert (task["confirmed_at"], task["leased_until"]) == (None, None)
        [again] = await api.pull("tags=x", client="two", key="bert")
        assert (again["task_id"], again["pull_attempts"]) == ("a", 2)
        assert again["lease_token"] != held["lease_token"]

    async def test_it_has_the_status_it_had_when_it_was_pulled(self, api: TasksApi):
        await hold(api, queue="q1")
        by_holder = {"key": "anna", "x_client_id": "one"}
        await api.data("PATCH", "/tasks/p1/q1/a/status", {"status": "running"}, **by_holder)
        assert (await read(api))["status"] == "running"
        await api.data("POST", f"{HAND}/release", **by_holder)
        task = await read(api)
        assert (task["status"], task["source"], task["started_at"]) == ("pending", "server", None)
        project = await api.data("GET", PROJECT)
        assert (project["task_stats"]["pending"], project["task_stats"]["running"]) == (1, 0)

    async def test_history_feed_and_audit_log_name_who_released(self, api: TasksApi, clock: ManualClock):
        await hold(api)
        clock.advance(seconds=5)
        await api.data("POST", f"{HAND}/release", key="anna", x_client_id="one")
        history = await api.data("GET", f"{HAND}/history")
        [pull] = history["pull_history"]
        assert (pull["released_by"], pull["released_at"]) == ("one", "2026-01-01T00:00:05.000Z")
        line = (await api.data("GET", f"{PROJECT}/changes"))["changes"][-1]
        assert (line["kind"], line["holder"], line["by"]) == ("released", "one", "one")
        async with api.db.read() as tx:
            [noted] = await audit.list_lines(tx, action="tasks.release")
        assert (noted.actor, noted.target) == ("key:k-anna", "project:p1")
        assert noted.detail == {"by": "anna", "client": "one", "count": 1, "tasks": ["a"], "holders": ["one"]}

    async def test_how_it_ended_is_counted_once_it_is_written(self, deps: Deps, clock: ManualClock, profile: Profile):
        metrics = RecordingMetrics()
        api = TasksApi(replace(deps, metrics=metrics), clock, profile)
        await api.make_project("p1")
        await hold(api)
        clock.advance(seconds=5)
        await api.data("POST", f"{HAND}/release", key="anna", x_client_id="one")
        await api.error("POST", f"{HAND}/release", key="anna", x_client_id="one")
        assert metrics.ended == [("released", 5.0)]

    async def test_only_the_holder_or_an_admin_releases(self, api: TasksApi):
        held = await hold(api)
        status, error = await api.error("POST", f"{HAND}/release", key="bert")
        assert (status, error["code"], error["details"]["code"]) == (403, "FORBIDDEN", "NOT_THE_HOLDER")
        assert (await read(api))["leased_until"] == held["leased_until"]
        assert await api.data("POST", f"{HAND}/release", key="root")

    @on_sqlite
    async def test_an_admin_of_the_project_alone_releases_too(self, api: TasksApi):
        await hold(api)
        assert await api.data("POST", f"{HAND}/release", key="warden")

    async def test_a_wrong_token_is_refused_whatever_the_name(self, api: TasksApi):
        await hold(api)
        for key, client in (("anna", "one"), ("root", "root")):
            headers = {"x_client_id": client, "x_lease_token": "another"}
            status, error = await api.error("POST", f"{HAND}/release", key=key, **headers)
            assert (status, error["code"], error["details"]["code"]) == (409, "CONFLICT", "PULL_LOST")
            assert error["details"]["reason"] == "one holds it now"

    async def test_an_unheld_task_cannot_be_released(self, api: TasksApi):
        await api.plan("a")
        for key in ("anna", "root"):
            status, error = await api.error("POST", f"{HAND}/release", key=key)
            assert (status, error["code"], error["details"]["code"]) == (400, "VALIDATION_ERROR", "TASK_NOT_PULLED")
            assert error["message"] == "Task a cannot be released: nobody holds it."

    @on_sqlite
    async def test_a_second_release_says_that_it_was_released(self, api: TasksApi):
        held = await hold(api)
        await api.data("POST", f"{HAND}/release", key="anna", x_lease_token=held["lease_token"])
        status, error = await api.error("POST", f"{HAND}/release", key="anna", x_lease_token=held["lease_token"])
        assert (status, error["message"]) == (400, "Task a cannot be released: it was released by anna.")
        assert error["details"]["outcome"] == "released"

    async def test_too_many_releases_without_a_push_put_a_task_into_error(self, api: TasksApi):
        hasty = api.with_config(max_attempts=2)
        await hold(hasty)
        await hasty.data("POST", f"{HAND}/release", key="anna", x_client_id="one")
        assert await hasty.pull(client="two", key="bert")
        await hasty.data("POST", f"{HAND}/release", key="bert", x_client_id="two")
        task = await read(hasty)
        assert (task["status"], task["pull_state"]) == ("error", "unpulled")
        assert task["error_reason"] == "Pulled 2 times without a push, last by two."


class TestReset:
    async def test_a_reset_takes_a_task_from_its_holder_and_offers_it_again(self, api: TasksApi):
        held = await hold(api)
        said = await api.data("POST", f"{HAND}/reset")
        assert said == {
            "task_id": "a",
            "reset": True,
            "reset_at": "2026-01-01T00:00:00.000Z",
            "pulled_at": None,
            "status": "pending",
            "pull_state": "unpulled",
        }
        status, error = await api.error("POST", f"{HAND}/renew", key="anna", x_lease_token=held["lease_token"])
        assert (status, error["details"]["reason"]) == (409, "it was edited or reset by root")
        line = (await api.data("GET", f"{PROJECT}/changes"))["changes"][-1]
        assert (line["kind"], line["holder"], line["by"]) == ("reset", "one", "root")
        [again] = await api.pull(client="two")
        assert (again["task_id"], again["pull_attempts"]) == ("a", 1)

    async def test_what_was_pushed_can_be_pulled_again_after_a_reset(self, api: TasksApi):
        await hold(api, queue="q1")
        await api.data("PATCH", "/tasks/p1/q1/a/status", {"status": "done"}, key="anna", x_client_id="one")
        assert (await read(api))["pull_state"] == "pulled"
        await api.data("POST", f"{PROJECT}/queues/q1/tasks/a/pull/reset")
        [again] = await api.pull(client="two")
        assert (again["task_id"], again["status"]) == ("a", "done")

    async def test_a_reset_of_an_offered_task_changes_nothing(self, api: TasksApi):
        await api.plan("a")
        assert await api.data("POST", f"{HAND}/reset")
        assert await feed_kinds(api) == ["created"]

    async def test_a_reset_is_in_the_audit_log(self, api: TasksApi):
        await hold(api)
        await api.data("POST", f"{HAND}/reset", key="warden")
        async with api.db.read() as tx:
            [noted] = await audit.list_lines(tx, action="tasks.pull_reset")
        assert noted.actor == "key:k-warden"
        assert noted.detail == {"by": "warden", "client": "warden", "count": 1, "tasks": ["a"], "holders": ["one"]}


class TestWhich:
    """Which task a path means, and who may use it."""

    async def test_a_task_of_a_queue_is_named_by_its_queue(self, api: TasksApi):
        await hold(api, queue="q1")
        for verb in VERBS:
            path = f"{PROJECT}/queues/q1/tasks/a/pull/{verb}"
            assert (await api.data("POST", path, x_client_id="one"))["task_id"] == "a"
            status, error = await api.error("POST", f"{PROJECT}/queues/q9/tasks/a/pull/{verb}", x_client_id="one")
            assert (status, error["details"]["code"]) == (404, "QUEUE_NOT_FOUND")

    @on_sqlite
    async def test_equal_ids_in_two_queues_need_the_queue(self, api: TasksApi):
        await api.submit(queue="q2")
        await api.plan("a", queue="q1")
        await api.plan("a", queue="q2")
        [held, _] = await api.pull(client="one")
        for verb in VERBS:
            named = {"x_client_id": "one", "x_lease_token": held["lease_token"]}
            status, error = await api.error("POST", f"{HAND}/{verb}", **named)
            assert (status, error["details"]["code"]) == (409, "AMBIGUOUS_TASK")
            assert (await api.error("POST", f"{HAND}/{verb}", x_client_id="one"))[0] == 409
            assert await api.data("POST", f"{PROJECT}/queues/q2/tasks/a/pull/{verb}", x_client_id="one")

    async def test_without_a_queue_the_task_outside_all_queues_is_preferred(self, api: TasksApi):
        await api.plan("a")
        await api.plan("a", queue="q1")
        await api.pull(client="one", queue="q1")
        assert (await api.error("POST", f"{HAND}/renew", x_client_id="one"))[0] == 409
        await api.pull(client="one")
        assert await api.data("POST", f"{HAND}/renew", {"seconds": 60}, x_client_id="one")
        beside, inside = await read(api), await api.data("GET", f"{PROJECT}/queues/q1/tasks/a")
        assert (beside["leased_until"], inside["leased_until"]) == (
            "2026-01-01T00:01:00.000Z",
            "2026-01-01T01:00:00.000Z",
        )

    async def test_an_unknown_task_is_not_found_and_a_deleted_one_gone(self, api: TasksApi):
        for verb in VERBS:
            status, error = await api.error("POST", f"{HAND}/{verb}")
            assert (status, error["details"]["code"]) == (404, "TASK_NOT_FOUND")
        held = await hold(api)
        await api.data("DELETE", f"{PROJECT}/tasks/a")
        for verb in VERBS:
            status, error = await api.error("POST", f"{HAND}/{verb}", x_lease_token=held["lease_token"])
            assert (status, error["code"]) == (410, "GONE")

    @on_sqlite
    async def test_a_key_of_another_project_is_refused(self, api: TasksApi):
        await hold(api)
        for verb in VERBS:
            status, error = await api.error("POST", f"{HAND}/{verb}", key="elsewhere", x_client_id="one")
            assert (status, error["details"]["code"]) == (403, "OTHER_PROJECT")
            status, _ = await api.error("POST", f"/projects/p2/tasks/a/pull/{verb}", key="warden")
            assert status == 403

    @on_sqlite
    async def test_a_project_that_is_not_there_is_not_found(self, api: TasksApi):
        for verb in VERBS:
            status, error = await api.error("POST", f"/projects/p9/tasks/a/pull/{verb}")
            assert (status, error["details"]["code"]) == (404, "PROJECT_NOT_FOUND")

    @on_sqlite
    async def test_reasons_are_available_in_chinese(self, api: TasksApi):
        held = await hold(api)
        await api.data("POST", f"{HAND}/reset")
        headers = {"x_lease_token": held["lease_token"], "accept_language": "zh"}
        _, error = await api.error("POST", f"{HAND}/renew", key="anna", **headers)
        assert error["message"] == "任务 a 的拉取已结束：已被 root 编辑或重置。"

    async def test_an_edit_of_a_held_task_ends_the_pull(self, api: TasksApi):
        held = await hold(api)
        await api.data("PUT", f"{PROJECT}/tasks/a", {"name": "Another"})
        for verb, refusal in (("confirm", 409), ("renew", 409), ("release", 400)):
            status, error = await api.error("POST", f"{HAND}/{verb}", key="anna", x_lease_token=held["lease_token"])
            assert (status, error["details"]["outcome"]) == (refusal, "revoked")

    @pytest.mark.parametrize("operation", ["reset", "re-run", "tasks/a/re-run"])
    async def test_a_queue_operation_ends_the_pull(self, api: TasksApi, operation: str):
        held = await hold(api, queue="q1")
        await api.data("POST", f"{PROJECT}/queues/q1/{operation}")
        status, error = await api.error("POST", f"{HAND}/renew", key="anna", x_lease_token=held["lease_token"])
        assert (status, error["details"]["outcome"]) == (409, "revoked")
        [again] = await api.pull(client="two")
        assert again["lease_token"] != held["lease_token"]

    async def test_a_pushed_task_can_no_longer_be_renewed(self, api: TasksApi):
        held = await hold(api, queue="q1")
        token = held["lease_token"]
        await api.data("PATCH", "/tasks/p1/q1/a/status", {"status": "done"}, key="anna", x_lease_token=token)
        status, error = await api.error("POST", f"{HAND}/renew", key="anna", x_lease_token=token)
        assert (status, error["details"]["outcome"]) == (409, "pushed")
