"""Offered tasks: the SELECT of a pull, by filter, and the tags by which offered tasks are found.

A pull scans one index in order and stops at its limit, so it costs the same with ten tasks as with a million:

- without filters: the offers of a project or a queue, by rank (the highest priority first), then by the time on offer;
- with tags: `task_offer_tag`, which has rows only while a task is offered; of several tags, the rarest one;
- with a time or version range: one scan per rank inside the range, oldest first.

Every other filter is checked on the scanned rows.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Integer,
    Select,
    String,
    and_,
    bindparam,
    delete,
    false,
    func,
    literal_column,
    or_,
    select,
    union_all,
)

from penstock.kernel.bulk import any_of, insert_rows
from penstock.kernel.columns import Id, UtcTime
from penstock.kernel.compiled_statement import CompiledStatement
from penstock.kernel.db import Tx
from penstock.tasks.domain import HIGHEST, LOWEST, PullState, Status, Task
from penstock.tasks.store.tables import OFFERED, task, task_offer_tag
from penstock.tasks.store.tasks import COLUMNS

t = task.c
o = task_offer_tag.c
TAG_NAMES = ("task_pk", "tag", "project_pk", "status", "priority", "scheduled_at")
MAX_TAG_COUNT = 1000  # a tag on this many offers counts as common; counting further would only cost time
RANGES: dict[str, Column[Any]] = {"version": t.version, "modified": t.server_modified_at, "created": t.created_at}


@dataclass(frozen=True, kw_only=True)
class ValueRange:
    """From `start` (inclusive) to `end` (exclusive); either may be missing."""

    start: datetime | int | None = None
    end: datetime | int | None = None

    @property
    def ends(self) -> tuple[bool, bool]:
        """Which of the two are set."""
        return self.start is not None, self.end is not None

    @property
    def identity(self) -> str:
        """The range as text, for `PullFilter.identity`."""
        return f"Span(start={self.start!r}, end={self.end!r})"


@dataclass(frozen=True, kw_only=True)
class PullFilter:
    """The filter of a pull. Pulls with equal filters are coalesced into one claim."""

    project_pk: str
    queue_pk: str | None = None  # None: any queue of the project, or none
    statuses: tuple[Status, ...] = (Status.PENDING,)
    tags: tuple[str, ...] = ()
    first_rank: int = HIGHEST
    last_rank: int = LOWEST
    created: ValueRange = ValueRange()
    modified: ValueRange = ValueRange()
    version: ValueRange = ValueRange()

    @property
    def shape(self) -> "FilterShape":
        """Which conditions its statement has."""
        ranges = tuple((name, *getattr(self, name).ends) for name in RANGES)
        return FilterShape(queue=self.queue_pk is not None, tags=len(self.tags), ranges=ranges)

    @property
    def identity(self) -> str:
        """The filter as text. Pull receipts store a hash of it, so its form stays the same across releases."""
        place = f"project_pk={self.project_pk!r}, queue_pk={self.queue_pk!r}"
        values = f"statuses={self.statuses!r}, tags={self.tags!r}"
        ranks = f"first_rank={self.first_rank!r}, last_rank={self.last_rank!r}"
        ranges = f"created={self.created.identity}, modified={self.modified.identity}, version={self.version.identity}"
        return f"Wanted({place}, {values}, {ranks}, {ranges})"

    def values(self) -> dict[str, Any]:
        """The parameters of its statement, except those of the claim itself."""
        values: dict[str, Any] = {"in_project": self.project_pk, "first": self.first_rank, "last": self.last_rank}
        if self.queue_pk is not None:
            values["in_queue"] = self.queue_pk
        for number, tag in enumerate(self.tags):
            values[f"tag_{number}"] = tag
        for name in RANGES:
            limits: ValueRange = getattr(self, name)
            values |= {f"{name}_start": limits.start} if limits.start is not None else {}
            values |= {f"{name}_end": limits.end} if limits.end is not None else {}
        return values


@dataclass(frozen=True, kw_only=True)
class FilterShape:
    """Which conditions a statement has: it is compiled once per shape."""

    queue: bool
    tags: int
    ranges: tuple[tuple[str, bool, bool], ...]  # name, has a start, has an end

    @property
    def range_names(self) -> list[str]:
        """The time and version ranges that are set."""
        return [name for name, start, end in self.ranges if start or end]


def select_offered(shape: FilterShape) -> Select[Any]:
    """Select and lock offered tasks in one status, up to a limit; skip what other transactions have locked."""
    if shape.tags:
        return _by_tag(shape)
    return _by_range(shape) if shape.range_names else _by_rank(shape)


def select_offered_by_pk(ids: Select[Any]) -> Select[Any]:
    """Select and lock those of these tasks that are offered; skip what other transactions have locked."""
    mine = select(*COLUMNS).where(t.id.in_(ids), _unindexed(OFFERED, _unexpired())).order_by(t.priority, t.id)
    return mine.with_for_update(skip_locked=True, of=task)


async def insert_offer_tags(tx: Tx, offered: Iterable[Task]) -> None:
    """Index newly offered tasks by their tags."""
    rows = [
        (one.id, tag, one.partition_key, one.status.value, one.priority, one.scheduled_at)
        for one in offered
        if one.state is PullState.OFFERED
        for tag in dict.fromkeys(one.tags)
    ]
    await insert_rows(tx, task_offer_tag, TAG_NAMES, rows)


async def delete_offer_tags(tx: Tx, pks: Collection[str]) -> None:
    """Remove tasks from the tag index."""
    if pks:
        await tx.conn.execute(delete(task_offer_tag).where(any_of(tx, o.task_pk, pks)))


async def put_rarest_tag_first(tx: Tx, pull_filter: PullFilter, status: Status) -> PullFilter:
    """The filter with the tag first that has the fewest offers, counted up to `MAX_TAG_COUNT`."""
    values = {
        name: value for name, value in pull_filter.values().items() if name == "in_project" or name.startswith("tag_")
    }
    [counts] = await _count_tags(len(pull_filter.tags)).rows(tx, values | {"in_status": status.value})
    rarest = sorted(range(len(pull_filter.tags)), key=lambda number: int(getattr(counts, f"count_{number}")))
    return replace(pull_filter, tags=tuple(pull_filter.tags[number] for number in rarest))


@lru_cache(maxsize=64)
def _count_tags(tags: int) -> CompiledStatement:
    counts = []
    for number in range(tags):
        some = select(o.tag).where(*_tagged(number)).limit(MAX_TAG_COUNT).subquery(f"some_{number}")
        counts.append(select(func.count()).select_from(some).scalar_subquery().label(f"count_{number}"))
    return CompiledStatement(select(*counts))


def _by_rank(shape: FilterShape) -> Select[Any]:
    due = (
        select(*COLUMNS)
        .where(*_conditions(shape), _between_ranks(t.priority))
        .order_by(t.priority, t.scheduled_at, t.id)
    )
    return due.limit(_limit()).with_for_update(skip_locked=True)  # SQLite renders nothing and has one writer


def _by_tag(shape: FilterShape) -> Select[Any]:
    """Scan the offers of the first tag; look up the other tags, and the task itself, by id for each row."""
    due = select(*COLUMNS).join_from(task_offer_tag, task, t.id == o.task_pk)
    due = due.where(*_tagged(0), _between_ranks(o.priority))
    for number in range(1, shape.tags):
        other = task_offer_tag.alias(f"other_{number}").c
        has = select(other.tag).where(other.task_pk == t.id, other.tag == bindparam(f"tag_{number}", type_=Id))
        due = due.where(has.scalar_subquery().is_not(None))  # not EXISTS: a planner may start from that one, and sort
    due = due.where(_unindexed(*_conditions(shape), *_in_ranges(shape)))
    due = due.order_by(o.priority, o.scheduled_at, o.task_pk)
    return due.limit(_limit()).with_for_update(skip_locked=True, of=task)


def _tagged(number: int) -> list[ColumnElement[bool]]:
    tag = bindparam(f"tag_{number}", type_=Id)
    return [o.project_pk == bindparam("in_project", type_=Id), o.tag == tag, _has_status(o.status)]


def _unindexed(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Conditions on tasks found by id, written so that no index fits. Otherwise a plan made for an empty table uses an
    index on offers, is cached, and later scans all offers for each task."""
    return func.coalesce(and_(*conditions), false())


def _by_range(shape: FilterShape) -> Select[Any]:
    """Ten scans, one per rank, each in the order of the first range. An index serves a range or an order, not both, but
    a scan inside one rank needs no other order. Scans that are not reached cost nothing."""
    leading = RANGES[shape.range_names[0]]
    scans = []
    for rank in range(HIGHEST, LOWEST + 1):
        one = literal_column(str(rank), Integer)
        scan = select(*COLUMNS).where(*_conditions(shape), *_in_ranges(shape), t.priority == one, _between_ranks(one))
        scan = scan.order_by(leading, t.id).limit(_limit()).with_for_update(skip_locked=True)
        scans.append(select(scan.subquery(f"rank_{rank}")))
    return select(union_all(*scans).subquery("due")).limit(_limit())


def _conditions(shape: FilterShape) -> list[ColumnElement[bool]]:
    """The conditions of every scan."""
    conditions = [OFFERED, t.partition_key == bindparam("in_project", type_=Id), _has_status(t.status), _unexpired()]
    if shape.queue:
        conditions.append(t.queue_pk == bindparam("in_queue", type_=Id))
    return conditions


def _in_ranges(shape: FilterShape) -> list[ColumnElement[bool]]:
    inside: list[ColumnElement[bool]] = []
    for name, has_start, has_end in shape.ranges:
        column, kind = RANGES[name], BigInteger() if name == "version" else UtcTime()
        if has_start:
            inside.append(column >= bindparam(f"{name}_start", type_=kind))
        if has_end:
            inside.append(column < bindparam(f"{name}_end", type_=kind))
    return inside


def _has_status(column: Column[str]) -> ColumnElement[bool]:
    return column == bindparam("in_status", type_=String)


def _unexpired() -> ColumnElement[bool]:
    return or_(t.expires_at.is_(None), t.expires_at > bindparam("now", type_=UtcTime))


def _between_ranks(rank: ColumnElement[int]) -> ColumnElement[bool]:
    return rank.between(bindparam("first", type_=Integer), bindparam("last", type_=Integer))


def _limit() -> Any:
    return bindparam("most", type_=Integer)
