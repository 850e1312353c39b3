"""Bulk statements: many rows at once, the fastest way each database offers."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    JSON,
    Integer,
    Table,
    Text,
    Update,
    bindparam,
    cast,
    func,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.sql.dml import ReturningInsert
from sqlalchemy.sql.elements import ColumnElement

from penstock.kernel.columns import UtcTime, to_json
from penstock.kernel.db import Tx
from penstock.kernel.dialect.compiled_statement import CompiledStatement
from penstock.kernel.dialect.sql import is_postgres, upsert

Rows = Sequence[Sequence[Any]]


async def insert_rows(tx: Tx, table: Table, names: Sequence[str], rows: Rows) -> None:
    """Insert rows; `names` are the columns, in the order of the values."""
    if not rows:
        return
    if is_postgres(tx):
        await tx.conn.execute(_unnest(table, tuple(names)), _arrays(table, names, rows))
    else:
        await tx.conn.execute(_insert(table), _records(names, rows))


async def insert_new(tx: Tx, table: Table, names: Sequence[str], rows: Rows) -> set[Any]:
    """Insert rows and skip those that violate a unique constraint. Returns the first column of the inserted rows."""
    if not rows:
        return set()
    given = _arrays(table, names, rows) if is_postgres(tx) else _records(names, rows)
    return set((await tx.conn.scalars(_insert_new(table, tuple(names), arrays=is_postgres(tx)), given)).all())


async def update_rows(tx: Tx, table: Table, names: Sequence[str], rows: Rows, *where: ColumnElement[bool]) -> int:
    """Update many rows, each with its own values; the first of `names` is the column that identifies a row.

    Only rows that match `where` change; returns how many.
    """
    if not rows:
        return 0
    if is_postgres(tx):
        arrays = _arrays(table, names, rows, prefix="given_")
        return (await tx.conn.execute(_update(table, tuple(names)).where(*where), arrays)).rowcount
    first, *others = names
    matches = table.c[first] == bindparam(f"find_{first}", type_=table.c[first].type)
    values = {name: bindparam(f"set_{name}", type_=table.c[name].type) for name in others}
    given = [f"find_{first}", *(f"set_{name}" for name in others)]
    return (await tx.conn.execute(update(table).where(matches, *where).values(values), _records(given, rows))).rowcount


class WriteBatch:
    """Collects writes to several tables and sends them together, in no particular order. On PostgreSQL they are one
    statement: each round trip adds latency while other transactions may wait for a lock that we hold."""

    def __init__(self, tx: Tx) -> None:
        self.tx = tx
        self._parts: list[tuple[_BatchedWrite, Rows]] = []

    def insert(self, table: Table, names: Sequence[str], rows: Rows) -> None:
        """Add an `insert_rows`."""
        if rows:
            self._parts.append((_BatchedWrite(table, tuple(names), is_insert=True), rows))

    def update(
        self, table: Table, names: Sequence[str], rows: Rows, *, where: ColumnElement[bool] | None = None
    ) -> None:
        """Add an `update_rows`. `where` must be the same object each time, because statements are cached by it."""
        if rows:
            self._parts.append((_BatchedWrite(table, tuple(names), is_insert=False, where=where), rows))

    async def write(self) -> None:
        """Execute all collected writes."""
        parts, self._parts = self._parts, []
        if not is_postgres(self.tx) or len(parts) == 1:
            for part, rows in parts:
                await part.write(self.tx, rows)
        elif parts:
            values: dict[str, Any] = {}
            for number, (part, rows) in enumerate(parts):
                values |= _arrays(part.table, part.names, rows, prefix=f"given_{number}_")
            await _combined(tuple(part for part, _ in parts)).rows(self.tx, values)


@dataclass(frozen=True)
class _BatchedWrite:
    """One write of a batch, without its rows: the cache key of its statement."""

    table: Table
    names: tuple[str, ...]
    is_insert: bool
    where: ColumnElement[bool] | None = None

    async def write(self, tx: Tx, rows: Rows) -> None:
        """Execute it as a statement of its own."""
        if self.is_insert:
            await insert_rows(tx, self.table, self.names, rows)
        else:
            await update_rows(tx, self.table, self.names, rows, *([] if self.where is None else [self.where]))

    def statement(self, prefix: str) -> Update | postgresql.Insert:
        """The statement as part of a larger one, with prefixed parameter names."""
        if self.is_insert:
            return _unnest(self.table, self.names, prefix)
        changed = _update(self.table, self.names, prefix)
        return changed if self.where is None else changed.where(self.where)


@lru_cache(maxsize=256)
def _combined(parts: tuple[_BatchedWrite, ...]) -> CompiledStatement:
    written = (part.statement(f"given_{number}_").cte(f"part_{number}") for number, part in enumerate(parts))
    return CompiledStatement(select(literal_column("1", Integer).label("done")).add_cte(*written))


@lru_cache(maxsize=256)
def _update(table: Table, names: tuple[str, ...], prefix: str = "given_") -> Update:
    """One array per column, as in `_unnest`; parameters are prefixed, because UPDATE reserves the column names."""
    first, *others = names
    given = select(*(_unnested(table, name, f"{prefix}{name}").label(name) for name in names)).subquery("given")
    values = {name: given.c[name] for name in others}
    return update(table).where(table.c[first] == given.c[first]).values(values)


@lru_cache(maxsize=64)
def _insert(table: Table) -> postgresql.Insert:
    """Cached, like the others here: building a statement costs as much as running it."""
    return upsert(table)


@lru_cache(maxsize=64)
def _insert_new(table: Table, names: tuple[str, ...], *, arrays: bool) -> ReturningInsert[Any]:
    statement = _unnest(table, names) if arrays else _insert(table)
    return statement.on_conflict_do_nothing().returning(table.c[names[0]])


@lru_cache(maxsize=64)
def _unnest(table: Table, names: tuple[str, ...], prefix: str = "") -> postgresql.Insert:
    """One array per column instead of one parameter per value: many times faster, and no limit of rows."""
    source = select(*(_unnested(table, name, f"{prefix}{name}") for name in names))
    return postgresql.insert(table).from_select(list(names), source, include_defaults=False)


def _unnested(table: Table, name: str, given: str) -> ColumnElement[Any]:
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
            _refuse_naive(values)
    return {f"{prefix}{name}": values for name, values in columns.items()}


def _refuse_naive(times: Sequence[datetime | None]) -> None:
    """Arrays bypass UtcTime, and the driver would take a naive datetime for local time."""
    for time in times:
        if time is not None and time.tzinfo is None:
            raise ValueError(f"{time} has no time zone")


def _records(names: Sequence[str], rows: Rows) -> list[dict[str, Any]]:
    return [dict(zip(names, row, strict=True)) for row in rows]
