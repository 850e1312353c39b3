"""A pull with an Idempotency-Key gives the same lease again when its answer was lost."""

import asyncio

from penstock.kernel.clock import ManualClock
from tests.tasks.conftest import PROJECT, TasksApi

PULL = f"{PROJECT}/tasks/pull"


async def test_the_same_key_gives_the_same_lease(api: TasksApi):
    await api.plan("a", "b")
    first = await api.data("GET", f"{PULL}?limit=1", idempotency_key="k1")
    again = await api.data("GET", f"{PULL}?limit=1", idempotency_key="k1")
    assert [task["task_id"] for task in again["tasks"]] == ["a"]
    assert again["tasks"] == first["tasks"]
    assert again["pull_id"] == first["pull_id"]


async def test_another_key_gives_another_lease(api: TasksApi):
    await api.plan("a", "b")
    await api.data("GET", f"{PULL}?limit=1", idempotency_key="k1")
    other = await api.data("GET", f"{PULL}?limit=1", idempotency_key="k2")
    assert [task["task_id"] for task in other["tasks"]] == ["b"]


async def test_a_key_is_its_callers_own(api: TasksApi):
    await api.plan("a", "b")
    await api.data("GET", f"{PULL}?limit=1", idempotency_key="k1", key="anna")
    other = await api.data("GET", f"{PULL}?limit=1", idempotency_key="k1", key="bert")
    assert [task["task_id"] for task in other["tasks"]] == ["b"]


async def test_the_same_key_for_something_else_is_refused(api: TasksApi):
    await api.plan("a", "b")
    await api.data("GET", f"{PULL}?limit=1", idempotency_key="k1")
    status, error = await api.error("GET", f"{PULL}?limit=2", idempotency_key="k1")
    assert (status, error["details"]["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")


async def test_an_empty_answer_is_not_kept(api: TasksApi):
    assert (await api.data("GET", PULL, idempotency_key="k1"))["pulled_count"] == 0
    await api.plan("a")
    assert (await api.data("GET", PULL, idempotency_key="k1"))["pulled_count"] == 1


async def test_two_at_once_with_one_key_share_the_lease(api: TasksApi):
    await api.plan(*"abcd")
    both = await asyncio.gather(*(api.data("GET", f"{PULL}?limit=2", idempotency_key="k1") for _ in range(2)))
    assert both[0]["tasks"] == both[1]["tasks"]
    assert len(await api.pull()) == 2


async def test_what_is_no_longer_held_is_not_given_again(api: TasksApi):
    await api.plan("a", "b")
    await api.data("GET", f"{PULL}?limit=2", idempotency_key="k1", x_client_id="w")
    await api.data("POST", f"{PROJECT}/tasks/a/pull/release", x_client_id="w")
    again = await api.data("GET", f"{PULL}?limit=2", idempotency_key="k1", x_client_id="w")
    assert [task["task_id"] for task in again["tasks"]] == ["b"]


async def test_an_answer_that_is_asked_for_again_costs_nothing_of_the_quota(api: TasksApi, clock: ManualClock):
    await api.plan(*"abc")
    with_limits = api.with_limits(quota=2)
    first = await with_limits.data("GET", f"{PULL}?limit=1", idempotency_key="k1")
    assert await with_limits.data("GET", f"{PULL}?limit=1", idempotency_key="k1") == first
    assert len(await with_limits.pull("limit=1")) == 1


async def test_a_lost_answer_is_found_again_though_the_quota_is_spent(api: TasksApi, clock: ManualClock):
    await api.plan(*"abc")
    with_limits = api.with_limits(quota=2)
    first = await with_limits.data("GET", f"{PULL}?limit=3", idempotency_key="k1")
    assert first["pulled_count"] == 2
    assert await with_limits.data("GET", f"{PULL}?limit=3", idempotency_key="k1") == first


async def test_tasks_by_their_ids_are_told_again_too(api: TasksApi):
    await api.plan("a", "b")
    asked = {"taskIds": ["a", "never"]}
    first = await api.data("POST", f"{PULL}/batch", asked, idempotency_key="k1", x_client_id="w")
    again = await api.data("POST", f"{PULL}/batch", asked, idempotency_key="k1", x_client_id="w")
    assert again == first
    one = await api.data("POST", f"{PROJECT}/tasks/b/pull", idempotency_key="k2", x_client_id="w")
    assert (await api.data("POST", f"{PROJECT}/tasks/b/pull", idempotency_key="k2", x_client_id="w")) == one
