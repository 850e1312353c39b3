"""Pulling tasks by id: which can be claimed, and why the rest cannot."""

from datetime import timedelta

import pytest

from penstock.kernel.clock import ManualClock
from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite

BATCH = f"{PROJECT}/tasks/pull/batch"


async def test_a_batch_claims_what_it_can_and_lists_the_reasons(api: TasksApi, clock: ManualClock):
    soon = (clock.now() + timedelta(seconds=10)).isoformat()
    await api.plan("free", "held", "gone")
    await api.plan("late", expires_at=soon)
    await api.submit({"id": "mine"})
    await api.data("POST", f"{PROJECT}/tasks/held/pull", x_client_id="other")
    await api.data("DELETE", f"{PROJECT}/tasks/gone")
    clock.advance(seconds=10)
    wanted = ["free", "held", "gone", "late", "mine", "never"]
    data = await api.data("POST", BATCH, {"taskIds": wanted}, x_client_id="me")
    assert [task["task_id"] for task in data["tasks"]] == ["free"]
    assert (data["pulled_count"], data["failed_count"]) == (1, 5)
    assert {failed["task_id"]: failed["code"] for failed in data["failed_tasks"]} == {
        "held": "TASK_IS_HELD",
        "gone": "TASK_DELETED",
        "late": "TASK_NOT_OFFERED",
        "mine": "TASK_NOT_OFFERED",
        "never": "TASK_NOT_FOUND",
    }
    assert all(failed["reason"] for failed in data["failed_tasks"])


async def test_a_batch_with_filters_leaves_out_what_does_not_fit(api: TasksApi):
    await api.plan("a", tags=["x"])
    await api.plan("b")
    data = await api.data("POST", BATCH, {"taskIds": ["a", "b"], "filters": {"tags": ["x"]}})
    assert [task["task_id"] for task in data["tasks"]] == ["a"]
    assert [failed["task_id"] for failed in data["failed_tasks"]] == ["b"]


async def test_a_batch_without_ids_goes_by_its_filters(api: TasksApi):
    await api.plan("a", priority=9)
    await api.plan("b", priority=2)
    data = await api.data("POST", BATCH, {"taskIds": [], "filters": {"priority": "high"}})
    assert [task["task_id"] for task in data["tasks"]] == ["a"]
    assert (data["failed_tasks"], data["failed_count"]) == ([], 0)


async def test_a_batch_takes_no_more_than_its_limit(api: TasksApi):
    await api.plan(*"abcd")
    data = await api.data("POST", BATCH, {"limit": 3})
    assert data["pulled_count"] == 3


async def test_a_batch_by_ids_takes_no_more_than_its_limit_and_names_the_rest(api: TasksApi):
    await api.plan(*"bcd")
    data = await api.data("POST", BATCH, {"taskIds": list("abcd"), "limit": 2})
    assert [task["task_id"] for task in data["tasks"]] == ["b", "c"]
    codes = {failed["task_id"]: failed["code"] for failed in data["failed_tasks"]}
    assert codes == {"a": "TASK_NOT_FOUND", "d": "TASK_NOT_OFFERED"}


async def test_a_batch_by_ids_takes_no_more_than_the_setting_says(api: TasksApi):
    await api.plan(*"abc")
    data = await api.with_config(batch_size=2).data("POST", BATCH, {"taskIds": list("abc")})
    assert (data["pulled_count"], data["failed_count"]) == (2, 1)


async def test_a_batch_by_ids_takes_no_more_than_is_left_of_the_quota(api: TasksApi, clock: ManualClock):
    await api.plan(*"abc")
    with_limits = api.with_limits(quota=2)
    data = await with_limits.data("POST", BATCH, {"taskIds": ["never", *"abc"]})
    assert [task["task_id"] for task in data["tasks"]] == ["a", "b"]
    assert [failed["task_id"] for failed in data["failed_tasks"]] == ["never", "c"]


async def test_equal_ids_in_two_queues_need_the_queue(api: TasksApi):
    await api.submit(queue="q2")
    await api.plan("same", queue="q1")
    await api.plan("same", queue="q2")
    data = await api.data("POST", BATCH, {"taskIds": ["same"]})
    assert data["failed_tasks"][0]["code"] == "AMBIGUOUS_TASK"
    data = await api.data("POST", BATCH, {"taskIds": ["same"], "queueId": "q2"})
    assert data["tasks"][0]["queue_id"] == "q2"


@pytest.mark.parametrize(
    ("task_id", "status", "code"),
    [("held", 409, "CONFLICT"), ("gone", 410, "GONE"), ("never", 404, "RESOURCE_NOT_FOUND")],
)
async def test_one_task_by_id_is_claimed_or_the_error_says_why_not(api: TasksApi, task_id: str, status: int, code: str):
    await api.plan("held", "gone")
    await api.data("POST", f"{PROJECT}/tasks/held/pull", x_client_id="other")
    await api.data("DELETE", f"{PROJECT}/tasks/gone")
    answered, error = await api.error("POST", f"{PROJECT}/tasks/{task_id}/pull", x_client_id="me")
    assert (answered, error["code"]) == (status, code)


@pytest.mark.parametrize(
    "body", [{"taskIds": "a"}, {"taskIds": [1]}, {"taskIds": ["x"] * 1001}, {"filters": {"priority": "no"}}, []]
)
@on_sqlite
async def test_a_bad_batch_is_named(api: TasksApi, body: object):
    status, error = await api.error("POST", BATCH, body)
    assert (status, error["code"]) == (400, "VALIDATION_ERROR")


@on_sqlite
async def test_an_empty_list_claims_nothing(api: TasksApi):
    await api.plan("a")
    data = await api.data("POST", BATCH, {"taskIds": []})
    assert (data["pulled_count"], data["failed_tasks"]) == (0, [])
    assert (await api.data("POST", BATCH, {"taskIds": [], "filters": {}}))["pulled_count"] == 1


@on_sqlite
async def test_a_limit_may_be_in_the_filters_and_an_unknown_filter_is_refused(api: TasksApi):
    await api.plan(*"abc")
    assert (await api.data("POST", BATCH, {"filters": {"limit": 1}}))["pulled_count"] == 1
    status, error = await api.error("POST", BATCH, {"filters": {"tag": ["gpu"]}})
    assert (status, error["details"]["field"]) == (400, "filters.tag")
