"""Hot statements: the few that run so often that handling their parameters and rows must cost next to nothing.

They are written in SQLAlchemy like all others. On PostgreSQL they are compiled once and then given straight to the
driver: a claim and a settle of 100 rows cost 1.4 ms of CPU this way and 2.2 ms by SQLAlchemy's own execution, of which
the driver itself needs 1.0. SQLite takes the usual way.
"""

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Protocol, cast

from sqlalchemy import JSON, ColumnElement, Select, Update, literal_column
from sqlalchemy.engine import Dialect

from penstock.kernel.columns import to_json
from penstock.kernel.db import Tx
from penstock.kernel.engines import driver_connection


def any_rows(rows: Select[Any]) -> ColumnElement[bool]:
    """Whether there are any of these. Not as EXISTS: PostgreSQL would forget their order, and with it their index."""
    return rows.limit(literal_column("1")).scalar_subquery().is_not(None)


class LeasedRow(Protocol):
    """A row of a leased table, by its columns."""

    id: str
    partition_key: str
    priority: int
    scheduled_at: datetime
    lease_owner: str | None
    lease_token: str
    leased_until: datetime
    lease_count: int

    def __getattr__(self, name: str) -> Any:
        """The table's own columns."""
        ...


class CompiledStatement:
    """A statement that returns rows and runs often."""

    def __init__(self, statement: Update | Select[Any]) -> None:
        self._statement = statement
        self._compiled: DriverStatement | None = None

    async def rows(self, tx: Tx, values: Mapping[str, Any]) -> Sequence[LeasedRow]:
        """Run it and return what it returns."""
        if not tx.on_postgres:
            result = await tx.conn.execute(self._statement, values)
            return cast(Sequence[LeasedRow], result.all())
        compiled = self._for_driver(tx)
        return list(map(compiled.make, await compiled.fetch(tx, values)))

    async def ids(self, tx: Tx, values: Mapping[str, Any]) -> set[str]:
        """Run it and return the first column of what it returns."""
        if not tx.on_postgres:
            return set((await tx.conn.scalars(self._statement, values)).all())
        return {record[0] for record in await self._for_driver(tx).fetch(tx, values)}

    def _for_driver(self, tx: Tx) -> "DriverStatement":
        if self._compiled is None:
            self._compiled = DriverStatement(self._statement, tx.conn.dialect)
        return self._compiled


class DriverStatement:
    """A statement as asyncpg takes it: text, the order of its parameters, and how a row is made of a record."""

    def __init__(self, statement: Update | Select[Any], dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        self.text = str(compiled)
        self.make = _row_maker([column.name for column in statement.exported_columns])
        self._names = list(compiled.positiontup or ())
        self._constants = {
            name: compiled.binds[name].value for name in self._names if not compiled.binds[name].required
        }
        self._json = {name for name, bind in compiled.binds.items() if isinstance(bind.type, JSON)}

    async def fetch(self, tx: Tx, values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """What the server returns."""
        records: Sequence[Sequence[Any]] = await driver_connection(tx.conn).fetch(self.text, *self._arguments(values))
        return records

    def _arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """The parameters in the statement's order. Those that the statement itself holds need not be given."""
        given = {**self._constants, **values}
        if not self._json:
            return [given[name] for name in self._names]
        return [
            to_json(given[name]) if name in self._json and given[name] is not None else given[name]
            for name in self._names
        ]


def _row_maker(names: list[str]) -> Callable[[Sequence[Any]], LeasedRow]:
    row = namedtuple("Row", names)  # type: ignore[misc]  # the names are the table's, known only here
    make = partial(tuple.__new__, row)  # what row._make does, less the check that a record has as many values
    return cast(Callable[[Sequence[Any]], LeasedRow], make)
