"""A pull with an Idempotency-Key gives the same lease again when its answer was lost."""

import asyncio

from penstock.kernel.clock import ManualClock
from tests.tasks.conftest import PROJECT, Room

PULL = f"{PROJECT}/tasks/pull"


async def test_the_same_key_gives_the_same_lease(room: Room):
    await room.plan("a", "b")
    first = await room.data("GET", f"{PULL}?limit=1", idempotency_key="k1")
    again = await room.data("GET", f"{PULL}?limit=1", idempotency_key="k1")
    assert [task["task_id"] for task in again["tasks"]] == ["a"]
    assert again["tasks"] == first["tasks"]
    assert again["pull_id"] == first["pull_id"]


async def test_another_key_gives_another_lease(room: Room):
    await room.plan("a", "b")
    await room.data("GET", f"{PULL}?limit=1", idempotency_key="k1")
    other = await room.data("GET", f"{PULL}?limit=1", idempotency_key="k2")
    assert [task["task_id"] for task in other["tasks"]] == ["b"]


async def test_a_key_is_its_callers_own(room: Room):
    await room.plan("a", "b")
    await room.data("GET", f"{PULL}?limit=1", idempotency_key="k1", key="anna")
    other = await room.data("GET", f"{PULL}?limit=1", idempotency_key="k1", key="bert")
    assert [task["task_id"] for task in other["tasks"]] == ["b"]


async def test_the_same_key_for_something_else_is_refused(room: Room):
    await room.plan("a", "b")
    await room.data("GET", f"{PULL}?limit=1", idempotency_key="k1")
    status, error = await room.error("GET", f"{PULL}?limit=2", idempotency_key="k1")
    assert (status, error["details"]["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")


async def test_an_empty_answer_is_not_kept(room: Room):
    assert (await room.data("GET", PULL, idempotency_key="k1"))["pulled_count"] == 0
    await room.plan("a")
    assert (await room.data("GET", PULL, idempotency_key="k1"))["pulled_count"] == 1


async def test_two_at_once_with_one_key_share_the_lease(room: Room):
    await room.plan(*"abcd")
    both = await asyncio.gather(*(room.data("GET", f"{PULL}?limit=2", idempotency_key="k1") for _ in range(2)))
    assert both[0]["tasks"] == both[1]["tasks"]
    assert len(await room.pull()) == 2


async def test_what_is_no_longer_held_is_not_given_again(room: Room):
    await room.plan("a", "b")
    await room.data("GET", f"{PULL}?limit=2", idempotency_key="k1", x_client_id="w")
    await room.data("POST", f"{PROJECT}/tasks/a/pull/release", x_client_id="w")
    again = await room.data("GET", f"{PULL}?limit=2", idempotency_key="k1", x_client_id="w")
    assert [task["task_id"] for task in again["tasks"]] == ["b"]


async def test_an_answer_that_is_asked_for_again_costs_nothing_of_the_quota(room: Room, clock: ManualClock):
    await room.plan(*"abc")
    limited = room.limited(quota=2)
    first = await limited.data("GET", f"{PULL}?limit=1", idempotency_key="k1")
    assert await limited.data("GET", f"{PULL}?limit=1", idempotency_key="k1") == first
    assert len(await limited.pull("limit=1")) == 1


async def test_a_lost_answer_is_found_again_though_the_quota_is_spent(room: Room, clock: ManualClock):
    await room.plan(*"abc")
    limited = room.limited(quota=2)
    first = await limited.data("GET", f"{PULL}?limit=3", idempotency_key="k1")
    assert first["pulled_count"] == 2
    assert await limited.data("GET", f"{PULL}?limit=3", idempotency_key="k1") == first


async def test_tasks_by_their_ids_are_told_again_too(room: Room):
    await room.plan("a", "b")
    asked = {"taskIds": ["a", "never"]}
    first = await room.data("POST", f"{PULL}/batch", asked, idempotency_key="k1", x_client_id="w")
    again = await room.data("POST", f"{PULL}/batch", asked, idempotency_key="k1", x_client_id="w")
    assert again == first
    one = await room.data("POST", f"{PROJECT}/tasks/b/pull", idempotency_key="k2", x_client_id="w")
    assert (await room.data("POST", f"{PROJECT}/tasks/b/pull", idempotency_key="k2", x_client_id="w")) == one
