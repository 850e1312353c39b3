"""Projects with many tasks: available ones generated in SQL, finished ones written by the product."""

from dataclasses import replace
from datetime import UTC, datetime

import asyncpg

from penstock.etl.store.tables import etl_task
from penstock.kernel.db import Db, Tx
from penstock.kernel.dialect.bulk import insert_rows
from penstock.tasks.domain import ChangeKind, Project, PullOutcome, PullState, Side, Status, Task, TaskQueue
from penstock.tasks.lifecycle import open_unit_of_work
from penstock.tasks.store import projects
from penstock.tasks.store.claims import HISTORY
from penstock.tasks.store.tables import task_pull

# A tag and an hour that one task in a thousand has; the others are spread over other tags and days.
RARE = 1000
INSERTED = 10_000  # rows of one transaction
PULL = (*HISTORY, "ended_at", "ended_by", "outcome", "seconds")
FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)
TABLES = "project, queue, task, task_search, task_offer_tag, task_pull, task_change, audit_log"
PROJECT = """
INSERT INTO project (id, project_id, name, tags, search_text, active_at, created_at, updated_at)
VALUES ($1::text, $1::text, $1::text, '[]', $1::text, now(), now(), now())
"""
TASKS = """
INSERT INTO task (id, partition_key, priority, scheduled_at, task_id, name, prompt, status, source, origin, state,
                  spec_file, tags, created_at, created_by, updated_at, updated_by, server_modified_at, version)
SELECT $1::text || lpad(n::text, 20, '0'), $1::text, 1 + n % 10, now(), 'task-' || n, 'Task ' || n,
       'Do what has to be done.', 'pending', 'server', 'server', 'offered', '[]',
       jsonb_build_array('tag-' || n % 1000),
       timestamptz '2026-01-01' + (n % 1000) * interval '1 day', 'bench', now(), 'bench',
       timestamptz '2026-01-01' + (n % 1000) * interval '1 day', n
FROM generate_series(1, $2) n
"""
TAGS = """
INSERT INTO task_offer_tag (task_pk, tag, project_pk, status, priority, scheduled_at)
SELECT id, tag #>> '{}', partition_key, status, priority, scheduled_at FROM task, jsonb_array_elements(tags) AS tag
WHERE partition_key = $1
"""


async def fill(dsn: str, *projects: tuple[str, int]) -> None:
    """Truncate the tables of the tasks module, and fill projects with this many tasks each."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(f"TRUNCATE {TABLES}")
    for name, rows in projects:
        await connection.execute(PROJECT, name)
        await connection.execute(TASKS, name, rows)
        await connection.execute(TAGS, name)
    for table in ("project", "task", "task_offer_tag", "task_pull"):
        await connection.execute(f"VACUUM ANALYZE {table}")
    await connection.execute("CHECKPOINT")
    await connection.close()


async def fill_queue(db: Db, project_id: str, queue_id: str, count: int) -> None:
    """A project with a queue of this many tasks, written as the product writes them: half of them on offer, half pulled
    and pushed."""
    async with db.tx() as tx:
        project = Project(
            id=tx.new_id("project"), project_id=project_id, name=project_id, created_at=tx.now, updated_at=tx.now
        )
        await projects.insert_project(tx, project)
    for first in range(0, count, INSERTED):
        async with db.tx() as tx:
            uow = await open_unit_of_work(tx, project_id)
            queue = await uow.find_queue(queue_id) or uow.add_queue(queue_id, queue_id)
            rows = [_task(tx, queue, number) for number in range(first, min(first + INSERTED, count))]
            for one in rows:
                uow.record(None, one, ChangeKind.CREATED)
            await uow.close(by="bench")
            await insert_rows(tx, task_pull, PULL, [_pull(one) for one in rows if one.pulled_at is not None])


def _task(tx: Tx, queue: TaskQueue, number: int) -> Task:
    new = Task(
        id=tx.new_id("task"),
        partition_key=queue.project_pk,
        queue_pk=queue.id,
        queue_id=queue.queue_id,
        task_id=f"task-{number}",
        name=f"Review the report of customer {number * 7919 % 1_000_003}",
        prompt="Read it and answer.",
        status=Status.PENDING,
        source=Side.SERVER,
        origin=Side.SERVER,
        state=PullState.OFFERED,
        tags=[],
        scheduled_at=tx.now,
        created_at=tx.now,
        created_by="bench",
        updated_at=tx.now,
        updated_by="bench",
        version=0,
    )
    if number % 2:
        return new
    done = replace(new, status=Status.DONE, source=Side.CLIENT, state=PullState.CLOSED, finished_at=tx.now)
    return replace(done, pulled_at=tx.now, lease_owner=f"worker-{number % 20}", pushed_at=tx.now)


def _pull(one: Task) -> tuple[object, ...]:
    number = int(one.task_id.removeprefix("task-"))
    begun = (one.partition_key, one.queue_pk, one.id, f"pull-{number // 100}", "token", one.pulled_at, one.lease_owner)
    return (*begun, "key", one.pushed_at, one.lease_owner, PullOutcome.PUSHED.value, float(number % 600))


async def fill_etl_tasks(db: Db, project_id: int, count: int) -> None:
    """A project with this many completed etl tasks."""
    names = tuple(column.name for column in etl_task.c if column.name != "id")
    for first in range(0, count, INSERTED):
        async with db.tx() as tx:
            rows = [
                (
                    1, project_id, f"{number}.pdf", f"users/1/raw/{number}.pdf", 0, 1, "completed", 1, 1, 100,
                    {"output_path": "out"}, None, {"s3_key": "key", "page_count": 3}, tx.now, tx.now,
                )
                for number in range(first, min(first + INSERTED, count))
            ]  # fmt: skip
            await insert_rows(tx, etl_task, names, rows)
