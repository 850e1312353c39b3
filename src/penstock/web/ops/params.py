"""Parameters and shapes that the routes of operators share: pages, times, and bulk calls."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from penstock.kernel.errors import Invalid
from penstock.kernel.http.fields import NO_CONTROLS, BadField, Moment
from penstock.kernel.http.problems import BadFields
from penstock.kernel.queue import JobQueue

MAX_PAGE_SIZE = 200
MAX_BULK = 1000  # rows that one bulk call changes; its transaction stays well under a second


class FilterMissing(Invalid):
    """A bulk call has no filter and does not ask for everything."""

    code = "FILTER_MISSING"
    message = "The call has no filter."
    message_zh = "该调用没有任何筛选条件。"
    hint = "Give at least one filter, or `all`: true to select everything."
    hint_zh = "请至少给出一个筛选条件，或用 `all`: true 选择全部。"


Word = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=NO_CONTROLS)]
Since = Annotated[
    Moment | None, Query(description="Only what ended at this time or later, such as 2026-01-01T08:00:00Z.")
]
Until = Annotated[Moment | None, Query(description="Only what ended before this time.")]
After = Annotated[Word | None, Query(description="The `next` of the previous page.")]
PageSize = Annotated[int, Query(ge=1, le=MAX_PAGE_SIZE)]


class BulkSelection(BaseModel):
    """What a bulk call selects. Absent filters select everything, which `all` must confirm."""

    model_config = ConfigDict(extra="forbid")

    since: Moment | None = Field(default=None, description="Only what ended at this time or later.")
    until: Moment | None = Field(
        default=None,
        description="Only what ended before this time; now by default. Repeat the `until` of the answer in the next "
        "call, so that what fails again in between is not selected again.",
    )
    all: bool = Field(default=False, description="Must be true if there is no filter.")
    limit: int = Field(default=MAX_BULK, ge=1, le=MAX_BULK, description="How many to change in this call.")

    def filters(self) -> dict[str, Any]:
        """The given filters; raises `FilterMissing`."""
        given = self.model_dump(exclude={"all", "limit"}, exclude_none=True)
        if not given and not self.all:
            raise FilterMissing
        return given


def ops_router(tag: str) -> APIRouter:
    """A router for operators."""
    return APIRouter(prefix="/api/v1/ops", tags=[tag])


def bad_cursor() -> BadFields:
    """The error of a page position that no answer contained."""
    reason, chinese = "Expected the `next` of the previous page", "应为上一页的 `next`"
    return BadFields(errors=[BadField(field="after", reason=reason, reason_zh=chinese)])


async def job_queue(request: Request) -> JobQueue:
    """The job queue of this process."""
    queue: JobQueue = request.app.state.job_queue
    return queue
