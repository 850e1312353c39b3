"""The table of queue operations that run in the background."""

import sqlalchemy as sa
from alembic import op

from penstock.kernel.columns import Id, UtcTime

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Make it."""
    op.create_table(
        "task_operation",
        sa.Column("id", Id, nullable=False),
        sa.Column("project_pk", Id, nullable=False),
        sa.Column("project_id", Id, nullable=False),
        sa.Column("queue_pk", Id, nullable=False),
        sa.Column("queue_id", Id, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("by", sa.String, nullable=False),
        sa.Column("total", sa.Integer, nullable=False),
        sa.Column("done", sa.Integer, nullable=False),
        sa.Column("affected", sa.Integer, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("cursor", Id, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("updated_at", UtcTime, nullable=False),
        sa.Column("ended_at", UtcTime),
        sa.PrimaryKeyConstraint("id", name="pk_task_operation"),
        sa.CheckConstraint("kind IN ('reset', 'reset-error', 're-run', 'delete')", name="ck_task_operation_kind"),
        sa.CheckConstraint("status IN ('running', 'completed', 'cancelled')", name="ck_task_operation_status"),
        sa.CheckConstraint("(status = 'running') = (ended_at IS NULL)", name="ck_task_operation_ended"),
    )
    op.create_index("ix_task_operation_project", "task_operation", ["project_pk", "id"])
    open_ = sa.text("ended_at IS NULL")
    op.create_index(
        "ix_task_operation_open", "task_operation", ["queue_pk"], postgresql_where=open_, sqlite_where=open_
    )
    ended = sa.text("ended_at IS NOT NULL")
    op.create_index(
        "ix_task_operation_ended", "task_operation", ["ended_at"], postgresql_where=ended, sqlite_where=ended
    )
