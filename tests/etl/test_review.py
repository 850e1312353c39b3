"""Reviews over HTTP: correct and confirm values, mark a result as reviewed, and what is rejected."""

import pytest

from penstock.kernel.clock import ManualClock
from tests.etl.harness import on_sqlite
from tests.etl.review_client import BILL, ReviewClient

pytestmark = [pytest.mark.asyncio(loop_scope="module"), on_sqlite]


async def test_a_value_is_corrected_beside_the_original_which_stays(reviews: ReviewClient):
    task_id = await reviews.completed()
    told = await reviews.correct(task_id, ("/total", 91.5))
    [made] = told["corrections"]
    assert (made["pointer"], made["original"], made["corrected"], made["field"]) == ("/total", 90.0, 91.5, "/total")
    assert (made["created_by"], made["run"], made["rule_id"], made["rule_version"]) == ("anna", 1, reviews.rule_id, 1)
    assert (made["stands"], made["confirmed"], made["missing"]) == (True, False, False)
    assert await reviews.client.json("GET", f"/tasks/{task_id}/result") == BILL
    assert await reviews.result(task_id) == {**BILL, "total": 91.5}
    assert (await reviews.listed(task_id)) == [made]


async def test_a_result_that_nobody_corrected_is_shown_as_it_is(reviews: ReviewClient):
    task_id = await reviews.completed()
    assert await reviews.result(task_id) == BILL
    await reviews.correct(task_id, reviewed=True)
    assert await reviews.result(task_id) == BILL


async def test_the_later_correction_of_a_place_stands_and_the_earlier_stays_in_the_history(
    reviews: ReviewClient, clock: ManualClock
):
    task_id = await reviews.completed()
    await reviews.correct(task_id, ("/total", 91))
    clock.advance(seconds=60)
    await reviews.correct(task_id, ("/total", 92), key="root")
    later, earlier = await reviews.listed(task_id)
    assert (later["corrected"], later["stands"], later["created_by"]) == (92, True, "root")
    assert (earlier["corrected"], earlier["stands"], earlier["ended_by"]) == (91, False, "root")
    assert earlier["superseded_at"] == later["created_at"]
    assert (later["original"], earlier["original"]) == (90.0, 90.0)
    assert (await reviews.result(task_id))["total"] == 92


async def test_a_correction_of_a_whole_part_takes_the_place_of_those_inside_it(reviews: ReviewClient):
    task_id = await reviews.completed()
    await reviews.correct(task_id, ("/items/1/price", 51), ("/total", 91))
    rows = [{"what": "Ink", "price": 50.0}]
    await reviews.correct(task_id, ("/items", rows))
    await reviews.correct(task_id, ("/items/0/price", 55))
    assert [(one["pointer"], one["stands"]) for one in await reviews.listed(task_id)] == [
        ("/items/0/price", True),
        ("/items", True),
        ("/total", True),
        ("/items/1/price", False),
    ]
    assert (await reviews.result(task_id))["items"] == [{"what": "Ink", "price": 55}]


async def test_to_say_what_is_there_already_confirms_it(reviews: ReviewClient):
    task_id = await reviews.completed()
    told = await reviews.correct(task_id, ("/total", 90), ("/paid", False))
    assert [one["confirmed"] for one in told["corrections"]] == [True, True]
    assert await reviews.result(task_id) == BILL
    found = await reviews.accuracy()
    assert (found["values"], found["corrected"], found["accuracy"]) == (2, 0, 1.0)


async def test_the_same_said_twice_is_said_once(reviews: ReviewClient):
    task_id = await reviews.completed()
    body = {"corrections": [{"pointer": "/total", "value": 91, "note": "stamp"}], "reviewed": True}
    first = await reviews.client.call("POST", f"/tasks/{task_id}/corrections", body)
    again = await reviews.client.call("POST", f"/tasks/{task_id}/corrections", body)
    assert (first.status, again.status) == (201, 200)
    assert first.json == again.json
    assert len(await reviews.listed(task_id)) == 1


async def test_a_part_said_again_after_somebody_corrected_something_in_it_stands_again(reviews: ReviewClient):
    task_id = await reviews.completed()
    seller = {"name": "Mill & Sons", "city": "Ulm"}
    for pointer, value in (("/seller", seller), ("/seller/city", "Bonn"), ("/seller", seller)):
        await reviews.correct(task_id, (pointer, value))
    assert [one["stands"] for one in await reviews.listed(task_id)] == [True, False, False]
    assert (await reviews.result(task_id))["seller"] == seller


async def test_all_right_is_said_without_any_correction_and_can_be_taken_back(reviews: ReviewClient):
    task_id = await reviews.completed()
    answer = await reviews.client.call("POST", f"/tasks/{task_id}/corrections", {"corrections": [], "reviewed": True})
    assert (answer.status, answer.json["reviewed"], answer.json["reviewed_by"]) == (200, True, "anna")
    assert (await reviews.accuracy())["values"] == 8
    told = await reviews.correct(task_id, reviewed=False)
    assert (told["reviewed"], told["reviewed_by"], told["reviewed_at"]) == (False, None, None)
    assert (await reviews.accuracy())["accuracy"] is None
    assert await reviews.refused(task_id) == {"corrections": "Send corrections, or reviewed."}


async def test_a_correction_without_a_word_about_the_rest_leaves_the_review_as_it_was(reviews: ReviewClient):
    task_id = await reviews.completed()
    await reviews.correct(task_id, reviewed=True)
    told = await reviews.correct(task_id, ("/total", 1), key="root")
    assert (told["reviewed"], told["reviewed_by"]) == (True, "anna")


async def test_what_the_schema_does_not_take_is_refused_with_its_place(reviews: ReviewClient):
    task_id = await reviews.completed()
    for pointer, value in (
        ("/total", "a lot"),
        ("/total", True),
        ("/number", ""),
        ("/number", None),
        ("/items/1/price", "50"),
        ("/items", {}),
    ):
        [(place, reason)] = (await reviews.refused(task_id, ("/paid", True), (pointer, value))).items()
        assert (place, reason[:17]) == (pointer, "Schema violation:")
    assert list(await reviews.refused(task_id, ("", {"total": 1}))) == ["result"]
    assert list(await reviews.refused(task_id, ("", []))) == ["result"]
    assert await reviews.listed(task_id) == []


async def test_what_the_original_lacks_is_not_held_against_whoever_corrects_something_else(reviews: ReviewClient):
    task_id = await reviews.completed({**BILL, "total": None, "items": [{"price": None}, {"price": None}]})
    await reviews.correct(task_id, ("/seller/name", "Mill Street Paper Works"), ("/total", None))
    await reviews.correct(task_id, ("/items/1/price", 5))
    assert list(await reviews.refused(task_id, ("/items/0/price", "5"))) == ["/items/0/price"]
    rows = [{"price": 1}, {"price": None}, {"price": None}]
    assert list(await reviews.refused(task_id, ("/items", rows))) == ["/items/2/price"]


async def test_a_value_that_is_missing_can_be_added_where_the_schema_knows_it(reviews: ReviewClient):
    task_id = await reviews.completed()
    told = await reviews.correct(task_id, ("/seller/city", "Ulm"), ("/items/1/sku", "I-9"))
    assert [(one["missing"], one["original"], one["field"]) for one in told["corrections"]] == [
        (True, None, "/seller/city"),
        (True, None, "/items/*/sku"),
    ]
    shown = await reviews.result(task_id)
    assert (shown["seller"], shown["items"][1]["sku"]) == ({"name": "Mill Street", "city": "Ulm"}, "I-9")
    unknown = "There is no such value in the result or in the schema."
    assert await reviews.refused(task_id, ("/seler", {})) == {"/seler": unknown}
    assert await reviews.refused(task_id, ("/paid", True), ("/items/0/prize", 1)) == {"/items/0/prize": unknown}


async def test_pointers_that_lead_nowhere_are_refused(reviews: ReviewClient):
    task_id = await reviews.completed()
    for pointer in (
        "/total/", "/total/x", "/items/-", "/items/2", "/items/00", "/items/+1", "/items/-1", "/items/٠",
        "/items/9999999999999", "/items/x", "/nothing/at/all",
    ):  # fmt: skip
        assert list(await reviews.refused(task_id, (pointer, 1))) == [pointer]
    for pointer in ("total", "#/total", "/~2", "/~", "/" + "x" * 1000):
        told = await reviews.refused(task_id, ("/total", 1), (pointer, 1))
        assert list(told) == ["corrections.1.pointer"], pointer


async def test_a_skipped_document_has_no_schema_and_only_what_is_there_can_be_corrected(reviews: ReviewClient):
    task_id = await reviews.completed({"page_count": 1, "": {"": 2}}, rule_id=0)
    await reviews.correct(task_id, ("/page_count", "two"), ("//", 3))
    assert await reviews.result(task_id) == {"page_count": "two", "": {"": 3}}
    assert list(await reviews.refused(task_id, ("/pages", 2))) == ["/pages"]


async def test_what_a_rule_that_skips_says_of_a_schema_binds_nobody(reviews: ReviewClient):
    schema = {"type": "object", "properties": {"page_count": {"type": "string"}, "total": {}}}
    rule = {"name": "read only", "postprocess_mode": "skip", "json_schema": schema}
    rule_id = (await reviews.client.json("POST", "/rules", rule))["rule_id"]
    task_id = await reviews.completed({"page_count": 1}, rule_id=rule_id)
    await reviews.correct(task_id, ("/page_count", 2))
    assert list(await reviews.refused(task_id, ("/total", 2))) == ["/total"]


BAD_BODIES: list[object] = [
    [],
    {"corrections": {}},
    {"corrections": [{"pointer": "/total"}]},
    {"corrections": [{"value": 1}]},
    {"corrections": [{"pointer": 5, "value": 1}]},
    {"corrections": [{"pointer": "/total", "value": 1, "why": ""}]},
    {"corrections": [{"pointer": "/total", "value": 1, "note": "n" * 2001}]},
    {"corrections": [{"pointer": "/number", "value": "n" * 32768}]},
    {"corrections": [{"pointer": f"/{n}", "value": 1} for n in range(201)]},
    {"corrections": [{"pointer": "/total", "value": 1}, {"pointer": "/total", "value": 2}]},
    {"corrections": [{"pointer": "/items/0/price", "value": 1}, {"pointer": "/items", "value": []}]},
    {"corrections": [{"pointer": "", "value": {}}, {"pointer": "/total", "value": 1}]},
    {"reviewed": "perhaps"},
    {},
]


async def test_bad_bodies_are_refused_and_nothing_is_kept(reviews: ReviewClient):
    task_id = await reviews.completed()
    for body in BAD_BODIES:
        told = await reviews.client.refused("POST", f"/tasks/{task_id}/corrections", body)
        assert told == (400, "VALIDATION"), body
    assert await reviews.listed(task_id) == []


async def test_what_is_wrong_is_told_in_chinese_too(reviews: ReviewClient):
    task_id = await reviews.completed()
    body = {"corrections": [{"pointer": "/items/-", "value": 1}]}
    answer = await reviews.client.call("POST", f"/tasks/{task_id}/corrections", body, accept_language="zh-CN")
    assert answer.json["errors"][0]["reason"].startswith("列表中没有该项")


async def test_only_a_completed_task_can_be_corrected(reviews: ReviewClient):
    task_id = await reviews.client.submit("{", rule_id=reviews.rule_id)
    body = {"reviewed": True}
    assert await reviews.client.refused("POST", f"/tasks/{task_id}/corrections", body) == (409, "NOT_THERE_YET")
    assert await reviews.client.refused("GET", f"/tasks/{task_id}/result?corrected=true") == (409, "NOT_THERE_YET")
    assert await reviews.listed(task_id) == []


async def test_others_find_neither_the_task_nor_what_was_said(reviews: ReviewClient):
    task_id = await reviews.completed()
    [made] = (await reviews.correct(task_id, ("/total", 91)))["corrections"]
    where = f"/tasks/{task_id}/corrections"
    for key, number in (("bert", task_id), ("anna", task_id + 1)):
        path = f"/tasks/{number}/corrections"
        for method, target, body in (
            ("POST", path, {"reviewed": True}),
            ("GET", path, None),
            ("DELETE", f"{path}/{made['correction_id']}", None),
            ("GET", f"/tasks/{number}/result?corrected=true", None),
        ):
            assert await reviews.client.refused(method, target, body, key=key) == (404, "ETL_TASK_NOT_FOUND")
    assert (await reviews.client.json("GET", where, key="root"))["corrections"] == [made]
