"""A database of an earlier version, with its rows, is brought up to date."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, column, insert, select, table

from penstock.kernel import migrations
from penstock.kernel.clock import ManualClock
from penstock.kernel.columns import Json, UtcTime
from penstock.kernel.db import Db
from penstock.tasks.store import projects
from penstock.tasks.store.tables import project_tag, task_offer_tag
from penstock.tasks.store.task_lists import KnownTotals, TaskListFilter, list_page, list_tasks
from penstock.tasks.store.tasks import QueueScope
from tests.conftest import open_db
from tests.plans import NOW
from tests.servers.postgres import Databases

BEFORE = "0020"  # the last migration before
NAME = "penstock_task_upgrade"
TIMES = ("created_at", "updated_at", "active_at", "scheduled_at")


@pytest.fixture(params=["sqlite", "postgres"])
async def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Db]:
    """A database without tables."""
    if request.param == "sqlite":
        db = open_db(f"sqlite:///{tmp_path / 'earlier.db'}", ManualClock(NOW))
        yield db
        await db.close()
        return
    server: Databases = request.getfixturevalue("postgres_server")
    server.drop_database(NAME)
    server.create_database(NAME)
    db = open_db(server.url(NAME), ManualClock(NOW))
    yield db
    await db.close()
    server.drop_database(NAME)


def migrate_to(connection: Connection, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(migrations.HERE))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", str(migrations.VERSIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def row_of(table_name: str, /, **values: Any) -> Any:
    """An INSERT into a table as it was; its times are now."""
    types = {"tags": Json, "spec_file": Json}
    columns = [column(one, UtcTime if one in TIMES else types.get(one)) for one in values]
    return insert(table(table_name, *columns)).values(values)


async def fill(db: Db) -> None:
    async with db.tx() as tx:
        await tx.conn.run_sync(migrate_to, BEFORE)
        times = {"created_at": NOW, "updated_at": NOW}
        named = {"id": "prj", "project_id": "p1", "name": "P", "search_text": "p", "active_at": NOW}
        await tx.conn.execute(row_of("project", **named, **times, tags=["Red", "red", " Big "], pending=3))
        for tag in ("Red", "red", " Big "):
            await tx.conn.execute(row_of("project_tag", project_pk="prj", tag=tag))
        words = {"name": "n", "prompt": "p", "search_text": "n", "source": "server", "origin": "server"}
        words |= {"status": "pending", "state": "offered", "created_by": "x", "updated_by": "x"}
        for number, queue in enumerate(("", "", "que")):
            keys = {"id": f"t-{number}", "task_id": f"t-{number}", "partition_key": "prj", "queue_pk": queue}
            lists = {"tags": ["Red", "RED"], "spec_file": [], "version": number, "priority": 6, "scheduled_at": NOW}
            await tx.conn.execute(row_of("task", **keys, **words, **lists, **times))
        for tag in ("Red", "RED"):
            keys = {"task_pk": "t-0", "tag": tag, "project_pk": "prj", "status": "pending"}
            await tx.conn.execute(row_of("task_offer_tag", **keys, priority=6, scheduled_at=NOW))


async def test_an_earlier_database_is_brought_up_to_date(earlier: Db) -> None:
    await fill(earlier)
    assert await migrations.migrate(earlier)
    async with earlier.read() as tx:
        project = await projects.get_project(tx, "p1")
        assert (project.tags, project.unqueued.pending, project.queue_counts.pending) == (("red", "big"), 2, 1)
        assert set((await tx.conn.scalars(select(project_tag.c.tag))).all()) == {"red", "big"}
        assert (await tx.conn.scalars(select(task_offer_tag.c.tag))).all() == ["red"]
        listing = TaskListFilter(where=QueueScope(project_pk="prj"))
        found = await list_tasks(tx, listing, total=None, offset=0, limit=10)
        named = await list_page(tx, replace(listing, search="N"), KnownTotals(), offset=0, limit=10)
    assert named == (found, 3)
    counted = project.states
    assert (counted.open_tasks, counted.closed_tasks, counted.idle_tasks) == (3, 0, 0)
    assert [(one.task_id, one.tags, one.shown_priority) for one in found] == [
        (f"t-{number}", ["Red", "RED"], 5) for number in range(3)
    ]
