"""Reading query plans: what verbs say to a database is recorded, explained by the database itself, and judged.

Tests read plans on new tables and on full ones; `full_postgres` and `full_sqlite` make the latter.
"""

import asyncio
import itertools
import json
import re
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, text

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from tests.conftest import TEMPLATE, open_db, rolled_back
from tests.servers.postgres import Databases

NOW = datetime(2026, 1, 1, tzinfo=UTC)

Recorded = list[tuple[str, Any]]  # statements and their parameters
Fill = Callable[[Db], Awaitable[None]]
NUMBERS = itertools.count(1)
COUNT_EVERY = 20  # instructions of SQLite's


@contextmanager
def full_postgres(server: Databases, name: str, fill: Fill) -> Iterator[str]:
    """The URL of a database that was filled, and looked at by PostgreSQL."""
    with unseen_postgres(server, name, fill) as url:
        asyncio.run(_look(url))
        yield url


@contextmanager
def unseen_postgres(server: Databases, name: str, fill: Fill) -> Iterator[str]:
    """The plan before PostgreSQL has analyzed the table, which autovacuum does after a minute, longer than any test."""
    server.drop_database(name)
    server.create_database(name, template=TEMPLATE)
    asyncio.run(_fill(server.url(name), fill))
    yield server.url(name)
    server.drop_database(name)


@contextmanager
def seen_copy(server: Databases, name: str, *, of: str) -> Iterator[str]:
    """A copy of a full database, and looked at: filling is what takes long."""
    server.drop_database(name)
    server.create_database(name, template=of)
    asyncio.run(_look(server.url(name)))
    yield server.url(name)
    server.drop_database(name)


def full_sqlite(template: Path, folders: pytest.TempPathFactory, fill: Fill) -> str:
    """The URL of a file that was filled."""
    path = folders.mktemp("full") / "penstock.db"
    shutil.copy(template, path)
    asyncio.run(_fill(f"sqlite:///{path}", fill))
    return f"sqlite:///{path}"


async def _fill(url: str, fill: Fill) -> None:
    db = open_db(url, ManualClock(NOW))
    await fill(db)
    await db.close()


async def _look(url: str) -> None:
    db = open_db(url)
    await look(db)
    await db.close()


async def look(db: Db) -> None:
    """Let PostgreSQL note how large its tables are. Not in a transaction, even behind a pooler."""
    async with db._writer.connect() as conn:
        await conn.execute(text("VACUUM ANALYZE"))


@contextmanager
def recorded(db: Db, table: str) -> Iterator[Recorded]:
    """What is said about a table during the block, inserts aside. Hot statements go straight to PostgreSQL's driver."""
    statements: Recorded = []

    def keep(statement: str, parameters: Any) -> None:
        if re.match(rf"(SELECT|UPDATE|DELETE|WITH)\b.*\b{table}\b", statement, re.DOTALL):
            statements.append((statement, parameters))

    def note(_conn: object, _cursor: object, statement: str, parameters: Any, *_: object) -> None:
        keep(statement, parameters)

    def attach(connection: Any, *_: object) -> None:
        connection.driver_connection.add_query_logger(lambda said: keep(said.query, said.args))

    hooks = [("before_cursor_execute", note)] + ([("checkout", attach)] if db.database_name == "postgresql" else [])
    engines = {db._writer.sync_engine, db._reader.sync_engine}
    for engine, hook in itertools.product(engines, hooks):
        event.listen(engine, *hook)
    yield statements
    for engine, hook in itertools.product(engines, hooks):
        event.remove(engine, *hook)


async def explain(db: Db, statement: str, parameters: Any) -> list[str]:
    """The plan's steps, a line each."""
    if db.database_name == "postgresql":
        return list(steps(await plan_of(db, statement, parameters)))
    async with db.tx() as tx:
        rows = await tx.conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", _once(parameters))
        return [row.detail for row in rows]


def _once(parameters: Any) -> Any:
    """What SQLite is told many times, for many rows, is explained as if for the first alone."""
    return parameters[0] if isinstance(parameters, list) and parameters else parameters


async def plan_of(db: Db, statement: str, parameters: Any) -> Any:
    """PostgreSQL's plan for these parameters."""
    async with db.tx() as tx:
        driver: Any = (await tx.conn.get_raw_connection()).driver_connection
        return await driver.fetchval(f"EXPLAIN (FORMAT JSON) {statement}", *parameters)


async def kept_plan(db: Db, name: str, statement: str) -> list[str]:
    """The steps of the plan that PostgreSQL makes for any parameters, and may keep while the table grows."""
    return list(steps(await kept_plan_of(db, name, statement)))


async def kept_plan_of(db: Db, name: str, statement: str) -> Any:
    """PostgreSQL's plan for any parameters."""
    count = max((int(digits) for digits in re.findall(r"\$(\d+)", statement)), default=0)
    arguments = f"({', '.join(['NULL'] * count)})" if count else ""
    async with db.tx() as tx:
        await tx.conn.execute(text("SET LOCAL plan_cache_mode = force_generic_plan"))
        driver: Any = (await tx.conn.get_raw_connection()).driver_connection
        await driver.execute(f"PREPARE {name} AS {statement}")
        plan = await driver.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE {name}{arguments}")
        await driver.execute(f"DEALLOCATE {name}")
    return plan


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a statement really did on PostgreSQL."""

    rows: int  # that its scans looked at, whether it could use them or not
    sorted: int
    pages: int


async def measure(db: Db, statement: str, parameters: Any) -> Work:
    """Run a statement on PostgreSQL under the plan for these parameters, and undo it."""
    async with rolled_back(db) as tx:
        driver: Any = (await tx.conn.get_raw_connection()).driver_connection
        return _work(await driver.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", *parameters))


async def measure_kept(db: Db, statement: str, parameters: Any) -> Work:
    """The same under the plan for any parameters."""
    arguments = f"({', '.join(map(_in_sql, parameters))})" if parameters else ""
    async with rolled_back(db) as tx:
        await tx.conn.execute(text("SET LOCAL plan_cache_mode = force_generic_plan"))
        driver: Any = (await tx.conn.get_raw_connection()).driver_connection
        name = f"measured_{next(NUMBERS)}"
        await driver.execute(f"PREPARE {name} AS {statement}")
        return _work(await driver.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE {name}{arguments}"))


def _work(plan: Any) -> Work:
    found = list(nodes(plan))
    counted = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
    scans = [node for node in found if "Scan" in node["Node Type"] and "Relation Name" in node]
    rows = [sum(node.get(key, 0) for key in counted) * node["Actual Loops"] for node in scans]
    orders = [node["Actual Rows"] * node["Actual Loops"] for node in found if node["Node Type"].endswith("Sort")]
    pages = found[0]["Shared Hit Blocks"] + found[0]["Shared Read Blocks"]
    return Work(rows=round(sum(rows)), sorted=round(sum(orders)), pages=pages)


def _in_sql(value: Any) -> str:
    if value is None:
        return "NULL"
    words = "{" + ", ".join(map(_in_array, value)) + "}" if isinstance(value, list) else str(value)
    return "'{}'".format(words.replace("'", "''"))


def _in_array(value: Any) -> str:
    return "NULL" if value is None else json.dumps(str(value))


async def count_instructions(db: Db, statement: str, parameters: Any) -> int:
    """Run a statement on SQLite and undo it; returns how many instructions of its machine that took, or nearly so."""
    ticks = 0

    def tick() -> int:
        nonlocal ticks
        ticks += 1
        return 0

    async with rolled_back(db) as tx:
        driver: Any = (await tx.conn.get_raw_connection()).driver_connection
        await driver.set_progress_handler(tick, COUNT_EVERY)
        (await tx.conn.exec_driver_sql(statement, _once(parameters))).close()
        await driver.set_progress_handler(None, COUNT_EVERY)
    return ticks * COUNT_EVERY


def steps(plan: Any) -> Iterator[str]:
    """The nodes of a plan of PostgreSQL's, a line each."""
    for node in nodes(plan):
        yield " ".join(node[key] for key in ("Node Type", "Relation Name", "Index Name") if key in node)


def nodes(plan: Any) -> Iterator[dict[str, Any]]:
    """The nodes of a plan of PostgreSQL's."""
    found = json.loads(plan) if isinstance(plan, str) else plan
    ahead = [found[0]["Plan"]]
    while ahead:
        node = ahead.pop()
        yield node
        ahead += node.get("Plans", [])


def walks_whole(plan: Any, table: str) -> bool:
    """Whether a plan of PostgreSQL's walks over a table, be it along an index, with nothing to tell where to begin."""
    scans = (node for node in nodes(plan) if node.get("Relation Name") == table and "Scan" in node["Node Type"])
    return any("Index Cond" not in node for node in scans)


def reads_a_whole_table(step: str) -> bool:
    """`SCAN t` without an index on SQLite; `Seq Scan t` on PostgreSQL."""
    return step.startswith("Seq Scan") or (step.startswith("SCAN") and "INDEX" not in step)


def sorts(step: str) -> bool:
    """Whether a step puts rows in order that come in another one."""
    return step.startswith(("Sort", "Incremental Sort")) or "TEMP B-TREE" in step
