"""Offered tasks: the SELECT of a pull, by filter, and the tags by which offered tasks are found.

A pull scans one index in order and stops at its limit, so it costs the same with ten tasks as with a million:

- without filters: the offers of a project or a queue, by rank (the highest priority first), then by the time on offer;
- with tags: `task_offer_tag`, which has rows only while a task is offered;
- with a time or version range: one scan per rank inside the range, oldest first.

Without a status, one scan takes offers of any. There is one scan for each status that is asked for, and for each tag,
of which any may match; their rows are merged in order. Every other filter is checked on the scanned rows.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
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

from penstock.kernel.columns import Id, UtcTime
from penstock.kernel.db import Tx
from penstock.kernel.dialect.bulk import insert_rows
from penstock.kernel.dialect.sql import any_of
from penstock.tasks.domain import HIGHEST, LOWEST, UNSET_RANK, PullState, Status, Task
from penstock.tasks.store.tables import BY_SERVER, OFFERED, task, task_offer_tag
from penstock.tasks.store.tasks import COLUMNS

t = task.c
o = task_offer_tag.c
TAG_NAMES = ("task_pk", "tag", "project_pk", "status", "priority", "scheduled_at")
ANY_STATUS = tuple(Status)
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
    statuses: tuple[Status, ...] = ANY_STATUS
    tags: tuple[str, ...] = ()  # in lower case; any of them
    first_rank: int = HIGHEST
    last_rank: int = UNSET_RANK
    created: ValueRange = ValueRange()
    modified: ValueRange = ValueRange()
    version: ValueRange = ValueRange()

    @property
    def shape(self) -> "FilterShape":
        """Which conditions its statement has."""
        ranges = tuple((name, *getattr(self, name).ends) for name in RANGES)
        return FilterShape(queue=self.queue_pk is not None, statuses=self.statuses, tags=len(self.tags), ranges=ranges)

    @property
    def identity(self) -> str:
        """The filter as text. Pull receipts store a hash of it, so its form stays the same across releases: an earlier
        one had pending and rank 10 where none was asked for."""
        place = f"project_pk={self.project_pk!r}, queue_pk={self.queue_pk!r}"
        statuses = (Status.PENDING,) if self.statuses == ANY_STATUS else self.statuses
        values = f"statuses={statuses!r}, tags={self.tags!r}"
        ranks = f"first_rank={self.first_rank!r}, last_rank={min(self.last_rank, LOWEST)!r}"
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
    statuses: tuple[Status, ...]
    tags: int
    ranges: tuple[tuple[str, bool, bool], ...]  # name, has a start, has an end

    @property
    def range_names(self) -> list[str]:
        """The time and version ranges that are set."""
        return [name for name, start, end in self.ranges if start or end]


def select_offered(shape: FilterShape) -> Select[Any]:
    """Select and lock offered tasks, up to a limit; skip what other transactions have locked."""
    if shape.tags:
        scans = [_by_tag(shape, status, number) for number in range(shape.tags) for status in _scanned(shape)]
        return _merged(scans, "priority", "scheduled_at", "id")
    if shape.range_names:
        return _by_range(shape)
    return _merged([_by_rank(shape, status) for status in _scanned(shape)], "priority", "scheduled_at", "id")


def _scanned(shape: FilterShape) -> Sequence[Status | None]:
    """The statuses to scan one by one; None stands for all of them in one scan."""
    return (None,) if shape.statuses == ANY_STATUS else shape.statuses


def _merged(scans: Sequence[Select[Any]], *order: str) -> Select[Any]:
    """The rows of several scans in one order, up to the limit."""
    if len(scans) == 1:
        return scans[0]
    found = union_all(*(select(scan.subquery(f"scan_{number}")) for number, scan in enumerate(scans))).subquery("found")
    return select(found).order_by(*(found.c[name] for name in order)).limit(_limit())


def select_offered_by_pk(ids: Select[Any]) -> Select[Any]:
    """Select and lock those of these tasks that are offered; skip what other transactions have locked."""
    mine = select(*COLUMNS).where(t.id.in_(ids), _unindexed(OFFERED, _unexpired())).order_by(t.priority, t.id)
    return mine.with_for_update(skip_locked=True, of=task)


def matched_tags(tags: Iterable[str]) -> list[str]:
    """Tags of a task as a pull matches them: trimmed, in lower case, without blanks and duplicates."""
    return list(dict.fromkeys(word for tag in tags if (word := tag.strip().lower())))


async def insert_offer_tags(tx: Tx, offered: Iterable[Task]) -> None:
    """Index newly offered tasks by their tags."""
    rows = [
        (one.id, tag, one.partition_key, one.status.value, one.priority, one.scheduled_at)
        for one in offered
        if one.state is PullState.OFFERED
        for tag in matched_tags(one.tags)
    ]
    await insert_rows(tx, task_offer_tag, TAG_NAMES, rows)


async def delete_offer_tags(tx: Tx, pks: Collection[str]) -> None:
    """Remove tasks from the tag index."""
    if pks:
        await tx.conn.execute(delete(task_offer_tag).where(any_of(o.task_pk, pks)))


def _by_rank(shape: FilterShape, status: Status | None) -> Select[Any]:
    due = (
        select(*COLUMNS)
        .where(*_conditions(shape, status), _between_ranks(t.priority))
        .order_by(t.priority, t.scheduled_at, t.id)
    )
    return due.limit(_limit()).with_for_update(skip_locked=True)  # SQLite renders nothing and has one writer


def _by_tag(shape: FilterShape, status: Status | None, number: int) -> Select[Any]:
    """Scan the offers of one tag that have none of the tags before it; look up the task itself by id for each row."""
    tags = [bindparam(f"tag_{one}", type_=Id) for one in range(number + 1)]
    due = select(*COLUMNS).join_from(task_offer_tag, task, t.id == o.task_pk)
    due = due.where(o.project_pk == bindparam("in_project", type_=Id), o.tag == tags[-1], _between_ranks(o.priority))
    due = due.where(o.task_pk != literal_column("''") if status is None else _has_status(o.status, status))
    if number:
        other = task_offer_tag.alias("other").c
        earlier = select(other.tag).where(other.task_pk == t.id, other.tag.in_(tags[:-1])).limit(literal_column("1"))
        due = due.where(earlier.scalar_subquery().is_(None))  # not EXISTS: a planner may start from that one, and sort
    due = due.where(_unindexed(*_conditions(shape, status), *_in_ranges(shape)))
    due = due.order_by(o.priority, o.scheduled_at, o.task_pk)
    return due.limit(_limit()).with_for_update(skip_locked=True, of=task)


def _unindexed(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Conditions on tasks found by id, written so that no index fits. Otherwise a plan made for an empty table uses an
    index on offers, is cached, and later scans all offers for each task."""
    return func.coalesce(and_(*conditions), false())


def _by_range(shape: FilterShape) -> Select[Any]:
    """Scans for each rank and status, each in the order of the first range. An index serves a range or an order, not
    both, but a scan inside one rank needs no other order. Ranks that are not reached cost nothing."""
    leading = RANGES[shape.range_names[0]]
    ranks = []
    for rank in range(HIGHEST, UNSET_RANK + 1):
        one = literal_column(str(rank), Integer)
        scans = []
        for status in shape.statuses:
            inside = (*_conditions(shape, status), *_in_ranges(shape), t.priority == one, _between_ranks(one))
            scan = select(*COLUMNS).where(*inside).order_by(leading, t.id).limit(_limit())
            scans.append(scan.with_for_update(skip_locked=True))
        ranks.append(select(_merged(scans, leading.name, "id").subquery(f"rank_{rank}")))
    return select(union_all(*ranks).subquery("due")).limit(_limit())


def _conditions(shape: FilterShape, status: Status | None) -> list[ColumnElement[bool]]:
    """The conditions of every scan."""
    conditions = [OFFERED, t.partition_key == bindparam("in_project", type_=Id), _unexpired()]
    conditions.append(BY_SERVER if status is None else _has_status(t.status, status))
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


def _has_status(column: Column[str], status: Status) -> ColumnElement[bool]:
    return column == literal_column(f"'{status.value}'", String)


def _unexpired() -> ColumnElement[bool]:
    return or_(t.expires_at.is_(None), t.expires_at > bindparam("now", type_=UtcTime))


def _between_ranks(rank: ColumnElement[int]) -> ColumnElement[bool]:
    return rank.between(bindparam("first", type_=Integer), bindparam("last", type_=Integer))


def _limit() -> Any:
    return bindparam("most", type_=Integer)
