"""Every list, filter and claim of the room is served by an index: the plans of both databases say so.

On PostgreSQL a plan may be made while a table is empty, or full and never looked at, and be kept from then on. So the
same is asked of tables in each of these states, of the plan for any parameters, and by counting what a run looks at.
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
TABLES = r"(task(_\w+)?|project(_tag)?|queue|pull_receipt)"
MOST_SORTED = 100
MOST_PAGES = 800
MOST_INSTRUCTIONS = 50_000  # a walk over a project takes several times as many

SMALL = QueueScope(project_pk="prj_2")
QUEUE = QueueScope(project_pk="prj_2", queue_pk="que_2_2")
HOURS = [NOW - timedelta(hours=ago) for ago in range(6)]
Run = Callable[[Tx], Awaitable[object]]
STATISTICS: dict[str, tuple[str, Run]] = {
    "pulls": ("ix_task_pull_project", lambda tx: statistics.count_pulls(tx, SMALL)),
    "pulls of a queue": ("ix_task_pull_project", lambda tx: statistics.count_pulls(tx, QUEUE)),
    "clients": ("ix_task_pull_project", lambda tx: statistics.list_clients(tx, SMALL)),
    "percentile": ("ix_task_pull_seconds", lambda tx: statistics.find_pushed_seconds(tx, SMALL, position=500)),
    "percentile of a queue": (
        r"ix_task_pull_(seconds|project)",
        lambda tx: statistics.find_pushed_seconds(tx, QUEUE, position=50),
    ),
    "states": (r"ix_task_(any|list)\w*", lambda tx: statistics.count_server_tasks(tx, SMALL)),
    "states of a queue": (r"ix_task_list\w*", lambda tx: statistics.count_server_tasks(tx, QUEUE)),
    "held": ("ix_task_pending", lambda tx: statistics.list_held(tx, "prj_2", pulled_before=NOW, offset=0, limit=10)),
    "waiting": (r"ix_task_(offered|pending|held)\w*", lambda tx: statistics.count_open(tx, SMALL)),
    "waiting anywhere": (r"ix_task_(offered|pending|held)\w*", lambda tx: statistics.count_open(tx, None)),
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


# The databases: new (nothing in it), unseen (full, and PostgreSQL has not looked yet), full.


async def nobody(_db: Db) -> None:
    """Fill a database with nothing."""


@pytest.fixture(scope="module")
def new_postgres(postgres_server: Databases) -> Iterator[str]:
    with plans.unseen_postgres(postgres_server, NEW, nobody) as url:
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
    return plans.full_sqlite(sqlite_template, tmp_path_factory, nobody)


@pytest.fixture(scope="module")
def full_sqlite(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return plans.full_sqlite(sqlite_template, tmp_path_factory, filled_tables.fill)


@pytest.fixture
def tables_at(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param)
    return url


@pytest.fixture
async def tables(tables_at: str) -> AsyncIterator[Db]:
    db = open_db(tables_at, ManualClock(NOW))
    yield db
    await db.close()


def on(*databases: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("tables_at", databases, indirect=True)


async def said(db: Db, look: PlanQuery) -> Recorded:
    """What a look says to the database; nothing of it stays."""
    with recorded(db, TABLES) as statements:
        async with rolled_back(db) as tx:
            with suppress(NotFound):
                await look.run(tx)
    assert statements, look.name
    return statements


def walks_whole(step: str) -> bool:
    """`SCAN task` on SQLite, be it along an index; of the smaller tables a list may have to see all."""
    return step.startswith("SCAN task") or (reads_a_whole_table(step) and step.split()[-1] in metadata.tables)


def serves(index: str, steps: list[str]) -> bool:
    return any(re.search(rf"{index}\b", step) for step in steps)


def wrong_on_postgres(look: PlanQuery, found: list[Any], *, unseen: bool) -> list[str]:
    """What is wrong with the plans of a look."""
    steps = [step for plan in found for step in plans.steps(plan)]
    index = look.unseen if unseen and look.unseen else look.index
    whole = any(plans.walks_whole(plan, "task") for plan in found)
    return steps if whole or not serves(index, steps) or any(map(reads_a_whole_table, steps)) else []


@on("new_sqlite", "full_sqlite")
async def test_every_look_is_served_by_its_index_on_sqlite(tables: Db):
    wrong: dict[str, Any] = {}
    for look in QUERIES:
        steps = [step for statement in await said(tables, look) for step in await plans.explain(tables, *statement)]
        if any(map(walks_whole, steps)) or not serves(look.index, steps):
            wrong[look.name] = steps
    assert wrong == {}


@on("unseen_postgres", "full_postgres")
async def test_every_look_is_served_by_its_index_on_postgres(tables: Db, tables_at: str):
    wrong: dict[str, Any] = {}
    for look in QUERIES:
        found = [await plans.plan_of(tables, *statement) for statement in await said(tables, look)]
        wrong[look.name] = wrong_on_postgres(look, found, unseen=UNSEEN in tables_at)
    assert {name: steps for name, steps in wrong.items() if steps} == {}


@on("new_postgres", "unseen_postgres", "full_postgres")
async def test_the_plans_that_postgres_keeps_are_good_too(tables: Db, tables_at: str):
    """After five runs PostgreSQL may keep a plan for any parameters, and use it while the tables grow."""
    wrong: dict[str, Any] = {}
    for look in QUERIES:
        statements = enumerate(await said(tables, look))
        found = [await plans.kept_plan_of(tables, f"kept_{number}", text) for number, (text, _) in statements]
        wrong[look.name] = wrong_on_postgres(look, found, unseen=UNSEEN in tables_at)
    assert {name: steps for name, steps in wrong.items() if steps} == {}


@on("unseen_postgres", "full_postgres")
async def test_no_look_passes_over_many_rows(tables: Db, tables_at: str):
    wrong: dict[str, Any] = {}
    for look in QUERIES:
        if look.whole or (look.unseen and UNSEEN in tables_at):
            continue
        for statement in await said(tables, look):
            for work in (await plans.measure(tables, *statement), await plans.measure_kept(tables, *statement)):
                pages = 0 if statement[0].startswith("UPDATE") else work.pages  # many indexes are written to
                if work.rows > look.most_rows or work.sorted > MOST_SORTED or pages > MOST_PAGES:
                    wrong[look.name] = work
    assert wrong == {}


@on("full_sqlite")
async def test_no_look_is_a_long_walk_on_sqlite(tables: Db):
    wrong: dict[str, Any] = {}
    for look in QUERIES:
        for statement in [] if look.whole else await said(tables, look):
            if (instructions := await plans.count_instructions(tables, *statement)) > MOST_INSTRUCTIONS:
                wrong[look.name] = instructions
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
