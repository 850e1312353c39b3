"""Every figure of a project is counted from an index on both databases, however much other projects have."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db, Tx
from penstock.tasks.domain import Status
from penstock.tasks.store import statistics
from penstock.tasks.store.tasks import QueueScope
from tests import plans
from tests.conftest import open_db, rolled_back
from tests.plans import NOW, Recorded, explain, reads_a_whole_table
from tests.servers.postgres import Databases
from tests.tasks import filled_tables

SMALL = QueueScope(project_pk="prj_2")
QUEUE = QueueScope(project_pk="prj_2", queue_pk="que_2_2")
HOURS = [NOW - timedelta(hours=ago) for ago in range(6)]
Run = Callable[[Tx], Awaitable[object]]
FIGURES: dict[str, tuple[str, Run]] = {
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


@pytest.fixture(scope="module")
def full_postgres(postgres_server: Databases) -> Iterator[str]:
    with plans.full_postgres(postgres_server, "penstock_figure_plans", filled_tables.fill) as url:
        yield url


@pytest.fixture(scope="module")
def full_sqlite(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return plans.full_sqlite(sqlite_template, tmp_path_factory, filled_tables.fill)


@pytest.fixture(params=["full_sqlite", "full_postgres"])
def full_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param)
    return url


@pytest.fixture
async def full(full_url: str) -> AsyncIterator[Db]:
    db = open_db(full_url, ManualClock(NOW))
    yield db
    await db.close()


async def said(db: Db, run: Run) -> Recorded:
    """What is asked of the database, be it a SELECT or one that begins WITH."""
    statements: Recorded = []

    def note(_conn: object, _cursor: object, statement: str, parameters: Any, *_: object) -> None:
        statements.append((statement, parameters))

    engine = db._writer.sync_engine
    async with rolled_back(db) as tx:
        event.listen(engine, "before_cursor_execute", note)
        await run(tx)
        event.remove(engine, "before_cursor_execute", note)
    return statements


async def test_every_figure_is_counted_from_an_index(full: Db):
    for name, (index, run) in FIGURES.items():
        statements = await said(full, run)
        assert statements, name
        steps = [step for statement in statements for step in await explain(full, *statement)]
        whole = [step for step in steps if reads_a_whole_table(step)]
        assert not any(re.search(r"\b(task|task_pull|queue)$", step) for step in whole), (name, steps)
        assert any(re.search(rf"\b{index}\b", step) for step in steps), (name, steps)
