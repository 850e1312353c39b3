"""Every query on tasks uses an index on large tables, as the query plans show."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import literal, select

from penstock.etl.domain import Status
from penstock.etl.reconcile import is_any_active
from penstock.etl.store import tasks
from penstock.etl.store.tables import etl_task
from penstock.etl.store.tasks import EndedFilter, TaskFilter
from penstock.kernel.columns import UtcTime
from penstock.kernel.db import Db, Tx
from penstock.kernel.dialect.bulk import insert_rows
from penstock.kernel.leases import EPOCH
from tests.plans import explain, look, reads_a_whole_table, recorded, sorts

Verb = Callable[[Tx], Awaitable[object]]
ROWS = 20_000
MOMENTS = literal(EPOCH, UtcTime), literal(EPOCH, UtcTime)
COLUMNS = (
    "user_id", "project_id", "filename", "s3_key", "rule_id", "rule_version", "status", "run", "ocr_run", "progress",
    "result", "metadata", "created_at", "updated_at",
)  # fmt: skip


def listed(**wanted: Any) -> Verb:
    return lambda tx: tasks.list_tasks(tx, TaskFilter(**wanted), limit=20)


def counted(**wanted: Any) -> Verb:
    return lambda tx: tasks.count_tasks(tx, TaskFilter(**wanted), limit=100)


def walked(**wanted: Any) -> Verb:
    return lambda tx: tasks.list_before(tx, TaskFilter(**wanted, status=Status.PENDING), before=ROWS, limit=20)


def to_retry(owner: int | None = None, **wanted: Any) -> Verb:
    chosen = EndedFilter(status=Status.FAILED, **wanted)
    return lambda tx: tasks.list_matching(tx, chosen, owner=owner, after=7, limit=20)


VERBS: dict[str, Verb] = {
    "one": lambda tx: tasks.find_task(tx, 7),
    "some": lambda tx: tasks.list_by_ids(tx, [7, 8, 9]),
    "of a user": listed(user_id=7),
    "of a user and a project": listed(user_id=7, project_id=2),
    "of a user by status": listed(user_id=7, status=Status.FAILED),
    "of a user and a project by status": listed(user_id=7, project_id=2, status=Status.FAILED),
    "how many of a user and a project": counted(user_id=7, project_id=2),
    "how many of a user by status": counted(user_id=7, status=Status.FAILED),
    "how many of a user": counted(user_id=7),
    "how many of a project by status": counted(project_id=2, status=Status.FAILED),
    "of all": listed(),
    "of a project": listed(project_id=2),
    "of all by status": listed(status=Status.FAILED),
    "of a project by status": listed(project_id=2, status=Status.FAILED),
    "to retry": to_retry(),
    "to retry by error and time": to_retry(error_code="TASK_TIMEOUT", since=EPOCH, until=EPOCH),
    "to retry of a project": to_retry(project_id=2),
    "to retry of a user": to_retry(owner=7),
    "to retry of a user and a project": to_retry(owner=7, project_id=2),
    "walk": walked(user_id=7),
    "walk of a project": walked(user_id=7, project_id=2),
    "walk of all": walked(),
    "under way": lambda tx: tasks.list_active(tx, after=0, limit=200),
    "over": lambda tx: tasks.list_ended(tx, before=tx.now, limit=100),
    "anything to reconcile": lambda tx: tx.conn.scalar(select(is_any_active(*MOMENTS))),
    "how many": lambda tx: tasks.count_active(tx, limit=1000),
    "how many of one user": lambda tx: tasks.count_active_of(tx, 7, limit=1000),
    "a namesake under way": lambda tx: tasks.has_running_by_name(tx, user_id=7, project_id=2, filename="7.pdf"),
    "namesake": lambda tx: tasks.find_completed_by_name(tx, user_id=7, project_id=2, filename="7.pdf"),
    "named": lambda tx: tasks.is_source_used(tx, "key-7", user_id=7),
}


@pytest.fixture
async def full(plan_db: Db) -> Db:
    """A table large enough that reading it whole, or sorting it, would not be the cheapest."""
    db = plan_db
    now = db.clock.now()
    rows: list[tuple[Any, ...]] = []
    for n in range(ROWS):
        status = "pending" if n % 100 == 0 else "failed" if n % 100 == 1 else "completed"
        at = now + timedelta(seconds=n - ROWS / 2)
        result: dict[str, str] | None = {} if status == "completed" else None
        rows.append((n % 200, n % 7, f"{n}.pdf", f"key-{n}", 0, 1, status, 1, 1, 0, result, {}, at, at))
    async with db.tx() as tx:
        await insert_rows(tx, etl_task, COLUMNS, rows)
    if db.database_name == "postgresql":
        await look(db)
    return db


async def test_each_is_served_by_an_index_and_sorts_nothing(full: Db):
    for name, verb in VERBS.items():
        with recorded(full, "etl_task") as statements:
            async with full.tx() as tx:
                await verb(tx)
        assert statements, name
        steps = [step for statement in statements for step in await explain(full, *statement)]
        if name in {"some", "to retry by error and time"}:  # three rows, or those of a time, may be sorted
            steps = [step for step in steps if not sorts(step)]
        if name == "of all" and steps == ["SCAN etl_task"]:  # by its key, from the end, and no further than the page
            continue
        bad = [step for step in steps if sorts(step) or (reads_a_whole_table(step) and _is_ours(step))]
        assert bad == [], (name, steps)


def _is_ours(step: str) -> bool:
    return "etl_task" in step or "run_state" in step
