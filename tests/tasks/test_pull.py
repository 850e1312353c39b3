"""Pulling tasks: order, leases, permissions and limits."""

import asyncio
from datetime import datetime, timedelta

import pytest

from penstock.access import audit
from penstock.kernel.clock import ManualClock
from penstock.tasks.store import tasks
from tests.conftest import open_db
from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite
from tests.tasks.stored_state import pulls_of


def ids(tasks: list[dict[str, str]]) -> list[str]:
    return [task["task_id"] for task in tasks]


class TestOrder:
    async def test_a_pull_takes_the_most_urgent_first_and_then_the_oldest(self, api: TasksApi):
        await api.plan("low", priority="low")
        await api.plan("first", "second")
        await api.plan("high", priority=9)
        assert ids(await api.pull()) == ["high", "low", "first", "second"]

    @on_sqlite
    async def test_never_more_than_a_batch_is_taken(self, api: TasksApi):
        small = api.with_config(batch_size=12)
        await small.plan(*(f"t{number:02}" for number in range(30)))
        assert len(await small.pull()) == 12
        assert len(await small.pull("limit=3")) == 3
        assert len(await small.pull("limit=1000")) == 12

    async def test_a_pull_finds_tasks_in_queues_and_beside_them(self, api: TasksApi):
        await api.plan("beside")
        await api.plan("inside", queue="q1")
        assert sorted(ids(await api.pull())) == ["beside", "inside"]

    async def test_a_queue_gives_only_its_own(self, api: TasksApi):
        await api.plan("beside")
        await api.plan("inside", queue="q1")
        assert ids(await api.pull(queue="q1")) == ["inside"]
        assert ids(await api.pull("queue=q1")) == []

    async def test_a_client_task_cannot_be_pulled(self, api: TasksApi):
        await api.submit({"id": "pushed"})
        assert await api.pull() == []


class TestHolding:
    async def test_a_pulled_task_is_shown_with_its_holder_and_lease(self, api: TasksApi, clock: ManualClock):
        await api.plan("a", tags=["x"], spec_file=["s.md"])
        [task] = await api.pull()
        assert (task["id"], task["task_id"], task["name"], task["prompt"]) == ("a", "a", "Task a", "Do it.")
        assert (task["status"], task["source"], task["pull_state"]) == ("pending", "server", "pulled_not_pushed")
        assert (task["pulled_by"], task["pull_attempts"]) == ("worker-1", 1)
        assert task["pulled_at"] == "2026-01-01T00:00:00.000Z"
        assert task["leased_until"] == "2026-01-01T01:00:00.000Z"
        assert len(task["lease_token"]) == 32
        again = await api.data("GET", f"{PROJECT}/tasks/a")
        assert again["pulled_by"] == "worker-1"
        assert "lease_token" not in again

    async def test_a_held_task_is_not_pulled_by_another_client(self, api: TasksApi):
        await api.plan("a")
        assert ids(await api.pull(client="one")) == ["a"]
        assert await api.pull(client="two") == []

    async def test_a_client_without_a_name_is_named_by_its_key(self, api: TasksApi):
        await api.plan("a")
        data = await api.data("GET", f"{PROJECT}/tasks/pull", key="anna")
        assert data["pulled_count"] == 1
        assert data["tasks"][0]["pulled_by"] == "anna"

    async def test_no_pull_begins_before_the_one_before_it_ended(self, api: TasksApi, db_url: str):
        """A process reads the time first, and may then have to wait for the task."""
        slow = open_db(db_url, ManualClock(api.clock.now()))
        await api.plan("a")
        await api.pull()
        api.clock.advance(seconds=10)
        await api.data("POST", f"{PROJECT}/tasks/a/pull/release", x_client_id="worker-1")
        [held] = await api.with_deps(db=slow).pull(client="worker-2")
        await slow.close()
        first, second = await pulls_of(api, "a")
        assert first.ended_at == second.pulled_at == api.clock.now()
        assert held["pulled_at"] == "2026-01-01T00:00:10.000Z"

    async def test_twenty_concurrent_pulls_get_each_task_once(self, api: TasksApi):
        await api.plan(*(f"t{number}" for number in range(30)))
        got = await asyncio.gather(*(api.pull("limit=2", client=f"c{number}") for number in range(20)))
        taken = [task["task_id"] for tasks in got for task in tasks]
        assert sorted(taken) == sorted(f"t{number}" for number in range(30))
        assert {task["pulled_by"] for task in got[0]} == {"c0"}
        tokens = {task["lease_token"] for tasks in got for task in tasks}
        assert len(tokens) == len([tasks for tasks in got if tasks])

    async def test_many_concurrent_pulls_empty_a_long_queue(self, api: TasksApi):
        await api.data("POST", f"{PROJECT}/tasks/batch", {"tasks": [{"name": "n", "prompt": "p"}] * 1000})
        await api.data("POST", f"{PROJECT}/tasks/batch", {"tasks": [{"name": "n", "prompt": "p"}] * 500})
        got = await asyncio.gather(*(api.pull("limit=10", client=f"c{number}") for number in range(150)))
        assert sum(map(len, got)) == 1500

    async def test_every_pull_is_in_the_audit_log(self, api: TasksApi):
        await api.plan("a", "b")
        pulled = await api.data("GET", f"{PROJECT}/tasks/pull?limit=2", key="anna", x_client_id="worker-1")
        assert await api.pull("limit=2", key="anna") == []  # who gets nothing leaves no line
        async with api.db.read() as tx:
            [line] = await audit.list_lines(tx, action="tasks.pull")
            held = await tasks.list_held_by_pull(tx, line.detail["pull_id"])
        assert (line.actor, line.target) == ("key:k-anna", "project:p1")
        assert line.detail == {"by": "anna", "client": "worker-1", "pull_id": pulled["pull_id"]}
        assert [one.task_id for one in held] == ["a", "b"]


class TestWho:
    @on_sqlite
    async def test_a_key_of_another_project_is_forbidden(self, api: TasksApi):
        status, error = await api.error("GET", f"{PROJECT}/tasks/pull", key="elsewhere")
        assert (status, error["code"], error["details"]["code"]) == (403, "FORBIDDEN", "OTHER_PROJECT")

    @on_sqlite
    async def test_a_bound_key_pulls_from_its_own(self, api: TasksApi):
        await api.plan("a")
        assert ids(await api.pull(key="bound")) == ["a"]

    @pytest.mark.parametrize("place", ["/projects/none/tasks/pull", "/projects/p1/queues/none/tasks/pull"])
    @on_sqlite
    async def test_an_unknown_place_is_not_found(self, api: TasksApi, place: str):
        status, error = await api.error("GET", place)
        assert (status, error["code"]) == (404, "RESOURCE_NOT_FOUND")

    @on_sqlite
    async def test_responses_are_not_cached(self, api: TasksApi):
        answer = await api.call("GET", f"{PROJECT}/tasks/pull")
        assert answer.headers["cache-control"] == "no-store"


class TestLimits:
    async def test_the_limit_is_reported_and_enforced(self, api: TasksApi, clock: ManualClock):
        with_limits = api.with_limits("2/minute")
        answer = await with_limits.call("GET", f"{PROJECT}/tasks/pull")
        assert answer.headers["x-ratelimit-limit"] == "2"
        assert answer.headers["x-ratelimit-remaining"] == "1"
        assert datetime.fromisoformat(answer.headers["x-ratelimit-reset"]) >= clock.now()
        await with_limits.call("GET", f"{PROJECT}/tasks/pull")
        refused = await with_limits.call("GET", f"{PROJECT}/tasks/pull")
        assert (refused.status, refused.error["code"]) == (429, "RATE_LIMIT_EXCEEDED")
        assert int(refused.headers["retry-after"]) == refused.error["retry_after"] == 30

    async def test_a_quota_gives_fewer_tasks_and_then_none_until_midnight(self, api: TasksApi, clock: ManualClock):
        await api.plan("a", "b", "c")
        with_limits = api.with_limits(quota=2)
        answer = await with_limits.call("GET", f"{PROJECT}/tasks/pull?limit=1")
        assert (answer.headers["x-quota-limit"], answer.headers["x-quota-remaining"]) == ("2", "1")
        assert len(await with_limits.pull("limit=3")) == 1
        status, error = await with_limits.error("GET", f"{PROJECT}/tasks/pull")
        assert (status, error["details"]["code"]) == (429, "PULL_QUOTA_SPENT")
        assert error["code"] == "QUOTA_EXCEEDED"
        clock.advance(seconds=timedelta(days=1).total_seconds())
        assert len(await with_limits.pull("limit=3")) == 1

    async def test_a_refusal_reports_what_is_left_and_when_to_retry(self, api: TasksApi, clock: ManualClock):
        await api.plan("a", "b")
        midnight = clock.now() + timedelta(days=1)
        for with_limits, full_at in (
            (api.with_limits("1/minute"), clock.now() + timedelta(minutes=1)),
            (api.with_limits(quota=1), midnight),
            (api.with_limits(interval=30), clock.now() + timedelta(seconds=30)),
        ):
            await with_limits.pull("limit=1")
            refused = await with_limits.call("GET", f"{PROJECT}/tasks/pull")
            assert refused.status == 429
            assert (refused.headers["x-ratelimit-limit"], refused.headers["x-ratelimit-remaining"]) == ("1", "0")
            assert datetime.fromisoformat(refused.headers["x-ratelimit-reset"]) == full_at + timedelta(seconds=1)

    async def test_what_was_not_found_does_not_count_against_the_quota(self, api: TasksApi):
        with_limits = api.with_limits(quota=1)
        assert await with_limits.pull() == []
        await api.plan("a")
        assert len(await with_limits.pull()) == 1


class TestNames:
    @on_sqlite
    async def test_a_client_may_have_a_name_in_any_script_and_a_blank_one_is_none(self, api: TasksApi):
        await api.plan("a", "b")
        name = "工人".encode().decode("latin-1")
        [named] = (await api.data("GET", f"{PROJECT}/tasks/pull?limit=1", x_client_id=name))["tasks"]
        [blank] = (await api.data("GET", f"{PROJECT}/tasks/pull?limit=1", x_client_id=" ", key="anna"))["tasks"]
        assert (named["pulled_by"], blank["pulled_by"]) == ("工人", "anna")

    @on_sqlite
    async def test_a_name_that_cannot_be_shown_is_refused(self, api: TasksApi):
        status, error = await api.error("GET", f"{PROJECT}/tasks/pull", x_client_id="a\x85b")
        assert (status, error["details"]["field"]) == (400, "X-Client-Id")

    @on_sqlite
    async def test_head_claims_nothing(self, api: TasksApi):
        await api.plan("a")
        assert (await api.call("HEAD", f"{PROJECT}/tasks/pull")).status == 200
        assert len(await api.pull()) == 1
