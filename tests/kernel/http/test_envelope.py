"""The response envelope of the tasks API, to the letter."""

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar

import pytest
from fastapi import APIRouter, FastAPI, HTTPException, Query
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, Field

from penstock.kernel import errors
from penstock.kernel.clock import ManualClock, iso_millis
from penstock.kernel.http.envelope import (
    ERRORS,
    EnvelopeRoute,
    Paged,
    PageHere,
    Said,
    SayHere,
    Timestamp,
)
from penstock.kernel.http.problems import install_error_handlers
from penstock.kernel.http.request_body import BodyTooLarge
from tests.asgi import Response, call

STAMP = "2026-01-01T00:00:00.000Z"


class OneTask(BaseModel):
    id: str = Field(min_length=1)
    priority: int = 5


class Pushed(BaseModel):
    tasks: list[OneTask]
    password: str = Field(default="", max_length=8)


class Held(BaseModel):
    at: Timestamp


class HeldElsewhere(errors.Conflict):
    code = "HELD_ELSEWHERE"
    message = "The task {task_id} is held by another client."
    message_zh = "任务 {task_id} 由另一个客户端持有。"
    hint = "Wait."
    hint_zh = "请等待。"


class WhoAreYou(errors.Unauthenticated):
    code = "WHO_ARE_YOU"
    www_authenticate: ClassVar[str] = 'Bearer realm="here"'


class InvalidApiKey(errors.Unauthenticated):
    code = "INVALID_API_KEY"


class FieldWrong(errors.Invalid):
    code = "FIELD_WRONG"
    message = "{reason}"


FAILURES: dict[str, Exception] = {
    "invalid": FieldWrong(reason="it is odd", field="queue_id"),
    "unknown": WhoAreYou(),
    "bad-key": InvalidApiKey(),
    "refused": errors.Refused(reason="not yours"),
    "missing": errors.NotFound(thing="task", id="t1", task_id="t1", project_id="p1"),
    "conflict": HeldElsewhere(task_id="t1", since=datetime(2026, 1, 1, tzinfo=UTC), holder_zh="某人"),
    "gone": errors.Gone(thing="task", id="t1"),
    "large": errors.TooLarge(reason="too long"),
    "many": errors.TooMany(wait_seconds=1.2),
    "away": errors.DiskFull(what="it"),
    "bug": RuntimeError("the secret is hunter2"),
    "half": errors.Conflict(reason="half a character: \ud83d"),
    "framework": HTTPException(400, "There was an error parsing the body"),
    "teapot": HTTPException(418, "short and stout"),
}

router = APIRouter(prefix="/enveloped", route_class=EnvelopeRoute, responses=ERRORS)


@router.get("/one")
async def one(say: SayHere) -> Said[Held]:
    zone = timezone(timedelta(hours=8))
    return say(Held(at=datetime(2026, 1, 1, 8, 0, 0, 123456, tzinfo=zone)), "Found.", "已找到。")


@router.get("/list")
async def some(say: SayHere, asked: PageHere) -> Said[Paged[int]]:
    everything = list(range(45))
    return say.page(everything[asked.offset :][: asked.size], asked, total=len(everything))


@router.post("/push")
async def push(body: Pushed, say: SayHere, limit: Annotated[int, Query(ge=1, le=100)] = 10) -> Said[int]:
    return say(len(body.tasks), "Taken.", "已接收。")


@router.get("/fail/{how}")
async def fail(how: str, say: SayHere) -> Said[None]:
    raise FAILURES[how]


@pytest.fixture
def app(clock: ManualClock) -> FastAPI:
    app = FastAPI()
    app.state.db = SimpleNamespace(clock=clock)
    app.include_router(router)
    install_error_handlers(app)
    return app


async def failed(app: FastAPI, how: str, **headers: str) -> Response:
    return await call(app, "GET", f"/enveloped/fail/{how}", headers=list(headers.items()))


class TestSuccess:
    async def test_it_has_these_four_fields(self, app: FastAPI):
        answer = await call(app, "GET", "/enveloped/one")
        assert answer.json == {
            "success": True,
            "data": {"at": "2026-01-01T00:00:00.123Z"},
            "message": "Found.",
            "timestamp": STAMP,
        }

    async def test_its_message_is_in_the_callers_language(self, app: FastAPI):
        answer = await call(app, "GET", "/enveloped/one", headers=[("Accept-Language", "zh-CN,zh;q=0.9")])
        assert answer.json["message"] == "已找到。"

    async def test_a_list_has_items_and_pagination(self, app: FastAPI):
        answer = await call(app, "GET", "/enveloped/list?page=3&pageSize=20")
        assert answer.data == {
            "items": [40, 41, 42, 43, 44],
            "pagination": {"page": 3, "pageSize": 20, "total": 45, "totalPages": 3},
        }

    async def test_a_page_has_twenty_items_by_default(self, app: FastAPI):
        data = (await call(app, "GET", "/enveloped/list")).data
        assert len(data["items"]) == 20
        assert data["pagination"] == {"page": 1, "pageSize": 20, "total": 45, "totalPages": 3}

    @pytest.mark.parametrize(
        ("query", "field"),
        [
            ("page=0", "page"),
            ("page=-1", "page"),
            ("page=x", "page"),
            ("page=99999999999999999999", "page"),
            ("pageSize=0", "pageSize"),
            ("pageSize=-1", "pageSize"),
            ("pageSize=", "pageSize"),
        ],
    )
    async def test_a_page_out_of_range_is_refused_by_name(self, app: FastAPI, query: str, field: str):
        answer = await call(app, "GET", f"/enveloped/list?{query}")
        assert answer.status == 400
        assert answer.error["code"] == "VALIDATION_ERROR"
        assert answer.error["details"]["field"] == field

    def test_timestamps_are_utc_with_milliseconds(self):
        assert iso_millis(datetime(2026, 1, 1, 9, 0, 0, 999999, tzinfo=timezone(timedelta(hours=9)))) == (
            "2026-01-01T00:00:00.999Z"
        )


class TestFields:
    async def test_every_invalid_field_is_named_by_its_path(self, app: FastAPI):
        body = {"tasks": [{"id": ""}, {"id": "b", "priority": "high"}, {}]}
        answer = await call(app, "POST", "/enveloped/push?limit=0", body)
        assert answer.status == 400
        assert set(answer.json) == {"success", "error", "timestamp"}
        error = answer.error
        assert error["code"] == "VALIDATION_ERROR"
        assert [bad["field"] for bad in error["details"]["all_errors"]] == [
            "limit",
            "tasks[0].id",
            "tasks[1].priority",
            "tasks[2].id",
        ]
        assert (error["details"]["field"], error["details"]["reason"]) == tuple(
            error["details"]["all_errors"][0][name] for name in ("field", "reason")
        )
        assert all(set(bad) == {"field", "reason"} for bad in error["details"]["all_errors"])
        assert answer.json["timestamp"] == STAMP

    async def test_reasons_come_in_chinese_too(self, app: FastAPI):
        answer = await call(app, "POST", "/enveloped/push", {}, headers=[("Accept-Language", "zh")])
        assert answer.error["details"]["all_errors"] == [{"field": "tasks", "reason": "缺少此字段"}]
        assert "tasks" in answer.error["message"]
        assert answer.headers["content-language"] == "zh-CN"

    async def test_what_was_sent_is_not_repeated(self, app: FastAPI):
        answer = await call(app, "POST", "/enveloped/push", {"tasks": [], "password": "hunter2hunter2"})
        assert answer.error["details"]["field"] == "password"
        assert b"hunter2" not in answer.body

    async def test_of_a_thousand_invalid_fields_the_first_few_are_listed(self, app: FastAPI):
        answer = await call(app, "POST", "/enveloped/push", {"tasks": [{}] * 1000})
        assert answer.error["details"]["all_errors"][1]["field"] == "tasks[1].id"
        assert len(answer.error["details"]["all_errors"]) <= 100

    @pytest.mark.parametrize("body", [b"{", b"", b"\xff", b"[" * 50_000], ids=["cut", "none", "bytes", "deep"])
    async def test_a_body_that_cannot_be_read_is_named_as_a_whole(self, app: FastAPI, body: bytes):
        answer = await call(app, "POST", "/enveloped/push", body)
        assert answer.status == 400
        assert answer.error["code"] == "VALIDATION_ERROR"
        assert answer.error["details"]["field"] == "body"

    async def test_a_field_refused_below_the_api_is_named_alike(self, app: FastAPI):
        answer = await failed(app, "invalid")
        assert answer.error["details"] == {
            "field": "queue_id",
            "reason": "it is odd",
            "all_errors": [{"field": "queue_id", "reason": "it is odd"}],
            "code": "FIELD_WRONG",
            "hint": "",
        }


class TestErrors:
    @pytest.mark.parametrize(
        ("how", "status", "code"),
        [
            ("invalid", 400, "VALIDATION_ERROR"),
            ("unknown", 401, "INVALID_API_KEY"),
            ("bad-key", 401, "INVALID_API_KEY"),
            ("refused", 403, "FORBIDDEN"),
            ("missing", 404, "RESOURCE_NOT_FOUND"),
            ("conflict", 409, "CONFLICT"),
            ("gone", 410, "GONE"),
            ("many", 429, "RATE_LIMIT_EXCEEDED"),
            ("bug", 500, "INTERNAL_ERROR"),
            ("large", 413, "TOO_LARGE"),  # the envelope has no code for these two: ours are kept
            ("away", 503, "DISK_FULL"),
            ("framework", 400, "VALIDATION_ERROR"),
        ],
    )
    async def test_each_kind_has_its_envelope_code(self, app: FastAPI, how: str, status: int, code: str):
        answer = await failed(app, how)
        assert (answer.status, answer.error["code"]) == (status, code)
        assert answer.json.keys() == {"success", "error", "timestamp"}
        more = {"many": {"details", "retry_after"}, "bug": set()}.get(how, {"details"})
        assert answer.error.keys() == {"code", "message", *more}
        assert answer.headers["content-type"] == "application/json"
        assert int(answer.headers["content-length"]) == len(answer.body)

    async def test_details_carry_our_own_code_the_hint_and_the_values(self, app: FastAPI):
        assert (await failed(app, "conflict")).error == {
            "code": "CONFLICT",
            "message": "The task t1 is held by another client.",
            "details": {
                "task_id": "t1",
                "since": "2026-01-01 00:00:00+00:00",
                "code": "HELD_ELSEWHERE",
                "hint": "Wait.",
            },
        }

    async def test_a_missing_thing_names_its_ids(self, app: FastAPI):
        details = (await failed(app, "missing")).error["details"]
        assert (details["task_id"], details["project_id"]) == ("t1", "p1")

    async def test_messages_and_hints_come_in_chinese(self, app: FastAPI):
        answer = await failed(app, "conflict", **{"Accept-Language": "zh-CN"})
        assert answer.error["message"] == "任务 t1 由另一个客户端持有。"
        assert answer.error["details"]["hint"] == "请等待。"

    async def test_a_rate_limit_sends_retry_after_rounded_up(self, app: FastAPI):
        assert (await failed(app, "many")).headers["retry-after"] == "2"

    async def test_an_unknown_caller_is_challenged(self, app: FastAPI):
        assert (await failed(app, "unknown")).headers["www-authenticate"] == 'Bearer realm="here"'

    async def test_a_bug_is_logged_and_not_shown(self, app: FastAPI, caplog: pytest.LogCaptureFixture):
        answer = await failed(app, "bug")
        assert answer.error == {
            "code": "INTERNAL_ERROR",
            "message": "Something went wrong.",
        }
        assert "GET /enveloped/fail/{how} failed" in caplog.text
        assert "hunter2" in caplog.text

    async def test_a_lone_surrogate_does_not_break_the_response(self, app: FastAPI):
        answer = await failed(app, "half")
        assert answer.status == 409
        assert answer.error["message"].startswith("half a character")

    async def test_an_error_of_ours_raised_while_reading_the_body_keeps_its_code(self, app: FastAPI):
        async def receive() -> Any:
            raise BodyTooLarge(most_bytes=5)

        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/enveloped/push", "query_string": b"", "headers": []}
        await app(scope, receive, send)
        assert sent[0]["status"] == 413
        assert json.loads(sent[1]["body"])["error"]["code"] == "BODY_TOO_LARGE"

    async def test_another_status_of_the_framework_is_left_to_the_app(self, app: FastAPI):
        assert (await failed(app, "teapot")).status == 418


def test_openapi_shows_the_envelope_errors_and_not_the_frameworks(app: FastAPI):
    document = json.dumps(get_openapi(title="t", version="1", routes=app.routes))
    assert "HTTPValidationError" not in document
    assert re.search(r'"default": \{"description": "Error\."', document)
    assert '"pageSize"' in document
