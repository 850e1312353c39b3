"""Errors as HTTP responses: RFC 9457 problem+json with the status of the error's kind, in the caller's language.

A `PenstockError` knows its status, code and texts; this file alone knows how they look in HTTP. Errors of the framework
(unknown path, wrong method, invalid fields) get their code here.
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

from penstock.kernel.errors import (
    MAX_ERROR_TEXT,
    Invalid,
    NotFound,
    PenstockError,
    TooMany,
    Unauthenticated,
)
from penstock.kernel.http.fields import BadField, bad_fields, is_not_json
from penstock.kernel.http.language import language_tag, localized
from penstock.kernel.http.request_body import BodyTooLarge, BodyTooSlow, bad_body
from penstock.kernel.logs import request_id

PROBLEM = "application/problem+json"
CHALLENGE = 'Bearer realm="penstock"'
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
TITLES = {status.value: status.phrase for status in HTTPStatus} | {460: "Checksum Mismatch"}  # 460: of tus
MAX_PATH = 200  # characters of a path that a response repeats


class NoSuchPath(NotFound):
    """No route serves the path."""

    code = "NO_SUCH_PATH"
    message = "No route at {path}."
    message_zh = "{path} 处没有路由。"
    hint = "The paths are listed in /api/v1/openapi.json."
    hint_zh = "所有路径见 /api/v1/openapi.json。"


class BadMethod(Invalid):
    """The path exists, but not with this method."""

    code = "BAD_METHOD"
    message = "{path} does not allow {method}."
    message_zh = "{path} 不支持 {method}。"
    hint = "The paths and their methods are listed in /api/v1/openapi.json."
    hint_zh = "所有路径及其方法见 /api/v1/openapi.json。"
    status = 405


class BadFields(Invalid):
    """Fields of the request are invalid; each is named."""

    code = "VALIDATION"
    message = "Invalid fields: {fields}."
    message_zh = "无效的字段：{fields}。"
    hint = "Each invalid field is listed with its reason; the fields are described in /api/v1/openapi.json."
    hint_zh = "已列出每个无效字段及其原因；字段说明见 /api/v1/openapi.json。"

    def __init__(self, *, errors: list[BadField]) -> None:
        self.errors = errors
        super().__init__(fields=", ".join(dict.fromkeys(error.field for error in errors)))


class NotTaken(Invalid):
    """The framework refuses the request for a reason that has no code of its own here."""

    code = "NOT_TAKEN"
    message = "The request was refused: {reason}."
    message_zh = "请求被拒绝：{reason}。"


ErrorRenderer = Callable[[Request, PenstockError], Response]


def install_error_handlers(app: FastAPI, *, render: ErrorRenderer | None = None) -> None:
    """Let an app respond to every error with a problem. Unexpected exceptions are left to the middleware, which logs
    them. `render` formats the errors that happen outside of a route, for paths with another error format."""
    app.add_exception_handler(PenstockError, _on_penstock_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, partial(_on_http_exception, render or _render_problem))


def _render_problem(request: Request, error: PenstockError) -> Response:
    return problem_response(error, request)


def problem_response(error: PenstockError, request: HTTPConnection, *, status: int | None = None) -> Response:
    """The response for one error, with the error's status unless another is given."""
    detail, hint = localized(error, request)
    status = status or error.status
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": TITLES.get(status, "Error"),
        "status": status,
        "detail": detail[:MAX_ERROR_TEXT].encode(errors="backslashreplace").decode(),  # lone surrogates have no UTF-8
        "code": error.code,
        "retryable": error.retryable,
        "hint": hint,
        "request_id": request_id.get(),
    }
    language = language_tag(request)
    if isinstance(error, BadFields):
        body["errors"] = [bad.shown(language) for bad in error.errors]
    headers = {"Content-Language": language, "Vary": "Accept-Language", **_own_headers(error)}
    return Response(msgspec.json.encode(body), status_code=status, headers=headers, media_type=PROBLEM)


def _own_headers(error: PenstockError) -> dict[str, str]:
    if isinstance(error, TooMany):  # rounded up: rounded down, the client would come back too early
        return {"Retry-After": str(max(1, math.ceil(error.wait_seconds))), **error.headers}
    if error.retryable and error.retry_seconds is not None:
        return {"Retry-After": str(error.retry_seconds)}
    if isinstance(error, Unauthenticated):
        return {"WWW-Authenticate": getattr(error, "www_authenticate", CHALLENGE)}
    if isinstance(error, BodyTooLarge | BodyTooSlow):  # the rest of the body is still being sent
        return {"Connection": "close"}
    return {}


async def _on_penstock_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, PenstockError)
    return problem_response(error, request)


async def _on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if is_not_json(found):
        return problem_response(
            bad_body("it is not JSON, or its Content-Type is not JSON", "不是 JSON，或 Content-Type 不是 JSON"), request
        )
    return problem_response(BadFields(errors=bad_fields(found)), request)


async def _on_http_exception(render: ErrorRenderer, request: Request, error: Exception) -> Response:
    """Errors that the framework raises itself."""
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, PenstockError):  # ours, raised while the framework read the body
        error.__traceback__ = None  # it forms a reference cycle with the framework's frame, which holds the body
        return problem_response(error.__cause__, request)
    path = request.url.path[:MAX_PATH]
    if error.status_code == HTTPStatus.NOT_FOUND:
        return render(request, NoSuchPath(path=path))
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        response = render(request, BadMethod(path=path, method=request.method[:MAX_PATH]))
        response.headers["Allow"] = ", ".join(_allowed(request))
        return response
    if error.status_code == HTTPStatus.BAD_REQUEST:  # the framework could not read the body
        return problem_response(bad_body("it does not match its headers", "内容与请求头不符"), request)
    return _other(request, error)


def _other(request: Request, error: HTTPException) -> Response:
    """Keep the status that a library raised, in our format."""
    response = problem_response(NotTaken(reason=error.detail), request, status=error.status_code)
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    return response


def _allowed(request: Request) -> list[str]:
    """Every method that some route accepts at this path: the framework names those of the first route only."""
    routes = request.app.router.routes

    def is_allowed(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in routes)

    found = [method for method in METHODS if is_allowed(method)]
    return ["GET", "HEAD", *found[1:]] if found[:1] == ["GET"] and "HEAD" not in found else found
