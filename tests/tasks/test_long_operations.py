"""Queue operations on many tasks: answered at once, applied in batches by a job, and followed as a resource."""

import pytest

from penstock.kernel.queue import JobState, get_job
from penstock.tasks import queue_operations
from penstock.tasks.domain import PullState, Status
from penstock.tasks.queue_operations import OPERATE_JOB
from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite
from tests.tasks.records import changes, counted, pulled, stored

QUEUE = f"{PROJECT}/queues/q1"
IDS = ("t1", "t2", "t3", "t4", "t5")


class WorkerKilled(Exception):
    """Ends a transaction before it commits."""


@pytest.fixture
async def long(api: TasksApi) -> TasksApi:
    """A module for which three tasks are too many for a request, with five failed tasks in q1."""
    await api.submit(*({"id": task_id, "status": "error", "report": "It broke."} for task_id in IDS))
    api.clock.advance(seconds=60)
    return api.with_config(operation_limit=2)


async def start(api: TasksApi, operation: str = "reset") -> str:
    data = await api.data("POST", f"{QUEUE}/{operation}")
    assert (data["affected_count"], data["operation_status"]) == (5, "running")
    operation_id: str = data["operation_id"]
    api.clock.advance(seconds=60)
    return operation_id


async def batch(api: TasksApi, operation_id: str, *, limit: int = 2) -> int:
    async with api.db.tx() as tx:
        return await queue_operations.run_batch(tx, api.deps, operation_id, limit=limit)


async def killed_batch(api: TasksApi, operation_id: str) -> None:
    async with api.db.tx() as tx:
        await queue_operations.run_batch(tx, api.deps, operation_id, limit=2)
        raise WorkerKilled


async def progress(api: TasksApi, operation_id: str) -> tuple[str, int, int, int]:
    found = await api.data("GET", f"{PROJECT}/operations/{operation_id}")
    return found["status"], found["done"], found["total"], found["affected_count"]


async def statuses(api: TasksApi) -> list[Status]:
    return [(await stored(api, task_id, "q1")).status for task_id in IDS]


@pytest.mark.parametrize("operation", ["reset", "reset-error", "re-run"])
async def test_a_long_operation_answers_at_once_and_a_job_does_it(long: TasksApi, operation: str) -> None:
    operation_id = await start(long, operation)
    assert await statuses(long) == [Status.ERROR] * 5
    assert await progress(long, operation_id) == ("running", 0, 5, 0)
    await long.run_jobs()
    assert await progress(long, operation_id) == ("completed", 5, 5, 5)
    assert await statuses(long) == [Status.PENDING] * 5
    report = (await stored(long, "t1", "q1")).report
    assert report == (None if operation == "reset" else "It broke.")
    assert ((await counted(long, "q1")).pending, (await counted(long)).error) == (5, 0)
    assert len(await long.pull("limit=100", queue="q1")) == 5


@on_sqlite
async def test_the_queue_tells_of_a_long_operation_at_once(long: TasksApi) -> None:
    await start(long)
    queue = await long.data("GET", QUEUE)
    assert (queue["last_operation"], queue["last_reset_at"]) == ("reset", "2026-01-01T00:01:00.000Z")


async def test_a_batch_that_a_kill_interrupts_is_repeated_and_no_other(long: TasksApi) -> None:
    operation_id = await start(long)
    assert await batch(long, operation_id) == 2
    with pytest.raises(WorkerKilled):
        await killed_batch(long, operation_id)
    assert await progress(long, operation_id) == ("running", 2, 5, 2)
    assert [await batch(long, operation_id) for _ in range(3)] == [2, 1, 0]
    resets = [task_id for task_id, kind, _ in await changes(long) if kind == "reset"]
    assert resets == list(IDS)
    assert await progress(long, operation_id) == ("completed", 5, 5, 5)


async def test_what_changed_after_the_request_is_newer_than_the_operation(long: TasksApi) -> None:
    operation_id = await start(long)
    await long.data("PUT", f"{QUEUE}/tasks/t1", {"status": "cancelled"})
    await long.plan("new", queue="q1", status="error")
    await long.data("PATCH", "/tasks/p1/q1/t2/status", {"status": "done"})
    await long.run_jobs()
    found = [(await stored(long, task_id, "q1")).status for task_id in ("t1", "t2", "new", "t3")]
    assert found == [Status.CANCELLED, Status.DONE, Status.ERROR, Status.PENDING]
    assert await progress(long, operation_id) == ("completed", 6, 6, 3)


async def test_a_pull_from_before_the_request_ends_and_a_later_one_stays(api: TasksApi) -> None:
    await api.plan("t1", "t2", "t3", queue="q1", status="error")
    [before] = await api.pull("limit=1&status=error", queue="q1", client="early")
    api.clock.advance(seconds=60)
    long = api.with_config(operation_limit=2)
    operation_id = (await long.data("POST", f"{QUEUE}/reset"))["operation_id"]
    api.clock.advance(seconds=60)
    [after] = await api.pull("limit=1&status=error", queue="q1", client="late")
    said = {"role": "assistant", "content": "Still at it."}
    await api.data("POST", f"/tasks/p1/q1/{before['task_id']}/message", said, x_client_id="early")
    await long.run_jobs()
    assert await progress(long, operation_id) == ("completed", 3, 3, 3)
    assert await pulled(api, before["task_id"], "q1") == [("early", "root", "revoked")]
    kept = await stored(api, after["task_id"], "q1")
    assert (kept.state, kept.lease_owner, kept.status) == (PullState.HELD, "late", Status.PENDING)


async def test_a_task_that_was_only_released_since_is_reset(api: TasksApi) -> None:
    await api.plan("t1", "t2", "t3", queue="q1", status="error")
    [held] = await api.pull("limit=1&status=error", queue="q1")
    long = api.with_config(operation_limit=2)
    await long.data("POST", f"{QUEUE}/reset")
    api.clock.advance(seconds=60)
    await api.data("POST", f"{PROJECT}/tasks/{held['task_id']}/pull/release", x_client_id="worker-1")
    await long.run_jobs()
    assert (await counted(api, "q1")).pending == 3


async def test_another_kind_of_operation_waits_for_the_end(long: TasksApi) -> None:
    operation_id = await start(long, "re-run")
    status, error = await long.error("POST", f"{QUEUE}/reset")
    assert (status, error["details"]["code"], error["details"]["operation_id"]) == (
        409,
        "OPERATION_RUNNING",
        operation_id,
    )
    again = await start(long, "re-run")
    await long.run_jobs()
    assert (await progress(long, operation_id))[0] == (await progress(long, again))[0] == "completed"
    assert (await long.data("POST", f"{QUEUE}/reset"))["affected_count"] == 5


async def test_an_operation_on_a_deleted_queue_is_cancelled(long: TasksApi) -> None:
    operation_id = await start(long)
    await long.data("DELETE", QUEUE)
    await long.run_jobs()
    assert (await progress(long, operation_id))[0] == "cancelled"


@on_sqlite
async def test_a_failed_job_is_shown_with_its_error_and_continues_when_retried(long: TasksApi) -> None:
    operation_id = await start(long)
    job_id = f"{OPERATE_JOB}:{operation_id}"
    async with long.db.tx() as tx:
        [held] = await long.deps.queue.claim(tx, owner="w", seconds=60, limit=1, module="tasks")
        await long.deps.queue.fail(tx, held, code="NO_LUCK", error="It cannot be.")
    found = await long.data("GET", f"{PROJECT}/operations/{operation_id}")
    assert (found["status"], found["error"]) == ("failed", {"code": "NO_LUCK", "message": "It cannot be."})
    async with long.db.tx() as tx:
        await long.deps.queue.revive(tx, job_id)
    await long.run_jobs()
    assert await progress(long, operation_id) == ("completed", 5, 5, 5)
    async with long.db.read() as tx:
        assert (await get_job(tx, job_id)).state is JobState.DONE


@on_sqlite
async def test_operations_are_listed_newest_first_and_stay_inside_their_project(long: TasksApi) -> None:
    first, second = await start(long), await start(long)
    page = await long.data("GET", f"{PROJECT}/operations?limit=1")
    assert ([one["operation_id"] for one in page["operations"]], page["next"]) == ([second], second)
    page = await long.data("GET", f"{PROJECT}/operations?limit=1&before={second}")
    assert ([one["operation_id"] for one in page["operations"]], page["next"]) == ([first], None)
    await long.make_project("p2")
    status, error = await long.error("GET", f"/projects/p2/operations/{first}")
    assert (status, error["details"]["code"]) == (404, "OPERATION_NOT_FOUND")
    status, _ = await long.error("GET", f"{PROJECT}/operations/{first}", key="elsewhere")
    assert status == 403


async def test_records_of_operations_are_deleted_after_their_retention(long: TasksApi) -> None:
    operation_id = await start(long)
    await long.run_jobs()
    long.clock.advance(seconds=366 * 86400)
    await long.run_periodic_tasks("forget-pulls")
    status, _ = await long.error("GET", f"{PROJECT}/operations/{operation_id}")
    assert status == 404
