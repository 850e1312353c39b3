"""Queue operations: reset, reset-error and re-run, and what they do to held tasks."""

import math
from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client.core import CounterMetricFamily

from penstock.tasks import queue_operations
from penstock.tasks.api import operations
from penstock.tasks.deps import Config
from penstock.tasks.domain import Operation, PullState, Side, Status
from penstock.tasks.queue_operations import ResetOptions
from tests.plans import recorded
from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite
from tests.tasks.filled_tables import task as any_task
from tests.tasks.records import audited, changes, counted, event_counts, pulled, stored

QUEUE = f"{PROJECT}/queues/q1"
LATER = "2026-01-01T00:01:00.000Z"
ROUTES = [
    f"{QUEUE}/reset",
    f"{QUEUE}/reset-error",
    f"{QUEUE}/re-run",
    f"{QUEUE}/tasks/t1/re-run",
    f"{PROJECT}/tasks/t1/re-run",
    f"{PROJECT}/tasks/re-run/batch",
]


async def push(api: TasksApi, task_id: str, status: str, *, queue: str = "q1", client: str = "worker-1") -> None:
    path = f"/tasks/p1/{queue}/{task_id}/status"
    await api.data("PATCH", path, {"status": status}, x_client_id=client)


async def work_through(api: TasksApi, **outcomes: str) -> None:
    """Pull tasks of q1 and push them with these statuses."""
    await api.plan(*outcomes, queue="q1")
    await api.pull("limit=100", queue="q1")
    for task_id, status in outcomes.items():
        await push(api, task_id, status)


async def test_a_reset_makes_every_task_of_a_queue_pending(api: TasksApi) -> None:
    await work_through(api, t1="done", t2="error", t3="cancelled", t4="running")
    await api.data("PUT", f"{QUEUE}/tasks/t1", {"status": "done", "report": "All well.", "result": {"sum": 3}})
    await api.plan("beside")
    api.clock.advance(seconds=60)
    data = await api.data("POST", f"{QUEUE}/reset")
    assert data == {
        "operation_id": None,
        "operation_status": "completed",
        "queue_id": "q1",
        "operation": "reset",
        "affected_count": 4,
        "reset_tasks_count": 4,
        "reset_at": LATER,
        "last_reset_at": LATER,
        "last_operation_by": "root",
    }
    for task_id in ("t1", "t2", "t3", "t4"):
        task = await stored(api, task_id, "q1")
        assert (task.status, task.state, task.source) == (Status.PENDING, PullState.OFFERED, Side.SERVER)
        assert (task.report, task.result, task.error_reason, task.finished_at) == (None, None, None, None)
        assert (task.pulled_at, task.lease_owner, task.updated_by) == (None, None, "root")
        assert task.server_modified_at == task.updated_at == api.clock.now()
    assert (await stored(api, "beside")).updated_at < api.clock.now()
    counts = await counted(api, "q1")
    assert (counts.pending, counts.total, (await counted(api)).total) == (4, 4, 5)
    assert {one["task_id"] for one in await api.pull("limit=100", queue="q1")} == {"t1", "t2", "t3", "t4"}


async def test_a_reset_makes_client_tasks_server_owned(api: TasksApi) -> None:
    await api.submit({"id": "c1", "status": "done"}, {"id": "c2", "status": "pending"})
    assert (await api.data("POST", f"{QUEUE}/reset"))["affected_count"] == 2
    task = await stored(api, "c1", "q1")
    assert (task.source, task.origin, task.state) == (Side.SERVER, Side.CLIENT, PullState.OFFERED)
    assert len(await api.pull(queue="q1")) == 2


async def test_reset_error_touches_tasks_in_error_only(api: TasksApi) -> None:
    await work_through(api, t1="done", t2="error", t3="running")
    held = await stored(api, "t3", "q1")
    api.clock.advance(seconds=60)
    data = await api.data("POST", f"{QUEUE}/reset-error")
    assert (data["operation"], data["affected_count"], data["last_reset_at"]) == ("reset-error", 1, LATER)
    task = await stored(api, "t2", "q1")
    assert (task.status, task.state, task.error_reason) == (Status.PENDING, PullState.OFFERED, None)
    assert (await stored(api, "t1", "q1")).state is PullState.CLOSED
    assert await stored(api, "t3", "q1") == held
    assert (await api.data("POST", f"{QUEUE}/reset-error"))["affected_count"] == 0


async def test_reset_error_keeps_what_was_reported(api: TasksApi) -> None:
    await api.plan("t1", queue="q1", status="error", report="It broke.")
    await api.data("POST", f"{QUEUE}/reset-error")
    assert (await stored(api, "t1", "q1")).report == "It broke."


async def test_a_re_run_keeps_what_was_reported(api: TasksApi) -> None:
    await work_through(api, t1="done", t2="error")
    await api.data("PUT", f"{QUEUE}/tasks/t1", {"status": "done", "report": "All well.", "result": {"sum": 3}})
    data = await api.data("POST", f"{QUEUE}/re-run")
    assert (data["operation"], data["affected_count"], data["rerun_tasks_count"]) == ("re-run", 2, 2)
    assert data["rerun_at"] == "2026-01-01T00:00:00.000Z"
    task = await stored(api, "t1", "q1")
    assert (task.status, task.state, task.report, task.result) == (
        Status.PENDING,
        PullState.OFFERED,
        "All well.",
        {"sum": 3},
    )


async def test_the_queue_says_what_was_done_to_it_last_and_by_whom(api: TasksApi) -> None:
    await api.plan("t1", queue="q1")
    api.clock.advance(seconds=60)
    await api.data("POST", f"{QUEUE}/reset-error")
    api.clock.advance(seconds=60)
    await api.data("POST", f"{QUEUE}/re-run", key="warden")
    queue = await api.data("GET", QUEUE)
    assert (queue["last_operation"], queue["last_operation_by"]) == ("re-run", "warden")
    assert queue["last_reset_at"] == queue["updated_at"] == "2026-01-01T00:02:00.000Z"


async def test_a_reset_revokes_leases(api: TasksApi) -> None:
    await api.plan("t1", queue="q1")
    (held,) = await api.pull(queue="q1")
    await api.data("POST", f"{QUEUE}/reset")
    assert await pulled(api, "t1", "q1") == [("worker-1", "root", "revoked")]
    token = {"x_client_id": "worker-1", "x_lease_token": held["lease_token"]}
    status, error = await api.error("POST", f"{QUEUE}/tasks/t1/pull/renew", **token)
    assert (status, error["details"]["code"]) == (409, "PULL_LOST")
    feed = await api.data("GET", f"{PROJECT}/changes?after=0")
    assert [(line["kind"], line["holder"]) for line in feed["changes"]] == [("created", None), ("reset", "worker-1")]


async def test_operations_are_in_the_feed_in_order_and_send_an_event(api: TasksApi) -> None:
    await work_through(api, t1="done", t2="error")
    before = len(await changes(api))
    await api.data("POST", f"{QUEUE}/reset-error")
    await api.data("POST", f"{QUEUE}/re-run")
    await api.data("POST", f"{QUEUE}/reset")
    lines = (await changes(api))[before:]
    assert [(task_id, kind) for task_id, kind, _ in lines] == [
        ("t2", "reset"),
        ("t1", "rerun"),
        ("t2", "rerun"),
        ("t1", "reset"),
        ("t2", "reset"),
    ]
    assert (await event_counts(api))[-3:] == [1, 2, 2]


@on_sqlite
async def test_an_operation_without_tasks_sends_no_event(api: TasksApi) -> None:
    before = await event_counts(api), await changes(api)
    assert (await api.data("POST", f"{QUEUE}/reset"))["affected_count"] == 0
    assert (await event_counts(api), await changes(api)) == before


async def test_a_second_reset_changes_nothing_but_the_time(api: TasksApi) -> None:
    await work_through(api, t1="error")
    await api.data("POST", f"{QUEUE}/reset")
    first = await stored(api, "t1", "q1")
    await api.data("POST", f"{QUEUE}/reset")
    assert replace(await stored(api, "t1", "q1"), version=first.version) == first
    assert len(await pulled(api, "t1", "q1")) == 1


@pytest.mark.parametrize("operation", ["reset", "re-run"])
async def test_pulls_stay_as_they_are_where_the_settings_say_so(api: TasksApi, operation: str) -> None:
    keeping = api.with_config(reset_clears_pulls=False, rerun_clears_pulls=False)
    await work_through(keeping, t1="done", t2="running")
    closed, held = await stored(api, "t1", "q1"), await stored(api, "t2", "q1")
    await keeping.plan("t3", queue="q1", status="error")
    assert (await keeping.data("POST", f"{QUEUE}/{operation}"))["affected_count"] == 3
    for before in (closed, held):
        task = await stored(api, before.task_id, "q1")
        assert (task.status, task.state, task.pulled_at) == (Status.PENDING, before.state, before.pulled_at)
        assert (task.lease_owner, task.lease_token) == (before.lease_owner, before.lease_token)
    assert [one["task_id"] for one in await keeping.pull(queue="q1", client="worker-2")] == ["t3"]
    assert await pulled(api, "t2", "q1") == [("worker-1", None, None)]
    await push(keeping, "t2", "done")
    assert await pulled(api, "t2", "q1") == [("worker-1", "worker-1", "pushed")]


async def test_a_task_kept_by_its_holder_is_released_as_pending(api: TasksApi) -> None:
    keeping = api.with_config(reset_clears_pulls=False)
    await keeping.plan("t1", queue="q1", status="error")
    await keeping.pull("status=error", queue="q1")
    await keeping.data("POST", f"{QUEUE}/reset-error")
    await keeping.data("POST", f"{QUEUE}/tasks/t1/pull/release", x_client_id="worker-1")
    task = await stored(api, "t1", "q1")
    assert (task.status, task.state) == (Status.PENDING, PullState.OFFERED)


@on_sqlite
async def test_each_setting_is_for_its_own_operations(api: TasksApi) -> None:
    keeping = api.with_config(reset_clears_pulls=False)
    await work_through(keeping, t1="error")
    await keeping.data("POST", f"{QUEUE}/reset-error")
    assert (await stored(api, "t1", "q1")).state is PullState.CLOSED
    await keeping.data("POST", f"{QUEUE}/re-run")
    assert (await stored(api, "t1", "q1")).state is PullState.OFFERED


async def test_deleted_tasks_are_not_changed(api: TasksApi) -> None:
    await api.plan("t1", "t2", queue="q1", status="error")
    await api.data("DELETE", f"{QUEUE}/tasks/t1")
    gone = await stored(api, "t1", "q1")
    for operation in Operation:
        assert (await api.data("POST", f"{QUEUE}/{operation}"))["affected_count"] <= 1
    assert await stored(api, "t1", "q1") == gone
    status, error = await api.error("POST", f"{QUEUE}/tasks/t1/re-run")
    assert (status, error["details"]["code"]) == (404, "TASK_NOT_FOUND")


async def test_archived_tasks_are_not_changed(api: TasksApi) -> None:
    await api.plan("t1", "t2", queue="q1", status="error", expires_at="2026-01-01T00:00:30Z")
    archiving = api.with_config(expired_action="archive")
    api.clock.advance(seconds=60)
    await archiving.run_periodic_tasks()
    await archiving.run_periodic_tasks()
    gone = await stored(api, "t1", "q1")
    assert gone.archived_at is not None
    for operation in Operation:
        assert (await api.data("POST", f"{QUEUE}/{operation}"))["affected_count"] == 0
    status, error = await api.error("POST", f"{QUEUE}/tasks/t1/re-run")
    assert (status, error["details"]["code"]) == (410, "TASK_ARCHIVED")
    failed = await api.data("POST", f"{PROJECT}/tasks/re-run/batch", {"taskIds": ["t1"]})
    assert failed["failed_tasks"][0]["code"] == "TASK_ARCHIVED"
    assert await stored(api, "t1", "q1") == gone


async def test_an_expired_task_changes_its_status_and_is_not_offered(api: TasksApi) -> None:
    await api.plan("t1", queue="q1", status="error", expires_at="2026-01-01T00:00:30Z")
    api.clock.advance(seconds=60)
    assert (await api.data("POST", f"{QUEUE}/reset"))["affected_count"] == 1
    task = await stored(api, "t1", "q1")
    assert (task.status, task.state, task.expired_at) == (Status.PENDING, PullState.IDLE, api.clock.now())
    assert await api.pull(queue="q1") == []


@on_sqlite
async def test_what_is_not_there_is_not_found(api: TasksApi) -> None:
    for path, code in (
        ("/projects/nobody/queues/q1/reset", "PROJECT_NOT_FOUND"),
        (f"{PROJECT}/queues/nobody/reset", "QUEUE_NOT_FOUND"),
        (f"{PROJECT}/queues/nobody/re-run", "QUEUE_NOT_FOUND"),
        (f"{QUEUE}/tasks/nobody/re-run", "TASK_NOT_FOUND"),
        (f"{PROJECT}/tasks/nobody/re-run", "TASK_NOT_FOUND"),
    ):
        status, error = await api.error("POST", path)
        assert (status, error["details"]["code"]) == (404, code)


@on_sqlite
async def test_a_key_of_another_project_may_not(api: TasksApi) -> None:
    await api.plan("t1", queue="q1", status="error")
    before = await stored(api, "t1", "q1")
    for path in ROUTES:
        status, error = await api.error("POST", path, {"taskIds": ["t1"]}, key="elsewhere")
        assert (status, error["details"]["code"]) == (403, "OTHER_PROJECT"), path
    assert await stored(api, "t1", "q1") == before


def test_only_admins_may_and_an_admin_of_the_project_is_one() -> None:
    changing = [route for route in operations.router.routes if "POST" in getattr(route, "methods", ())]
    asked = [getattr(route, "openapi_extra", None) for route in changing]
    assert asked == [{"x-scope": "admin", "x-bound": True}] * len(ROUTES)


@on_sqlite
async def test_an_admin_of_the_project_may(api: TasksApi) -> None:
    await api.plan("t1", queue="q1", status="error")
    for path in ROUTES:
        await api.data("POST", path, {"taskIds": ["t1"]}, key="warden")
    assert (await stored(api, "t1", "q1")).updated_by == "warden"


@on_sqlite
async def test_operations_are_audited(api: TasksApi) -> None:
    await api.plan("t1", "t2", queue="q1", status="error")
    await api.data("POST", f"{QUEUE}/reset")
    await api.data("POST", f"{QUEUE}/reset-error")
    await api.data("POST", f"{QUEUE}/re-run")
    await api.data("POST", f"{QUEUE}/tasks/t1/re-run")
    await api.data("POST", f"{PROJECT}/tasks/re-run/batch", {"taskIds": ["t1", "t2"]})
    for action, affected in (("tasks.reset", 2), ("tasks.reset_error", 0), ("tasks.rerun", 2)):
        (line,) = await audited(api, action)
        assert (line.actor, line.target) == ("key:k-root", "project:p1")
        assert line.detail == {"by": "root", "queue": "q1", "affected": affected}
    batch, single = await audited(api, "tasks.rerun_tasks")
    assert single.detail == {"by": "root", "queue": "q1", "affected": 1, "tasks": ["t1"]}
    assert batch.detail == {"by": "root", "queue": None, "affected": 2, "tasks": ["t1", "t2"]}


@on_sqlite
async def test_operations_on_queues_are_counted(api: TasksApi) -> None:
    for operation in ("reset", "reset", "reset-error", "re-run"):
        await api.data("POST", f"{QUEUE}/{operation}")
    families = [one for one in api.deps.metrics.collect() if isinstance(one, CounterMetricFamily)]
    found = {
        sample.labels["operation"]: sample.value
        for one in families
        for sample in one.samples
        if "operation" in sample.labels
    }
    assert found == {"reset": 2, "reset-error": 1, "re-run": 1}


async def test_a_long_queue_is_reset_as_a_whole_in_batches(api: TasksApi, monkeypatch: pytest.MonkeyPatch) -> None:
    many, batch_size = 500, 200
    monkeypatch.setattr(queue_operations, "BATCH_SIZE", batch_size)
    await api.submit(*({"id": f"t{number}", "status": "error"} for number in range(many)))
    with recorded(api.db, "task") as said:
        assert (await api.data("POST", f"{QUEUE}/reset-error"))["affected_count"] == many
    batches = [statement for statement, _ in said if statement.startswith("SELECT") and "task.prompt" in statement]
    assert len(batches) == 3 + 1 == math.ceil(many / batch_size) + 1  # and a query that finds no more
    counts = await counted(api, "q1")
    assert (counts.pending, counts.error) == (many, 0)
    assert (await stored(api, "t0", "q1")).state is (await stored(api, "t499", "q1")).state is PullState.OFFERED
    versions = [version for _, kind, version in await changes(api) if kind == "reset"]
    assert versions == list(range(versions[0], versions[0] + many))
    assert (await event_counts(api))[-1] == many


@pytest.mark.parametrize("state", list(PullState))
@pytest.mark.parametrize("clears", [True, False])
def test_a_reset_of_a_task_in_each_state(state: PullState, clears: bool) -> None:
    before = next(one for one in map(any_task, range(400)) if one.state is state and one.deleted_at is None)
    now = before.created_at + timedelta(seconds=5)
    after = ResetOptions.of(Operation.RESET, Config(reset_clears_pulls=clears)).applied(before, by="me", now=now)
    kept = not clears and state in (PullState.HELD, PullState.CLOSED)
    assert after.state is (state if kept else PullState.OFFERED)
    assert (after.status, after.source) == (Status.PENDING, Side.SERVER)


@on_sqlite
async def test_pulls_that_an_operation_ends_are_counted(api: TasksApi) -> None:
    await api.plan("t1", "t2", queue="q1")
    await api.pull("limit=2")
    await api.data("POST", f"{PROJECT}/queues/q1/reset")
    ended = [
        sample.value
        for family in api.deps.metrics.collect()
        for sample in family.samples
        if sample.name == "penstock_pull_ended_total" and sample.labels["outcome"] == "revoked"
    ]
    assert ended == [2]
