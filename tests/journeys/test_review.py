"""A rule asks for a person: the question is a task that anyone may pull, and the pushed answer completes the document.

The document goes through a server and a worker to a model that makes up a value, or fails. In the storm, the worker is
killed between each two steps, so that every step is done by another one.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.resources import files
from typing import Any

import aiohttp
import pytest
from msgspec import json

from tests.fakes.llm_server import LlmServer
from tests.journeys.command import Command, Serving
from tests.journeys.documents import SOON, Client, new_client
from tests.journeys.profiles import ADMIN_KEY, Profile

INVOICE = (files("penstock.cli") / "samples" / "invoice.pdf").read_bytes()
SCHEMA = {
    "type": "object",
    "properties": {"number": {"type": "string"}, "total": {"type": ["number", "null"]}},
    "required": ["number", "total"],
}
TRUE = {"number": "MS-2026-0117", "total": 387.2}
MADE_UP = {**TRUE, "number": "XX-1999-4242"}
CHECKS = "/projects/checks/queues/invoices/tasks"

pytestmark = pytest.mark.timeout(240)

Restart = Callable[[], None]


class Office:
    """A server, a worker that can be killed, an admin who has a rule, and Clara, who pulls reviews."""

    def __init__(self, profile: Profile, session: aiohttp.ClientSession, stub: LlmServer) -> None:
        self.settings = profile.settings | {
            "LLM_BASE_URL": stub.base_url,
            "LLM_API_KEY": "sk-of-the-journey",
            "LLM_MODEL": "good",
            "PENSTOCK_LEASE_SECONDS": "2",
        }
        self.session = session
        self.server = Serving("--no-workers", **self.settings)
        self.worker = Command("work", "--modules", "etl", **self.settings)
        self.admin = Client(session, self.server.url, ADMIN_KEY)

    async def open(self) -> None:
        await self.server.ready(self.session)
        self.clara = await new_client(self.server, self.session, user_id=72)
        self.clara.headers["X-Client-Id"] = "clara"

    def restart_worker(self) -> None:
        """Kill -9, and another one."""
        self.worker.kill()
        self.worker = Command("work", "--modules", "etl", **self.settings)

    def close(self) -> None:
        self.server.kill()
        self.worker.kill()

    async def make_rule(self, **more: Any) -> int:
        review = {"when": ["ungrounded", "failed"], "project_id": "checks", "queue_id": "invoices"}
        body = {"name": "invoice", "json_schema": SCHEMA, "review": review, **more}
        status, made = await self.admin.ask("POST", "/etl/rules", json=body)
        assert status == 201, made
        return int(json.decode(made)["rule_id"])

    async def etl_task(self, task_id: int) -> dict[str, Any]:
        task: dict[str, Any] = await self.admin.get(f"/etl/tasks/{task_id}")
        return task

    async def until(self, task_id: int, **wanted: object) -> dict[str, Any]:
        """The etl task, once it has these values."""

        async with asyncio.timeout(SOON):
            while True:
                task = await self.etl_task(task_id)
                if all(task[name] == value for name, value in wanted.items()):
                    return task
                assert task["status"] not in {"completed", "failed"} or task["review"] is not None, task
                await asyncio.sleep(0.05)  # other processes do the work

    async def pulled(self) -> dict[str, Any]:
        """The review task that Clara gets."""

        async def found() -> dict[str, Any] | None:
            status, body = await self.clara.ask("GET", f"{CHECKS}/pull")
            tasks = json.decode(body)["data"]["tasks"] if status == 200 else []  # 404 until the project is there
            return tasks[0] if tasks else None

        return await soon(found)

    async def push(self, task: dict[str, Any], result: object) -> tuple[int, Any]:
        path = f"/tasks/checks/invoices/{task['task_id']}/status"
        status, body = await self.clara.ask("PATCH", path, json={"status": "done", "result": result})
        return status, json.decode(body)

    async def corrections(self, task_id: int) -> list[tuple[str, Any, str]]:
        listed = await self.admin.get(f"/etl/tasks/{task_id}/corrections")
        return [(one["pointer"], one["corrected"], one["created_by"]) for one in listed["corrections"]]


async def soon(find: Callable[[], Awaitable[dict[str, Any] | None]]) -> dict[str, Any]:
    """What it finds, as soon as it finds something."""
    async with asyncio.timeout(SOON):
        while (found := await find()) is None:  # noqa: ASYNC110  (other processes do the work)
            await asyncio.sleep(0.05)
    return found


@pytest.fixture
async def stub() -> AsyncIterator[LlmServer]:
    async with LlmServer() as server:
        server.answers(lambda call: MADE_UP)
        yield server


@pytest.fixture
async def office(profile: Profile, session: aiohttp.ClientSession, stub: LlmServer) -> AsyncIterator[Office]:
    made = Office(profile, session, stub)
    try:
        await made.open()
        yield made
    finally:
        made.close()


async def an_ungrounded_value_is_corrected(office: Office, between: Restart) -> None:
    task_id = await office.admin.send("invoice.pdf", INVOICE, rule_id=await office.make_rule())
    between()
    await office.until(task_id, status="completed", review="waiting")
    between()
    task = await office.pulled()
    assert task["result_schema"] == SCHEMA
    assert "/number" in task["prompt"]
    assert "XX-1999-4242" in task["prompt"]
    between()
    status, refused = await office.push(task, {"number": 17, "total": 387.2})
    assert (status, refused["error"]["code"]) == (400, "VALIDATION_ERROR")
    between()
    assert (await office.push(task, TRUE))[0] == 200
    assert (await office.push(task, MADE_UP))[0] == 200  # a second push is too late to be an answer
    between()
    answered = await office.until(task_id, review="answered")
    between()
    assert answered["status"] == "completed"
    assert await office.corrections(task_id) == [("/number", "MS-2026-0117", "clara")]
    assert await office.admin.get(f"/etl/tasks/{task_id}/result?corrected=true") == TRUE


async def a_refused_answer_comes_back(office: Office, between: Restart) -> None:
    task_id = await office.admin.send("long.pdf", INVOICE, rule_id=await office.make_rule())
    await office.until(task_id, review="waiting")
    task = await office.pulled()
    between()
    assert (await office.push(task, {"number": "x" * 40_000, "total": 387.2}))[0] == 200
    between()
    again = await office.pulled()
    assert again["task_id"] == task["task_id"]
    shown = (await office.clara.get(f"{CHECKS}/{again['task_id']}"))["data"]
    assert "refused" in shown["messages"][-1]["content"]
    assert (await office.etl_task(task_id))["review"] == "waiting"
    between()
    assert (await office.push(again, TRUE))[0] == 200
    between()
    await office.until(task_id, review="answered")
    assert await office.corrections(task_id) == [("/number", "MS-2026-0117", "clara")]


async def the_answer_completes_a_failed_task(office: Office, between: Restart) -> None:
    task_id = await office.admin.send("broken.pdf", b"%PDF-1.7 and nothing else", rule_id=await office.make_rule())
    between()
    failed = await office.until(task_id, status="failed", review="waiting")
    between()
    task = await office.pulled()
    assert failed["error"] in task["prompt"]
    between()
    assert (await office.push(task, TRUE))[0] == 200
    between()
    done = await office.until(task_id, status="completed", review="answered")
    between()
    assert (done["error"], done["metadata"]["error_stage"], done["progress"]) == (None, None, 100)
    assert await office.admin.get(f"/etl/tasks/{task_id}/result") == TRUE
    assert await office.corrections(task_id) == [("", TRUE, "clara")]


async def a_cancel_withdraws_the_question(office: Office, between: Restart) -> None:
    task_id = await office.admin.send("cancelled.pdf", INVOICE, rule_id=await office.make_rule())
    await office.until(task_id, review="waiting")
    task = await office.pulled()
    between()
    status, body = await office.admin.ask("POST", f"/etl/tasks/{task_id}/cancel")
    assert (status, json.decode(body)["review"]) == (200, None)
    between()

    async def gone() -> dict[str, Any] | None:
        status, body = await office.clara.ask("GET", f"{CHECKS}/{task['task_id']}")
        return json.decode(body) if status != 200 else None

    await soon(gone)
    late, said = await office.push(task, TRUE)
    assert (late, said["error"]["code"]) == (410, "GONE")
    shown = await office.etl_task(task_id)
    assert (shown["status"], shown["review"], await office.corrections(task_id)) == ("completed", None, [])


async def test_an_ungrounded_value_is_corrected_by_whoever_pulls_the_review(office: Office):
    await an_ungrounded_value_is_corrected(office, lambda: None)
    await a_refused_answer_comes_back(office, lambda: None)


async def test_the_answer_to_a_failed_task_completes_it_and_a_cancel_withdraws_the_question(office: Office):
    await the_answer_completes_a_failed_task(office, lambda: None)
    await a_cancel_withdraws_the_question(office, lambda: None)


async def test_only_an_admin_saves_a_rule_that_makes_tasks(office: Office):
    review = {"when": ["failed"], "project_id": "checks"}
    body = {"name": "invoice", "json_schema": SCHEMA, "review": review}
    status, refused = await office.clara.ask("POST", "/etl/rules", json=body)
    assert (status, json.decode(refused)["code"]) == (403, "SCOPE_TOO_SMALL")


@pytest.mark.storm
async def test_a_worker_killed_between_each_two_steps_loses_and_doubles_nothing(office: Office):
    await an_ungrounded_value_is_corrected(office, office.restart_worker)
    await a_refused_answer_comes_back(office, office.restart_worker)
    await the_answer_completes_a_failed_task(office, office.restart_worker)
    await a_cancel_withdraws_the_question(office, office.restart_worker)
