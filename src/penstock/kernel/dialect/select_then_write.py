"""Select rows and write to them in one round trip, as the claim of a task does.

PostgreSQL gets one statement, a chain of CTEs that autocommits: one round trip instead of eight, and round trips are
most of the cost of claiming one row. SQLite cannot write inside a CTE and has no round trips to save; it runs the same
statements one after another. The writes are defined once, on top of what both have: the selected rows as a table of
`id` and `n` (their position), and tables passed as parameters.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from sqlalchemy import (
    ARRAY,
    Column,
    ColumnElement,
    Delete,
    FromClause,
    Insert,
    Integer,
    Select,
    Text,
    Update,
    bindparam,
    func,
    literal_column,
    select,
)
from sqlalchemy import cast as as_type
from sqlalchemy.dialects.sqlite import dialect as sqlite_dialect
from sqlalchemy.sql.elements import Grouping

from penstock.kernel.columns import to_json
from penstock.kernel.db import Tx
from penstock.kernel.dialect.compiled_statement import CompiledStatement, LeasedRow
from penstock.kernel.dialect.engines import ensure_transaction
from penstock.kernel.dialect.sql import is_postgres

Write = Update | Insert | Delete
MAX_ROWS = 1000  # a constant, so that the planner does not plan for more
IDS = "chosen_ids"


@dataclass(frozen=True)
class ParameterTable:
    """A table of text values passed as parameters, one array per column; rows are numbered from 1."""

    name: str
    columns: tuple[str, ...]

    def table(self, *, on_postgres: bool) -> FromClause:
        """The table as a FROM clause, with its columns and `n`."""
        if on_postgres:
            arrays = (bindparam(self._array(name), type_=ARRAY(Text)) for name in self.columns)
            spread = func.unnest(*arrays).table_valued(*self.columns, with_ordinality="n", name=self.name)
            return spread.render_derived()
        keys = func.json_each(bindparam(self._array(self.columns[0]), type_=Text)).table_valued("key", name=self.name)
        place = keys.c.key + 1
        cells = (self.cell(name, place, on_postgres=False).label(name) for name in self.columns)
        return select(*cells, place.label("n")).subquery(f"{self.name}_rows")

    def cell(self, name: str, n: ColumnElement[int], *, on_postgres: bool) -> ColumnElement[str]:
        """The value of a column in row `n`: an array look-up, which needs no join plan."""
        if on_postgres:
            array = Grouping(bindparam(self._array(name), type_=ARRAY(Text)))  # parenthesised: the driver adds a cast
            return cast("ColumnElement[str]", array[n])
        path = literal_column("'$['").concat(as_type(n - 1, Text)).concat(literal_column("']'"))
        return func.json_extract(bindparam(self._array(name), type_=Text), path, type_=Text)

    def values(self, rows: Sequence[Sequence[str]], *, on_postgres: bool) -> dict[str, Any]:
        """The rows as parameters."""
        spread = zip(*rows, strict=True)
        named = {self._array(name): list(cells) for name, cells in zip(self.columns, spread, strict=True)}
        return named if on_postgres else {name: to_json(cells) for name, cells in named.items()}

    def _array(self, name: str) -> str:
        return f"{self.name}_{name}"


@dataclass(frozen=True)
class StatementTables:
    """The tables that the select and the writes are built on."""

    on_postgres: bool
    given: Mapping[str, ParameterTable]
    chosen: FromClause | None = None  # id, n: for the writes only

    def table(self, name: str) -> FromClause:
        """A parameter table as a FROM clause."""
        return self.given[name].table(on_postgres=self.on_postgres)

    def cell(self, name: str, column: str, n: ColumnElement[int]) -> ColumnElement[str]:
        """A value of a parameter table."""
        return self.given[name].cell(column, n, on_postgres=self.on_postgres)

    @property
    def rows(self) -> FromClause:
        """The selected rows: `id` and `n`."""
        assert self.chosen is not None
        return self.chosen

    def rows_with(self, *columns: Column[Any]) -> FromClause:
        """The selected rows with columns as they were when locked. Read again from their table in another CTE,
        PostgreSQL would return the snapshot from the start of the statement, before their latest change."""
        if self.on_postgres:
            return self.rows
        key = columns[0].table.c.id
        return select(self.rows, *columns).where(key == self.rows.c.id).subquery("seen")


class SelectThenWrite:
    """A select, which must return a column `id`, and the writes to its rows, built on parameter tables.

    Bind names must differ from column names.
    """

    def __init__(
        self,
        choose: Callable[[StatementTables], Select[Any]],
        then: Callable[[StatementTables], Sequence[Write]],
        *given: ParameterTable,
    ) -> None:
        self._given = given
        here = StatementTables(on_postgres=False, given={one.name: one for one in given})
        self._choose = CompiledStatement(choose(here))
        self._sqlite = [(write, _parameter_names(write)) for write in then(replace(here, chosen=_selected_ids()))]
        self._postgres = CompiledStatement(_combined(choose, then, replace(here, on_postgres=True)))

    async def rows(self, tx: Tx, values: Mapping[str, Any], **tables: Sequence[Sequence[str]]) -> Sequence[LeasedRow]:
        """Execute it with parameters and the rows of the parameter tables; returns the selected rows as they were
        before the writes."""
        on_postgres = is_postgres(tx)
        values = dict(values)
        for given in self._given:
            values |= given.values(tables[given.name], on_postgres=on_postgres)
        if on_postgres:
            return await self._postgres.rows(tx, values)
        async with ensure_transaction(tx.conn):
            rows = await self._choose.rows(tx, values)  # a SELECT ignores extra parameters
            if rows:
                known = {**values, IDS: to_json([row.id for row in rows])}
                for write, names in self._sqlite:
                    await tx.conn.execute(write, {name: known[name] for name in names})
        return rows


def _combined(
    choose: Callable[[StatementTables], Select[Any]],
    then: Callable[[StatementTables], Sequence[Write]],
    given: StatementTables,
) -> Select[Any]:
    most = literal_column(str(MAX_ROWS), Integer)
    due = select(choose(given).subquery("due_rows")).limit(most).cte("due")
    chosen = select(due, func.row_number().over().label("n")).cte("chosen")
    writes = then(replace(given, chosen=chosen))
    return select(due).add_cte(*(write.cte(f"part_{number}") for number, write in enumerate(writes)))


def _selected_ids() -> FromClause:
    """The selected ids, passed to SQLite as a JSON array."""
    ids = func.json_each(bindparam(IDS, type_=Text)).table_valued("key", "value", name="listed")
    return select(ids.c.value.label("id"), (ids.c.key + 1).label("n")).subquery("chosen")


def _parameter_names(write: Write) -> list[str]:
    """The parameters that a write uses. SQLAlchemy would take any other for a column to set."""
    compiled = cast("Any", write.compile(dialect=sqlite_dialect()))
    return [name for name, bind in compiled.binds.items() if bind.required]
