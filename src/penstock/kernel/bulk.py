"""Many rows in one statement, the quickest way each database has."""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import ARRAY, JSON, Table, Text, bindparam, cast, func, select
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


@lru_cache(maxsize=64)
def _unnest(table: Table, names: tuple[str, ...]) -> postgresql.Insert:
    """One array per column, not one parameter per value: many times as quick, and no limit on the number of rows."""
    source = select(*(_spread(table, name) for name in names))
    return postgresql.insert(table).from_select(list(names), source, include_defaults=False)


def _spread(table: Table, name: str) -> ColumnElement[Any]:
    kind = table.c[name].type
    if isinstance(kind, JSON):
        return cast(func.unnest(bindparam(name, type_=ARRAY(Text))), postgresql.JSONB)
    if isinstance(kind, UtcTime):
        return func.unnest(bindparam(name, type_=ARRAY(postgresql.TIMESTAMP(timezone=True))))
    return func.unnest(bindparam(name, type_=ARRAY(kind)))


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
