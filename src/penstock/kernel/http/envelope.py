"""The response envelope of the tasks API: `{success, data, message, timestamp}`, with an error format of its own.

A router opts in with `APIRouter(route_class=EnvelopeRoute, responses=ERRORS)`; its routes return `say(data, "…", "…")`
or `say.page(…)`. An error inside such a route is sent in the envelope with one of a few codes that existing
clients know; our finer code and the values of the error are in `details`. Errors before a route is found are problems
(`problems.py`).
"""

import json
import logging
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Generic, Literal, TypeVar

from fastapi import Depends, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, PlainSerializer
from pydantic.alias_generators import to_camel
from starlette.exceptions import HTTPException

from penstock.kernel.clock import iso_millis
from penstock.kernel.errors import PenstockError, TooMany, folder_full_from
from penstock.kernel.http.fields import bad_fields, is_not_json
from penstock.kernel.http.language import language_tag, localized, prefers_chinese
from penstock.kernel.http.problems import BadFields, problem_response
from penstock.kernel.http.request_body import BadBody, bad_body
from penstock.kernel.logs import clean

log = logging.getLogger(__name__)

T = TypeVar("T")

CODES = {
    400: "VALIDATION_ERROR",
    401: "INVALID_API_KEY",
    403: "FORBIDDEN",
    404: "RESOURCE_NOT_FOUND",
    409: "CONFLICT",
    410: "GONE",
    429: "RATE_LIMIT_EXCEEDED",
    500: "INTERNAL_ERROR",
}
MAX_PAGE = 10**9  # beyond it an offset would not fit a database integer
MAX_PAGE_SIZE = 100
MAX_FIELD = 200  # characters of a field's name that are repeated
BODY_HEADERS = {"content-type", "content-length"}


Timestamp = Annotated[datetime, PlainSerializer(iso_millis, return_type=str)]


class Said(BaseModel, Generic[T]):
    """A successful response."""

    success: Literal[True] = True
    data: T
    message: str
    timestamp: Timestamp


class Pagination(BaseModel):
    """Position and size of a page."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    page: int
    page_size: int
    total: int
    total_pages: int


class Paged(BaseModel, Generic[T]):
    """A page of a list."""

    items: Sequence[T]
    pagination: Pagination


class Fault(BaseModel):
    """An error: its code, message and details; an error over a rate limit has the seconds to wait."""

    code: str
    message: str
    details: dict[str, Any] = {}
    retry_after: int | None = None


class Refusal(BaseModel):
    """An error response."""

    success: Literal[False] = False
    error: Fault
    timestamp: Timestamp


ERRORS: dict[int | str, dict[str, Any]] = {"default": {"model": Refusal, "description": "Error."}}


@dataclass(frozen=True, kw_only=True)
class PageParams:
    """The requested page of a list."""

    page: int
    size: int

    @property
    def offset(self) -> int:
        """How many items come before the page."""
        return (self.page - 1) * self.size


PageNumber = Annotated[int, Query(ge=1, le=MAX_PAGE)]
PageSize = Annotated[
    int, Query(alias="pageSize", ge=1, le=MAX_PAGE, description=f"More than {MAX_PAGE_SIZE} counts as {MAX_PAGE_SIZE}.")
]


async def _page_params(page: PageNumber = 1, page_size: PageSize = 20) -> PageParams:
    return PageParams(page=page, size=min(page_size, MAX_PAGE_SIZE))


async def _long_page_params(page: PageNumber = 1, page_size: PageSize = MAX_PAGE_SIZE) -> PageParams:
    return PageParams(page=page, size=min(page_size, MAX_PAGE_SIZE))


class Say:
    """Builds the responses to one request, in its language."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def __call__(self, data: T, english: str, chinese: str) -> Said[T]:
        """A successful response, with a message for people."""
        message = chinese if prefers_chinese(self._request) else english
        return Said(data=data, message=message, timestamp=_now(self._request))

    def page(self, items: Sequence[T], page: PageParams, *, total: int) -> Said[Paged[T]]:
        """A page of a list."""
        pages = math.ceil(total / page.size)
        found = Pagination(page=page.page, page_size=page.size, total=total, total_pages=pages)
        return self(Paged(items=items, pagination=found), f"{total} found.", f"共 {total} 条。")


async def _say(request: Request) -> Say:
    return Say(request)  # a coroutine: the framework would run a plain function in a thread


SayHere = Annotated[Say, Depends(_say)]
PageHere = Annotated[PageParams, Depends(_page_params)]
LongPageHere = Annotated[PageParams, Depends(_long_page_params)]  # as many items as a page has, by default


class EnvelopeRoute(APIRoute):
    """A route whose errors are sent in the envelope."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The route's handler, with errors turned into envelope responses."""
        handle = super().get_route_handler()

        async def respond(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                return envelope_error(request, from_validation(error))
            except PenstockError as error:
                return envelope_error(request, error)
            except HTTPException as error:
                return envelope_error(request, _from_http_exception(error))
            except Exception as error:
                if (full := folder_full_from(error)) is not None:
                    return envelope_error(request, full)
                log.exception("%s %s failed", request.method, self.path)  # a bug of ours, which is not shown
                return envelope_error(request, PenstockError())

        return respond


def from_validation(error: RequestValidationError) -> PenstockError:
    """Invalid fields, named as `tasks[0].id`."""
    found = error.errors()
    if is_not_json(found):
        return bad_body("it is not JSON, or its Content-Type is not JSON", "不是 JSON，或 Content-Type 不是 JSON")
    named = zip(bad_fields(found), found, strict=False)  # `bad_fields` stops at the first few
    return BadFields(errors=[replace(bad, field=_field_path(entry["loc"])) for bad, entry in named])


def _from_http_exception(error: HTTPException) -> PenstockError:
    """The framework could not read the body; the cause may be an error of ours."""
    if isinstance(error.__cause__, PenstockError):
        return error.__cause__
    if error.status_code != HTTPStatus.BAD_REQUEST:
        raise error  # left to the app's handlers
    return bad_body("it does not match its headers", "内容与请求头不符")


def envelope_error(request: Request, error: PenstockError) -> Response:
    """The envelope response for an error."""
    message, _ = localized(error, request)
    code = error.envelope_code or CODES.get(error.status, error.code)
    wait = {"retry_after": math.ceil(error.wait_seconds)} if isinstance(error, TooMany) else {}
    details = _details(request, error)
    fault = {"code": code, "message": message} | ({"details": details} if details else {}) | wait
    body = {"success": False, "error": fault, "timestamp": iso_millis(_now(request))}
    text = json.dumps(body, ensure_ascii=False).encode(errors="backslashreplace")  # lone surrogates have no UTF-8
    problem_headers = problem_response(error, request).headers  # Retry-After and the like apply here too
    headers = {name: value for name, value in problem_headers.items() if name not in BODY_HEADERS}
    return Response(text, status_code=error.status, headers=headers, media_type="application/json")


def _details(request: Request, error: PenstockError) -> dict[str, Any]:
    if error.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        return {}
    message, hint = localized(error, request)
    details = {name: _plain(value) for name, value in error.values.items() if not name.endswith("_zh")}
    if isinstance(error, BadFields):
        details = _fields([bad.shown(language_tag(request)) for bad in error.errors])
    elif error.status == HTTPStatus.BAD_REQUEST:
        field = "body" if isinstance(error, BadBody) else str(error.values.get("field", ""))
        details |= _fields([{"field": field, "reason": message}])
    return details | {"code": error.code, "hint": hint}


def _fields(invalid: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    return {**invalid[0], "all_errors": list(invalid)}


def _field_path(steps: Sequence[str | int]) -> str:
    """`("body", "tasks", 0, "id")` as `tasks[0].id`; an input that is invalid as a whole keeps its own name."""
    path = ""
    for step in steps[1:]:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    return clean(path or str(steps[0]), MAX_FIELD)


def _plain(value: object) -> object:
    return value if isinstance(value, str | int | float | bool | list | dict | None) else str(value)


def _now(request: Request) -> datetime:
    now: datetime = request.app.state.db.clock.now()
    return now
