"""Many rows in one statement, the quickest way each database has."""

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    JSON,
    Column,
    Table,
    Text,
    Update,
    any_,
    bindparam,
    cast,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.elements import ColumnElement

from penstock.kernel.columns import UtcTime, to_json
from penstock.kernel.db import Tx

Rows = Sequence[Sequence[Any]]


def upsert(tx: Tx, table: Table) -> postgresql.Insert | sqlite.Insert:
    """An INSERT that can say what to do on a conflict; both databases spell it alike."""
    return postgresql.insert(table) if tx.on_postgres else sqlite.insert(table)


async def insert_rows(tx: Tx, table: Table, names: Sequence[str], rows: Rows) -> None:
    """Insert rows: `names` are the columns, `rows` their values in that order."""
    if not rows:
        return
    if tx.on_postgres:
        await tx.conn.execute(_unnest(table, tuple(names)), _arrays(table, names, rows))
    else:
        await tx.conn.execute(sqlite.insert(table), _records(names, rows))


async def insert_new(tx: Tx, table: Table, names: Sequence[str], rows: Rows) -> set[Any]:
    """Like `insert_rows`, but a row that meets a unique constraint is left out. Returns the first column of the new."""
    if not rows:
        return set()
    first = table.c[names[0]]
    if tx.on_postgres:
        statement = _unnest(table, tuple(names)).on_conflict_do_nothing().returning(first)
        return set((await tx.conn.scalars(statement, _arrays(table, names, rows))).all())
    statement = sqlite.insert(table).on_conflict_do_nothing().returning(first)
    return set((await tx.conn.scalars(statement, _records(names, rows))).all())


def among(tx: Tx, column: Column[str], values: Collection[str]) -> ColumnElement[bool]:
    """Whether a text column is one of these, in one parameter however many they are."""
    if tx.on_postgres:
        return column == any_(literal(list(values), ARRAY(Text)))
    return column.in_(select(func.json_each(to_json(list(values))).table_valued("value").c.value))


def pinned(tx: Tx, column: Column[str], value: str) -> ColumnElement[bool]:
    """Whether a text column is just this, for lists that are in the order of this column and then of the key.

    PostgreSQL takes a column that equals one value out of the order. What is left is the order of the key, and it may
    walk along the key from the table's beginning until enough rows fit: past a million, when they are the youngest. It
    does not do so when it is told of a list of values, be it a list of one.
    """
    return among(tx, column, [value]) if tx.on_postgres else column == value


async def update_rows(tx: Tx, table: Table, names: Sequence[str], rows: Rows, *where: ColumnElement[bool]) -> int:
    """Set columns of many rows, each to its own values; `names` begins with the column that finds a row.

    Only rows that meet `where` are changed; returns how many were.
    """
    if not rows:
        return 0
    if tx.on_postgres:
        arrays = {f"given_{name}": values for name, values in _arrays(table, names, rows).items()}
        return (await tx.conn.execute(_set(table, tuple(names)).where(*where), arrays)).rowcount
    first, *others = names
    found = table.c[first] == bindparam(f"find_{first}", type_=table.c[first].type)
    values = {name: bindparam(f"set_{name}", type_=table.c[name].type) for name in others}
    given = [f"find_{first}", *(f"set_{name}" for name in others)]
    return (await tx.conn.execute(update(table).where(found, *where).values(values), _records(given, rows))).rowcount


@lru_cache(maxsize=256)
def _set(table: Table, names: tuple[str, ...]) -> Update:
    """As with `_unnest`, one array per column; a column's own name is taken in an UPDATE."""
    first, *others = names
    given = select(*(_spread(table, name, f"given_{name}").label(name) for name in names)).subquery("given")
    values = {name: given.c[name] for name in others}
    return update(table).where(table.c[first] == given.c[first]).values(values)


@lru_cache(maxsize=64)
def _unnest(table: Table, names: tuple[str, ...]) -> postgresql.Insert:
    """One array per column, not one parameter per value: many times as quick, and no limit on the number of rows."""
    source = select(*(_spread(table, name, name) for name in names))
    return postgresql.insert(table).from_select(list(names), source, include_defaults=False)


def _spread(table: Table, name: str, given: str) -> ColumnElement[Any]:
    kind = table.c[name].type
    if isinstance(kind, JSON):
        return cast(func.unnest(bindparam(given, type_=ARRAY(Text))), postgresql.JSONB)
    if isinstance(kind, UtcTime):
        return func.unnest(bindparam(given, type_=ARRAY(postgresql.TIMESTAMP(timezone=True))))
    return func.unnest(bindparam(given, type_=ARRAY(kind)))


def _arrays(table: Table, names: Sequence[str], rows: Rows) -> dict[str, list[Any]]:
    columns = dict(zip(names, (list(column) for column in zip(*rows, strict=True)), strict=True))
    for name, values in columns.items():
        if isinstance(table.c[name].type, JSON):
            columns[name] = [None if value is None else to_json(value) for value in values]
        elif isinstance(table.c[name].type, UtcTime):
            _refuse_zoneless(values)
    return columns


def _refuse_zoneless(times: Sequence[datetime | None]) -> None:
    """An array does not pass through UtcTime, and the driver would take a time without a zone for a local one."""
    for time in times:
        if time is not None and time.tzinfo is None:
            raise ValueError(f"{time} has no time zone")


def _records(names: Sequence[str], rows: Rows) -> list[dict[str, Any]]:
    return [dict(zip(names, row, strict=True)) for row in rows]
