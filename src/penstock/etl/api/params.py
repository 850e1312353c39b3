"""Parameters that the routes share: dependencies, ids in paths, and pagination.

Ids are integers of up to 63 bits; a larger integer in a path gives 404, anything else 400.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BeforeValidator, Field, StringConstraints

from penstock.access.domain import MAX_ID
from penstock.etl.deps import Deps
from penstock.etl.errors import EtlTaskNotFound, RuleNotFound
from penstock.kernel.blobs import MAX_KEY_BYTES
from penstock.kernel.http.language import prefers_chinese
from penstock.kernel.http.problems import PROBLEM

BASE = "/api/v1/etl"
LONGEST_FILENAME = 255
MAX_OFFSET = 10**9  # far beyond any list
MAX_DIGITS = len(str(MAX_ID))
PLAIN_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
NO_CONTROLS = r"^[^\x00-\x1f\x7f]+$"


def etl_router() -> APIRouter:
    """A router of the etl module."""
    return APIRouter(prefix=BASE, tags=["etl"])


def error_responses(descriptions: Mapping[int, str]) -> dict[int | str, dict[str, Any]]:
    """Error responses of a route beyond those of every route, for the OpenAPI document."""
    content = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": why, "content": content} for status, why in descriptions.items()}


async def _deps(request: Request) -> Deps:
    deps: Deps = request.app.state.etl
    return deps


class Localizer:
    """Chooses a text in the client's language."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def __call__(self, english: str, chinese: str) -> str:
        """The text in the client's language."""
        return chinese if prefers_chinese(self._request) else english


async def _localizer(request: Request) -> Localizer:
    return Localizer(request)  # a coroutine, since FastAPI runs plain functions in a thread


def _plain_integer(value: object) -> object:
    """Reject `true`, "1_0" and "+1", which pydantic would accept as integers."""
    if isinstance(value, bool) or (isinstance(value, str) and not PLAIN_NUMBER.fullmatch(value)):
        raise ValueError("must be an integer")
    return value


def _existing_task_id(value: str) -> str:
    if not _is_possible_id(value, least=1):
        raise EtlTaskNotFound(task_id=value)
    return value


def _existing_rule_id(value: str) -> str:
    if not _is_possible_id(value, least=0):
        raise RuleNotFound(rule_id=value[:MAX_DIGITS])
    return value


def _is_possible_id(value: str, *, least: int) -> bool:
    """Whether an id is in range: an impossible id is answered like one that does not exist."""
    return len(value) <= MAX_DIGITS and least <= int(value) <= MAX_ID


DepsParam = Annotated[Deps, Depends(_deps)]
LocalizerParam = Annotated[Localizer, Depends(_localizer)]
PlainInteger = BeforeValidator(_plain_integer)
TaskId = Annotated[int, BeforeValidator(_existing_task_id), PlainInteger, Path(description="Task id.")]
RuleId = Annotated[
    int, BeforeValidator(_existing_rule_id), PlainInteger, Path(description="Rule id; 0 is the built-in default.")
]
Limit = Annotated[int, PlainInteger, Query(ge=1, le=100, description="Maximum number of items.")]
Offset = Annotated[int, PlainInteger, Query(ge=0, le=MAX_OFFSET, description="Number of items to skip.")]
Number = Annotated[int, PlainInteger, Field(ge=0, le=MAX_ID)]
Filename = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST_FILENAME, pattern=NO_CONTROLS)
]
BlobKey = Annotated[str, StringConstraints(min_length=1, max_length=MAX_KEY_BYTES, pattern=NO_CONTROLS)]
