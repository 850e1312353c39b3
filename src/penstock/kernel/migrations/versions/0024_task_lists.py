"""What keeps lists, searches and statistics of tasks flat: texts in a table of their own, counters by pull state, and
indexes that a deep page or the latest pulls are read from."""

import sqlalchemy as sa
from alembic import op

from penstock.kernel.columns import Id

revision = "0024"
down_revision = "0023"
compatible = False  # processes of the version before do not maintain the counters and texts

ACTIVE = "task.deleted_at IS NULL AND task.archived_at IS NULL"
COUNTERS = {
    "open_tasks": "task.state IN ('offered', 'held')",
    "closed_tasks": "task.state = 'closed'",
    "idle_tasks": "task.state = 'idle' AND task.origin = 'server'",
}
PLACES = {
    "project": (
        "task.partition_key = project.id AND task.queue_pk NOT IN "
        "(SELECT id FROM queue WHERE queue.project_pk = project.id AND queue.deleted_at IS NOT NULL)"
    ),
    "queue": "task.partition_key = queue.project_pk AND task.queue_pk = queue.id",
}


def upgrade() -> None:
    """Make them, and fill them from the tasks."""
    _texts()
    _counters()
    _indexes()


def _texts() -> None:
    op.create_table(
        "task_search",
        sa.Column("project_pk", Id, nullable=False),
        sa.Column("queue_pk", Id, nullable=False),
        sa.Column("task_pk", Id, nullable=False),
        sa.Column("search_text", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("project_pk", "queue_pk", "task_pk", name="pk_task_search"),
        sqlite_with_rowid=False,
    )
    texts = f"SELECT partition_key, queue_pk, id, search_text FROM task WHERE {ACTIVE}"  # noqa: S608  (constants)
    op.execute(f"INSERT INTO task_search (project_pk, queue_pk, task_pk, search_text) {texts}")
    op.create_index("ix_task_search_task", "task_search", ["task_pk"])
    op.execute("ALTER TABLE task DROP COLUMN search_text")


def _counters() -> None:
    for table, here in PLACES.items():
        for name, states in COUNTERS.items():
            op.add_column(table, sa.Column(name, sa.Integer, nullable=False, server_default="0"))
            counted = f"SELECT count(*) FROM task WHERE {here} AND {ACTIVE} AND {states}"  # noqa: S608  (constants)
            op.execute(f"UPDATE {table} SET {name} = ({counted})")  # noqa: S608  (constants)


def _indexes() -> None:
    deleted = sa.text("deleted_at IS NOT NULL")
    op.create_index("ix_queue_removed", "queue", ["project_pk", "id"], postgresql_where=deleted, sqlite_where=deleted)
    op.drop_index("ix_task_pull_project", "task_pull")
    op.drop_index("ix_task_pull_seconds", "task_pull")
    counted = ["id", "outcome", "pulled_by", "seconds"]
    op.create_index("ix_task_pull_latest", "task_pull", ["project_pk", *counted])
    op.create_index("ix_task_pull_latest_queue", "task_pull", ["project_pk", "queue_pk", *counted])
