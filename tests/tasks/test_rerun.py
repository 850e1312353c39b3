"""Re-running tasks, one by one or in a batch."""

from typing import Any

import pytest

from penstock.tasks.domain import Status
from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite
from tests.tasks.records import pulled, stored

QUEUE = f"{PROJECT}/queues/q1"
LATER = "2026-01-01T00:01:00.000Z"


async def test_a_task_out_of_attempts_can_be_pulled_again_after_a_re_run(api: TasksApi) -> None:
    strict = api.with_config(max_attempts=1, rerun_clears_pulls=False)
    await strict.plan("t1", queue="q1")
    await strict.pull(queue="q1")
    api.clock.advance(seconds=strict.deps.config.pull_timeout + 1)
    await strict.run_periodic_tasks()
    assert (await stored(api, "t1", "q1")).status is Status.ERROR
    task = await strict.data("POST", f"{QUEUE}/tasks/t1/re-run")
    assert (task["status"], task["error_reason"], task["pull_attempts"]) == ("pending", None, 0)
    assert len(await strict.pull(queue="q1")) == 1


@on_sqlite
@pytest.mark.parametrize("status", list(Status))
async def test_one_task_is_run_again_whatever_its_status(api: TasksApi, status: Status) -> None:
    await api.plan("t1", "t2", queue="q1", status=status, report="So far.")
    other = await stored(api, "t2", "q1")
    api.clock.advance(seconds=60)
    task = await api.data("POST", f"{QUEUE}/tasks/t1/re-run")
    assert (task["task_id"], task["queue_id"], task["status"]) == ("t1", "q1", "pending")
    assert (task["report"], task["source"], task["pull_state"]) == ("So far.", "server", "unpulled")
    assert task["updated_at"] == task["server_modified_at"] == LATER
    assert task["version"] == (await stored(api, "t1", "q1")).version
    assert await stored(api, "t2", "q1") == other
    assert (await api.data("GET", QUEUE))["last_operation"] is None


async def test_a_task_without_a_queue_is_run_again_by_its_project(api: TasksApi) -> None:
    await api.plan("t1", status="error")
    await api.pull("status=error")
    task = await api.data("POST", f"{PROJECT}/tasks/t1/re-run")
    assert (task["queue_id"], task["status"], task["pulled_by"]) == (None, "pending", None)
    assert await pulled(api, "t1") == [("worker-1", "root", "revoked")]


@on_sqlite
async def test_equal_ids_in_several_queues_need_the_queue(api: TasksApi) -> None:
    await api.submit(queue="q2")
    await api.plan("t1", queue="q1")
    await api.plan("t1", queue="q2")
    status, error = await api.error("POST", f"{PROJECT}/tasks/t1/re-run")
    assert (status, error["details"]["code"]) == (409, "AMBIGUOUS_TASK")
    assert (await api.data("POST", f"{PROJECT}/queues/q2/tasks/t1/re-run"))["queue_id"] == "q2"


async def test_a_batch_reruns_what_it_can_and_lists_the_reasons(api: TasksApi) -> None:
    await api.submit(queue="q2")
    await api.plan("t1", "t2", "gone", queue="q1", status="error")
    await api.plan("beside", status="error")
    await api.plan("twice", queue="q1")
    await api.plan("twice", queue="q2")
    await api.data("DELETE", f"{QUEUE}/tasks/gone")
    asked = {"taskIds": ["t1", "beside", "t1", "gone", "nobody", "twice"]}
    data = await api.data("POST", f"{PROJECT}/tasks/re-run/batch", asked)
    assert (data["operation"], data["affected_count"], data["failed_count"]) == ("re-run", 2, 3)
    assert [(one["task_id"], one["code"]) for one in data["failed_tasks"]] == [
        ("gone", "TASK_NOT_FOUND"),
        ("nobody", "TASK_NOT_FOUND"),
        ("twice", "AMBIGUOUS_TASK"),
    ]
    assert data["failed_tasks"][0]["reason"] == "Task gone does not exist in project p1."
    assert (await stored(api, "t1", "q1")).status is Status.PENDING
    assert (await stored(api, "t2", "q1")).status is Status.ERROR


async def test_a_batch_may_be_about_one_queue(api: TasksApi) -> None:
    await api.plan("t1", queue="q1", status="error")
    await api.plan("beside", status="error")
    asked = {"taskIds": ["t1", "beside"], "queueId": "q1"}
    data = await api.data("POST", f"{PROJECT}/tasks/re-run/batch", asked, accept_language="zh")
    assert data["affected_count"] == 1
    assert data["failed_tasks"] == [
        {"task_id": "beside", "reason": "项目 p1 的队列 q1 中没有任务 beside。", "code": "TASK_NOT_FOUND"}
    ]
    asked["queueId"] = "q9"
    status, error = await api.error("POST", f"{PROJECT}/tasks/re-run/batch", asked)
    assert (status, error["details"]["code"]) == (404, "QUEUE_NOT_FOUND")


@on_sqlite
async def test_a_bad_batch_is_refused_by_its_field(api: TasksApi) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({}, "taskIds"),
        ({"taskIds": []}, "taskIds"),
        ({"taskIds": "t1"}, "taskIds"),
        ({"taskIds": ["t"] * 1001}, "taskIds"),
        ({"taskIds": [""]}, "taskIds[0]"),
        ({"taskIds": ["t" * 256]}, "taskIds[0]"),
        ({"taskIds": [7]}, "taskIds[0]"),
        ({"taskIds": ["t1"], "queueId": ""}, "queueId"),
        ({"taskIds": ["t1"], "queueId": 7}, "queueId"),
    ]
    for body, field in bad:
        status, error = await api.error("POST", f"{PROJECT}/tasks/re-run/batch", body)
        assert (status, error["code"], error["details"]["field"]) == (400, "VALIDATION_ERROR", field)
