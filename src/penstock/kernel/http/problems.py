"""How an error looks on the wire: RFC 9457 problem+json, with the kind's status."""

from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from penstock.kernel.errors import Invalid, NotFound, PenstockError, TooMany

PROBLEM = "application/problem+json"


class NoSuchPath(NotFound):
    """Nothing is served there."""

    code = "NO_SUCH_PATH"
    message = "Nothing is served at {path}."
    hint = "The paths are listed in /api/v1/openapi.json."


class BadMethod(Invalid):
    """The path is served, but not with this method."""

    code = "BAD_METHOD"
    message = "{path} does not take {method}."
    hint = "The paths and their methods are listed in /api/v1/openapi.json."
    status = 405


def speak_problems(app: FastAPI) -> None:
    """Let an app answer every error as a problem."""
    app.add_exception_handler(PenstockError, _known)
    app.add_exception_handler(HTTPException, _from_router)
    app.add_exception_handler(Exception, _unknown)


def problem(error: PenstockError) -> JSONResponse:
    """The answer for one error."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(error.status).phrase,
        "status": error.status,
        "detail": str(error),
        "code": error.code,
        "retryable": error.retryable,
        "hint": error.hint,
    }
    headers = {"Retry-After": str(max(1, round(error.wait_seconds)))} if isinstance(error, TooMany) else {}
    return JSONResponse(body, status_code=error.status, headers=headers, media_type=PROBLEM)


async def _known(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PenstockError)
    return problem(error)


async def _unknown(_request: Request, _error: Exception) -> JSONResponse:
    """A bug of ours: the log has it, the caller need not."""
    return problem(PenstockError())


async def _from_router(request: Request, error: Exception) -> JSONResponse:
    """The framework's own 404 and 405."""
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return problem(BadMethod(path=request.url.path, method=request.method))
    if error.status_code == HTTPStatus.NOT_FOUND:
        return problem(NoSuchPath(path=request.url.path))
    return JSONResponse({"status": error.status_code, "detail": error.detail}, error.status_code, media_type=PROBLEM)
