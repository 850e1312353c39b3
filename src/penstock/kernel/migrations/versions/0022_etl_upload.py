"""Uploaded documents that have no task yet."""

import sqlalchemy as sa
from alembic import op

from penstock.kernel.columns import Id, UtcTime

revision = "0022"
down_revision = "0021"
compatible = True


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "etl_upload",
        sa.Column("key", Id, nullable=False),
        sa.Column("user_id", sa.BigInteger, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("swept_at", UtcTime),
        sa.PrimaryKeyConstraint("key", name="pk_etl_upload"),
    )
    op.create_index("ix_etl_upload_created", "etl_upload", ["created_at", "key"])
