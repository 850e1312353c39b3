"""Pulls before they are pushed: confirmed, renewed, released and reset, by those who may and nobody else."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.access import audit
from penstock.kernel.clock import ManualClock
from penstock.tasks.deps import Deps
from penstock.tasks.metrics import Meters
from penstock.tasks.store import projects
from tests.conftest import open_db
from tests.tasks.conftest import PROJECT, Profile, Room

HAND = f"{PROJECT}/tasks/a/pull"
VERBS = ("confirm", "renew", "release", "reset")


class CountingMeters(Meters):
    """Remembers how pulls ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[tuple[str, float]] = []

    def count_ended(self, outcome: str, seconds: float) -> None:
        self.ended.append((outcome, seconds))


async def hold(room: Room, *, client: str = "one", key: str = "anna", **fields: Any) -> dict[str, Any]:
    """Task `a` in a client's hands, as its pull showed it."""
    await room.plan("a", **fields)
    [task] = await room.pull(client=client, key=key)
    shown: dict[str, Any] = task
    return shown


async def read(room: Room, task_id: str = "a") -> dict[str, Any]:
    task: dict[str, Any] = await room.data("GET", f"{PROJECT}/tasks/{task_id}")
    return task


async def feed_kinds(room: Room) -> list[str]:
    data = await room.data("GET", f"{PROJECT}/changes")
    return [line["kind"] for line in data["changes"]]


class TestConfirm:
    async def test_a_receipt_is_stamped_and_the_lease_begins_anew(self, room: Room, clock: ManualClock):
        held = await hold(room)
        clock.advance(seconds=600)
        said = await room.data("POST", f"{HAND}/confirm", key="anna", x_lease_token=held["lease_token"])
        assert said == {
            "task_id": "a",
            "confirmed": True,
            "confirmed_at": "2026-01-01T00:10:00.000Z",
            "leased_until": "2026-01-01T01:10:00.000Z",
        }
        task = await read(room)
        assert (task["confirmed_at"], task["leased_until"]) == (said["confirmed_at"], said["leased_until"])
        history = await room.data("GET", f"{HAND}/history")
        assert history["pull_history"][0]["confirmed_at"] == said["confirmed_at"]

    async def test_the_first_receipt_counts_and_the_lease_begins_anew_each_time(self, room: Room, clock: ManualClock):
        await hold(room)
        first = await room.data("POST", f"{HAND}/confirm", key="anna", x_client_id="one")
        clock.advance(seconds=60)
        second = await room.data("POST", f"{HAND}/confirm", key="anna", x_client_id="one")
        assert second["confirmed_at"] == first["confirmed_at"]
        assert second["leased_until"] == "2026-01-01T01:01:00.000Z"

    async def test_a_receipt_is_no_line_of_the_feed(self, room: Room):
        await hold(room)
        await room.data("POST", f"{HAND}/confirm", key="anna", x_client_id="one")
        assert await feed_kinds(room) == ["created"]

    async def test_only_the_holder_confirms(self, room: Room):
        await hold(room)
        status, error = await room.error("POST", f"{HAND}/confirm", key="bert")
        assert (status, error["details"]["code"]) == (403, "NOT_THE_HOLDER")


class TestRenew:
    async def test_a_renewal_lasts_as_long_as_a_new_pull(self, room: Room, clock: ManualClock):
        held = await hold(room)
        clock.advance(seconds=1800)
        said = await room.data("POST", f"{HAND}/renew", key="anna", x_lease_token=held["lease_token"])
        assert said == {"task_id": "a", "leased_until": "2026-01-01T01:30:00.000Z"}
        assert (await read(room))["leased_until"] == said["leased_until"]

    async def test_a_renewal_lasts_for_the_seconds_that_are_asked_for(self, room: Room):
        held = await hold(room)
        body = {"seconds": 90, "lease_token": held["lease_token"]}
        said = await room.data("POST", f"{HAND}/renew", body, key="anna")
        assert said["leased_until"] == "2026-01-01T00:01:30.000Z"

    async def test_no_renewal_outlasts_a_pull_or_lasts_no_time(self, room: Room):
        await hold(room)
        for seconds in (0, -1, 3601, 1e300, "soon"):
            body = {"seconds": seconds}
            status, error = await room.error("POST", f"{HAND}/renew", body, key="anna", x_client_id="one")
            assert (status, error["code"], error["details"]["field"]) == (400, "VALIDATION_ERROR", "seconds")

    async def test_a_client_without_a_token_is_known_by_its_name(self, room: Room):
        await hold(room)
        assert await room.data("POST", f"{HAND}/renew", key="anna", x_client_id="one")

    async def test_a_client_without_a_name_of_its_own_is_known_by_that_of_its_key(self, room: Room):
        await room.plan("a")
        await room.data("GET", f"{PROJECT}/tasks/pull", key="anna")
        assert await room.data("POST", f"{HAND}/renew", key="anna")
        assert (await room.error("POST", f"{HAND}/renew", key="bert"))[0] == 403

    async def test_a_renewal_is_no_line_of_the_feed(self, room: Room):
        await hold(room)
        await room.data("POST", f"{HAND}/renew", key="anna", x_client_id="one")
        assert await feed_kinds(room) == ["created"]

    async def test_not_even_an_admin_renews_what_another_holds(self, room: Room):
        await hold(room)
        status, error = await room.error("POST", f"{HAND}/renew", key="root")
        assert (status, error["details"]["code"]) == (403, "NOT_THE_HOLDER")

    async def test_a_renewal_does_not_wait_for_the_project(
        self, postgres_url: str, tools: Deps, clock: ManualClock, profile: Profile
    ):
        db = open_db(postgres_url, clock)
        room = Room(replace(tools, db=db), clock, profile)
        try:
            await room.submit()
            held = await hold(room)
            async with db.tx() as tx:
                await projects.claim_project(tx, "p1")
                assert await room.data("POST", f"{HAND}/renew", key="anna", x_lease_token=held["lease_token"])
        finally:
            await db.close()


class TestRelease:
    async def test_a_released_task_is_on_offer_again(self, room: Room, clock: ManualClock):
        held = await hold(room, tags=["x"])
        clock.advance(seconds=60)
        said = await room.data("POST", f"{HAND}/release", key="anna", x_lease_token=held["lease_token"])
        assert said == {"task_id": "a", "released": True}
        task = await read(room)
        assert (task["pull_state"], task["pulled_at"], task["pulled_by"]) == ("unpulled", None, None)
        assert (task["confirmed_at"], task["leased_until"]) == (None, None)
        [again] = await room.pull("tags=x", client="two", key="bert")
        assert (again["task_id"], again["pull_attempts"]) == ("a", 2)
        assert again["lease_token"] != held["lease_token"]

    async def test_it_is_in_the_status_it_was_pulled_in(self, room: Room):
        await hold(room, queue="q1")
        by_holder = {"key": "anna", "x_client_id": "one"}
        await room.data("PATCH", "/tasks/p1/q1/a/status", {"status": "running"}, **by_holder)
        assert (await read(room))["status"] == "running"
        await room.data("POST", f"{HAND}/release", **by_holder)
        task = await read(room)
        assert (task["status"], task["source"], task["started_at"]) == ("pending", "server", None)
        project = await room.data("GET", PROJECT)
        assert (project["task_stats"]["pending"], project["task_stats"]["running"]) == (1, 0)

    async def test_the_history_the_feed_and_the_audit_log_say_who_let_go(self, room: Room, clock: ManualClock):
        await hold(room)
        clock.advance(seconds=5)
        await room.data("POST", f"{HAND}/release", key="anna", x_client_id="one")
        history = await room.data("GET", f"{HAND}/history")
        [pull] = history["pull_history"]
        assert (pull["released_by"], pull["released_at"]) == ("one", "2026-01-01T00:00:05.000Z")
        line = (await room.data("GET", f"{PROJECT}/changes"))["changes"][-1]
        assert (line["kind"], line["holder"], line["by"]) == ("released", "one", "one")
        async with room.db.read() as tx:
            [noted] = await audit.list_lines(tx, action="tasks.release")
        assert (noted.actor, noted.target) == ("key:k-anna", "project:p1")
        assert noted.detail == {"by": "anna", "client": "one", "count": 1, "tasks": ["a"], "holders": ["one"]}

    async def test_how_it_ended_is_counted_once_it_is_written(self, tools: Deps, clock: ManualClock, profile: Profile):
        meters = CountingMeters()
        room = Room(replace(tools, meters=meters), clock, profile)
        await room.submit()
        await hold(room)
        clock.advance(seconds=5)
        await room.data("POST", f"{HAND}/release", key="anna", x_client_id="one")
        await room.error("POST", f"{HAND}/release", key="anna", x_client_id="one")
        assert meters.ended == [("released", 5.0)]

    async def test_only_the_holder_or_an_admin_releases(self, room: Room):
        held = await hold(room)
        status, error = await room.error("POST", f"{HAND}/release", key="bert")
        assert (status, error["code"], error["details"]["code"]) == (403, "FORBIDDEN", "NOT_THE_HOLDER")
        assert (await read(room))["leased_until"] == held["leased_until"]
        assert await room.data("POST", f"{HAND}/release", key="root")

    async def test_an_admin_of_the_project_alone_releases_too(self, room: Room):
        await hold(room)
        assert await room.data("POST", f"{HAND}/release", key="warden")

    async def test_a_wrong_token_is_refused_whatever_the_name(self, room: Room):
        await hold(room)
        for key, client in (("anna", "one"), ("root", "root")):
            headers = {"x_client_id": client, "x_lease_token": "another"}
            status, error = await room.error("POST", f"{HAND}/release", key=key, **headers)
            assert (status, error["code"], error["details"]["code"]) == (409, "CONFLICT", "PULL_LOST")
            assert error["details"]["reason"] == "one holds it now"

    async def test_what_nobody_holds_cannot_be_released(self, room: Room):
        await room.plan("a")
        for key in ("anna", "root"):
            status, error = await room.error("POST", f"{HAND}/release", key=key)
            assert (status, error["details"]["code"]) == (409, "PULL_LOST")
            assert error["details"]["reason"] == "nobody holds it"

    async def test_a_second_release_says_that_it_was_released(self, room: Room):
        held = await hold(room)
        await room.data("POST", f"{HAND}/release", key="anna", x_lease_token=held["lease_token"])
        status, error = await room.error("POST", f"{HAND}/release", key="anna", x_lease_token=held["lease_token"])
        assert (status, error["details"]["reason"]) == (409, "it was released by anna")
        assert error["details"]["outcome"] == "released"

    async def test_too_many_releases_without_a_push_put_a_task_into_error(self, room: Room):
        hasty = room.with_rules(max_attempts=2)
        await hold(hasty)
        await hasty.data("POST", f"{HAND}/release", key="anna", x_client_id="one")
        assert await hasty.pull(client="two", key="bert")
        await hasty.data("POST", f"{HAND}/release", key="bert", x_client_id="two")
        task = await read(hasty)
        assert (task["status"], task["pull_state"]) == ("error", "unpulled")
        assert task["error_reason"] == "It was pulled 2 times without a push, last by two."


class TestReset:
    async def test_a_reset_takes_a_task_from_its_holder_and_offers_it_again(self, room: Room):
        held = await hold(room)
        said = await room.data("POST", f"{HAND}/reset")
        assert said == {"task_id": "a", "reset": True, "status": "pending", "pull_state": "unpulled"}
        status, error = await room.error("POST", f"{HAND}/renew", key="anna", x_lease_token=held["lease_token"])
        assert (status, error["details"]["reason"]) == (409, "it was edited or reset by root")
        line = (await room.data("GET", f"{PROJECT}/changes"))["changes"][-1]
        assert (line["kind"], line["holder"], line["by"]) == ("reset", "one", "root")
        [again] = await room.pull(client="two")
        assert (again["task_id"], again["pull_attempts"]) == ("a", 1)

    async def test_what_was_pushed_can_be_pulled_again_after_a_reset(self, room: Room):
        await hold(room, queue="q1")
        await room.data("PATCH", "/tasks/p1/q1/a/status", {"status": "done"}, key="anna", x_client_id="one")
        assert (await read(room))["pull_state"] == "pulled"
        await room.data("POST", f"{PROJECT}/queues/q1/tasks/a/pull/reset")
        [again] = await room.pull("status=done", client="two")
        assert again["task_id"] == "a"

    async def test_a_reset_of_what_is_on_offer_changes_nothing(self, room: Room):
        await room.plan("a")
        assert await room.data("POST", f"{HAND}/reset")
        assert await feed_kinds(room) == ["created"]

    async def test_a_reset_is_in_the_audit_log(self, room: Room):
        await hold(room)
        await room.data("POST", f"{HAND}/reset", key="warden")
        async with room.db.read() as tx:
            [noted] = await audit.list_lines(tx, action="tasks.pull_reset")
        assert noted.actor == "key:k-warden"
        assert noted.detail == {"by": "warden", "client": "warden", "count": 1, "tasks": ["a"], "holders": ["one"]}


class TestWhich:
    """Which task is meant, and who may name it."""

    async def test_a_task_of_a_queue_is_named_by_its_queue(self, room: Room):
        await hold(room, queue="q1")
        for verb in VERBS:
            path = f"{PROJECT}/queues/q1/tasks/a/pull/{verb}"
            assert (await room.data("POST", path, x_client_id="one"))["task_id"] == "a"
            status, error = await room.error("POST", f"{PROJECT}/queues/q9/tasks/a/pull/{verb}", x_client_id="one")
            assert (status, error["details"]["code"]) == (404, "QUEUE_NOT_FOUND")

    async def test_a_name_that_two_queues_have_needs_its_queue(self, room: Room):
        await room.submit(queue="q2")
        await room.plan("a", queue="q1")
        await room.plan("a", queue="q2")
        [held, _] = await room.pull(client="one")
        for verb in VERBS:
            named = {"x_client_id": "one", "x_lease_token": held["lease_token"]}
            status, error = await room.error("POST", f"{HAND}/{verb}", **named)
            assert (status, error["details"]["code"]) == (409, "AMBIGUOUS_TASK")
            assert (await room.error("POST", f"{HAND}/{verb}", x_client_id="one"))[0] == 409
            assert await room.data("POST", f"{PROJECT}/queues/q2/tasks/a/pull/{verb}", x_client_id="one")

    async def test_without_a_queue_the_task_beside_all_queues_is_meant(self, room: Room):
        await room.plan("a")
        await room.plan("a", queue="q1")
        await room.pull(client="one", queue="q1")
        assert (await room.error("POST", f"{HAND}/renew", x_client_id="one"))[0] == 409
        await room.pull(client="one")
        assert await room.data("POST", f"{HAND}/renew", {"seconds": 60}, x_client_id="one")
        beside, inside = await read(room), await room.data("GET", f"{PROJECT}/queues/q1/tasks/a")
        assert (beside["leased_until"], inside["leased_until"]) == (
            "2026-01-01T00:01:00.000Z",
            "2026-01-01T01:00:00.000Z",
        )

    async def test_an_unknown_task_is_not_found_and_a_deleted_one_gone(self, room: Room):
        for verb in VERBS:
            status, error = await room.error("POST", f"{HAND}/{verb}")
            assert (status, error["details"]["code"]) == (404, "TASK_NOT_FOUND")
        held = await hold(room)
        await room.data("DELETE", f"{PROJECT}/tasks/a")
        for verb in VERBS:
            status, error = await room.error("POST", f"{HAND}/{verb}", x_lease_token=held["lease_token"])
            assert (status, error["code"]) == (410, "GONE")

    async def test_a_key_of_another_project_is_refused(self, room: Room):
        await hold(room)
        for verb in VERBS:
            status, error = await room.error("POST", f"{HAND}/{verb}", key="elsewhere", x_client_id="one")
            assert (status, error["details"]["code"]) == (403, "OTHER_PROJECT")
            status, _ = await room.error("POST", f"/projects/p2/tasks/a/pull/{verb}", key="warden")
            assert status == 403

    async def test_a_project_that_is_not_there_is_not_found(self, room: Room):
        for verb in VERBS:
            status, error = await room.error("POST", f"/projects/p9/tasks/a/pull/{verb}")
            assert (status, error["details"]["code"]) == (404, "PROJECT_NOT_FOUND")

    async def test_reasons_are_told_in_chinese_too(self, room: Room):
        held = await hold(room)
        await room.data("POST", f"{HAND}/reset")
        headers = {"x_lease_token": held["lease_token"], "accept_language": "zh"}
        _, error = await room.error("POST", f"{HAND}/renew", key="anna", **headers)
        assert error["message"] == "任务 a 的拉取已结束：已被 root 编辑或重置。"

    async def test_an_edit_of_a_held_task_ends_the_pull(self, room: Room):
        held = await hold(room)
        await room.data("PUT", f"{PROJECT}/tasks/a", {"name": "Another"})
        for verb in ("confirm", "renew", "release"):
            status, error = await room.error("POST", f"{HAND}/{verb}", key="anna", x_lease_token=held["lease_token"])
            assert (status, error["details"]["outcome"]) == (409, "revoked")

    @pytest.mark.parametrize("operation", ["reset", "re-run", "tasks/a/re-run"])
    async def test_a_queue_operation_ends_the_pull(self, room: Room, operation: str):
        held = await hold(room, queue="q1")
        await room.data("POST", f"{PROJECT}/queues/q1/{operation}")
        status, error = await room.error("POST", f"{HAND}/renew", key="anna", x_lease_token=held["lease_token"])
        assert (status, error["details"]["outcome"]) == (409, "revoked")
        [again] = await room.pull(client="two")
        assert again["lease_token"] != held["lease_token"]

    async def test_a_pushed_task_can_no_longer_be_renewed(self, room: Room):
        held = await hold(room, queue="q1")
        token = held["lease_token"]
        await room.data("PATCH", "/tasks/p1/q1/a/status", {"status": "done"}, key="anna", x_lease_token=token)
        status, error = await room.error("POST", f"{HAND}/renew", key="anna", x_lease_token=token)
        assert (status, error["details"]["outcome"]) == (409, "pushed")
