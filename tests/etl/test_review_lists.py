"""Corrections of a rule as a list and as a file, and the accuracy of the rule."""

import csv
import io
import json
from typing import Any

import pytest

from penstock.etl import accuracy
from tests.etl.harness import on_sqlite
from tests.etl.review_client import BILL, ReviewClient, new_rule

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def of_rule(reviews: ReviewClient, query: str = "", *, key: str = "anna") -> Any:
    return await reviews.client.json("GET", f"/rules/{reviews.rule_id}/corrections{query}", key=key)


async def test_a_rule_lists_what_stands_the_newest_first_page_by_page(reviews: ReviewClient):
    task_id = await reviews.completed()
    await reviews.correct(task_id, ("/total", 0))
    for n in range(5):
        await reviews.correct(task_id, (f"/{'total' if n % 2 else 'number'}", n if n % 2 else str(n)))
    other = await reviews.completed(name="b.md")
    await reviews.correct(other, ("/items/1/price", 5), ("/seller/name", "M"), ("/paid", True))
    seen, query = [], "?limit=2"
    while True:
        page = await of_rule(reviews, query)
        seen.append([(one["task_id"], one["pointer"], one["corrected"]) for one in page["corrections"]])
        if page["next_after"] is None:
            break
        query = f"?limit=2&after={page['next_after']}"
    assert seen == [
        [(other, "/paid", True), (other, "/seller/name", "M")],
        [(other, "/items/1/price", 5), (task_id, "/number", "4")],
        [(task_id, "/total", 3)],
    ]


async def test_a_version_of_the_rule_is_asked_for_by_its_number(reviews: ReviewClient):
    first = await reviews.completed()
    await reviews.client.json("PUT", f"/rules/{reviews.rule_id}", {"description": "better"})
    second = await reviews.completed(name="b.md")
    await reviews.correct(first, ("/total", 1), reviewed=True)
    await reviews.correct(second, reviewed=True)
    await reviews.correct(second, ("/number", "x"), ("/total", 2))
    found = [[one["task_id"] for one in (await of_rule(reviews, f"?version={n}"))["corrections"]] for n in (1, 2, 3)]
    assert found == [[first], [second, second], []]
    told = await reviews.accuracy()
    shares = [(one["version"], one["values"], one["corrected"], one["accuracy"]) for one in told["versions"]]
    assert shares == [(2, 8, 2, 0.75), (1, 8, 1, 0.875)]
    assert (told["values"], told["corrected"], told["accuracy"]) == (16, 3, 1 - 3 / 16)
    assert (await reviews.accuracy(query="?version=1"))["values"] == 8


async def test_everyone_sees_what_was_said_about_their_own_tasks_and_an_admin_all(reviews: ReviewClient):
    mine = await reviews.completed({"page_count": 1}, rule_id=0)
    theirs = await reviews.completed({"page_count": 1}, key="bert", rule_id=0)
    await reviews.correct(mine, ("/page_count", 2))
    await reviews.correct(theirs, ("/page_count", 1), key="bert", reviewed=True)
    for key, seen, share in (("anna", [mine], 0.0), ("bert", [theirs], 1.0), ("root", [theirs, mine], 0.5)):
        for query in ("", "?version=1"):
            listed = await reviews.client.json("GET", f"/rules/0/corrections{query}", key=key)
            assert [one["task_id"] for one in listed["corrections"]] == seen
            assert (await reviews.accuracy(rule_id=0, key=key, query=query))["accuracy"] == share
        lines = (await reviews.client.call("GET", "/rules/0/corrections?format=jsonl", key=key)).body.splitlines()
        assert [json.loads(line)["task_id"] for line in lines] == seen


@on_sqlite
async def test_a_foreign_rule_is_not_found_in_any_form(reviews: ReviewClient):
    for path in ("/corrections", "/corrections?format=csv", "/corrections?format=jsonl", "/accuracy"):
        for rule_id, key in ((reviews.rule_id, "bert"), (99, "anna"), (99, "root")):
            told = await reviews.client.refused("GET", f"/rules/{rule_id}{path}", key=key)
            assert told == (404, "RULE_NOT_FOUND")


async def test_what_is_asked_for_in_nonsense_is_refused(reviews: ReviewClient):
    for query in ("limit=0", "limit=101", "limit=x", "after=0", "after=-1", "version=0", "version=x", "format=xml"):
        told = await reviews.client.refused("GET", f"/rules/{reviews.rule_id}/corrections?{query}")
        assert told == (400, "VALIDATION"), query
    for path in ("corrections", "accuracy"):
        told = await reviews.client.refused("GET", f"/rules/{reviews.rule_id}/{path}?version={2**31}")
        assert told == (400, "VALIDATION"), path
        await reviews.client.json("GET", f"/rules/{reviews.rule_id}/{path}?version={2**31 - 1}")


@on_sqlite
async def test_a_table_can_be_opened_without_running_what_a_document_says(reviews: ReviewClient):
    task_id = await reviews.completed({**BILL, "number": "=HYPERLINK(1)"})
    body = {"corrections": [
        {"pointer": "/number", "value": "@发票,\"1\"\n2", "note": "+1"},
        {"pointer": "/total", "value": -3},
        {"pointer": "/seller", "value": {"name": "é"}},
        {"pointer": "/paid", "value": False},
    ]}  # fmt: skip
    await reviews.client.json("POST", f"/tasks/{task_id}/corrections", body)
    answer = await reviews.client.call("GET", f"/rules/{reviews.rule_id}/corrections?format=csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == f'attachment; filename="rule-{reviews.rule_id}-corrections.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.body.decode("utf-8-sig"), newline="")))
    told = {row["pointer"]: (row["original"], row["corrected"], row["confirmed"], row["note"]) for row in rows}
    assert told == {
        "/paid": ("false", "false", "true", ""),
        "/seller": ('{"name":"Mill Street"}', '{"name":"é"}', "false", ""),
        "/total": ("90.0", "-3", "false", ""),
        "/number": ("'=HYPERLINK(1)", '\'@发票,"1"\n2', "false", "'+1"),
    }
    assert (rows[0]["task_id"], rows[0]["created_by"], rows[0]["missing"]) == (str(task_id), "anna", "false")


async def test_a_file_has_all_of_them_however_many_and_keeps_the_kinds_of_values(
    reviews: ReviewClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(accuracy, "CORRECTIONS_PAGE", 3)
    task_id = await reviews.completed()
    values: dict[str, object] = {"/total": 1.5, "/number": "1.5", "/paid": True, "/seller/city": "Ulm 🏰"}
    values |= {"/items/0/price": 2, "/items/1": {"what": "Tape"}, "/items/0/what": "Card"}
    await reviews.correct(task_id, *values.items())
    answer = await reviews.client.call("GET", f"/rules/{reviews.rule_id}/corrections?format=jsonl")
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert {line["pointer"]: line["corrected"] for line in lines} == values
    assert {line["pointer"]: line["original"] for line in lines}["/seller/city"] is None
    assert [line["correction_id"] for line in lines] == sorted((line["correction_id"] for line in lines), reverse=True)
    some = await reviews.client.call("GET", f"/rules/{reviews.rule_id}/corrections?format=jsonl&limit=4")
    assert some.body.splitlines() == answer.body.splitlines()[:4]
    after = f"?format=jsonl&after={lines[3]['correction_id']}"
    rest = await reviews.client.call("GET", f"/rules/{reviews.rule_id}/corrections{after}")
    assert rest.body.splitlines() == answer.body.splitlines()[4:]


@on_sqlite
async def test_an_empty_table_still_has_its_headings(reviews: ReviewClient):
    answer = await reviews.client.call("GET", f"/rules/{reviews.rule_id}/corrections?format=csv")
    assert answer.body.decode("utf-8-sig").startswith("correction_id,task_id,run,")
    assert (await reviews.client.call("GET", f"/rules/{reviews.rule_id}/corrections?format=jsonl")).body == b""


@on_sqlite
async def test_without_a_review_there_is_no_figure(reviews: ReviewClient):
    await reviews.completed()
    assert await reviews.accuracy() == {
        "rule_id": reviews.rule_id, "values": 0, "corrected": 0, "accuracy": None, "reviewed_tasks": 0,
        "reviewed_whole": 0, "versions": [], "fields": [], "is_all": True,
    }  # fmt: skip


async def test_a_rule_is_as_good_as_the_share_of_values_that_were_right_by_field(reviews: ReviewClient):
    whole, part = await reviews.completed(), await reviews.completed(name="b.md")
    await reviews.correct(whole, ("/items/1/price", 51), ("/seller/city", "Ulm"), reviewed=True)
    await reviews.correct(part, ("/items/0/price", 40), ("/items/1/price", 5))
    told = await reviews.accuracy()
    assert (told["reviewed_tasks"], told["reviewed_whole"], told["is_all"]) == (2, 1, True)
    assert (told["values"], told["corrected"]) == (11, 3)
    fields = {one["field"]: (one["values"], one["corrected"], one["accuracy"]) for one in told["fields"]}
    assert list(fields) == sorted(fields)
    assert fields["/items/*/price"] == (4, 2, 0.5)
    assert fields["/seller/city"] == (1, 1, 0.0)
    assert fields["/total"] == (1, 0, 1.0)


async def test_a_figure_is_made_of_the_latest_reviews_and_says_so(
    reviews: ReviewClient, monkeypatch: pytest.MonkeyPatch
):
    for n in range(4):
        task_id = await reviews.completed(name=f"{n}.md")
        await reviews.correct(task_id, *([("/total", 1)] if n < 2 else []), reviewed=True)
    monkeypatch.setattr(accuracy, "REVIEWS_PAGE", 1)
    for most, corrected, is_all in ((2, 0, False), (3, 1, False), (4, 2, True)):
        monkeypatch.setattr(accuracy, "MAX_REVIEWS", most)
        told = await reviews.accuracy()
        assert (told["reviewed_tasks"], told["corrected"], told["is_all"]) == (most, corrected, is_all)


async def test_both_runs_of_a_task_count_and_the_task_once(reviews: ReviewClient):
    task_id = await reviews.completed()
    await reviews.correct(task_id, ("/total", 1), reviewed=True)
    await reviews.client.json("POST", f"/tasks/{task_id}/retry", {"force": True})
    await reviews.client.work()
    await reviews.correct(task_id, reviewed=True)
    told = await reviews.accuracy()
    assert (told["values"], told["corrected"], told["reviewed_tasks"]) == (16, 1, 1)


@on_sqlite
async def test_a_rule_with_a_map_of_names_has_no_more_fields_than_can_be_shown(
    reviews: ReviewClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(accuracy, "MAX_FIELDS", 3)
    reviews.rule_id = await new_rule(
        reviews.client, schema={"type": "object", "additionalProperties": {"type": "integer"}}
    )
    for n in range(2):
        task_id = await reviews.completed({f"{n}{letter}": 1 for letter in "abcd"}, name=f"{n}.md")
        await reviews.correct(task_id, reviewed=True)
    told = await reviews.accuracy()
    assert (told["values"], len(told["fields"])) == (8, 3)
