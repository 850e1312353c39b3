"""Retry many tasks at once, by filter: a bounded number per call, and no more than the queue takes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.access.audit import list_lines
from penstock.access.domain import Caller
from penstock.etl.api.bulk import retry_matching
from penstock.etl.domain import EtlTask, Stage, Status
from penstock.etl.errors import QueueFull
from penstock.etl.retry import RetryOptions
from penstock.etl.store.tasks import EndedFilter
from penstock.kernel.db import Db
from penstock.kernel.errors import Invalid
from tests.etl.api_client import open_client
from tests.etl.harness import ANNA, BERT, ROOT, EtlHarness, on_both_profiles
from tests.fakes.ocr import EchoOcr, OcrThatFails

AGAIN = RetryOptions()


async def fail(harness: EtlHarness, *names: str, by: Caller = ANNA, **more: Any) -> list[EtlTask]:
    """Tasks whose OCR failed permanently; the next attempt succeeds."""
    harness.set(provider=OcrThatFails(harness.deps.blobs, Invalid(reason="unreadable"), times=len(names)))
    tasks = [await harness.submit(name, by=by, **more) for name in names]
    await harness.work()
    harness.set(provider=EchoOcr(harness.deps.blobs))
    return tasks


async def statuses(harness: EtlHarness, tasks: list[EtlTask]) -> list[Status]:
    return [(await harness.row(task)).status for task in tasks]


@on_both_profiles
async def test_all_failed_tasks_are_retried_and_completed(harness: EtlHarness):
    tasks = await fail(harness, "a.txt", "b.txt", "c.txt")
    first = await retry_matching(harness.deps, ROOT, EndedFilter(status=Status.FAILED), AGAIN, limit=2)
    assert (first.retried, first.refused, first.next_after) == (2, [], tasks[1].id)
    rest = await retry_matching(harness.deps, ROOT, EndedFilter(status=Status.FAILED), AGAIN, after=tasks[1].id)
    assert (rest.retried, rest.next_after) == (1, None)
    await harness.work()
    assert await statuses(harness, tasks) == [Status.COMPLETED] * 3
    async with harness.deps.db.read() as tx:
        lines = [line for line in await list_lines(tx) if line.action == "etl.retry_many"]
    assert [(line.actor, line.detail["count"], line.detail["status"]) for line in lines] == [
        ("key:k-root", 1, "failed"),
        ("key:k-root", 2, "failed"),
    ]


@on_both_profiles
async def test_filters_choose_by_error_owner_project_rule_and_time(harness: EtlHarness):
    [early] = await fail(harness, "a.txt")
    harness.clock.advance(seconds=60)
    moment = harness.clock.now()
    [late] = await fail(harness, "b.txt")
    await fail(harness, "c.txt", by=BERT)
    cancelled = await harness.submit("d.txt")
    failed = EndedFilter(status=Status.FAILED)

    async def chosen(caller: Caller, **changes: Any) -> int:
        """How many match: they are counted with a stage that none of them has a result of."""
        options = RetryOptions(from_stage=Stage.POSTPROCESS)
        done = await retry_matching(harness.deps, caller, replace(failed, **changes), options)
        assert {error.code for _, error in done.refused} <= {"NO_OCR_ARTIFACT"}
        return len(done.refused)

    assert [await chosen(ROOT), await chosen(ANNA), await chosen(BERT)] == [3, 2, 1]
    assert [await chosen(ROOT, error_code="INVALID"), await chosen(ROOT, error_code="TASK_TIMEOUT")] == [3, 0]
    assert [await chosen(ANNA, since=moment), await chosen(ANNA, until=moment)] == [1, 1]
    assert [await chosen(ANNA, project_id=3), await chosen(ANNA, project_id=9), await chosen(ANNA, rule_id=77)] == [
        2,
        0,
        0,
    ]
    assert await chosen(ANNA, status=Status.CANCELLED) == 0
    assert await statuses(harness, [early, late, cancelled]) == [Status.FAILED, Status.FAILED, Status.PENDING]


async def test_it_stops_when_the_queue_is_full_and_goes_on_from_there(harness: EtlHarness):
    tasks = await fail(harness, "a.txt", "b.txt", "c.txt")
    harness.set(queue_size=2)
    failed = EndedFilter(status=Status.FAILED)
    first = await retry_matching(harness.deps, ROOT, failed, AGAIN)
    assert first.retried == 2
    assert isinstance(first.full, QueueFull)
    assert first.next_after is not None
    await harness.work()
    second = await retry_matching(harness.deps, ROOT, failed, AGAIN, after=first.next_after)
    assert (second.retried, second.full, second.next_after) == (1, None, None)
    await harness.work()
    assert await statuses(harness, tasks) == [Status.COMPLETED] * 3


async def test_a_task_whose_document_is_gone_is_told_and_passed_over(harness: EtlHarness):
    gone, there = await fail(harness, "a.txt", "b.txt")
    await harness.deps.blobs.delete(gone.s3_key)
    done = await retry_matching(harness.deps, ANNA, EndedFilter(status=Status.FAILED), AGAIN)
    assert [(task.id, error.code) for task, error in done.refused] == [(gone.id, "SOURCE_NOT_FOUND")]
    assert (done.retried, done.next_after) == (1, None)
    assert await statuses(harness, [gone, there]) == [Status.FAILED, Status.PENDING]


@pytest.mark.parametrize("limit", [1, 2])
async def test_pages_take_each_task_once(harness: EtlHarness, limit: int):
    await fail(harness, *(f"{number}.txt" for number in range(4)))
    after, total = 0, 0
    while True:
        done = await retry_matching(
            harness.deps, ANNA, EndedFilter(status=Status.FAILED), AGAIN, after=after, limit=limit
        )
        total += done.retried
        if done.next_after is None:
            break
        after = done.next_after
    assert total == 4


async def test_the_route_takes_the_filters_and_tells_what_it_did(db: Db, tmp_path: Path):
    async with open_client(db, tmp_path) as client:
        task_ids = [await client.submit(name=name) for name in ("a.md", "b.md")]
        for task_id in task_ids:
            await client.json("POST", f"/tasks/{task_id}/cancel")
        await client.deps.blobs.delete("users/5/raw/3/a.md")
        answer = await client.json("POST", "/tasks/retry", {"status": "cancelled", "project_id": 3})
        assert (answer["retried"], answer["queue_full"], answer["next"]) == (1, False, None)
        assert [(one["task_id"], one["code"]) for one in answer["refused"]] == [(task_ids[0], "SOURCE_NOT_FOUND")]
        assert await client.refused("POST", "/tasks/retry", {}) == (400, "VALIDATION")
        assert await client.refused("POST", "/tasks/retry", {"status": "completed"}) == (400, "VALIDATION")
        assert (await client.json("POST", "/tasks/retry", {"status": "cancelled"}, key="bert"))["refused"] == []


@pytest.fixture
def db_url(sqlite_url: str) -> str:
    """Requests and responses are the same on both databases."""
    return sqlite_url
