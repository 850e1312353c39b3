"""Corrections on both databases: withdrawn, after a retry, concurrent, at the limit, and deleted with the task."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from penstock.access import audit
from penstock.etl.api import actions
from penstock.etl.domain.review import NewCorrection
from penstock.etl.review import ReviewInput
from penstock.etl.store.tables import etl_correction, etl_review
from penstock.kernel.clock import ManualClock
from penstock.kernel.sandbox.call import Sandbox
from tests.etl.api_client import CALLERS
from tests.etl.harness import ANNA, EtlProfile, on_both_profiles, on_sqlite, open_harness
from tests.etl.review_client import BILL, ReviewClient, new_rule

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_chinese_emoji_and_awkward_values_come_back_as_they_were_said(reviews: ReviewClient):
    task_id = await reviews.completed({**BILL, "a/b~c": "x"})
    values = {"/number": "发票 №17 🧾👩‍👩‍👧", "/seller": {"name": "z", "city": "a\n\t\"'<b>"}, "/a~1b~0c": "~/"}
    told = await reviews.correct(task_id, *values.items(), reviewed=False)
    assert [one["corrected"] for one in told["corrections"]] == list(values.values())
    assert list(told["corrections"][1]["corrected"]) == ["name", "city"]
    shown = await reviews.result(task_id)
    assert (shown["number"], shown["seller"], shown["a/b~c"]) == tuple(values.values())


async def test_a_result_with_a_name_that_no_database_keeps_can_be_reviewed(reviews: ReviewClient):
    task_id = await reviews.completed({**BILL, "a\x00b": 1})
    await reviews.correct(task_id, ("/total", 91), reviewed=True)
    found = await reviews.accuracy()
    assert (found["values"], found["corrected"]) == (9, 1)


async def test_a_correction_is_withdrawn_once_and_the_original_shows_again(reviews: ReviewClient, clock: ManualClock):
    task_id = await reviews.completed()
    [made] = (await reviews.correct(task_id, ("/total", 91), reviewed=True))["corrections"]
    path = f"/tasks/{task_id}/corrections/{made['correction_id']}"
    assert (await reviews.accuracy())["corrected"] == 1
    clock.advance(seconds=5)
    for _ in range(2):
        assert (await reviews.client.call("DELETE", path, key="root")).status == 204
    [shown] = await reviews.listed(task_id)
    assert (shown["stands"], shown["ended_by"], shown["superseded_at"]) == (False, "root", None)
    assert shown["withdrawn_at"] > shown["created_at"]
    assert await reviews.result(task_id) == BILL
    assert ((await reviews.accuracy())["corrected"], (await reviews.accuracy())["values"]) == (0, 8)


@on_sqlite
async def test_what_stands_no_more_or_never_was_cannot_be_withdrawn(reviews: ReviewClient):
    task_id, other = await reviews.completed(), await reviews.completed(name="b.md")
    [first] = (await reviews.correct(task_id, ("/total", 91)))["corrections"]
    [second] = (await reviews.correct(task_id, ("/total", 92)))["corrections"]
    where = f"/tasks/{task_id}/corrections"
    assert await reviews.client.refused("DELETE", f"{where}/{first['correction_id']}") == (409, "CORRECTION_OVER")
    assert await reviews.client.refused("DELETE", f"{where}/999999") == (404, "CORRECTION_NOT_FOUND")
    elsewhere = f"/tasks/{other}/corrections/{second['correction_id']}"
    assert await reviews.client.refused("DELETE", elsewhere) == (404, "CORRECTION_NOT_FOUND")


@on_sqlite
async def test_a_correction_on_which_others_build_is_not_withdrawn_before_them(reviews: ReviewClient):
    task_id = await reviews.completed()
    [outer] = (await reviews.correct(task_id, ("/items", [{"what": "c", "price": n} for n in range(3)])))["corrections"]
    [inner] = (await reviews.correct(task_id, ("/items/2/price", 7)))["corrections"]
    where = f"/tasks/{task_id}/corrections"
    assert await reviews.client.refused("DELETE", f"{where}/{outer['correction_id']}") == (409, "CORRECTION_NEEDED")
    for one in (inner, outer):
        assert (await reviews.client.call("DELETE", f"{where}/{one['correction_id']}")).status == 204
    assert await reviews.result(task_id) == BILL


async def test_a_retry_starts_without_corrections_and_the_old_ones_stay_listed_with_their_run(reviews: ReviewClient):
    task_id = await reviews.completed()
    [made] = (await reviews.correct(task_id, ("/total", 91), reviewed=True))["corrections"]
    await reviews.client.json("POST", f"/tasks/{task_id}/retry", {"force": True, "from_stage": "postprocess"})
    assert await reviews.client.refused("POST", f"/tasks/{task_id}/corrections", {"reviewed": True}) == (
        409,
        "NOT_THERE_YET",
    )
    await reviews.client.work()
    assert await reviews.result(task_id) == BILL
    listed = await reviews.client.json("GET", f"/tasks/{task_id}/corrections")
    assert (listed["run"], listed["reviewed"], listed["corrections"]) == (2, False, [made])
    path = f"/tasks/{task_id}/corrections/{made['correction_id']}"
    assert await reviews.client.refused("DELETE", path) == (409, "CORRECTION_OVER")
    await reviews.correct(task_id, ("/total", 93))
    assert [(one["run"], one["corrected"], one["stands"]) for one in await reviews.listed(task_id)] == [
        (2, 93, True),
        (1, 91, True),
    ]


@on_sqlite
async def test_the_schema_is_that_of_the_version_that_the_task_has(reviews: ReviewClient):
    task_id = await reviews.completed()
    other = {"type": "object", "properties": {"total": {"type": "string"}}}
    await reviews.client.json("PUT", f"/rules/{reviews.rule_id}", {"json_schema": other})
    await reviews.client.json("DELETE", f"/rules/{reviews.rule_id}")
    assert list(await reviews.refused(task_id, ("/total", "x"))) == ["/total"]
    [made] = (await reviews.correct(task_id, ("/total", 91)))["corrections"]
    assert made["rule_version"] == 1


async def test_a_task_takes_a_thousand_corrections_and_not_one_more(reviews: ReviewClient):
    values = {f"f{n}": n for n in range(200)}
    rule_id = await new_rule(reviews.client, schema={"type": "object"})
    task_id = await reviews.completed(values, rule_id=rule_id)
    for turn in range(5):
        await reviews.correct(task_id, *((f"/{name}", value + turn) for name, value in values.items()))
    full = {"corrections": [{"pointer": "/f0", "value": 0}]}
    assert await reviews.client.refused("POST", f"/tasks/{task_id}/corrections", full) == (409, "CORRECTIONS_FULL")
    assert (await reviews.result(task_id)) == {name: value + 4 for name, value in values.items()}
    pages, after = [], ""
    while True:
        page = await reviews.client.json("GET", f"/tasks/{task_id}/corrections?limit=100{after}")
        pages.append([one["correction_id"] for one in page["corrections"]])
        if page["next_after"] is None:
            break
        after = f"&after={page['next_after']}"
    numbers = [number for page in pages for number in page]
    assert (len(pages), len(numbers), numbers) == (10, 1000, sorted(set(numbers), reverse=True))


@on_sqlite
async def test_big_lists_are_corrected_in_one_place_and_a_result_beyond_measure_is_refused(reviews: ReviewClient):
    rows = [{"what": f"row {n}", "price": n} for n in range(20_000)]
    task_id = await reviews.completed({"number": "1", "items": rows})
    await reviews.correct(task_id, ("/items/19999/price", 0.5), reviewed=True)
    assert (await reviews.result(task_id))["items"][19_999] == {"what": "row 19999", "price": 0.5}
    found = await reviews.accuracy()
    assert (found["values"], found["corrected"]) == (40_001, 1)
    assert {one["field"]: one["values"] for one in found["fields"]}["/items/*/price"] == 20_000
    too_long = f"/tasks/{task_id}/corrections"
    body = {"corrections": [{"pointer": "/items", "value": []}]}
    assert await reviews.client.refused("POST", too_long, body) == (400, "VALIDATION")
    huge = await reviews.completed({"number": "n" * (8 * 1024 * 1024)}, name="huge.md")
    told = await reviews.client.refused("POST", f"/tasks/{huge}/corrections", {"reviewed": True})
    assert told == (413, "RESULT_NOT_REVIEWABLE")


@on_sqlite
async def test_a_result_with_more_values_than_anybody_looks_at_is_refused(reviews: ReviewClient):
    rule_id = await new_rule(reviews.client, schema={"type": "object"})
    task_id = await reviews.completed({"n": [0] * 100_001}, rule_id=rule_id)
    told = await reviews.client.refused("POST", f"/tasks/{task_id}/corrections", {"reviewed": True})
    assert told == (413, "RESULT_NOT_REVIEWABLE")


@on_sqlite
async def test_a_schema_whose_pattern_would_hang_others_is_answered_at_once(reviews: ReviewClient):
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    task_id = await reviews.completed({"a": "a"}, rule_id=await new_rule(reviews.client, schema=schema))
    async with asyncio.timeout(30):
        assert list(await reviews.refused(task_id, ("/a", "a" * 30_000 + "b"))) == ["/a"]


async def test_two_people_who_correct_the_same_place_at_once_are_both_heard(reviews: ReviewClient):
    task_id = await reviews.completed()
    told = await asyncio.gather(
        *(reviews.correct(task_id, ("/total", n), key="root" if n % 2 else "anna") for n in range(4)),
        reviews.correct(task_id, ("/number", "N-1"), reviewed=True),
    )
    assert [one["corrections"][0]["corrected"] for one in told] == [0, 1, 2, 3, "N-1"]
    listed = await reviews.listed(task_id)
    standing = {one["pointer"]: one["corrected"] for one in listed if one["stands"]}
    latest = max((one for one in listed if one["pointer"] == "/total"), key=lambda one: one["correction_id"])
    assert standing == {"/number": "N-1", "/total": latest["corrected"]}
    assert len(listed) == 5
    assert (await reviews.accuracy())["corrected"] == 2
    async with reviews.client.deps.db.read() as tx:
        assert await tx.conn.scalar(etl_review.select().with_only_columns(etl_review.c.revision)) == 5


async def test_corrections_that_fit_only_without_each_other_are_not_both_kept(reviews: ReviewClient):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
              "not": {"properties": {"a": {"const": 1}, "b": {"const": 1}}}}  # fmt: skip
    task_id = await reviews.completed({"a": 0, "b": 0}, rule_id=await new_rule(reviews.client, schema=schema))
    path = f"/tasks/{task_id}/corrections"
    bodies = [{"corrections": [{"pointer": pointer, "value": 1}]} for pointer in ("/a", "/b")]
    answers = await asyncio.gather(*(reviews.client.call("POST", path, body) for body in bodies))
    assert sorted(answer.status for answer in answers) == [201, 400]
    assert sum((await reviews.result(task_id)).values()) == 1


async def test_who_corrected_and_who_withdrew_is_in_the_audit_log(reviews: ReviewClient):
    task_id = await reviews.completed()
    [made] = (await reviews.correct(task_id, ("/total", 91), reviewed=True))["corrections"]
    await reviews.client.json("DELETE", f"/tasks/{task_id}/corrections/{made['correction_id']}", key="root")
    async with reviews.client.deps.db.read() as tx:
        withdrawn, corrected = (await audit.list_lines(tx))[:2]
    assert (corrected.action, corrected.target, corrected.actor) == ("etl.correct", f"etl:{task_id}", "key:k-anna")
    assert (corrected.detail["pointers"], corrected.detail["reviewed"]) == (["/total"], True)
    assert (withdrawn.action, withdrawn.actor) == ("etl.withdraw_correction", "key:k-root")
    assert withdrawn.detail["correction_id"] == made["correction_id"]


async def test_a_deleted_task_takes_what_was_said_about_it_along_and_no_other(reviews: ReviewClient):
    task_id, other = await reviews.completed(), await reviews.completed(name="b.md")
    for number in (task_id, other):
        await reviews.correct(number, ("/total", 91), reviewed=True)
    await reviews.client.json("DELETE", f"/tasks/{task_id}")
    async with reviews.client.deps.db.read() as tx:
        for table in (etl_review, etl_correction):
            rows = (await tx.conn.execute(table.select())).all()
            assert [row.task_id for row in rows] == [other]
    assert (await reviews.accuracy())["reviewed_tasks"] == 1


@on_both_profiles
async def test_a_review_works_on_every_profile(profile: EtlProfile, clock: ManualClock, sandbox: Sandbox):
    async with open_harness(profile, clock) as harness:
        deps = replace(harness.deps, sandbox=sandbox)
        task = await harness.submit()
        await harness.work()
        given = ReviewInput(corrections=[NewCorrection(pointer="/page_count", value="4", note="一页")], reviewed=True)
        stored = await actions.correct(deps, ANNA, task.id, given)
        assert [(one.original, one.corrected, one.note) for one in stored.corrections] == [("3", "4", "一页")]
        corrected: Any = await actions.corrected_result(deps, CALLERS["root"], task.id)
        assert b'"page_count":4' in corrected
        assert await harness.keys("users/5/processed/3/") == ["users/5/processed/3/a.txt.json"]
