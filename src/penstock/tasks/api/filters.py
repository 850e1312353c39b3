"""The filters of a pull, as query parameters and as `filters` of a batch, with the same names and meaning.

A pull can filter by status, tags (any of them), priority, ranges of creation and modification times, version and queue.
Filters combine: all given ones must match. An invalid one is named.
"""

from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Annotated, Any

from fastapi import Query
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from penstock.tasks.api.params import MAX_ID_LENGTH, When
from penstock.tasks.domain import HIGHEST, LOWEST, PRIORITY_RANGES, UNSET_RANK, Status, rank_of
from penstock.tasks.store.offers import ANY_STATUS, PullFilter, ValueRange, matched_tags

MAX_TAGS = 20
MAX_VERSION = 2**63 - 2
LATEST = datetime(9999, 12, 31, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)  # the precision that clients receive


def _parts(value: Any) -> Any:
    """`a,b` as a list; a list unchanged."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _lower(value: Any) -> Any:
    return [part.lower() if isinstance(part, str) else part for part in value] if isinstance(value, list) else value


def _priorities(value: Any) -> Any:
    """The lowest and highest priority of `7`, `high` or `5-8`."""
    text = str(value).strip().lower()
    if text in PRIORITY_RANGES:
        return PRIORITY_RANGES[text]
    first, dash, last = text.partition("-")
    if not (first.isascii() and first.isdigit() and ((last.isascii() and last.isdigit()) or not dash)):
        raise ValueError("must be 1 to 10, a range such as 5-8, or one of high, medium, low")
    lowest, highest = int(first), int(last or first)
    if not 1 <= lowest <= highest <= LOWEST:
        raise ValueError("must be 1 to 10, a range such as 5-8, or one of high, medium, low")
    return lowest, highest


Tag = Annotated[str, Field(min_length=1, max_length=MAX_ID_LENGTH)]
Tags = Annotated[list[Tag], BeforeValidator(_parts), Field(max_length=MAX_TAGS)]
Statuses = Annotated[list[Status], BeforeValidator(_lower), BeforeValidator(_parts), Field(max_length=len(Status))]
PRIORITY_FILTER = {
    "description": "1 to 10, a range such as 5-8, or a third of the range: high is 8-10, medium is 4-7, low is 1-3.",
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": LOWEST},
        {"type": "string", "pattern": "^((10|[1-9])(-(10|[1-9]))?|high|medium|low)$"},
    ],
}
Priorities = Annotated[tuple[int, int], BeforeValidator(_priorities), WithJsonSchema(PRIORITY_FILTER)]


def priority_ranks(given: str | None) -> tuple[int, int] | None:
    """The first and last rank of a priority filter."""
    if given is None:
        return None
    lowest, highest = _priorities(given)
    return rank_of(highest), rank_of(lowest)


def _checked_priority(given: str) -> str:
    _priorities(given)
    return given


def _all_parts(given: Any) -> Any:
    """`a,b` and a repeated parameter as one list."""
    return [part for text in given for part in _parts(str(text))] if isinstance(given, list) else given


TaskTagFilter = Annotated[
    list[Tag],
    Query(max_length=MAX_TAGS, description="Any of these, in any case; separated by commas, or repeated."),
    BeforeValidator(_all_parts),
]
# A query parameter is a text; as a tuple the framework would read it as a list.
PriorityFilter = Annotated[
    str, AfterValidator(_checked_priority), BeforeValidator(str), WithJsonSchema(PRIORITY_FILTER)
]


class Filters(BaseModel):
    """The filters of a pull. Unknown query parameters are ignored."""

    model_config = ConfigDict(extra="ignore")

    status: Statuses = []
    tags: Tags = []
    priority: Priorities | None = None
    since: When | None = None
    version: Annotated[int, Field(ge=0, le=MAX_VERSION)] | None = None
    created_after: When | None = None
    created_before: When | None = None
    modified_after: When | None = None
    modified_before: When | None = None
    queue: Annotated[str, Field(min_length=1, max_length=MAX_ID_LENGTH)] | None = None

    @cached_property
    def pull_filter(self) -> PullFilter:
        """The filter as the verb takes it; its location is filled in later."""
        lowest, highest = self.priority or (1, LOWEST)
        after = self.version + 1 if self.version is not None else None
        return PullFilter(
            project_pk="",
            statuses=tuple(status for status in Status if status in self.status) or ANY_STATUS,
            tags=tuple(matched_tags(self.tags)),
            first_rank=rank_of(highest) if self.priority else HIGHEST,
            last_rank=rank_of(lowest) if self.priority else UNSET_RANK,
            created=ValueRange(start=self.created_after, end=_until(self.created_before)),
            modified=ValueRange(start=_later(self.since, self.modified_after), end=_until(self.modified_before)),
            version=ValueRange(start=after),
        )


class BatchFilters(Filters):
    """The filters of a batch. Unknown ones are rejected: a mistyped filter would claim every task."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1)] | None = None


def _until(last: datetime | None) -> datetime | None:
    """The end of a range that includes `last`, to the millisecond."""
    if last is None or last > LATEST:
        return None
    return last.replace(microsecond=last.microsecond // 1000 * 1000) + MILLISECOND


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    times = [time.astimezone(UTC) for time in (one, other) if time is not None]
    return max(times, default=None)
