"""The table that knows which task has made the same thing before."""

import sqlalchemy as sa
from alembic import op

from penstock.kernel.columns import Id, UtcTime

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Make it."""
    op.create_table(
        "etl_memory",
        sa.Column("user_id", sa.BigInteger, nullable=False),
        sa.Column("key", Id, nullable=False),
        sa.Column("stage", sa.String, nullable=False),
        sa.Column("task_id", sa.BigInteger, nullable=False),
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("made_at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("user_id", "key", name="pk_etl_memory"),
        sa.CheckConstraint("length(key) = 64", name="ck_etl_memory_key"),
        sa.CheckConstraint("stage IN ('ocr', 'postprocess')", name="ck_etl_memory_stage"),
        sa.CheckConstraint("run >= 1", name="ck_etl_memory_run"),
    )
    op.create_index("ix_etl_memory_task", "etl_memory", ["task_id"])
    op.create_index("ix_etl_memory_made_at", "etl_memory", ["made_at"])
