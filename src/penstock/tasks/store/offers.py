"""What is on offer: choosing tasks for a pull, and the tags by which they can be chosen.

A pull walks one index in order and stops when it has enough, so it costs the same with ten tasks as with a million:

- without filters, what is on offer in a project or a queue, by rank and by how long it has been on offer;
- with tags, the rows of `task_offer_tag`, which are there only while a task is on offer; of several tags the rarest;
- with times or a version, one walk per rank inside the range, oldest first.

Every other filter is asked of the rows on the way.
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

from penstock.kernel.bulk import among, insert_rows
from penstock.kernel.columns import Id, UtcTime
from penstock.kernel.db import Tx
from penstock.kernel.hot import HotStatement
from penstock.tasks.domain import HIGHEST, LOWEST, PullState, Status, Task
from penstock.tasks.store.tables import OFFERED, task, task_offer_tag
from penstock.tasks.store.tasks import COLUMNS

t = task.c
o = task_offer_tag.c
TAG_NAMES = ("task_pk", "tag", "project_pk", "status", "priority", "scheduled_at")
OFTEN = 1000  # of several tags, one that is on so many offers need not lead
RANGES: dict[str, Column[Any]] = {"version": t.version, "modified": t.server_modified_at, "created": t.created_at}


@dataclass(frozen=True, kw_only=True)
class Span:
    """From `start` on, before `end`; either may be missing."""

    start: datetime | int | None = None
    end: datetime | int | None = None

    @property
    def ends(self) -> tuple[bool, bool]:
        """Which of the two are there."""
        return self.start is not None, self.end is not None


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a pull asks for. Two pulls that want the same can share one claim."""

    project_pk: str
    queue_pk: str | None = None  # None is anywhere in the project
    statuses: tuple[Status, ...] = (Status.PENDING,)
    tags: tuple[str, ...] = ()
    first_rank: int = HIGHEST
    last_rank: int = LOWEST
    created: Span = Span()
    modified: Span = Span()
    version: Span = Span()

    @property
    def shape(self) -> "Shape":
        """What its statement looks like."""
        spans = tuple((name, *getattr(self, name).ends) for name in RANGES)
        return Shape(queue=self.queue_pk is not None, tags=len(self.tags), spans=spans)

    def values(self) -> dict[str, Any]:
        """The parameters of its statement, less those of the moment."""
        values: dict[str, Any] = {"in_project": self.project_pk, "first": self.first_rank, "last": self.last_rank}
        if self.queue_pk is not None:
            values["in_queue"] = self.queue_pk
        for number, tag in enumerate(self.tags):
            values[f"tag_{number}"] = tag
        for name in RANGES:
            span: Span = getattr(self, name)
            values |= {f"{name}_start": span.start} if span.start is not None else {}
            values |= {f"{name}_end": span.end} if span.end is not None else {}
        return values


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Which filters a statement has: it is made once for each."""

    queue: bool
    tags: int
    spans: tuple[tuple[str, bool, bool], ...]

    @property
    def ranges(self) -> list[str]:
        """The filters by time or version that are there."""
        return [name for name, start, end in self.spans if start or end]


def choose(shape: Shape) -> Select[Any]:
    """Tasks on offer in one status, up to a number, locked; what others lock is passed over."""
    if shape.tags:
        return _by_tag(shape)
    return _by_range(shape) if shape.ranges else _by_rank(shape)


def choose_these(ids: Select[Any]) -> Select[Any]:
    """Those of these tasks that are on offer, locked; what others lock is passed over."""
    mine = select(*COLUMNS).where(t.id.in_(ids), _aside(OFFERED, _unexpired())).order_by(t.priority, t.id)
    return mine.with_for_update(skip_locked=True, of=task)


async def insert_offer_tags(tx: Tx, offered: Iterable[Task]) -> None:
    """Let tasks that came on offer be found by their tags."""
    rows = [
        (one.id, tag, one.partition_key, one.status.value, one.priority, one.scheduled_at)
        for one in offered
        if one.state is PullState.OFFERED
        for tag in dict.fromkeys(one.tags)
    ]
    await insert_rows(tx, task_offer_tag, TAG_NAMES, rows)


async def delete_offer_tags(tx: Tx, pks: Collection[str]) -> None:
    """Let tasks no longer be found by their tags."""
    if pks:
        await tx.conn.execute(delete(task_offer_tag).where(among(tx, o.task_pk, pks)))


async def led_by_rarest(tx: Tx, wanted: Wanted, status: Status) -> Wanted:
    """With the tag first that has the fewest tasks on offer, counted as far as it matters."""
    values = {name: value for name, value in wanted.values().items() if name == "in_project" or name.startswith("tag_")}
    [counts] = await _counted(len(wanted.tags)).rows(tx, values | {"in_status": status.value})
    rarest = sorted(range(len(wanted.tags)), key=lambda number: int(getattr(counts, f"count_{number}")))
    return replace(wanted, tags=tuple(wanted.tags[number] for number in rarest))


@lru_cache(maxsize=64)
def _counted(tags: int) -> HotStatement:
    counts = []
    for number in range(tags):
        some = select(o.tag).where(*_tagged(number)).limit(OFTEN).subquery(f"some_{number}")
        counts.append(select(func.count()).select_from(some).scalar_subquery().label(f"count_{number}"))
    return HotStatement(select(*counts))


def _by_rank(shape: Shape) -> Select[Any]:
    due = select(*COLUMNS).where(*_asked(shape), _between_ranks(t.priority)).order_by(t.priority, t.scheduled_at, t.id)
    return due.limit(_most()).with_for_update(skip_locked=True)  # SQLite renders nothing and has one writer


def _by_tag(shape: Shape) -> Select[Any]:
    """The first tag leads; the others are looked up for each task on the way, as is the task itself, by its id."""
    due = select(*COLUMNS).join_from(task_offer_tag, task, t.id == o.task_pk)
    due = due.where(*_tagged(0), _between_ranks(o.priority))
    for number in range(1, shape.tags):
        other = task_offer_tag.alias(f"other_{number}").c
        has = select(other.tag).where(other.task_pk == t.id, other.tag == bindparam(f"tag_{number}", type_=Id))
        due = due.where(has.scalar_subquery().is_not(None))  # not EXISTS: a planner may let that one lead, and sort
    due = due.where(_aside(*_asked(shape), *_in_ranges(shape)))
    due = due.order_by(o.priority, o.scheduled_at, o.task_pk)
    return due.limit(_most()).with_for_update(skip_locked=True, of=task)


def _tagged(number: int) -> list[ColumnElement[bool]]:
    tag = bindparam(f"tag_{number}", type_=Id)
    return [o.project_pk == bindparam("in_project", type_=Id), o.tag == tag, _has_status(o.status)]


def _aside(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Conditions on tasks that are found by their ids, put so that no index fits. Else a plan made for an empty table
    finds them by an index on offers, is kept, and walks over all offers for each of them when there are many."""
    return func.coalesce(and_(*conditions), false())


def _by_range(shape: Shape) -> Select[Any]:
    """Ten walks, one per rank, each in the order of the first range. An index can serve a range or an order, not both,
    but a walk that stays inside one rank needs no other order. Those that are not reached cost nothing."""
    leading = RANGES[shape.ranges[0]]
    walks = []
    for rank in range(HIGHEST, LOWEST + 1):
        one = literal_column(str(rank), Integer)
        walk = select(*COLUMNS).where(*_asked(shape), *_in_ranges(shape), t.priority == one, _between_ranks(one))
        walk = walk.order_by(leading, t.id).limit(_most()).with_for_update(skip_locked=True)
        walks.append(select(walk.subquery(f"rank_{rank}")))
    return select(union_all(*walks).subquery("due")).limit(_most())


def _asked(shape: Shape) -> list[ColumnElement[bool]]:
    """What every walk asks of a task."""
    asked = [OFFERED, t.partition_key == bindparam("in_project", type_=Id), _has_status(t.status), _unexpired()]
    if shape.queue:
        asked.append(t.queue_pk == bindparam("in_queue", type_=Id))
    return asked


def _in_ranges(shape: Shape) -> list[ColumnElement[bool]]:
    inside: list[ColumnElement[bool]] = []
    for name, has_start, has_end in shape.spans:
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


def _most() -> Any:
    return bindparam("most", type_=Integer)
