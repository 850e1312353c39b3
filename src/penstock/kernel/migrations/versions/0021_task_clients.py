"""What existing clients of the tasks API expect: push order, unset priorities, executions, tags in lower case.

Tags of projects, and those by which offered tasks are found, are trimmed and in lower case from now on.
"""

import sqlalchemy as sa
from alembic import op

from penstock.kernel.columns import Id, Json, UtcTime

revision = "0021"
down_revision = "0020"
compatible = False  # an earlier version does not know unset priorities and overwritten pulls

STATUSES = ("pending", "running", "done", "error", "cancelled")
ACTIVE = "deleted_at IS NULL AND archived_at IS NULL"
OUTCOMES = "outcome IN ('pushed', 'released', 'timed_out', 'revoked'"
LISTS = (
    ("ix_task_placed", ["partition_key", "queue_pk", "position", "id"]),
    ("ix_task_placed_status", ["partition_key", "queue_pk", "status", "position", "id"]),
    ("ix_task_list_state", ["partition_key", "queue_pk", "state", "position", "id", "origin"]),
)


def upgrade() -> None:
    """Add the columns and tables, count, and normalise."""
    op.drop_index("ix_task_list_state", "task")
    op.add_column("task", sa.Column("position", sa.Integer, server_default="2147483647", nullable=False))
    _replace_check("task", "ck_task_priority", "priority BETWEEN 1 AND 10", "priority BETWEEN 1 AND 11")
    _replace_check("task_pull", "ck_task_pull_outcome", f"{OUTCOMES})", f"{OUTCOMES}, 'overwritten')")
    for name, columns in LISTS:
        op.create_index(name, "task", columns, postgresql_where=sa.text(ACTIVE), sqlite_where=sa.text(ACTIVE))
    _count_unqueued()
    _task_execution()
    _task_day()
    _normalize_offer_tags()
    _normalize_project_tags()


def _replace_check(table: str, name: str, before: str, after: str) -> None:
    """SQLite cannot change a constraint: the table is copied, and its indexes are made again."""
    bind = op.get_bind()
    if bind.dialect.name != "sqlite":
        op.drop_constraint(name, table)
        op.create_check_constraint(name, table, after)
        return
    parts = sa.text("SELECT type, sql FROM sqlite_master WHERE tbl_name = :table AND sql IS NOT NULL")
    found = bind.execute(parts, {"table": table}).all()
    (made,) = (row.sql for row in found if row.type == "table")
    copied = made.replace(before, after).replace(f"CREATE TABLE {table} ", f"CREATE TABLE {table}_copy ", 1)
    names = [one["name"] for one in sa.inspect(bind).get_columns(table)]
    bind.exec_driver_sql(copied.replace(f'CREATE TABLE "{table}" ', f"CREATE TABLE {table}_copy ", 1))
    old, new = (sa.table(name, *map(sa.column, names)) for name in (table, f"{table}_copy"))
    bind.execute(sa.insert(new).from_select(names, sa.select(old)))
    for statement in (
        f"DROP TABLE {table}",
        f"ALTER TABLE {table}_copy RENAME TO {table}",
        *(row.sql for row in found if row.type == "index"),
    ):
        bind.exec_driver_sql(statement)


def _count_unqueued() -> None:
    task = sa.table("task", *map(sa.column, ("partition_key", "queue_pk", "status", "deleted_at", "archived_at")))
    for status in STATUSES:
        name = f"unqueued_{status}"
        op.add_column("project", sa.Column(name, sa.Integer, server_default="0", nullable=False))
        project = sa.table("project", sa.column("id"), sa.column(name))
        here = (task.c.partition_key == project.c.id, task.c.queue_pk == "", task.c.status == status)
        active = (task.c.deleted_at.is_(None), task.c.archived_at.is_(None))
        count = sa.select(sa.func.count()).select_from(task).where(*here, *active).scalar_subquery()
        op.execute(sa.update(project).values({name: count}))


def _task_execution() -> None:
    op.create_table(
        "task_execution",
        sa.Column("project_pk", Id, nullable=False),
        sa.Column("hour", UtcTime, nullable=False),
        sa.Column("queue_id", Id, nullable=False),
        sa.Column("hostname", Id, nullable=False),
        sa.Column("kind", Id, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("milliseconds", sa.BigInteger, nullable=False),
        sa.Column("shortest", sa.BigInteger, nullable=False),
        sa.Column("longest", sa.BigInteger, nullable=False),
        sa.Column("under_1_minute", sa.Integer, nullable=False),
        sa.Column("under_5_minutes", sa.Integer, nullable=False),
        sa.Column("under_10_minutes", sa.Integer, nullable=False),
        sa.Column("over_10_minutes", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("project_pk", "hour", "queue_id", "hostname", "kind", name="pk_task_execution"),
    )
    op.create_index("ix_task_execution_hour", "task_execution", ["hour"])


def _task_day() -> None:
    op.create_table(
        "task_day",
        sa.Column("project_pk", Id, nullable=False),
        sa.Column("day", UtcTime, nullable=False),
        *(sa.Column(status, sa.Integer, server_default="0", nullable=False) for status in STATUSES),
        sa.PrimaryKeyConstraint("project_pk", "day", name="pk_task_day"),
    )
    op.create_index("ix_task_day_day", "task_day", ["day"])


def _normalize_offer_tags() -> None:
    names = ("task_pk", "tag", "project_pk", "status", "priority", "scheduled_at")
    _rename_tags(sa.table("task_offer_tag", *map(sa.column, names)), "task_pk")


def _normalize_project_tags() -> None:
    _rename_tags(sa.table("project_tag", sa.column("tag"), sa.column("project_pk")), "project_pk")
    project, bind = sa.table("project", sa.column("id"), sa.column("tags", Json)), op.get_bind()
    for row in bind.execute(sa.select(project)).all():
        lower = list(dict.fromkeys(word for tag in row.tags if (word := _normalized(tag))))
        if lower != row.tags:
            bind.execute(sa.update(project).where(project.c.id == row.id).values(tags=lower))


def _rename_tags(table: sa.TableClause, key: str) -> None:
    """Rename each tag that is not normalised; a row whose new name exists is dropped."""
    bind, old, other = op.get_bind(), table.c, table.alias("other").c
    for tag in bind.execute(sa.select(old.tag).distinct()).scalars().all():
        new = _normalized(tag)
        if new == tag:
            continue
        exists = sa.select(other.tag).where(other[key] == old[key], other.tag == new).exists()
        if new:
            bind.execute(sa.update(table).where(old.tag == tag, ~exists).values(tag=new))
        bind.execute(sa.delete(table).where(old.tag == tag))


def _normalized(tag: str) -> str:
    return tag.strip().lower()
