"""How errors look on the wire."""

from typing import ClassVar

import pytest
from fastapi import FastAPI
from starlette.exceptions import HTTPException

from penstock.kernel.errors import (
    Conflict,
    DiskFull,
    Gone,
    Invalid,
    NotFound,
    Refused,
    TooLarge,
    TooMany,
    Unauthenticated,
    Unavailable,
)
from tests.asgi import Response, send_request
from tests.kernel.http.conftest import ServedApp, raising


class OwnChallenge(Unauthenticated):
    """A 401 with a challenge of its own."""

    www_authenticate: ClassVar[str] = 'Bearer realm="test", error="invalid_token"'


async def post(app: FastAPI, body: bytes, **headers: str) -> Response:
    return await send_request(app, "POST", "/things", body, **({"content_type": "application/json"} | headers))


class TestProblem:
    async def test_it_has_all_fields_of_a_problem(self, served: ServedApp):
        served.raises = raising(NotFound(thing="letter", id="a/b"))
        answer = await send_request(served.app, "GET", "/raise", x_request_id="mine")
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json == {
            "type": "about:blank",
            "title": "Not Found",
            "status": 404,
            "detail": "There is no letter a/b.",
            "code": "NOT_FOUND",
            "retryable": False,
            "hint": "",
            "request_id": "mine",
        }

    @pytest.mark.parametrize(
        ("error", "status"),
        [
            (Invalid(reason="x"), 400),
            (Unauthenticated(), 401),
            (Refused(reason="x"), 403),
            (NotFound(thing="x", id=1), 404),
            (Conflict(reason="x"), 409),
            (Gone(thing="x", id=1), 410),
            (TooLarge(reason="x"), 413),
            (TooMany(wait_seconds=1), 429),
            (Unavailable(reason="x"), 503),
        ],
    )
    async def test_the_kind_decides_the_status(self, served: ServedApp, error: Exception, status: int):
        served.raises = raising(error)
        answer = await send_request(served.app, "GET", "/raise")
        assert (answer.status, answer.json["status"]) == (status, status)

    async def test_it_is_in_the_callers_language(self, served: ServedApp):
        served.raises = raising(DiskFull(what="x"))
        english = await send_request(served.app, "GET", "/raise", accept_language="fr, en;q=0.5")
        chinese = await send_request(served.app, "GET", "/raise", accept_language="zh-CN, en;q=0.5")
        assert (english.headers["content-language"], chinese.headers["content-language"]) == ("en", "zh-CN")
        assert english.headers["vary"] == chinese.headers["vary"] == "Accept-Language"
        assert english.json["detail"] == "There is no space left to write x."
        assert chinese.json["detail"] == "没有剩余空间可写入 x。"
        assert chinese.json["hint"] == DiskFull.hint_zh
        assert chinese.json["code"] == english.json["code"] == "DISK_FULL"

    @pytest.mark.parametrize(("wait", "told"), [(0.1, "1"), (1.0, "1"), (1.2, "2"), (59.9, "60"), (0, "1")])
    async def test_a_rate_limit_sends_retry_after(self, served: ServedApp, wait: float, told: str):
        served.raises = raising(TooMany(wait_seconds=wait))
        assert (await send_request(served.app, "GET", "/raise")).headers["retry-after"] == told

    async def test_a_retryable_503_sends_retry_after(self, served: ServedApp):
        served.raises = raising(Unavailable(reason="x"))
        assert (await send_request(served.app, "GET", "/raise")).headers["retry-after"] == "2"
        served.raises = raising(DiskFull(what="x"))
        assert (await send_request(served.app, "GET", "/raise")).headers["retry-after"] == "30"

    async def test_every_401_has_a_challenge(self, served: ServedApp):
        served.raises = raising(Unauthenticated())
        assert (await send_request(served.app, "GET", "/raise")).headers[
            "www-authenticate"
        ] == 'Bearer realm="penstock"'
        served.raises = raising(OwnChallenge())
        assert "invalid_token" in (await send_request(served.app, "GET", "/raise")).headers["www-authenticate"]

    async def test_values_that_have_no_utf8_are_escaped(self, served: ServedApp):
        served.raises = raising(NotFound(thing="\ud800", id="x" * 100_000))
        answer = await send_request(served.app, "GET", "/raise")
        assert answer.status == 404
        assert "\\ud800" in answer.json["detail"]
        assert len(answer.body) < 5000


class TestFrameworkErrors:
    async def test_an_unknown_path(self, app: FastAPI):
        answer = await send_request(app, "GET", "/nope")
        assert (answer.status, answer.json["code"]) == (404, "NO_SUCH_PATH")

    async def test_a_trailing_slash_is_another_path(self, app: FastAPI):
        assert (await send_request(app, "GET", "/things/7/")).status == 404
        assert (await send_request(app, "POST", "/things/", b"{}", content_type="application/json")).status == 404

    async def test_a_method_that_is_not_allowed(self, app: FastAPI):
        answer = await send_request(app, "PUT", "/things/7")
        assert (answer.status, answer.json["code"]) == (405, "BAD_METHOD")
        assert answer.headers["allow"] == "GET, HEAD, DELETE"
        assert (await send_request(app, "GET", "/things")).headers["allow"] == "POST"
        assert (await send_request(app, "GET", "/uploads/1")).headers["allow"] == "HEAD"

    async def test_a_path_of_any_length_is_not_repeated_whole(self, app: FastAPI):
        assert len((await send_request(app, "GET", "/nope" + "a" * 60_000)).body) < 1000

    async def test_a_status_that_a_library_raised_is_kept(self, served: ServedApp):
        served.raises = raising(HTTPException(418, "I am a teapot", headers={"X-Tea": "yes"}))
        answer = await send_request(served.app, "GET", "/raise")
        assert (answer.status, answer.json["status"], answer.json["code"]) == (418, 418, "NOT_TAKEN")
        assert answer.headers["x-tea"] == "yes"
        assert "I am a teapot" in answer.json["detail"]


class TestFields:
    async def test_every_invalid_field_is_named(self, app: FastAPI):
        body = b'{"name": "x", "colour": "blue", "parts": [{"name": 5, "count": 0}], "more": 1}'
        answer = await post(app, body)
        assert (answer.status, answer.json["code"]) == (400, "VALIDATION")
        reasons = {error["field"]: error["reason"] for error in answer.json["errors"]}
        assert reasons == {
            "name": "String should have at least 2 characters",
            "count": "Field required",
            "colour": "Input should be 'red'",
            "parts.0.name": "Input should be a valid string",
            "parts.0.count": "Input should be greater than or equal to 1",
            "more": "Extra inputs are not permitted",
        }
        assert answer.json["detail"] == f"Invalid fields: {', '.join(reasons)}."

    async def test_the_reasons_come_in_chinese_too(self, app: FastAPI):
        answer = await post(app, b'{"name": "toolong", "count": 0, "colour": "blue", "more": 1}', accept_language="zh")
        assert {error["field"]: error["reason"] for error in answer.json["errors"]} == {
            "name": "最多 5 个字符",
            "count": "应不小于 1",
            "colour": "应为 'red' 之一",
            "more": "不认识此字段",
        }

    async def test_what_was_sent_is_not_repeated(self, app: FastAPI):
        answer = await post(
            app, b'{"name": "hunter2-secret", "password": ["hunter2-secret"], "count": "hunter2-secret"}'
        )
        assert answer.status == 400
        assert b"hunter2" not in answer.body

    async def test_query_parameters_are_named_as_well(self, app: FastAPI):
        answer = await send_request(app, "GET", "/things/seven?limit=99")
        assert [error["field"] for error in answer.json["errors"]] == ["thing_id", "limit"]

    async def test_of_many_invalid_fields_the_first_fifty_are_listed(self, app: FastAPI):
        body = b'{"name":"ab","count":1,"parts":[' + b",".join([b"{}"] * 300) + b"]}"
        answer = await post(app, body)
        assert len(answer.json["errors"]) == 50

    async def test_unknown_field_names_are_cut_and_cleaned(self, app: FastAPI):
        made_up = '{"name":"ab","count":1,"%s\\u202e":1}' % ("x" * 1000)
        [error] = (await post(app, made_up.encode())).json["errors"]
        assert len(error["field"]) < 300

    @pytest.mark.parametrize("headers", [{"content_type": "text/plain"}, {"content_type": "nonsense"}])
    async def test_a_body_without_a_json_content_type_is_bad(self, app: FastAPI, headers: dict[str, str]):
        answer = await post(app, b'{"name": "ab", "count": 1}', **headers)
        assert (answer.status, answer.json["code"]) == (400, "BAD_BODY")
        assert "application/json" in answer.json["hint"]

    async def test_a_missing_body_is_a_missing_field(self, app: FastAPI):
        answer = await send_request(app, "POST", "/things", content_type="application/json")
        assert (answer.json["code"], answer.json["errors"][0]["field"]) == ("VALIDATION", "body")

    @pytest.mark.parametrize("body", [b"[]", b"5", b'"text"', b"null"])
    async def test_json_of_another_shape_is_a_bad_field(self, app: FastAPI, body: bytes):
        answer = await post(app, body)
        assert (answer.status, answer.json["code"]) == (400, "VALIDATION")
