"""Every list, filter, claim and statistic uses an index, by the query plans of both databases.

PostgreSQL may make a plan while a table is empty, or full without statistics, and keep it. So plans are checked on
tables in each of these states, with generic plans, and by counting the rows that a run reads.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db, Tx, metadata
from penstock.kernel.errors import NotFound
from penstock.tasks.domain import Status
from penstock.tasks.store import statistics
from penstock.tasks.store.tasks import QueueScope
from tests import plans
from tests.conftest import open_db, rolled_back
from tests.plans import NOW, Recorded, reads_a_whole_table, recorded
from tests.servers.postgres import Databases
from tests.tasks import filled_tables
from tests.tasks.queries import QUERIES, PlanQuery

NEW, UNSEEN, FULL = "penstock_task_plans_new", "penstock_task_plans_unseen", "penstock_task_plans_full"
TABLES = r"(task(_\w+)?|project(_tag)?|queue)"
MAX_SORTED = 100
MAX_PAGES = 800
MAX_INSTRUCTIONS = 50_000  # a scan of a project takes several times as many

SMALL = QueueScope(project_pk="prj_2")
QUEUE = QueueScope(project_pk="prj_2", queue_pk="que_2_2")
HOURS = [NOW - timedelta(hours=ago) for ago in range(6)]
Run = Callable[[Tx], Awaitable[object]]
STATISTICS: dict[str, tuple[str, Run]] = {
    "pulls": ("ix_task_pull_latest", lambda tx: statistics.count_pulls(tx, SMALL)),
    "pulls of a queue": ("ix_task_pull_latest_queue", lambda tx: statistics.count_pulls(tx, QUEUE)),
    "clients": ("ix_task_pull_latest", lambda tx: statistics.list_clients(tx, SMALL)),
    "percentile": ("ix_task_pull_latest", lambda tx: statistics.find_pushed_seconds(tx, SMALL, position=500)),
    "percentile of a queue": (
        "ix_task_pull_latest_queue",
        lambda tx: statistics.find_pushed_seconds(tx, QUEUE, position=50),
    ),
    "states": ("ix_task_(pending|held)", lambda tx: statistics.count_server_tasks(tx, SMALL)),
    "states of a queue": ("ix_task_(pending|held)", lambda tx: statistics.count_server_tasks(tx, QUEUE)),
    "held": ("ix_task_pending", lambda tx: statistics.list_held(tx, "prj_2", pulled_before=NOW, offset=0, limit=10)),
    "open": (r"ix_task_(offered|pending|held)\w*", lambda tx: statistics.count_open(tx, SMALL)),
    "open anywhere": (r"ix_task_(offered|pending|held)\w*", lambda tx: statistics.count_open(tx, None)),
    "queues": ("ix_queue_active", lambda tx: statistics.list_queues(tx, SMALL, offset=0, limit=10)),
    "finished long ago": (
        "ix_task_finished",
        lambda tx: statistics.find_finish_time(tx, SMALL, Status.DONE, position=100),
    ),
    "finished long ago anywhere": (
        "ix_task_finished_any",
        lambda tx: statistics.find_finish_time(tx, None, Status.DONE, position=100),
    ),
    "hours": ("ix_task_finished", lambda tx: statistics.count_finished(tx, SMALL, HOURS, after=None)),
    "hours anywhere": ("ix_task_finished_any", lambda tx: statistics.count_finished(tx, None, HOURS, after=None)),
    "errors": ("ix_task_finished", lambda tx: statistics.list_error_texts(tx, SMALL)),
    "runs": ("ix_task_finished", lambda tx: statistics.list_run_times(tx, SMALL)),
}


# The databases: new (empty), unseen (full, but PostgreSQL has no statistics yet), full.


async def fill_nothing(_db: Db) -> None:
    """Leave a database empty."""


@pytest.fixture(scope="module")
def new_postgres(postgres_server: Databases) -> Iterator[str]:
    with plans.unseen_postgres(postgres_server, NEW, fill_nothing) as url:
        yield url


@pytest.fixture(scope="module")
def unseen_postgres(postgres_server: Databases) -> Iterator[str]:
    with plans.unseen_postgres(postgres_server, UNSEEN, filled_tables.fill) as url:
        yield url


@pytest.fixture(scope="module")
def full_postgres(postgres_server: Databases, unseen_postgres: str) -> Iterator[str]:
    with plans.seen_copy(postgres_server, FULL, of=UNSEEN) as url:
        yield url


@pytest.fixture(scope="module")
def new_sqlite(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return plans.full_sqlite(sqlite_template, tmp_path_factory, fill_nothing)


@pytest.fixture(scope="module")
def full_sqlite(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return plans.full_sqlite(sqlite_template, tmp_path_factory, filled_tables.fill)


@pytest.fixture
def tables_at(request: pytest.FixtureRequest) -> str:
    """The URL of a database; `pooled` in a name means as behind a transaction pooler."""
    url: str = request.getfixturevalue(request.param.removeprefix("pooled_"))
    return url


@pytest.fixture
async def tables(request: pytest.FixtureRequest, tables_at: str) -> AsyncIterator[Db]:
    pooled = "pooled_" in request.node.callspec.params["tables_at"]
    db = open_db(tables_at, ManualClock(NOW), pooled=pooled)
    yield db
    await db.close()


def on(*databases: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("tables_at", databases, indirect=True)


async def statements_of(db: Db, query: PlanQuery) -> Recorded:
    """The statements of a query; its transaction is rolled back."""
    with recorded(db, TABLES) as statements:
        async with rolled_back(db) as tx:
            with suppress(NotFound):
                await query.run(tx)
    assert statements, query.name
    return statements


def walks_whole(step: str) -> bool:
    """`SCAN task` on SQLite, even along an index; lists may scan the smaller tables."""
    return step.startswith("SCAN task") or (reads_a_whole_table(step) and step.split()[-1] in metadata.tables)


def serves(index: str, steps: list[str]) -> bool:
    return any(re.search(rf"{index}\b", step) for step in steps)


def wrong_on_postgres(query: PlanQuery, found: list[Any], *, unseen: bool) -> list[str]:
    """The steps of the plans of a query, if they are wrong."""
    steps = [step for plan in found for step in plans.steps(plan)]
    index = query.unseen if unseen and query.unseen else query.index
    whole = any(plans.walks_whole(plan, "task") for plan in found)
    return steps if whole or not serves(index, steps) or any(map(reads_a_whole_table, steps)) else []


@on("new_sqlite", "full_sqlite")
async def test_every_query_uses_its_index_on_sqlite(tables: Db):
    wrong: dict[str, Any] = {}
    for query in QUERIES:
        steps = [
            step for statement in await statements_of(tables, query) for step in await plans.explain(tables, *statement)
        ]
        if any(map(walks_whole, steps)) or not serves(query.index, steps):
            wrong[query.name] = steps
    assert wrong == {}


@on("unseen_postgres", "full_postgres", "pooled_unseen_postgres", "pooled_full_postgres")
async def test_every_query_uses_its_index_on_postgres(tables: Db, tables_at: str):
    wrong: dict[str, Any] = {}
    for query in QUERIES:
        found = [await plans.plan_of(tables, *statement) for statement in await statements_of(tables, query)]
        wrong[query.name] = wrong_on_postgres(query, found, unseen=UNSEEN in tables_at)
    assert {name: steps for name, steps in wrong.items() if steps} == {}


@on("new_postgres", "unseen_postgres", "full_postgres")
async def test_generic_plans_of_postgres_use_the_index_too(tables: Db, tables_at: str):
    """After five runs PostgreSQL may keep a generic plan, and use it while the tables grow."""
    wrong: dict[str, Any] = {}
    for query in QUERIES:
        statements = enumerate(await statements_of(tables, query))
        found = [await plans.kept_plan_of(tables, f"kept_{number}", text) for number, (text, _) in statements]
        wrong[query.name] = wrong_on_postgres(query, found, unseen=UNSEEN in tables_at)
    assert {name: steps for name, steps in wrong.items() if steps} == {}


@on("unseen_postgres", "full_postgres", "pooled_unseen_postgres", "pooled_full_postgres")
async def test_no_query_reads_many_rows(tables: Db, tables_at: str):
    wrong: dict[str, Any] = {}
    for query in QUERIES:
        if query.whole or (query.unseen and UNSEEN in tables_at):
            continue
        for statement in await statements_of(tables, query):
            for work in (await plans.measure(tables, *statement), await plans.measure_kept(tables, *statement)):
                pages = 0 if statement[0].startswith("UPDATE") else work.pages  # many indexes are written to
                if work.rows > query.most_rows or work.sorted > MAX_SORTED or pages > MAX_PAGES:
                    wrong[query.name] = work
    assert wrong == {}


@on("full_sqlite")
async def test_no_query_is_a_long_scan_on_sqlite(tables: Db):
    wrong: dict[str, Any] = {}
    for query in QUERIES:
        for statement in [] if query.whole else await statements_of(tables, query):
            if (instructions := await plans.count_instructions(tables, *statement)) > MAX_INSTRUCTIONS:
                wrong[query.name] = instructions
    assert wrong == {}


async def all_statements(db: Db, run: Run) -> Recorded:
    """Every statement of a query, also one that begins with WITH."""
    statements: Recorded = []

    def note(_conn: object, _cursor: object, statement: str, parameters: Any, *_: object) -> None:
        statements.append((statement, parameters))

    engine = db._writer.sync_engine
    async with rolled_back(db) as tx:
        event.listen(engine, "before_cursor_execute", note)
        await run(tx)
        event.remove(engine, "before_cursor_execute", note)
    return statements


@on("full_sqlite", "full_postgres")
async def test_every_statistic_is_counted_from_an_index(tables: Db):
    """A statistic of one project does not scan the tables, however much other projects have."""
    for name, (index, run) in STATISTICS.items():
        statements = await all_statements(tables, run)
        assert statements, name
        steps = [step for statement in statements for step in await plans.explain(tables, *statement)]
        whole = [step for step in steps if reads_a_whole_table(step)]
        assert not any(re.search(r"\b(task|task_pull|queue)$", step) for step in whole), (name, steps)
        assert any(re.search(rf"\b{index}\b", step) for step in steps), (name, steps)
