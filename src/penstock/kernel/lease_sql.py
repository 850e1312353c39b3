"""The columns, indexes and statements behind `leases.py`, built once per table.

States are constants in the statements, not parameters: PostgreSQL uses a partial index only when it can prove its
condition at planning time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Index,
    Integer,
    Select,
    SmallInteger,
    String,
    Table,
    Update,
    and_,
    bindparam,
    func,
    literal_column,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.sql.schema import SchemaItem

from penstock.kernel.columns import Id, UtcTime
from penstock.kernel.dialect.compiled_statement import CompiledStatement, any_rows
from penstock.kernel.dialect.sql import any_of_param, any_selected
from penstock.kernel.partitions import lease_partition


@dataclass(frozen=True, kw_only=True)
class LeaseStates:
    """A table's state column, and its values for rows that wait and rows that are held."""

    column: str
    waiting: str
    held: str


def lease_columns() -> list[SchemaItem]:
    """The columns that make a table leasable, in addition to its `id` and its state."""
    return [
        Column("partition_key", Id, nullable=False, server_default=""),
        Column("priority", SmallInteger, nullable=False, server_default="5"),  # small first
        Column("scheduled_at", UtcTime, nullable=False),  # due time
        Column("deferred", Boolean, nullable=False, server_default=literal_column("false")),  # not due yet
        Column("lease_owner", String),  # current or last holder
        Column("lease_token", String),
        Column("leased_until", UtcTime),
        Column("lease_count", Integer, nullable=False, server_default="0"),
    ]


def lease_constraints(states: LeaseStates) -> list[SchemaItem]:
    """CHECK constraints: a row has a token and an expiry exactly while it is held."""
    held = f"{states.column} = '{states.held}'"
    return [
        CheckConstraint(f"({held}) = (lease_token IS NOT NULL)", name="token_while_held"),
        CheckConstraint(f"({held}) = (leased_until IS NOT NULL)", name="end_while_held"),
    ]


def lease_indexes(table: Table, states: LeaseStates) -> None:
    """Add the three partial indexes that leases need."""
    t, name = table.c, table.name
    waiting, held = _has_state(table, states, states.waiting), _has_state(table, states, states.held)
    for suffix, columns, where in (
        ("ready", (t.partition_key, t.priority, t.scheduled_at, t.id), and_(waiting, ~t.deferred)),
        ("deferred", (t.scheduled_at,), and_(waiting, t.deferred)),
        ("held", (t.leased_until, t.partition_key), held),
    ):
        Index(f"ix_{name}_{suffix}", *columns, postgresql_where=where, sqlite_where=where)


def _has_state(table: Table, states: LeaseStates, state: str) -> ColumnElement[bool]:
    return table.c[states.column] == literal_column(f"'{state}'")


def _cached(build: Callable[..., Update | Select[Any]]) -> Callable[..., CompiledStatement]:
    """Build each statement once per set of arguments."""

    @cache
    def built(*args: Any, **more: Any) -> CompiledStatement:
        return CompiledStatement(build(*args, **more))

    return built


class LeaseSql:
    """The statements for one table."""

    def __init__(self, table: Table, states: LeaseStates) -> None:
        t = table.c
        self.table = table
        self._states = states
        self._waiting = _has_state(table, states, states.waiting)
        self._held = _has_state(table, states, states.held)
        in_partition = t.partition_key == bindparam("in_partition", type_=Id)
        self.count_held = select(func.count()).select_from(table).where(self._held, in_partition)
        later = t.scheduled_at > bindparam("now", type_=UtcTime)
        self.next_due = select(func.min(t.scheduled_at)).where(self._waiting, t.deferred, later)
        self.restricted = select(self._restricted())
        this_row = t.id == bindparam("row_id", type_=Id)
        self.is_held = select(t.id).where(this_row, t.lease_token == bindparam("held_token", type_=String))
        self.claim = _cached(self._claim)
        self.claim_ids = _cached(self._claim_ids)
        self.renew = CompiledStatement(self._renew())
        self.settle = _cached(self._settle)
        self.release = _cached(self._release)
        self.expire = CompiledStatement(self._expire())
        self.promote = CompiledStatement(self._promote())
        self.poll = CompiledStatement(self._poll())

    def due(self, *, gated: bool) -> Select[Any]:
        """The ids a claim takes, in claim order from the cursor on."""
        t = self.table.c
        cursor = (bindparam("from_priority", type_=SmallInteger), bindparam("from_due", type_=UtcTime))
        due = (
            select(t.id)
            .where(self._waiting, ~t.deferred, t.partition_key == bindparam("in_partition", type_=Id))
            .where(tuple_(t.priority, t.scheduled_at, t.id) >= tuple_(*cursor, bindparam("from_id", type_=Id)))
            .order_by(t.priority, t.scheduled_at, t.id)
            .limit(bindparam("most", type_=Integer))
            .with_for_update(skip_locked=True)  # not rendered on SQLite, which has a single writer
        )
        return due.where(~self._restricted()) if gated else due

    def expired(self, since: ColumnElement[datetime], now: ColumnElement[datetime]) -> Select[Any]:
        """The ids of rows whose lease expired between two moments, oldest first."""
        t = self.table.c
        expired = select(t.id).where(self._held, t.leased_until >= since, t.leased_until <= now)
        return expired.order_by(t.leased_until)

    def _restricted(self) -> ColumnElement[bool]:
        """Whether the partition is paused, cooling down, or has a ceiling."""
        p = lease_partition.c
        return (
            select(p.queue)
            .where(
                p.queue == literal_column(f"'{self.table.name}'"),
                p.partition_key == bindparam("in_partition", type_=Id),
                or_(p.paused, p.ceiling.is_not(None), p.cooling_until > bindparam("now", type_=UtcTime)),
            )
            .exists()
        )

    def _claim(self, *, gated: bool) -> Update:
        due = self.due(gated=gated)
        return self._update(due).values(self._held_values()).returning(self.table)

    def _claim_ids(self, *, gated: bool) -> Update:
        """Does not filter by `deferred`, since the due time decides. A filter would let PostgreSQL scan the whole index
        of ready rows instead of looking up the ids."""
        t = self.table.c
        chosen = (
            select(t.id)
            .where(self._id_matches(), self._waiting, t.scheduled_at <= bindparam("now", type_=UtcTime))
            .where(t.partition_key == bindparam("in_partition", type_=Id))
            .order_by(t.priority, t.scheduled_at, t.id)
            .limit(bindparam("most", type_=Integer))
            .with_for_update(skip_locked=True)
        )
        chosen = chosen.where(~self._restricted()) if gated else chosen
        held = self._held_values() | {"deferred": False}
        return self._update(chosen).values(held).returning(self.table)

    def _held_values(self) -> dict[str, Any]:
        return {
            self._states.column: self._states.held,
            "lease_owner": bindparam("owner"),
            "lease_token": bindparam("token"),
            "leased_until": bindparam("until"),
            "lease_count": self.table.c.lease_count + 1,
        }

    def _update(self, chosen: Select[Any]) -> Update:
        return update(self.table).where(any_selected(self.table.c.id, chosen))

    def _held_by_token(self) -> ColumnElement[bool]:
        """The rows held by this token. The state need not be compared, since a CHECK allows a token only on held rows.
        Comparing it would make PostgreSQL scan the index of held rows with all its dead entries."""
        return and_(self._id_matches(), self.table.c.lease_token == bindparam("held_token", type_=String))

    def _id_matches(self) -> ColumnElement[bool]:
        return any_of_param(self.table.c.id, "row_ids")

    def _renew(self) -> Update:
        renewed = update(self.table).where(self._held_by_token()).values(leased_until=bindparam("until"))
        return renewed.returning(self.table.c.id)

    def _settle(self, names: Sequence[str]) -> Update:
        free: dict[str, Any] = {"lease_token": None, "leased_until": None, self._states.column: bindparam("to_state")}
        settled = update(self.table).where(self._held_by_token()).values(free | self._own_columns(names))
        return settled.returning(self.table.c.id)

    def _waiting_values(self, due_at: Any, deferred: Any) -> dict[str, Any]:
        return {
            self._states.column: self._states.waiting,
            "lease_token": None,
            "leased_until": None,
            "scheduled_at": due_at,
            "deferred": deferred,
        }

    def _own_columns(self, names: Sequence[str]) -> dict[str, Any]:
        """Columns of the table itself that are set when a lease ends."""
        return {name: bindparam(f"set_{name}", type_=self.table.c[name].type) for name in names}

    def _release(self, names: Sequence[str]) -> Update:
        values = self._waiting_values(bindparam("due_at"), bindparam("is_deferred")) | self._own_columns(names)
        values |= {"lease_count": self.table.c.lease_count - bindparam("uncounted", type_=Integer)}
        released = update(self.table).where(self._held_by_token()).values(values)
        return released.returning(self.table.c.id)

    def _expire(self) -> Update:
        since, now = bindparam("since", type_=UtcTime), bindparam("now", type_=UtcTime)
        most = bindparam("most", type_=Integer)
        expired = self.expired(since, now).limit(most).with_for_update(skip_locked=True)
        values = self._waiting_values(now, deferred=False)
        return self._update(expired).values(values).returning(self.table)

    def _promote(self) -> Update:
        due = self._deferred_due().limit(bindparam("most", type_=Integer)).with_for_update(skip_locked=True)
        return self._update(due).values(deferred=False).returning(self.table.c.id)

    def _deferred_due(self) -> Select[Any]:
        """The ids of deferred rows that are due, oldest first."""
        t = self.table.c
        since, now = bindparam("since", type_=UtcTime), bindparam("now", type_=UtcTime)
        due = select(t.id).where(self._waiting, t.deferred, t.scheduled_at >= since, t.scheduled_at <= now)
        return due.order_by(t.scheduled_at)

    def _poll(self) -> Select[Any]:
        """Whether any row of some partitions is due or any deferred row has come due, and when the next one will be."""
        t = self.table.c
        in_partitions = any_of_param(t.partition_key, "in_partitions")
        ready = select(t.id).where(self._waiting, ~t.deferred, in_partitions)
        found = or_(any_rows(ready), any_rows(self._deferred_due()))
        return select(found.label("found"), self.next_due.scalar_subquery().label("next_due"))
