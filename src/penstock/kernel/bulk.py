"""Many rows in one statement, the quickest way each database has."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    JSON,
    Column,
    Integer,
    Table,
    Text,
    Update,
    any_,
    bindparam,
    cast,
    func,
    literal,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import ReturningInsert
from sqlalchemy.sql.elements import ColumnElement

from penstock.kernel.columns import UtcTime, to_json
from penstock.kernel.compiled_statement import CompiledStatement
from penstock.kernel.db import Tx

Rows = Sequence[Sequence[Any]]


def upsert(tx: Tx, table: Table) -> postgresql.Insert | sqlite.Insert:
    """An INSERT that can say what to do on a conflict; both databases spell it alike."""
    return upsert_for(table, on_postgres=tx.on_postgres)


def upsert_for(table: Table, *, on_postgres: bool) -> postgresql.Insert | sqlite.Insert:
    """The same for a statement that is written once."""
    return postgresql.insert(table) if on_postgres else sqlite.insert(table)


async def insert_rows(tx: Tx, table: Table, names: Sequence[str], rows: Rows) -> None:
    """Insert rows: `names` are the columns, `rows` their values in that order."""
    if not rows:
        return
    if tx.on_postgres:
        await tx.conn.execute(_unnest(table, tuple(names)), _arrays(table, names, rows))
    else:
        await tx.conn.execute(_insert(table), _records(names, rows))


async def insert_new(tx: Tx, table: Table, names: Sequence[str], rows: Rows) -> set[Any]:
    """Like `insert_rows`, but a row that meets a unique constraint is left out. Returns the first column of the new."""
    if not rows:
        return set()
    given = _arrays(table, names, rows) if tx.on_postgres else _records(names, rows)
    return set((await tx.conn.scalars(_insert_new(table, tuple(names), tx.on_postgres), given)).all())


def any_of(tx: Tx, column: Column[str], values: Collection[str]) -> ColumnElement[bool]:
    """Whether a text column is one of these, in one parameter however many they are."""
    if tx.on_postgres:
        return column == any_(literal(list(values), ARRAY(Text)))
    return column.in_(select(func.json_each(to_json(list(values))).table_valued("value").c.value))


def any_of_param(column: Column[str], name: str, *, on_postgres: bool) -> ColumnElement[bool]:
    """The same for a statement that is made once: its values come as the parameter of that name (`array_param`)."""
    if on_postgres:
        return column == any_(bindparam(name, type_=ARRAY(Text)))
    return column.in_(select(func.json_each(bindparam(name, type_=Text)).table_valued("value").c.value))


def array_param(tx: Tx, values: Collection[str]) -> list[str] | str:
    """Values as `any_of_param` takes them."""
    return list(values) if tx.on_postgres else to_json(list(values))


def equals_as_array(tx: Tx, column: Column[str], value: str) -> ColumnElement[bool]:
    """Whether a text column is just this, for lists that are in the order of this column and then of the key.

    PostgreSQL takes a column that equals one value out of the order. What is left is the order of the key, and it may
    walk along the key from the table's beginning until enough rows fit: past a million, when they are the youngest. It
    does not do so when it is told of a list of values, be it a list of one.
    """
    return any_of(tx, column, [value]) if tx.on_postgres else column == value


async def update_rows(tx: Tx, table: Table, names: Sequence[str], rows: Rows, *where: ColumnElement[bool]) -> int:
    """Set columns of many rows, each to its own values; `names` begins with the column that finds a row.

    Only rows that meet `where` are changed; returns how many were.
    """
    if not rows:
        return 0
    if tx.on_postgres:
        arrays = _arrays(table, names, rows, prefix="given_")
        return (await tx.conn.execute(_set(table, tuple(names)).where(*where), arrays)).rowcount
    first, *others = names
    found = table.c[first] == bindparam(f"find_{first}", type_=table.c[first].type)
    values = {name: bindparam(f"set_{name}", type_=table.c[name].type) for name in others}
    given = [f"find_{first}", *(f"set_{name}" for name in others)]
    return (await tx.conn.execute(update(table).where(found, *where).values(values), _records(given, rows))).rowcount


class WriteBatch:
    """Writes to rows of several tables that go to the database together, in no order. On PostgreSQL they are one
    statement: each round trip is a wait, and others may be waiting for a lock that we hold."""

    def __init__(self, tx: Tx) -> None:
        self.tx = tx
        self._parts: list[tuple[_Part, Rows]] = []

    def insert(self, table: Table, names: Sequence[str], rows: Rows) -> None:
        """As `insert_rows`, later."""
        if rows:
            self._parts.append((_Part(table, tuple(names), is_new=True), rows))

    def update(
        self, table: Table, names: Sequence[str], rows: Rows, *, where: ColumnElement[bool] | None = None
    ) -> None:
        """As `update_rows`, later. `where` must be the same object each time: statements are kept by it."""
        if rows:
            self._parts.append((_Part(table, tuple(names), is_new=False, where=where), rows))

    async def write(self) -> None:
        """Write all of it."""
        parts, self._parts = self._parts, []
        if not self.tx.on_postgres or len(parts) == 1:
            for part, rows in parts:
                await part.write(self.tx, rows)
        elif parts:
            values: dict[str, Any] = {}
            for number, (part, rows) in enumerate(parts):
                values |= _arrays(part.table, part.names, rows, prefix=f"given_{number}_")
            await _as_one(tuple(part for part, _ in parts)).rows(self.tx, values)


@dataclass(frozen=True)
class _Part:
    """One of several writes, whatever its rows."""

    table: Table
    names: tuple[str, ...]
    is_new: bool
    where: ColumnElement[bool] | None = None

    async def write(self, tx: Tx, rows: Rows) -> None:
        """By itself."""
        if self.is_new:
            await insert_rows(tx, self.table, self.names, rows)
        else:
            await update_rows(tx, self.table, self.names, rows, *([] if self.where is None else [self.where]))

    def statement(self, prefix: str) -> Update | postgresql.Insert:
        """As a part of one statement, where the names of its parameters begin with `prefix`."""
        if self.is_new:
            return _unnest(self.table, self.names, prefix)
        changed = _set(self.table, self.names, prefix)
        return changed if self.where is None else changed.where(self.where)


@lru_cache(maxsize=256)
def _as_one(parts: tuple[_Part, ...]) -> CompiledStatement:
    written = (part.statement(f"given_{number}_").cte(f"part_{number}") for number, part in enumerate(parts))
    return CompiledStatement(select(literal_column("1", Integer).label("done")).add_cte(*written))


@lru_cache(maxsize=256)
def _set(table: Table, names: tuple[str, ...], prefix: str = "given_") -> Update:
    """As with `_unnest`, one array per column; a column's own name is taken in an UPDATE."""
    first, *others = names
    given = select(*(_spread(table, name, f"{prefix}{name}").label(name) for name in names)).subquery("given")
    values = {name: given.c[name] for name in others}
    return update(table).where(table.c[first] == given.c[first]).values(values)


@lru_cache(maxsize=64)
def _insert(table: Table) -> sqlite.Insert:
    """Made once, like the others here: to make it anew costs as much as to run it."""
    return sqlite.insert(table)


@lru_cache(maxsize=64)
def _insert_new(table: Table, names: tuple[str, ...], on_postgres: bool) -> ReturningInsert[Any]:
    statement: postgresql.Insert | sqlite.Insert = _unnest(table, names) if on_postgres else _insert(table)
    return statement.on_conflict_do_nothing().returning(table.c[names[0]])


@lru_cache(maxsize=64)
def _unnest(table: Table, names: tuple[str, ...], prefix: str = "") -> postgresql.Insert:
    """One array per column, not one parameter per value: many times as quick, and no limit on the number of rows."""
    source = select(*(_spread(table, name, f"{prefix}{name}") for name in names))
    return postgresql.insert(table).from_select(list(names), source, include_defaults=False)


def _spread(table: Table, name: str, given: str) -> ColumnElement[Any]:
    kind = table.c[name].type
    if isinstance(kind, JSON):
        return cast(func.unnest(bindparam(given, type_=ARRAY(Text))), postgresql.JSONB)
    if isinstance(kind, UtcTime):
        return func.unnest(bindparam(given, type_=ARRAY(postgresql.TIMESTAMP(timezone=True))))
    return func.unnest(bindparam(given, type_=ARRAY(kind)))


def _arrays(table: Table, names: Sequence[str], rows: Rows, *, prefix: str = "") -> dict[str, list[Any]]:
    columns = dict(zip(names, (list(column) for column in zip(*rows, strict=True)), strict=True))
    for name, values in columns.items():
        if isinstance(table.c[name].type, JSON):
            columns[name] = [None if value is None else to_json(value) for value in values]
        elif isinstance(table.c[name].type, UtcTime):
            _refuse_zoneless(values)
    return {f"{prefix}{name}": values for name, values in columns.items()}


def _refuse_zoneless(times: Sequence[datetime | None]) -> None:
    """An array does not pass through UtcTime, and the driver would take a time without a zone for a local one."""
    for time in times:
        if time is not None and time.tzinfo is None:
            raise ValueError(f"{time} has no time zone")


def _records(names: Sequence[str], rows: Rows) -> list[dict[str, Any]]:
    return [dict(zip(names, row, strict=True)) for row in rows]
