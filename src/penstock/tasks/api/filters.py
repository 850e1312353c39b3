"""The filters of a pull, as query parameters and as the `filters` of a batch: the same names, the same meaning."""

from datetime import UTC, datetime
from functools import cached_property
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from penstock.tasks.api.params import LONGEST_ID, When
from penstock.tasks.domain import HIGHEST, LOWEST, Status, rank_of
from penstock.tasks.store.offers import Span, Wanted

MOST_TAGS = 20
MOST_VERSION = 2**63 - 2
THIRDS = {"high": (8, 10), "medium": (4, 7), "low": (1, 3)}  # what a word means as a filter


def _parts(value: Any) -> Any:
    """`a,b` as a list; a list as it is."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _lower(value: Any) -> Any:
    return [part.lower() if isinstance(part, str) else part for part in value] if isinstance(value, list) else value


def _priorities(value: Any) -> Any:
    """`7`, `high`, or `5-8`, as the least and the largest priority."""
    text = str(value).strip().lower()
    if text in THIRDS:
        return THIRDS[text]
    first, dash, last = text.partition("-")
    if not (first.isascii() and first.isdigit() and ((last.isascii() and last.isdigit()) or not dash)):
        raise ValueError("a priority is 1 to 10, a range such as 5-8, or one of high, medium, low")
    least, most = int(first), int(last or first)
    if not 1 <= least <= most <= LOWEST:
        raise ValueError("a priority is 1 to 10, a range such as 5-8, or one of high, medium, low")
    return least, most


Tag = Annotated[str, Field(min_length=1, max_length=50)]
Tags = Annotated[list[Tag], BeforeValidator(_parts), Field(max_length=MOST_TAGS)]
Statuses = Annotated[list[Status], BeforeValidator(_lower), BeforeValidator(_parts), Field(max_length=len(Status))]
Priorities = Annotated[tuple[int, int], BeforeValidator(_priorities)]


class Filters(BaseModel):
    """Which tasks a pull wants; what is left out matters not."""

    model_config = ConfigDict(extra="ignore")

    status: Statuses = []
    tags: Tags = []
    priority: Priorities | None = None
    since: When | None = None
    version: Annotated[int, Field(ge=0, le=MOST_VERSION)] | None = None
    created_after: When | None = None
    created_before: When | None = None
    modified_after: When | None = None
    modified_before: When | None = None
    queue: Annotated[str, Field(min_length=1, max_length=LONGEST_ID)] | None = None

    @cached_property
    def wanted(self) -> Wanted:
        """The same in our words; where it is wanted is filled in later."""
        least, most = self.priority or (1, LOWEST)
        after = self.version + 1 if self.version is not None else None
        return Wanted(
            project_pk="",
            statuses=tuple(dict.fromkeys(self.status)) or (Status.PENDING,),
            tags=tuple(dict.fromkeys(self.tags)),
            first_rank=rank_of(most) if self.priority else HIGHEST,
            last_rank=rank_of(least) if self.priority else LOWEST,
            created=Span(start=self.created_after, end=self.created_before),
            modified=Span(start=_later(self.since, self.modified_after), end=self.modified_before),
            version=Span(start=after),
        )


class BatchFilters(Filters):
    """The filters of a batch. One that nobody knows is refused: a mistyped one would hand out everything."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1)] | None = None


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    known = [moment.astimezone(UTC) for moment in (one, other) if moment is not None]
    return max(known, default=None)
