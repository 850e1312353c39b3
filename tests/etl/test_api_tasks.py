"""Routes of tasks, exactly as clients of the older API expect them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.documents.errors import DocumentEmpty
from penstock.documents.pages import read_pages
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.errors import Invalid
from tests.etl.api_client import CALLERS, EtlClient, client_with, open_client
from tests.etl.harness import on_sqlite
from tests.fakes.blocking_handler import wait_until
from tests.fakes.ocr import OcrThatFails

KNOWN = {
    "task_id", "user_id", "project_id", "filename", "rule_id", "status", "progress", "created_at", "updated_at",
    "result", "error", "review", "metadata",
}  # fmt: skip


pytestmark = on_sqlite


@pytest.fixture
async def client(db: Db, tmp_path: Path) -> AsyncIterator[EtlClient]:
    async with open_client(db, tmp_path) as opened:
        yield opened


def unreadable(client: EtlClient) -> EtlClient:
    """The same client with an OCR provider that fails."""
    error = Invalid(reason="nobody can read this")
    return client_with(client.deps, provider=OcrThatFails(client.deps.blobs, error, times=1))


async def status_of(client: EtlClient, task_id: int) -> str:
    status: str = (await client.json("GET", f"/tasks/{task_id}"))["status"]
    return status


class TestSubmit:
    async def test_the_answer_comes_at_once_with_a_number(self, client: EtlClient):
        await client.deps.blobs.put("users/5/raw/3/a.pdf", b"Total: 1")
        answer = await client.call("POST", "/submit", {"project_id": 3, "filename": "a.pdf"})
        assert answer.status == 202
        assert set(answer.json) == {"task_id", "status", "message"}
        assert isinstance(answer.json["task_id"], int)
        assert (answer.json["status"], answer.json["message"]) == ("pending", "Task accepted.")

    async def test_without_a_rule_the_default_one_is_used(self, client: EtlClient):
        task = await client.json("GET", f"/tasks/{await client.submit()}")
        assert (task["rule_id"], task["metadata"]["s3_key"]) == (0, "users/5/raw/3/a.md")

    async def test_a_named_object_and_rule_are_used(self, client: EtlClient):
        rule = await client.json("POST", "/rules", {"name": "Mine", "postprocess_mode": "skip"})
        await client.deps.blobs.put("users/5/elsewhere/b.md", b"Total: 2")
        task_id = await client.submit(rule_id=rule["rule_id"], s3_key="users/5/elsewhere/b.md")
        task = await client.json("GET", f"/tasks/{task_id}")
        assert (task["rule_id"], task["metadata"]["s3_key"]) == (rule["rule_id"], "users/5/elsewhere/b.md")

    async def test_what_is_not_there_or_not_theirs_is_refused(self, client: EtlClient):
        foreign = (await client.json("POST", "/rules", {"name": "B", "postprocess_mode": "skip"}, key="bert"))[
            "rule_id"
        ]
        await client.deps.blobs.put("users/5/raw/3/a.md", b"a")
        await client.deps.blobs.put("users/6/raw/3/a.md", b"b")
        body = {"project_id": 3, "filename": "a.md"}
        assert await client.refused("POST", "/submit", {**body, "filename": "no.md"}) == (404, "SOURCE_NOT_FOUND")
        stolen = {**body, "s3_key": "users/6/raw/3/a.md"}
        assert await client.refused("POST", "/submit", stolen) == (403, "FOREIGN_SOURCE")
        for rule_id in (999, foreign):
            told = await client.refused("POST", "/submit", {**body, "rule_id": rule_id})
            assert told == (404, "RULE_NOT_FOUND")

    @pytest.mark.parametrize(
        "body",
        [
            {"filename": "a.md"},
            {"project_id": 3},
            {"project_id": "x", "filename": "a.md"},
            {"project_id": True, "filename": "a.md"},
            {"project_id": "1_0", "filename": "a.md"},
            {"project_id": -1, "filename": "a.md"},
            {"project_id": 2**63, "filename": "a.md"},
            {"project_id": 3, "filename": " "},
            {"project_id": 3, "filename": "a\nb.md"},
            {"project_id": 3, "filename": "a" * 256},
            {"project_id": 3, "filename": "a.md", "rule_id": "first"},
            {"project_id": 3, "filename": "a.md", "ruleid": 1},
            {"project_id": 3, "filename": "a.md", "s3Key": "users/5/raw/3/b.md"},
        ],
    )
    async def test_fields_that_do_not_fit_are_named(self, client: EtlClient, body: object):
        assert await client.refused("POST", "/submit", body) == (400, "VALIDATION")

    async def test_a_full_queue_is_said_with_a_time_to_come_back(self, client: EtlClient):
        full = client_with(client.deps, config=type(client.deps.config)(queue_size=1))
        await full.submit()
        answer = await full.call("POST", "/submit", {"project_id": 3, "filename": "a.md"})
        assert (answer.status, answer.json["code"]) == (429, "QUEUE_FULL")
        assert int(answer.headers["retry-after"]) >= 1

    async def test_the_message_is_chinese_for_who_reads_chinese(self, client: EtlClient):
        await client.deps.blobs.put("users/5/raw/3/a.md", b"a")
        body = {"project_id": 3, "filename": "a.md"}
        answer = await client.call("POST", "/submit", body, accept_language="zh-CN")
        assert answer.json["message"] == "任务已提交。"


class TestGet:
    @pytest.mark.parametrize("number", ["1_0", "+1", "01", "1.0", "one"])
    async def test_a_number_is_taken_only_as_people_write_it(self, client: EtlClient, number: str):
        assert await client.refused("GET", f"/tasks/{number}") == (400, "VALIDATION")

    async def test_a_task_has_every_field_that_clients_know(self, client: EtlClient):
        task_id = await client.submit()
        task = await client.json("GET", f"/tasks/{task_id}")
        assert set(task) == {*KNOWN, "queue_position"}
        assert (task["task_id"], task["user_id"], task["project_id"]) == (task_id, 5, 3)
        assert (task["filename"], task["status"], task["progress"]) == ("a.md", "pending", 0)
        assert (task["result"], task["error"]) == (None, None)
        pointers = {"s3_key", "provider_task_id", "artifact_mineru_markdown_key", "error_stage"}
        assert pointers <= set(task["metadata"])
        assert task["created_at"] == "2026-01-01T00:00:00Z"

    async def test_a_completed_task_tells_where_its_result_is(self, client: EtlClient):
        task_id = await client.submit("Total: 12.5")
        await client.work()
        task = await client.json("GET", f"/tasks/{task_id}")
        assert (task["status"], task["progress"], task["error"]) == ("completed", 100, None)
        result = task["result"]
        assert result["output_path"] == "users/5/processed/3/a.md.json"
        assert result["output_size"] == len(await client.deps.blobs.get(result["output_path"]))
        assert (result["provider_task_id"], result["mineru_task_id"]) == ("echo-a.md", "echo-a.md")
        assert result["processing_time"] >= 0
        markdown = task["metadata"]["artifact_mineru_markdown_key"]
        assert markdown == f"users/5/etl_artifacts/3/{task_id}/mineru.md"

    async def test_a_failed_task_tells_why_and_in_which_stage(self, client: EtlClient):
        broken = unreadable(client)
        task_id = await broken.submit()
        await broken.work()
        task = await client.json("GET", f"/tasks/{task_id}")
        assert (task["status"], task["metadata"]["error_stage"]) == ("failed", "mineru")
        assert "nobody can read this" in task["error"]
        assert "zh" not in task["metadata"]

    async def test_a_failed_task_tells_why_in_chinese(self, client: EtlClient):
        error = DocumentEmpty(filename="a.md")
        broken = client_with(client.deps, provider=OcrThatFails(client.deps.blobs, error, times=1))
        task_id = await broken.submit()
        await broken.work()
        told = await client.call("GET", f"/tasks/{task_id}", accept_language="zh-CN")
        asked = await client.call("GET", f"/tasks/batch?task_ids={task_id}", accept_language="zh-CN")
        assert [{**task, "queue_position": None} for task in asked.json["tasks"]] == [told.json]
        assert (told.json["error"], told.json["metadata"]["hint"]) == (error.in_chinese(), error.hint_zh)
        assert error.in_chinese() != str(error)

    async def test_what_is_unknown_or_foreign_is_not_found(self, client: EtlClient):
        foreign = await client.submit(key="bert")
        for task_id in (foreign, 999, 2**63 - 1):
            answer = await client.call("GET", f"/tasks/{task_id}")
            assert (answer.status, answer.json["detail"]) == (404, "Task not found")
        assert (await client.json("GET", f"/tasks/{foreign}", key="root"))["user_id"] == 6

    async def test_a_pending_task_tells_its_place_in_the_queue(self, client: EtlClient):
        first, second = await client.submit(), await client.submit(name="b.md")
        positions = [(await client.json("GET", f"/tasks/{one}"))["queue_position"] for one in (first, second)]
        assert sorted(positions) == [1, 2]
        await client.work()
        assert (await client.json("GET", f"/tasks/{first}"))["queue_position"] is None

    async def test_a_request_can_wait_for_the_end_of_a_task(self, client: EtlClient):
        task_id = await client.submit()
        waiting = asyncio.create_task(client.json("GET", f"/tasks/{task_id}?wait=60"))
        await wait_until(lambda: bool(client.deps.db.wakeups._listeners))
        await client.work()
        assert (await waiting)["status"] == "completed"

    @pytest.mark.parametrize("wait", ["-1", "61", "long", "nan", "inf"])
    async def test_a_wait_that_is_no_number_or_too_long_is_refused(self, client: EtlClient, wait: str):
        task_id = await client.submit()
        assert await client.refused("GET", f"/tasks/{task_id}?wait={wait}") == (400, "VALIDATION")

    @pytest.mark.parametrize("task_id", ["x", "1.5", "+1", "1e3", "٣"])
    async def test_a_number_that_is_none_is_refused(self, client: EtlClient, task_id: str):
        assert await client.refused("GET", f"/tasks/{task_id}") == (400, "VALIDATION")


class TestList:
    async def test_tasks_come_newest_first_in_pages(self, client: EtlClient, clock: ManualClock):
        made = []
        for _ in range(5):
            made.append(await client.submit())
            clock.advance(seconds=1)
        first = await client.json("GET", "/tasks?limit=3")
        assert [task["task_id"] for task in first["tasks"]] == made[:1:-1]
        assert (first["limit"], first["offset"], first["next_offset"]) == (3, 0, 3)
        assert (first["total"], first["total_is_exact"]) == (5, True)
        rest = await client.json("GET", f"/tasks?limit=3&offset={first['next_offset']}")
        assert [task["task_id"] for task in rest["tasks"]] == made[1::-1]
        assert rest["next_offset"] is None

    async def test_only_their_own_are_listed_and_an_admin_sees_all(self, client: EtlClient):
        mine, foreign = await client.submit(), await client.submit(key="bert")
        assert [task["task_id"] for task in (await client.json("GET", "/tasks"))["tasks"]] == [mine]
        everyone = (await client.json("GET", "/tasks", key="root"))["tasks"]
        assert [task["task_id"] for task in everyone] == [foreign, mine]

    async def test_filters_by_project_and_status(self, client: EtlClient):
        done = await client.submit()
        await client.work()
        waits = await client.submit()

        async def found(query: str) -> list[int]:
            return [task["task_id"] for task in (await client.json("GET", f"/tasks?{query}"))["tasks"]]

        assert await found("status=completed") == [done]
        assert await found("status=pending&project_id=3") == [waits]
        assert await found("project_id=4") == []

    @pytest.mark.parametrize("query", ["limit=0", "limit=101", "offset=-1", "status=lost", "project_id=x"])
    async def test_a_question_that_does_not_fit_is_refused(self, client: EtlClient, query: str):
        assert await client.refused("GET", f"/tasks?{query}") == (400, "VALIDATION")


class TestBatch:
    async def test_those_that_exist_and_are_theirs_come_in_the_order_asked(self, client: EtlClient):
        first, second, foreign = await client.submit(), await client.submit(), await client.submit(key="bert")
        asked = f"{first}, 999,{foreign},{second},{first}"
        told = await client.json("GET", f"/tasks/batch?task_ids={asked.replace(' ', '%20')}")
        found = told["tasks"]
        assert told["total"] == 2
        assert [task["task_id"] for task in found] == [first, second]
        assert set(found[0]) == KNOWN

    @pytest.mark.parametrize("ids", ["", "a", "1,,2", "1;2", "0", "-1", "٣", str(2**63), "1" * 5000])
    async def test_what_are_no_numbers_is_refused(self, client: EtlClient, ids: str):
        assert await client.refused("GET", f"/tasks/batch?task_ids={ids}") == (400, "VALIDATION")

    async def test_a_hundred_can_be_asked_for_and_no_more(self, client: EtlClient):
        assert (await client.json("GET", f"/tasks/batch?task_ids={numbers(100)}"))["tasks"] == []
        assert await client.refused("GET", f"/tasks/batch?task_ids={numbers(101)}") == (400, "VALIDATION")
        assert await client.refused("GET", "/tasks/batch") == (400, "VALIDATION")


def numbers(count: int) -> str:
    return ",".join(map(str, range(1, count + 1)))


class TestCancel:
    async def test_a_waiting_task_is_cancelled_and_never_worked_on(self, client: EtlClient):
        task_id = await client.submit()
        told = await client.json("POST", f"/tasks/{task_id}/cancel")
        assert (told["task_id"], told["status"]) == (task_id, "cancelled")
        assert told["message"]
        await client.work()
        assert await status_of(client, task_id) == "cancelled"
        assert client.ocr.calls == 0

    async def test_force_cancels_and_a_task_that_is_over_is_refused(self, client: EtlClient):
        task_id = await client.submit()
        assert (await client.json("POST", f"/tasks/{task_id}/cancel?force=true"))["status"] == "cancelled"
        for query in ("", "?force=true"):
            assert await client.refused("POST", f"/tasks/{task_id}/cancel{query}") == (409, "ETL_TASK_OVER")


class TestRetry:
    async def test_a_cancelled_task_is_tried_again_without_a_body(self, client: EtlClient):
        task_id = await client.submit()
        await client.json("POST", f"/tasks/{task_id}/cancel")
        told = await client.json("POST", f"/tasks/{task_id}/retry")
        assert (told["task_id"], told["status"]) == (task_id, "pending")
        await client.work()
        assert await status_of(client, task_id) == "completed"

    async def test_postprocess_needs_what_was_read_and_reads_nothing_again(self, client: EtlClient):
        failed = await client.submit(name="bad.md")
        await unreadable(client).work()
        done = await client.submit()
        await client.work()
        body = {"from_stage": "postprocess"}
        assert await client.refused("POST", f"/tasks/{failed}/retry", body) == (409, "NO_OCR_ARTIFACT")
        assert await client.refused("POST", f"/tasks/{done}/retry", body) == (409, "ETL_TASK_OVER")
        read = client.ocr.calls
        await client.json("POST", f"/tasks/{done}/retry", {**body, "force": True, "reset_error": True})
        await client.work()
        assert await status_of(client, done) == "completed"
        assert client.ocr.calls == read

    async def test_a_task_that_is_under_way_is_refused(self, client: EtlClient):
        task_id = await client.submit()
        assert await client.refused("POST", f"/tasks/{task_id}/retry", {}) == (409, "ETL_TASK_RUNNING")

    @pytest.mark.parametrize("body", [{"from_stage": "llm"}, {"force": "perhaps"}, {"stage": "mineru"}, [1]])
    async def test_a_body_that_does_not_fit_is_refused(self, client: EtlClient, body: object):
        task_id = await client.submit()
        assert await client.refused("POST", f"/tasks/{task_id}/retry", body) == (400, "VALIDATION")


class TestArtifacts:
    async def test_they_come_from_the_store_with_their_types(self, client: EtlClient):
        task_id = await client.submit("Total: 12.5")
        await client.work()
        result = await client.call("GET", f"/tasks/{task_id}/result")
        assert (result.status, result.headers["content-type"]) == (200, "application/json")
        assert result.json["total"] == 12.5
        markdown = await client.call("GET", f"/tasks/{task_id}/markdown")
        assert markdown.headers["content-type"] == "text/markdown; charset=utf-8"
        assert markdown.body == b"<!-- page 1 -->\nTotal: 12.5\n"
        grounding = await client.call("GET", f"/tasks/{task_id}/grounding")
        assert grounding.json["places"][0]["pointer"] == "/total"
        pages = await client.call("GET", f"/tasks/{task_id}/pages")
        assert pages.headers["content-type"] == "application/x-ndjson"
        [page] = read_pages(pages.body.splitlines())
        assert (page.number, page.markdown) == (1, "Total: 12.5")

    async def test_a_large_one_comes_whole(self, client: EtlClient):
        text = "Total: 1\n" + "x" * 3_500_000
        task_id = await client.submit(text)
        await client.work()
        assert (await client.call("GET", f"/tasks/{task_id}/markdown")).body == f"<!-- page 1 -->\n{text}\n".encode()

    @pytest.mark.parametrize("paper", ["result", "markdown", "pages", "grounding"])
    async def test_what_is_not_there_yet_is_a_conflict(self, client: EtlClient, paper: str):
        task_id = await client.submit()
        assert await client.refused("GET", f"/tasks/{task_id}/{paper}") == (409, "NOT_THERE_YET")


class TestDelete:
    async def test_a_task_goes_with_everything_it_made(self, client: EtlClient):
        task_id = await client.submit()
        await client.work()
        answer = await client.call("DELETE", f"/tasks/{task_id}")
        assert (answer.status, answer.body) == (204, b"")
        await client.work()
        assert await client.refused("GET", f"/tasks/{task_id}") == (404, "ETL_TASK_NOT_FOUND")
        assert await client.keys("") == []

    async def test_a_task_that_is_under_way_stays(self, client: EtlClient):
        task_id = await client.submit()
        assert await client.refused("DELETE", f"/tasks/{task_id}") == (409, "ETL_TASK_RUNNING")


async def test_a_foreign_task_is_as_good_as_none_whatever_is_asked(client: EtlClient):
    task_id = await client.submit(key="bert")
    assert CALLERS["anna"].user_id != CALLERS["bert"].user_id
    asked = [("POST", "/cancel"), ("POST", "/cancel?force=true"), ("POST", "/retry"), ("DELETE", "")]
    asked += [("GET", f"/{paper}") for paper in ("result", "markdown", "pages", "grounding")]
    for method, path in asked:
        assert await client.refused(method, f"/tasks/{task_id}{path}") == (404, "ETL_TASK_NOT_FOUND"), path
    assert await status_of_bert(client, task_id) == "pending"


async def status_of_bert(client: EtlClient, task_id: int) -> str:
    status: str = (await client.json("GET", f"/tasks/{task_id}", key="bert"))["status"]
    return status
