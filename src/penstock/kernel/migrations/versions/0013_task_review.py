"""The table of review requests of other modules."""

import sqlalchemy as sa
from alembic import op

from penstock.kernel.columns import Id, UtcTime

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Make it."""
    op.create_table(
        "task_review",
        sa.Column("request", Id, nullable=False),
        sa.Column("origin", Id, nullable=False),
        sa.Column("task_pk", Id),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("ended_at", UtcTime),
        sa.PrimaryKeyConstraint("request", name="pk_task_review"),
    )
    open_ = sa.text("ended_at IS NULL")
    op.create_index(
        "uq_task_review_task", "task_review", ["task_pk"], unique=True, postgresql_where=open_, sqlite_where=open_
    )
    ended = sa.text("ended_at IS NOT NULL")
    op.create_index("ix_task_review_ended", "task_review", ["ended_at"], postgresql_where=ended, sqlite_where=ended)
