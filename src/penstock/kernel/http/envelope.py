"""The envelope of the tasks family: `{success, data, message, timestamp}`, and its own shape for errors.

A router takes it with `APIRouter(route_class=EnvelopeRoute, responses=ERRORS)`; its routes answer `say(data, "…", "…")`
or `say.page(…)`. Whatever goes wrong inside such a route becomes the family's error there: nine codes that its clients
know. Our finer code and the values of the error stand in `details`. What happens before a route is found, or around it,
is a problem as everywhere (`problems.py`).
"""

import json
import logging
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, Generic, Literal, TypeVar

from fastapi import Depends, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, PlainSerializer
from pydantic.alias_generators import to_camel
from starlette.exceptions import HTTPException

from penstock.kernel.errors import PenstockError
from penstock.kernel.http.fields import bad_fields, is_no_json
from penstock.kernel.http.language import language_tag, speaks_chinese, words
from penstock.kernel.http.problems import BadFields, problem
from penstock.kernel.http.request_body import BadBody, bad_body
from penstock.kernel.logs import clean

log = logging.getLogger(__name__)

T = TypeVar("T")

CODES = {
    400: "VALIDATION_ERROR",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "RESOURCE_NOT_FOUND",
    409: "CONFLICT",
    410: "GONE",
    429: "RATE_LIMIT_EXCEEDED",
    500: "INTERNAL_ERROR",
}
OWN_CODES = {"INVALID_API_KEY"}  # codes of ours that the family knows by the same name
MOST_PAGE = 10**9  # beyond it an offset would not fit a database's numbers
MOST_PLACE = 200  # characters of a field's name that are repeated
OF_THE_BODY = {"content-type", "content-length"}


def in_millis(moment: datetime) -> str:
    """ISO-8601 in UTC with milliseconds: `2026-01-01T00:00:00.000Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


Moment = Annotated[datetime, PlainSerializer(in_millis, return_type=str)]


class Said(BaseModel, Generic[T]):
    """A success."""

    success: Literal[True] = True
    data: T
    message: str
    timestamp: Moment


class Pagination(BaseModel):
    """Which page this is, of how many."""

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
    """What went wrong."""

    code: str
    message: str
    details: dict[str, Any]


class Refusal(BaseModel):
    """An error."""

    success: Literal[False] = False
    error: Fault
    timestamp: Moment


ERRORS: dict[int | str, dict[str, Any]] = {"default": {"model": Refusal, "description": "What went wrong."}}


@dataclass(frozen=True, kw_only=True)
class PageAsked:
    """Which page of a list is asked for."""

    page: int
    size: int

    @property
    def offset(self) -> int:
        """How many come before it."""
        return (self.page - 1) * self.size


async def _page_asked(
    page: Annotated[int, Query(ge=1, le=MOST_PAGE)] = 1,
    page_size: Annotated[int, Query(alias="pageSize", ge=1, le=100)] = 20,
) -> PageAsked:
    return PageAsked(page=page, size=page_size)


class Say:
    """Makes the answers to one request, in its language."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def __call__(self, data: T, english: str, chinese: str) -> Said[T]:
        """A success, with a sentence for people."""
        message = chinese if speaks_chinese(self._request) else english
        return Said(data=data, message=message, timestamp=_now(self._request))

    def page(self, items: Sequence[T], asked: PageAsked, *, total: int) -> Said[Paged[T]]:
        """A page of a list."""
        pages = math.ceil(total / asked.size)
        found = Pagination(page=asked.page, page_size=asked.size, total=total, total_pages=pages)
        return self(Paged(items=items, pagination=found), f"{total} found.", f"共 {total} 条。")


async def _say(request: Request) -> Say:
    return Say(request)  # by a coroutine: the framework would make a thread of a plain call


SayHere = Annotated[Say, Depends(_say)]
PageHere = Annotated[PageAsked, Depends(_page_asked)]


class EnvelopeRoute(APIRoute):
    """A route whose errors are in the family's shape."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The route's handler, with every error answered."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                return refusal(request, _unfit(error))
            except PenstockError as error:
                return refusal(request, error)
            except HTTPException as error:
                return refusal(request, _unread(error))
            except Exception:  # a bug of ours: the log has it, the caller need not
                log.exception("%s %s failed", request.method, self.path)
                return refusal(request, PenstockError())

        return answer


def _unfit(error: RequestValidationError) -> PenstockError:
    """Fields by the names that this family gives them."""
    found = error.errors()
    if is_no_json(found):
        return bad_body("it is not JSON, or not said to be", "不是 JSON，或未声明为 JSON")
    named = zip(bad_fields(found), found, strict=False)  # a million wrong things are told by the first few
    return BadFields(errors=[replace(bad, field=_place(entry["loc"])) for bad, entry in named])


def _unread(error: HTTPException) -> PenstockError:
    """The framework could not read the body; the cause may be one of ours."""
    if isinstance(error.__cause__, PenstockError):
        return error.__cause__
    if error.status_code != HTTPStatus.BAD_REQUEST:
        raise error  # none of this family's
    return bad_body("it is not what its headers say", "内容与请求头不符")


def refusal(request: Request, error: PenstockError) -> Response:
    """An error as this family tells it."""
    message, _ = words(error, request)
    own = error.code in OWN_CODES or error.is_shown_by_its_code
    code = error.code if own else CODES.get(error.status, error.code)
    fault = Fault(code=code, message=message, details=_details(request, error))
    body = Refusal(error=fault, timestamp=_now(request)).model_dump(mode="json")
    text = json.dumps(body, ensure_ascii=False).encode(errors="backslashreplace")  # half characters have no UTF-8
    shared = problem(error, request).headers  # what is said about an error there is said here too
    headers = {name: value for name, value in shared.items() if name not in OF_THE_BODY}
    return Response(text, status_code=error.status, headers=headers, media_type="application/json")


def _details(request: Request, error: PenstockError) -> dict[str, Any]:
    if error.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        return {}
    message, hint = words(error, request)
    details = {name: _plain(value) for name, value in error.values.items() if not name.endswith("_zh")}
    if isinstance(error, BadFields):
        details = _fields([bad.shown(language_tag(request)) for bad in error.errors])
    elif error.status == HTTPStatus.BAD_REQUEST:
        field = "body" if isinstance(error, BadBody) else str(error.values.get("field", ""))
        details |= _fields([{"field": field, "reason": message}])
    return details | {"code": error.code, "hint": hint}


def _fields(wrong: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    return {**wrong[0], "all_errors": list(wrong)}


def _place(steps: Sequence[str | int]) -> str:
    """`("body", "tasks", 0, "id")` as `tasks[0].id`; what is wrong as a whole keeps its own name."""
    place = ""
    for step in steps[1:]:
        place += f"[{step}]" if isinstance(step, int) else f".{step}" if place else str(step)
    return clean(place or str(steps[0]), MOST_PLACE)


def _plain(value: object) -> object:
    return value if isinstance(value, str | int | float | bool | list | dict | None) else str(value)


def _now(request: Request) -> datetime:
    now: datetime = request.app.state.db.clock.now()
    return now
