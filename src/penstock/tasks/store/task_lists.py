"""Lists of tasks: pages by number, filters, and the search.

A page of a queue is looked up in two steps of one statement: the primary keys of its tasks inside an index, then their
rows. So a deep page skips index entries, not rows. Beyond the middle any list is counted from its end. Totals come from
the counters of the project or queue where they know them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, UnaryExpression, func, or_, select, union_all

from penstock.kernel.db import Tx
from penstock.kernel.dialect.sql import any_json_text, any_selected, equals_as_array
from penstock.tasks.domain import Counts, PullState, Side, StateCounts, Status, Task
from penstock.tasks.store.search import contains
from penstock.tasks.store.tables import HELD, IS_ACTIVE, task, task_search
from penstock.tasks.store.tasks import COLUMNS, QueueScope, from_row, removed_queues

t, s = task.c, task_search.c
CLOSED, HELD_STATE = frozenset({PullState.CLOSED}), frozenset({PullState.HELD})
PULLED, UNPULLED = CLOSED | HELD_STATE, frozenset({PullState.IDLE, PullState.OFFERED})


@dataclass(frozen=True, kw_only=True)
class TaskListFilter:
    """The filter of a task list."""

    where: QueueScope
    status: Status | None = None
    states: Collection[PullState] = ()
    search: str = ""
    also: Sequence[ColumnElement[bool]] = ()  # from `TaskConditions.columns`

    def on(self, statement: Select[Any]) -> Select[Any]:
        """A statement on tasks, restricted to the matching ones; without the search."""
        return statement.where(self.where.list_condition(), IS_ACTIVE, *self._columns())

    def found(self) -> Select[Any]:
        """The primary keys of the tasks that match the search and the other filters."""
        where = self.where
        found = select(s.task_pk).where(equals_as_array(s.project_pk, where.project_pk))
        if where.queue_pk is None:
            found = found.where(s.queue_pk.not_in(removed_queues(where.project_pk)))
        else:
            found = found.where(equals_as_array(s.queue_pk, where.queue_pk))
        found = found.where(contains(s.search_text, self.search))
        others = self._columns()
        if not others:
            return found
        # A scalar subquery, not a join: a planner may start a join from the tasks in that status.
        matching = select(t.id).where(t.id == s.task_pk, *others).correlate(task_search).scalar_subquery()
        return found.where(matching.is_not(None))

    def _columns(self) -> list[ColumnElement[bool]]:
        status = [] if self.status is None else [t.status == self.status.value]
        states = [t.state.in_([state.value for state in self.states])] if self.states else []
        return [*status, *states, *self.also]


@dataclass(frozen=True, kw_only=True)
class TaskConditions:
    """Conditions of a list besides status, pull state and search. What is None or empty is not asked for.

    No index has them: they are checked on the tasks of the listed queue or project, in the order of the list. So a page
    ends as soon as it is full, but its total, and a page of a rare tag, read all tasks of the queue. A pull by tags
    does not: `task_offer_tag` serves it.
    """

    tags: tuple[str, ...] = ()  # any of them, in any case
    ranks: tuple[int, int] | None = None  # from the first to the last, both included
    source: Side | None = None
    expires_after: datetime | None = None  # at that time or later
    expires_before: datetime | None = None
    has_expired: bool | None = None

    def columns(self, now: datetime) -> list[ColumnElement[bool]]:
        """The conditions on the columns of a task."""
        found: list[ColumnElement[bool]] = []
        if self.tags:
            found.append(any_json_text(t.tags, _spellings(self.tags)))
        if self.ranks is not None:
            found.append(t.priority.between(*self.ranks))
        if self.source is not None:
            found.append(t.source == self.source.value)
        if self.expires_after is not None:
            found.append(t.expires_at >= self.expires_after)
        if self.expires_before is not None:
            found.append(t.expires_at < self.expires_before)
        if self.has_expired is not None:
            has_not = or_(t.expires_at.is_(None), t.expires_at > now)
            found.append(t.expires_at <= now if self.has_expired else has_not)
        return found


@dataclass(frozen=True, kw_only=True)
class KnownTotals:
    """The counters of a project or queue, as far as they are known."""

    counts: Counts | None = None
    states: StateCounts | None = None


async def list_page(
    tx: Tx, listing: TaskListFilter, known: KnownTotals, *, offset: int, limit: int
) -> tuple[list[Task], int]:
    """A page of the matching tasks in the order of their list, and how many there are."""
    if listing.search:
        return await _search_page(tx, listing, offset=offset, limit=limit)
    total = await _known_total(tx, listing, known)
    if total is None:
        total = await count_tasks(tx, listing)
    return await list_tasks(tx, listing, total=total, offset=offset, limit=limit), total


async def list_tasks(tx: Tx, listing: TaskListFilter, *, total: int | None, offset: int, limit: int) -> list[Task]:
    """Some of the matching tasks in the order of their list. With the total, those near the end are counted from
    there."""
    if total is not None and offset >= total:
        return []
    is_reversed = total is not None and offset > total // 2
    if total is not None and is_reversed:
        offset, limit = max(total - offset - limit, 0), min(limit, total - offset)
    if listing.where.queue_pk is None:  # no index of a project has the queue, so there the rows are read at once
        page = _scan(listing, COLUMNS, offset=offset, limit=limit, is_reversed=is_reversed)
        found = [from_row(row) for row in await tx.conn.execute(page)]
        return found[::-1] if is_reversed else found
    keys = _scan(listing, (t.id, t.partition_key, t.position), offset=offset, limit=limit, is_reversed=is_reversed)
    page = select(*COLUMNS).where(any_selected(t.id, keys.with_only_columns(keys.selected_columns.id)))
    return [from_row(row) for row in await tx.conn.execute(page.order_by(*listing.where.list_order(t)))]


def _scan(
    listing: TaskListFilter, columns: Sequence[ColumnElement[Any]], *, offset: int, limit: int, is_reversed: bool
) -> Select[Any]:
    """Some matching tasks in the order of their list, or from its end."""
    order = _ordered(listing.where.list_order(t), is_reversed)
    if len(listing.states) < 2:
        return listing.on(select(*columns)).order_by(*order).offset(offset).limit(limit)
    scans = []  # one scan per state: a single scan would read the other states too
    for number, state in enumerate(listing.states):
        scan = replace(listing, states=(state,)).on(select(*columns)).order_by(*order)
        scans.append(scan.limit(offset + limit).subquery(f"scan_{number}"))
    found = union_all(*(select(scan) for scan in scans)).subquery("found")
    order = _ordered(listing.where.list_order(found.c), is_reversed)
    return select(found).order_by(*order).offset(offset).limit(limit)


def _ordered(order: Sequence[ColumnElement[Any]], is_reversed: bool) -> list[ColumnElement[Any]]:
    if not is_reversed:
        return list(order)
    return [column.element if isinstance(column, UnaryExpression) else column.desc() for column in order]


async def count_tasks(tx: Tx, listing: TaskListFilter) -> int:
    """How many tasks match."""
    if listing.search:
        return await tx.conn.scalar(select(func.count()).select_from(listing.found().subquery())) or 0
    return await tx.conn.scalar(listing.on(select(func.count()).select_from(task))) or 0


async def count_held(tx: Tx, where: QueueScope) -> int:
    """How many tasks are held: as many as clients work on, so counting them is quick."""
    # With the order of the index that has only these; without it SQLite reads all tasks of the project.
    held = select(t.id).where(where.condition, HELD).order_by(t.pulled_at, t.id)
    return await tx.conn.scalar(select(func.count()).select_from(held.subquery())) or 0


async def _known_total(tx: Tx, listing: TaskListFilter, known: KnownTotals) -> int | None:
    """The total from the counters, or None if they do not know it."""
    counts, states = known.counts, known.states
    if listing.also:
        return None
    if counts is not None and not listing.states:
        return counts.total if listing.status is None else counts.of(listing.status)
    if counts is None or states is None or listing.status is not None:
        return None
    closed = states.closed_tasks
    held = await count_held(tx, listing.where)
    by_states = {CLOSED: closed, HELD_STATE: held, PULLED: closed + held, UNPULLED: counts.total - closed - held}
    return by_states.get(frozenset(listing.states))


async def _search_page(tx: Tx, listing: TaskListFilter, *, offset: int, limit: int) -> tuple[list[Task], int]:
    """A page of the tasks that a search finds. A page that is not full tells the total."""
    # With the project, also where the planner could read all texts by primary key, of other projects too.
    in_order = (s.project_pk, s.task_pk) if listing.where.queue_pk is None else (s.project_pk, s.queue_pk, s.task_pk)
    page = listing.found().order_by(*in_order).offset(offset).limit(limit)
    rows = await tx.conn.execute(select(*COLUMNS).where(any_selected(t.id, page)).order_by(t.id))
    found = [from_row(row) for row in rows]
    if len(found) < limit and (found or not offset):
        return found, offset + len(found)
    return found, await count_tasks(tx, listing)


def _spellings(tags: tuple[str, ...]) -> list[str]:
    """Tags are stored as they were sent. SQLite knows the case of ASCII letters only, so others are spelt out."""
    return list(dict.fromkeys(word for tag in tags for word in (tag.lower(), tag, tag.upper(), tag.capitalize())))
