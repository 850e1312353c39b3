"""How an error looks on the wire: RFC 9457 problem+json with the kind's status, in the caller's language.

Every error of ours knows its status, code and words; this file alone knows what that looks like in HTTP. What the
framework itself refuses (no such path, wrong method, fields that do not fit) is given a code here.
"""

import math
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.routing import Match

from penstock.kernel.errors import MOST_WORDS, Invalid, NotFound, PenstockError, TooMany, Unauthenticated, Unavailable
from penstock.kernel.http.fields import BadField, bad_fields, is_no_json
from penstock.kernel.http.language import language_tag, words
from penstock.kernel.http.request_body import BodyTooLarge, BodyTooSlow, bad_body
from penstock.kernel.logs import request_id

PROBLEM = "application/problem+json"
COME_BACK_SECONDS = 2  # when a part of the house is away; most are back by then
CHALLENGE = 'Bearer realm="penstock"'
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
MOST_PATH = 200  # characters of a path that an answer repeats


class NoSuchPath(NotFound):
    """Nothing is served there."""

    code = "NO_SUCH_PATH"
    message = "Nothing is served at {path}."
    message_zh = "{path} 处没有任何服务。"
    hint = "The paths are listed in /api/v1/openapi.json."
    hint_zh = "所有路径见 /api/v1/openapi.json。"


class BadMethod(Invalid):
    """The path is served, but not with this method."""

    code = "BAD_METHOD"
    message = "{path} does not take {method}."
    message_zh = "{path} 不支持 {method}。"
    hint = "The paths and their methods are listed in /api/v1/openapi.json."
    hint_zh = "所有路径及其方法见 /api/v1/openapi.json。"
    status = 405


class BadFields(Invalid):
    """Fields of the request do not fit; each is named."""

    code = "VALIDATION"
    message = "The request does not fit: {fields}."
    message_zh = "请求不符合要求：{fields}。"
    hint = "Every field is named with what is wrong with it; the fields are described in /api/v1/openapi.json."
    hint_zh = "已列出每个字段及其问题；字段说明见 /api/v1/openapi.json。"

    def __init__(self, *, errors: list[BadField]) -> None:
        self.errors = errors
        super().__init__(fields=", ".join(dict.fromkeys(error.field for error in errors)))


class NotTaken(Invalid):
    """The framework refuses the request for a reason that has no name of its own here."""

    code = "NOT_TAKEN"
    message = "The request is not taken: {reason}."
    message_zh = "请求未被接受：{reason}。"


Tell = Callable[[Request, PenstockError], Response]


def install_error_handlers(app: FastAPI, *, tell: Tell | None = None) -> None:
    """Let an app answer every error as a problem. What nobody expected is the middleware's: it has the log. `tell` says
    what no route could answer, for families that have another form."""
    app.add_exception_handler(PenstockError, _known)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, partial(_from_framework, tell or _as_problem))


def _as_problem(request: Request, error: PenstockError) -> Response:
    return problem(error, request)


def problem(error: PenstockError, asker: HTTPConnection, *, status: int | None = None) -> Response:
    """The answer for one error, with its own status unless another is given."""
    detail, hint = words(error, asker)
    status = status or error.status
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail[:MOST_WORDS].encode(errors="backslashreplace").decode(),  # half characters have no UTF-8
        "code": error.code,
        "retryable": error.retryable,
        "hint": hint,
        "request_id": request_id.get(),
    }
    language = language_tag(asker)
    if isinstance(error, BadFields):
        body["errors"] = [bad.shown(language) for bad in error.errors]
    headers = {"Content-Language": language, "Vary": "Accept-Language", **_own_headers(error)}
    return Response(msgspec.json.encode(body), status_code=status, headers=headers, media_type=PROBLEM)


def _own_headers(error: PenstockError) -> dict[str, str]:
    if isinstance(error, TooMany):  # rounded up: rounded down, it would ask to come back too early
        return {"Retry-After": str(max(1, math.ceil(error.wait_seconds))), **error.headers}
    if isinstance(error, Unavailable) and error.retryable:
        return {"Retry-After": str(COME_BACK_SECONDS)}
    if isinstance(error, Unauthenticated):
        return {"WWW-Authenticate": getattr(error, "www_authenticate", CHALLENGE)}
    if isinstance(error, BodyTooLarge | BodyTooSlow):  # the rest of the body is still under way, and nobody wants it
        return {"Connection": "close"}
    return {}


async def _known(request: Request, error: Exception) -> Response:
    assert isinstance(error, PenstockError)
    return problem(error, request)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if is_no_json(found):
        return problem(bad_body("it is not JSON, or not said to be", "不是 JSON，或未声明为 JSON"), request)
    return problem(BadFields(errors=bad_fields(found)), request)


async def _from_framework(tell: Tell, request: Request, error: Exception) -> Response:
    """What the framework refuses by itself."""
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, PenstockError):  # ours, met while it read the body
        error.__traceback__ = None  # it and the framework's frame hold each other, and with them the body
        return problem(error.__cause__, request)
    path = request.url.path[:MOST_PATH]
    if error.status_code == HTTPStatus.NOT_FOUND:
        return tell(request, NoSuchPath(path=path))
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        answer = tell(request, BadMethod(path=path, method=request.method[:MOST_PATH]))
        answer.headers["Allow"] = ", ".join(_allowed(request))
        return answer
    if error.status_code == HTTPStatus.BAD_REQUEST:  # it could not read the body
        return problem(bad_body("it is not what its headers say", "内容与请求头不符"), request)
    return _other(request, error)


def _other(request: Request, error: HTTPException) -> Response:
    """A status that a library raised by itself: kept, in our form."""
    answer = problem(NotTaken(reason=error.detail), request, status=error.status_code)
    for name, value in (error.headers or {}).items():
        answer.headers[name] = value
    return answer


def _allowed(request: Request) -> list[str]:
    """Every method that some route takes at this path: the framework names those of the first one only."""
    routes = request.app.router.routes

    def taken(method: str) -> bool:
        asked = {**request.scope, "method": method}
        return any(route.matches(asked)[0] is Match.FULL for route in routes)

    found = [method for method in METHODS if taken(method)]
    return ["GET", "HEAD", *found[1:]] if found[:1] == ["GET"] and "HEAD" not in found else found
