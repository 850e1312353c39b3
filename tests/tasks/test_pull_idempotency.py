"""A pull with an Idempotency-Key gives the same lease again when its answer was lost."""

import asyncio
from datetime import UTC, datetime

from penstock.access.domain import Caller, Scope
from penstock.kernel.clock import ManualClock
from penstock.tasks.claims import ClaimRequest, idempotent_pull
from penstock.tasks.domain import Holder, Status
from penstock.tasks.pull import PullRequest
from penstock.tasks.pull_by_id import PullByIdRequest
from penstock.tasks.store.offers import PullFilter, ValueRange
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


async def test_a_replay_omits_what_is_no_longer_held(api: TasksApi):
    await api.plan("a", "b")
    await api.data("GET", f"{PULL}?limit=2", idempotency_key="k1", x_client_id="w")
    await api.data("POST", f"{PROJECT}/tasks/a/pull/release", x_client_id="w")
    again = await api.data("GET", f"{PULL}?limit=2", idempotency_key="k1", x_client_id="w")
    assert [task["task_id"] for task in again["tasks"]] == ["b"]


async def test_a_replay_costs_no_quota(api: TasksApi, clock: ManualClock):
    await api.plan(*"abc")
    with_limits = api.with_limits(quota=2)
    first = await with_limits.data("GET", f"{PULL}?limit=1", idempotency_key="k1")
    assert await with_limits.data("GET", f"{PULL}?limit=1", idempotency_key="k1") == first
    assert len(await with_limits.pull("limit=1")) == 1


async def test_a_replay_works_after_the_quota_is_spent(api: TasksApi, clock: ManualClock):
    await api.plan(*"abc")
    with_limits = api.with_limits(quota=2)
    first = await with_limits.data("GET", f"{PULL}?limit=3", idempotency_key="k1")
    assert first["pulled_count"] == 2
    assert await with_limits.data("GET", f"{PULL}?limit=3", idempotency_key="k1") == first


async def test_a_pull_by_id_is_replayed_too(api: TasksApi):
    await api.plan("a", "b")
    asked = {"taskIds": ["a", "never"]}
    first = await api.data("POST", f"{PULL}/batch", asked, idempotency_key="k1", x_client_id="w")
    again = await api.data("POST", f"{PULL}/batch", asked, idempotency_key="k1", x_client_id="w")
    assert again == first
    one = await api.data("POST", f"{PROJECT}/tasks/b/pull", idempotency_key="k2", x_client_id="w")
    assert (await api.data("POST", f"{PROJECT}/tasks/b/pull", idempotency_key="k2", x_client_id="w")) == one


def test_fingerprints_stay_the_same_across_releases():
    """Receipts of the release before must match: a client may repeat its request after an upgrade."""
    caller = Caller(name="root", user_id=1, scope=Scope.ADMIN, key_id="k")
    claim = ClaimRequest(caller=caller, holder=Holder(name="worker-1"), limit=5)
    wanted = PullFilter(
        project_pk="",
        statuses=(Status.PENDING, Status.ERROR),
        tags=("a", "b'c"),
        first_rank=2,
        last_rank=9,
        created=ValueRange(start=datetime(2026, 1, 2, tzinfo=UTC)),
        version=ValueRange(start=7),
    )
    by_filter = PullRequest(project_id="p1", queue_id=None, filter=wanted, idempotency_key="k1")
    by_ids = PullByIdRequest(project_id="p1", queue_id="q1", task_ids=("t1", "t2"), filter=wanted, idempotency_key="k1")
    one = PullByIdRequest(project_id="p1", queue_id=None, task_ids=("t1",), idempotency_key="k1")
    keys = [idempotent_pull(request, claim) for request in (by_filter, by_ids, one)]
    assert [key and key.fingerprint for key in keys] == [
        "4790371d40ec9a4712e23ea6864b2c7c56a1b64e0704f23cd28dc233bc2a22ad",
        "0d06ba1bbd981f3589802f007b09b4c4940c8de82af1362b7a97389dcb0c1e94",
        "49e1dc40adbddf51c27409cdaf145ef3e0108e7dc07004cd67eeec69a11c4986",
    ]
