"""Projects with many available tasks, generated in SQL."""

from datetime import UTC, datetime

import asyncpg

# A tag and an hour that one task in a thousand has; the others are spread over other tags and days.
RARE = 1000
FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)
TABLES = "project, queue, task, task_offer_tag, task_pull, task_change, pull_receipt, audit_log"
PROJECT = """
INSERT INTO project (id, project_id, name, tags, search_text, active_at, created_at, updated_at)
VALUES ($1::text, $1::text, $1::text, '[]', $1::text, now(), now(), now())
"""
TASKS = """
INSERT INTO task (id, partition_key, priority, scheduled_at, task_id, name, prompt, search_text, status, source, origin,
                  state, spec_file, tags, created_at, created_by, updated_at, updated_by, server_modified_at, version)
SELECT $1::text || lpad(n::text, 20, '0'), $1::text, 1 + n % 10, now(), 'task-' || n, 'Task ' || n,
       'Do what has to be done.', 'task ' || n, 'pending', 'server', 'server', 'offered', '[]',
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
