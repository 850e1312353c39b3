"""What the routes share: the room's tools, numbers in paths, and which part of a list is asked for."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BeforeValidator, Field, StringConstraints

from penstock.access.domain import MOST_ID
from penstock.etl.deps import Deps
from penstock.etl.errors import EtlTaskNotFound, RuleNotFound
from penstock.kernel.blobs import MOST_KEY_BYTES
from penstock.kernel.http.language import prefers_chinese
from penstock.kernel.http.problems import PROBLEM

BASE = "/api/v1/etl"
LONGEST_FILENAME = 255
MOST_OFFSET = 10**9  # beyond it nothing would be found anyway
MOST_DIGITS = len(str(MOST_ID))
PLAIN_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
NO_CONTROLS = r"^[^\x00-\x1f\x7f]+$"


def new_router() -> APIRouter:
    """A router of this room."""
    return APIRouter(prefix=BASE, tags=["etl"])


def refusals(told: Mapping[int, str]) -> dict[int | str, dict[str, Any]]:
    """What a route may refuse beyond what any route does, for the OpenAPI document."""
    content = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": why, "content": content} for status, why in told.items()}


async def _tools(request: Request) -> Deps:
    tools: Deps = request.app.state.etl
    return tools


class Words:
    """Says a sentence in the caller's language."""

    def __init__(self, request: Request) -> None:
        self._chinese = prefers_chinese(request)

    def __call__(self, english: str, chinese: str) -> str:
        """The one that the caller reads."""
        return chinese if self._chinese else english


async def _words(request: Request) -> Words:
    return Words(request)  # by a coroutine: the framework would make a thread of a plain call


def _plainly(value: object) -> object:
    """A number as people write it: pydantic would also take `true`, "1_0" and "+1"."""
    if isinstance(value, bool) or (isinstance(value, str) and not PLAIN_NUMBER.fullmatch(value)):
        raise ValueError("it has to be a whole number")
    return value


def _of_a_task(value: str) -> str:
    if not _may_be(value, least=1):
        raise EtlTaskNotFound(task_id=value)
    return value


def _of_a_rule(value: str) -> str:
    if not _may_be(value, least=0):
        raise RuleNotFound(rule_id=value[:MOST_DIGITS])
    return value


def _may_be(value: str, *, least: int) -> bool:
    """Whether a number may be that of something here: one that cannot is as little found as one that nothing has."""
    return len(value) <= MOST_DIGITS and least <= int(value) <= MOST_ID


ToolsHere = Annotated[Deps, Depends(_tools)]
WordsHere = Annotated[Words, Depends(_words)]
Plainly = BeforeValidator(_plainly)
TaskId = Annotated[int, BeforeValidator(_of_a_task), Plainly, Path(description="The number of a task.")]
RuleId = Annotated[
    int, BeforeValidator(_of_a_rule), Plainly, Path(description="The number of a rule; 0 is the built-in one.")
]
Limit = Annotated[int, Plainly, Query(ge=1, le=100, description="How many there are in one answer at the most.")]
Offset = Annotated[int, Plainly, Query(ge=0, le=MOST_OFFSET, description="How many to pass over.")]
Number = Annotated[int, Plainly, Field(ge=0, le=MOST_ID)]
Filename = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST_FILENAME, pattern=NO_CONTROLS)
]
BlobKey = Annotated[str, StringConstraints(min_length=1, max_length=MOST_KEY_BYTES, pattern=NO_CONTROLS)]
