"""The columns, indexes and statements behind `leases.py`, built once per table.

The state words stand in the statements as constants, not as parameters: PostgreSQL uses a partial index only when it
can see at planning time that the condition is met.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    ARRAY,
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
    Text,
    Update,
    and_,
    any_,
    bindparam,
    func,
    literal_column,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.sql.schema import SchemaItem

from penstock.kernel.bulk import among_given
from penstock.kernel.columns import Id, UtcTime
from penstock.kernel.hot import HotStatement, is_any
from penstock.kernel.partitions import lease_partition


@dataclass(frozen=True, kw_only=True)
class LeaseWords:
    """How a table says "waiting" and "held" in its own state column."""

    state: str
    waiting: str
    held: str


def lease_columns() -> list[SchemaItem]:
    """The columns that make a table leasable, beside its `id` and its state."""
    return [
        Column("partition_key", Id, nullable=False, server_default=""),
        Column("priority", SmallInteger, nullable=False, server_default="5"),  # small first
        Column("scheduled_at", UtcTime, nullable=False),  # due time
        Column("deferred", Boolean, nullable=False, server_default=literal_column("false")),  # not due yet
        Column("lease_owner", String),  # who holds it, or held it last
        Column("lease_token", String),
        Column("leased_until", UtcTime),
        Column("lease_count", Integer, nullable=False, server_default="0"),
    ]


def lease_rules(words: LeaseWords) -> list[SchemaItem]:
    """What the database itself watches over: a token and an end exactly while a row is held."""
    held = f"{words.state} = '{words.held}'"
    return [
        CheckConstraint(f"({held}) = (lease_token IS NOT NULL)", name="token_while_held"),
        CheckConstraint(f"({held}) = (leased_until IS NOT NULL)", name="end_while_held"),
    ]


def lease_indexes(table: Table, words: LeaseWords) -> None:
    """Give a table the three partial indexes its leases need."""
    t, name = table.c, table.name
    waiting, held = _is(table, words, words.waiting), _is(table, words, words.held)
    for suffix, columns, where in (
        ("ready", (t.partition_key, t.priority, t.scheduled_at, t.id), and_(waiting, ~t.deferred)),
        ("deferred", (t.scheduled_at,), and_(waiting, t.deferred)),
        ("held", (t.leased_until, t.partition_key), held),
    ):
        Index(f"ix_{name}_{suffix}", *columns, postgresql_where=where, sqlite_where=where)


def _is(table: Table, words: LeaseWords, word: str) -> ColumnElement[bool]:
    return table.c[words.state] == literal_column(f"'{word}'")


def _once(build: Callable[..., Update | Select[Any]]) -> Callable[..., HotStatement]:
    """Build each statement once per database and shape."""

    @cache
    def built(*args: Any, **more: Any) -> HotStatement:
        return HotStatement(build(*args, **more))

    return built


class LeaseSql:
    """The statements for one table."""

    def __init__(self, table: Table, words: LeaseWords) -> None:
        t = table.c
        self.table = table
        self._state = words.state
        self._words = words
        self._waiting = _is(table, words, words.waiting)
        self._held = _is(table, words, words.held)
        in_partition = t.partition_key == bindparam("in_partition", type_=Id)
        self.count_held = select(func.count()).select_from(table).where(self._held, in_partition)
        later = t.scheduled_at > bindparam("now", type_=UtcTime)
        self.next_due = select(func.min(t.scheduled_at)).where(self._waiting, t.deferred, later)
        self.restricted = select(self._restricted())
        self.claim = _once(self._claim)
        self.claim_these = _once(self._claim_these)
        self.renew = _once(self._renew)
        self.settle = _once(self._settle)
        self.release = _once(self._release)
        self.expire = _once(self._expire)
        self.promote = _once(self._promote)
        self.look = _once(self._look)

    def due(self, on_postgres: bool, *, gated: bool) -> Select[Any]:
        """The ids a claim takes, first come first."""
        t = self.table.c
        due = (
            select(t.id)
            .where(self._waiting, ~t.deferred, t.partition_key == bindparam("in_partition", type_=Id))
            .order_by(t.priority, t.scheduled_at, t.id)
            .limit(bindparam("most", type_=Integer))
            .with_for_update(skip_locked=True)  # rivals pass each other; SQLite renders nothing and has one writer
        )
        if on_postgres:  # SQLite leaves no dead index entries behind, so it needs no mark
            mark = (bindparam("from_priority", type_=SmallInteger), bindparam("from_due", type_=UtcTime))
            due = due.where(tuple_(t.priority, t.scheduled_at, t.id) >= tuple_(*mark, bindparam("from_id", type_=Id)))
        return due.where(~self._restricted()) if gated else due

    def lapsed(self, since: ColumnElement[datetime], now: ColumnElement[datetime]) -> Select[Any]:
        """The ids of rows whose lease ran out between two moments, the longest silent first."""
        t = self.table.c
        over = select(t.id).where(self._held, t.leased_until >= since, t.leased_until <= now)
        return over.order_by(t.leased_until)

    def _restricted(self) -> ColumnElement[bool]:
        """Whether the partition needs a closer look: paused, cooling, or with a ceiling."""
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

    def _claim(self, on_postgres: bool, *, gated: bool) -> Update:
        due = self.due(on_postgres, gated=gated)
        return self._update(due, on_postgres).values(self._is_held()).returning(self.table)

    def _claim_these(self, on_postgres: bool, *, gated: bool) -> Update:
        """Nothing is said of `deferred`: the due time decides. Said, it would also let PostgreSQL walk the whole index
        of rows that are ready instead of looking the ids up."""
        t = self.table.c
        these = (
            select(t.id)
            .where(self._among(on_postgres), self._waiting, t.scheduled_at <= bindparam("now", type_=UtcTime))
            .where(t.partition_key == bindparam("in_partition", type_=Id))
            .order_by(t.priority, t.scheduled_at, t.id)
            .limit(bindparam("most", type_=Integer))
            .with_for_update(skip_locked=True)
        )
        these = these.where(~self._restricted()) if gated else these
        held = self._is_held() | {"deferred": False}
        return self._update(these, on_postgres).values(held).returning(self.table)

    def _is_held(self) -> dict[str, Any]:
        return {
            self._state: self._words.held,
            "lease_owner": bindparam("owner"),
            "lease_token": bindparam("token"),
            "leased_until": bindparam("until"),
            "lease_count": self.table.c.lease_count + 1,
        }

    def _update(self, chosen: Select[Any], on_postgres: bool) -> Update:
        """Update the chosen rows. PostgreSQL gets an array, which it fills exactly once before it looks up any row:
        1.36 times as fast as a join with a CTE, and its cached plan does not go stale as the table grows."""
        target = self.table.c.id
        among = target == any_(func.array(chosen.scalar_subquery())) if on_postgres else target.in_(chosen)
        return update(self.table).where(among)

    def _mine(self, on_postgres: bool) -> ColumnElement[bool]:
        """The rows held by this token. That they are held need not be said: the table's CHECK allows a token only then.
        Said all the same, it would lead PostgreSQL to the index of held rows and over everything that was ever held."""
        return and_(self._among(on_postgres), self.table.c.lease_token == bindparam("held_token", type_=String))

    def _among(self, on_postgres: bool) -> ColumnElement[bool]:
        target = self.table.c.id
        if on_postgres:
            return target == any_(bindparam("asked_ids", type_=ARRAY(Text)))
        return target.in_(bindparam("asked_ids", expanding=True))

    def _renew(self, on_postgres: bool) -> Update:
        kept = update(self.table).where(self._mine(on_postgres)).values(leased_until=bindparam("until"))
        return kept.returning(self.table.c.id)

    def _settle(self, on_postgres: bool, names: Sequence[str]) -> Update:
        free: dict[str, Any] = {"lease_token": None, "leased_until": None, self._state: bindparam("to_state")}
        ended = update(self.table).where(self._mine(on_postgres)).values(free | self._more(names))
        return ended.returning(self.table.c.id)

    def _waits_again(self, due_at: Any, deferred: Any) -> dict[str, Any]:
        return {
            self._state: self._words.waiting,
            "lease_token": None,
            "leased_until": None,
            "scheduled_at": due_at,
            "deferred": deferred,
        }

    def _more(self, names: Sequence[str]) -> dict[str, Any]:
        """Columns of the table's own that are set along with a lease's end."""
        return {name: bindparam(f"set_{name}", type_=self.table.c[name].type) for name in names}

    def _release(self, on_postgres: bool, names: Sequence[str]) -> Update:
        waits = self._waits_again(bindparam("due_at"), bindparam("is_deferred"))
        fewer = {"lease_count": self.table.c.lease_count - bindparam("uncounted", type_=Integer)}
        given = update(self.table).where(self._mine(on_postgres)).values(waits | fewer | self._more(names))
        return given.returning(self.table.c.id)

    def _expire(self, on_postgres: bool) -> Update:
        since, now = bindparam("since", type_=UtcTime), bindparam("now", type_=UtcTime)
        most = bindparam("most", type_=Integer)
        lapsed = self.lapsed(since, now).limit(most).with_for_update(skip_locked=True)
        waits = self._waits_again(now, deferred=False)
        return self._update(lapsed, on_postgres).values(waits).returning(self.table)

    def _promote(self, on_postgres: bool) -> Update:
        due = self._come_due().limit(bindparam("most", type_=Integer)).with_for_update(skip_locked=True)
        return self._update(due, on_postgres).values(deferred=False).returning(self.table.c.id)

    def _come_due(self) -> Select[Any]:
        """The ids of deferred rows that are due, the longest due first."""
        t = self.table.c
        since, now = bindparam("since", type_=UtcTime), bindparam("now", type_=UtcTime)
        due = select(t.id).where(self._waiting, t.deferred, t.scheduled_at >= since, t.scheduled_at <= now)
        return due.order_by(t.scheduled_at)

    def _look(self, on_postgres: bool) -> Select[Any]:
        """Whether rows wait in some partitions that are due or have just come due, and when the next one will be."""
        t = self.table.c
        here = among_given(t.partition_key, "in_partitions", on_postgres=on_postgres)
        ready = select(t.id).where(self._waiting, ~t.deferred, here)
        found = or_(is_any(ready), is_any(self._come_due()))
        return select(found.label("found"), self.next_due.scalar_subquery().label("next_due"))
