"""The routes of operators: jobs, dead letters, processes and periodic tasks."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.access.audit import list_lines
from penstock.access.domain import Caller, Scope
from penstock.kernel.errors import Invalid
from penstock.kernel.message import Message
from penstock.kernel.outbox import list_dead_letters
from penstock.kernel.processes import Heartbeat, ProcessKind
from penstock.kernel.queue import Job, JobState, NewJob, get_job
from penstock.kernel.relay import Relay
from penstock.kernel.workers import Workers
from penstock.web import ops
from penstock.web.app import build_app
from penstock.wiring import Runtime
from tests.asgi import Response, call
from tests.fakes.authenticators import FixedCallers

BASE = "/api/v1/ops"
ADMIN = Caller(name="ann", user_id=1, scope=Scope.ADMIN)
Ask = Callable[..., Awaitable[Response]]


@dataclass(frozen=True, kw_only=True)
class Told(Message):
    """A message whose handler fails."""

    number: int


@pytest.fixture
def ask(runtime: Runtime) -> Ask:
    app = build_app(runtime, routers=ops.ROUTERS)
    app.state.access = FixedCallers(ann=ADMIN)

    async def ask(method: str, path: str, body: object = None, *, language: str = "en") -> Response:
        headers = [("X-API-Key", "ann"), ("Accept-Language", language)]
        return await call(app, method, BASE + path, body, headers=headers)

    return ask


async def fail(_job: Job) -> None:
    raise Invalid(reason="no such page")


async def fail_jobs(runtime: Runtime, *jobs: NewJob) -> None:
    async with runtime.db.tx() as tx:
        await runtime.queue.enqueue(tx, *jobs)
    modules = sorted({job.module for job in jobs})
    handlers = {job.kind: fail for job in jobs}
    await Workers(runtime.db, runtime.queue, handlers, owner="worker", modules=modules).run_until_empty()


async def bury(runtime: Runtime, *numbers: int) -> list[str]:
    """Messages that died, oldest first."""

    async def refuse(_tx: object, told: Told) -> None:
        raise Invalid(reason=f"number {told.number}")

    async with runtime.db.tx() as tx:
        for number in numbers:
            tx.send(Told(number=number))
    await Relay(runtime.db, {Told: [refuse]}, owner="relay").deliver()
    async with runtime.db.read() as tx:
        return [letter.id for letter in await list_dead_letters(tx)][::-1]


async def audited(runtime: Runtime) -> list[tuple[str, str, Any]]:
    """What the audit log says, newest first."""
    async with runtime.db.read() as tx:
        return [(line.action, line.target, line.detail) for line in await list_lines(tx)]


def ids(answer: Response) -> list[str]:
    assert answer.status == 200, answer.body
    return [item["id"] for item in answer.json["items"]]


class TestJobs:
    async def test_failed_jobs_are_listed_in_pages_and_by_filter(self, runtime: Runtime, ask: Ask):
        await fail_jobs(runtime, *(NewJob(kind="bad", id=f"a:{number}") for number in range(3)))
        await fail_jobs(runtime, NewJob(kind="worse", id="b", module="etl"))
        first = await ask("GET", "/jobs?limit=3")
        rest = await ask("GET", f"/jobs?limit=3&after={first.json['next']}")
        assert (ids(first), ids(rest), rest.json["next"]) == (["b", "a:2", "a:1"], ["a:0"], None)
        assert first.json["items"][0]["error"] == "no such page"
        assert ids(await ask("GET", "/jobs?module=etl")) == ["b"]
        assert ids(await ask("GET", "/jobs?module=&kind=bad&error_code=INVALID")) == ["a:2", "a:1", "a:0"]
        assert ids(await ask("GET", "/jobs?error_code=WORKER_LOST")) == []
        assert ids(await ask("GET", "/jobs?since=2020-01-01T00:00:00%2B08:00&until=2020-01-02T00:00:00Z")) == []
        assert ids(await ask("GET", "/jobs?state=running")) == []

    async def test_a_job_is_shown_with_its_payload_and_history(self, runtime: Runtime, ask: Ask):
        await fail_jobs(runtime, NewJob(kind="bad", id="a", payload={"page": 7}))
        shown = (await ask("GET", "/jobs/a")).json
        assert (shown["payload"], shown["worker"], shown["error_code"]) == ({"page": 7}, "worker", "INVALID")
        assert [move["trigger"] for move in shown["history"]] == ["claim", "fail"]
        assert "token" not in shown
        assert (await ask("GET", "/jobs/nobody")).status == 404

    async def test_one_job_is_retried_and_then_no_longer(self, runtime: Runtime, ask: Ask):
        await fail_jobs(runtime, NewJob(kind="bad", id="a"))
        answer = await ask("POST", "/jobs/a/retry")
        assert (answer.status, answer.json["state"], answer.json["attempts"]) == (202, "waiting", 0)
        assert (await ask("POST", "/jobs/a/retry")).json["code"] == "WRONG_STATE"
        assert await audited(runtime) == [("job.retry", "job:a", {"by": "ann"})]

    async def test_many_jobs_are_retried_by_filter_a_bounded_number_per_call(self, runtime: Runtime, ask: Ask):
        await fail_jobs(runtime, *(NewJob(kind="bad", id=f"{number}") for number in range(5)))
        await fail_jobs(runtime, NewJob(kind="other", id="left"))
        body = {"kind": "bad", "limit": 3}
        first = (await ask("POST", "/jobs/retry", body)).json
        await fail_jobs(runtime, NewJob(kind="bad", id="later"))  # and those of before fail again
        second = (await ask("POST", "/jobs/retry", body | {"until": first["until"]})).json
        assert (first["retried"], first["more"]) == (3, True)
        assert (second["retried"], second["more"], second["until"]) == (2, False, first["until"])
        async with runtime.db.read() as tx:
            states = [(await get_job(tx, job_id)).state for job_id in ("3", "4", "left", "later")]
        assert states == [JobState.WAITING, JobState.WAITING, JobState.FAILED, JobState.FAILED]
        [line, _] = await audited(runtime)
        assert line[:2] == ("job.retry_many", "jobs")
        assert (line[2]["kind"], line[2]["count"]) == ("bad", 2)

    async def test_everything_is_retried_only_on_request(self, runtime: Runtime, ask: Ask):
        await fail_jobs(runtime, NewJob(kind="bad", id="a"))
        assert (await ask("POST", "/jobs/retry", {})).json["code"] == "FILTER_MISSING"
        assert (await ask("POST", "/jobs/retry", {"all": True})).json["retried"] == 1

    @pytest.mark.parametrize(
        ("query", "field", "reason"),
        [
            ("after=nonsense", "after", "Expected the `next` of the previous page"),
            ("after=0001-01-01T00:00:00%2B23:00~a", "after", "Expected the `next` of the previous page"),
            ("since=2026-01-01T00:00:00", "since", "Must have a time zone, such as 2026-01-01T08:00:00Z"),
            ("since=0001-01-01T00:00:00%2B23:00", "since", "The time is out of range"),
            ("kind=a%0Ab", "kind", "Must not contain control characters such as line breaks"),
            ("state=odd", "state", "Input should be 'failed', 'cancelled', 'done' or 'running'"),
        ],
    )
    async def test_a_wrong_query_is_told_in_words(self, ask: Ask, query: str, field: str, reason: str):
        answer = await ask("GET", f"/jobs?{query}")
        assert answer.status == 400
        assert answer.json["errors"] == [{"field": field, "reason": reason}]

    async def test_a_control_character_in_a_body_is_told_in_chinese_too(self, ask: Ask):
        answer = await ask("POST", "/jobs/retry", {"module": "a\0"}, language="zh")
        assert answer.json["errors"] == [{"field": "module", "reason": "不得包含换行等控制字符"}]


class TestMessages:
    async def test_dead_letters_are_listed_shown_and_sent_again(self, runtime: Runtime, ask: Ask):
        oldest, newest = await bury(runtime, 1, 2)
        page = await ask("GET", "/messages?limit=1")
        assert (ids(page), ids(await ask("GET", f"/messages?after={page.json['next']}"))) == ([newest], [oldest])
        assert ids(await ask("GET", "/messages?channel=Told&error=number+1")) == [oldest]
        shown = (await ask("GET", f"/messages/{oldest}")).json
        assert (shown["payload"], shown["error"], shown["attempts"]) == ({"number": 1}, "Invalid: number 1", 1)
        assert (await ask("POST", f"/messages/{oldest}/resend")).status == 202
        assert (await ask("POST", f"/messages/{oldest}/resend")).status == 404
        assert (await audited(runtime))[0][:2] == ("message.resend", f"message:{oldest}")

    async def test_many_are_sent_again_by_filter(self, runtime: Runtime, ask: Ask):
        await bury(runtime, 1, 2, 3)
        first = (await ask("POST", "/messages/resend", {"channel": "Told", "limit": 2})).json
        second = (await ask("POST", "/messages/resend", {"channel": "Told", "until": first["until"]})).json
        assert [first["resent"], first["more"], second["resent"], second["more"]] == [2, True, 1, False]
        assert (await ask("POST", "/messages/resend", {"limit": 2})).json["code"] == "FILTER_MISSING"
        assert ids(await ask("GET", "/messages")) == []


async def test_processes_are_listed(runtime: Runtime, ask: Ask):
    await Heartbeat(runtime.db, owner="host:1:a", kind=ProcessKind.WORK, modules=["etl"], version="1").beat()
    [shown] = (await ask("GET", "/processes")).json["items"]
    assert (shown["id"], shown["kind"], shown["modules"], shown["alive"]) == ("host:1:a", "work", ["etl"], True)


async def test_a_periodic_task_is_listed_and_run_now(runtime: Runtime, ask: Ask):
    await runtime.scheduler.register()
    await runtime.scheduler.tick()
    before = {task["name"]: task for task in (await ask("GET", "/periodic-tasks")).json["items"]}
    assert before["forget-history"]["every_seconds"] == 60
    assert before["forget-history"]["error"] is None
    asked = await ask("POST", "/periodic-tasks/forget-history/run")
    assert (asked.status, asked.json["state"]) == (202, "resting")
    assert asked.json["due_at"] == asked.json["requested_at"] < before["forget-history"]["due_at"]
    await runtime.scheduler.tick()
    after = {task["name"]: task for task in (await ask("GET", "/periodic-tasks")).json["items"]}
    assert after["forget-history"]["finished_at"] > before["forget-history"]["finished_at"]
    assert after["forget-history"]["requested_at"] is None
    assert (await ask("POST", "/periodic-tasks/nothing/run")).json["code"] == "NO_SUCH_PERIODIC_TASK"
    assert (await audited(runtime))[0][:2] == ("periodic_task.run", "periodic_task:forget-history")
