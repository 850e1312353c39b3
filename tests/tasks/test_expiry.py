"""Tasks that nobody pulls in time expire, and are then kept, archived or deleted, as the settings say."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from penstock.tasks.domain import PullState, Side, Status, Task
from penstock.tasks.store import expiry
from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite

SOON = "2026-01-01T00:10:00Z"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def pass_expiry(api: TasksApi, seconds: float = 600) -> None:
    api.clock.advance(seconds=seconds)
    await api.run_periodic_tasks()


async def last_line(api: TasksApi) -> tuple[str, str, str | None]:
    line = (await api.data("GET", f"{PROJECT}/changes"))["changes"][-1]
    return line["kind"], line["by"], line["holder"]


async def test_an_offer_past_its_expiry_expires(api: TasksApi):
    await api.plan("a", tags=["x"], expires_at=SOON)
    await api.plan("b")
    await pass_expiry(api, 599)
    assert (await api.data("GET", f"{PROJECT}/tasks/a"))["expired_at"] is None
    await pass_expiry(api, 1)
    task = await api.data("GET", f"{PROJECT}/tasks/a")
    assert (task["expired_at"], task["pull_state"], task["status"]) == (
        "2026-01-01T00:10:00.000Z",
        "unpulled",
        "pending",
    )
    assert await last_line(api) == ("expired", "expiry", None)
    assert await api.pull("tags=x") == []
    assert [one["task_id"] for one in await api.pull()] == ["b"]


async def test_it_cannot_be_pulled_even_before_it_is_marked(api: TasksApi):
    await api.plan("a", expires_at=SOON)
    api.clock.advance(seconds=600)
    assert await api.pull() == []


async def test_an_expired_task_is_marked_once(api: TasksApi):
    await api.plan("a", expires_at=SOON)
    await pass_expiry(api)
    await pass_expiry(api)
    kinds = [line["kind"] for line in (await api.data("GET", f"{PROJECT}/changes"))["changes"]]
    assert kinds == ["created", "expired"]


async def test_a_held_task_may_be_finished_after_its_expiry(api: TasksApi):
    await api.plan("a", queue="q1", expires_at=SOON)
    [held] = await api.pull()
    await pass_expiry(api)
    assert (await api.data("GET", f"{PROJECT}/tasks/a"))["expired_at"] is None
    done = {"status": "done"}
    await api.data("PATCH", "/tasks/p1/q1/a/status", done, x_lease_token=held["lease_token"])
    task = await api.data("GET", f"{PROJECT}/tasks/a")
    assert (task["status"], task["pull_state"], task["expired_at"]) == ("done", "pulled", None)


async def test_a_task_released_after_its_expiry_expires_at_once(api: TasksApi):
    await api.plan("a", tags=["x"], expires_at=SOON)
    [held] = await api.pull()
    api.clock.advance(seconds=700)
    said = {"x_client_id": "worker-1", "x_lease_token": held["lease_token"]}
    await api.data("POST", f"{PROJECT}/tasks/a/pull/release", **said)
    task = await api.data("GET", f"{PROJECT}/tasks/a")
    assert (task["expired_at"], task["pull_state"]) == ("2026-01-01T00:11:40.000Z", "unpulled")
    assert await api.pull() == []
    assert await last_line(api) == ("released", "worker-1", "worker-1")


async def test_a_task_whose_lease_expires_after_its_expiry_expires_at_once(api: TasksApi):
    await api.plan("a", expires_at=SOON)
    await api.pull()
    await pass_expiry(api, 3600)
    task = await api.data("GET", f"{PROJECT}/tasks/a")
    assert (task["expired_at"], task["pulled_by"]) == ("2026-01-01T01:00:00.000Z", None)
    assert await api.pull() == []


@on_sqlite
async def test_expired_tasks_are_kept_unless_the_settings_say_otherwise(api: TasksApi):
    await api.plan("a", expires_at=SOON)
    await pass_expiry(api)
    page = await api.data("GET", f"{PROJECT}/tasks")
    assert [task["task_id"] for task in page["items"]] == ["a"]


async def test_expired_tasks_are_archived_out_of_every_list(api: TasksApi):
    archiving = api.with_config(expired_action="archive")
    await archiving.plan("a", queue="q1", expires_at=SOON)
    await archiving.plan("b", queue="q1")
    await pass_expiry(archiving)
    for place in (f"{PROJECT}/tasks?queue=any", f"{PROJECT}/queues/q1/tasks"):
        page = await archiving.data("GET", place)
        assert [task["task_id"] for task in page["items"]] == ["b"]
    assert await last_line(archiving) == ("archived", "expiry", None)
    assert (await archiving.data("GET", PROJECT))["task_stats"]["total"] == 1
    assert (await archiving.data("GET", f"{PROJECT}/queues/q1"))["task_stats"]["total"] == 1
    assert (await archiving.data("GET", f"{PROJECT}/tasks/a"))["archived_at"] == "2026-01-01T00:10:00.000Z"
    status, error = await archiving.error("POST", f"{PROJECT}/tasks/a/pull/reset")
    assert (status, error["details"]["code"]) == (410, "TASK_ARCHIVED")


async def test_expired_tasks_are_deleted_softly(api: TasksApi):
    deleting = api.with_config(expired_action="delete")
    await deleting.plan("a", expires_at=SOON)
    await pass_expiry(deleting)
    assert await last_line(deleting) == ("deleted", "expiry", None)
    assert (await deleting.error("GET", f"{PROJECT}/tasks/a"))[0] == 404
    assert (await deleting.data("GET", PROJECT))["task_stats"]["total"] == 0


async def test_an_expired_task_that_a_client_pushed_is_not_archived(api: TasksApi):
    archiving = api.with_config(expired_action="archive")
    await api.plan("a", queue="q1", expires_at=SOON)
    await pass_expiry(api)
    await api.submit({"id": "a", "status": "done"})
    await pass_expiry(archiving)
    task = await api.data("GET", f"{PROJECT}/queues/q1/tasks/a")
    assert (task["source"], task["archived_at"]) == ("client", None)


async def test_more_than_one_batch_expires_at_once(api: TasksApi, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(expiry, "BATCH_SIZE", 100)
    for place, count in ((f"{PROJECT}/tasks/batch", 100), (f"{PROJECT}/queues/q1/tasks/batch", 20)):
        many = [{"taskId": f"t{number}", "name": "n", "prompt": "p", "expires_at": SOON} for number in range(count)]
        await api.data("POST", place, {"tasks": many})
    deleting = api.with_config(expired_action="delete")
    await pass_expiry(deleting)
    assert (await api.data("GET", PROJECT))["task_stats"]["total"] == 0


class TestRules:
    """Expiry of a task as a value."""

    HELD = Task(
        id="tsk_1",
        partition_key="prj_1",
        task_id="a",
        name="A",
        prompt="p",
        status=Status.RUNNING,
        source=Side.CLIENT,
        origin=Side.SERVER,
        state=PullState.HELD,
        scheduled_at=NOW,
        lease_owner="one",
        lease_token="token",
        leased_until=NOW,
        lease_count=3,
        pulled_at=NOW,
        status_at_pull=Status.PENDING,
        created_at=NOW,
        created_by="me",
        updated_at=NOW,
        updated_by="me",
        expires_at=NOW + timedelta(hours=1),
    )

    def test_a_task_returned_in_time_is_offered(self):
        again = self.HELD.returned_or_failed("time_out", max_attempts=4, by="timeout", now=NOW)
        assert (again.state, again.status, again.expired_at) == (PullState.OFFERED, Status.PENDING, None)

    def test_a_task_returned_too_late_has_expired(self):
        late = NOW + timedelta(hours=1)
        again = self.HELD.returned_or_failed("release", max_attempts=4, by="one", now=late)
        assert (again.state, again.expired_at) == (PullState.IDLE, late)

    def test_a_task_returned_too_often_is_in_error(self):
        over = self.HELD.returned_or_failed("time_out", max_attempts=3, by="timeout", now=NOW)
        assert (over.state, over.status) == (PullState.IDLE, Status.ERROR)
        assert over.error_reason == "Pulled 3 times without a push, last by one."

    def test_a_reset_after_its_time_marks_a_task_as_expired(self):
        late = NOW + timedelta(hours=1)
        reset = self.HELD.pull_reset(by="root", now=late)
        assert (reset.state, reset.status, reset.expired_at) == (PullState.IDLE, Status.PENDING, late)

    def test_a_task_reoffered_in_time_has_not_expired(self):
        expired = replace(self.HELD, source=Side.SERVER, expired_at=NOW)
        assert expired.reoffered(now=NOW).expired_at is None
