"""The table of processes."""

import sqlalchemy as sa
from alembic import op

from penstock.kernel.columns import Id, Json, UtcTime

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make it."""
    op.create_table(
        "process",
        sa.Column("id", Id, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("rooms", Json, nullable=False),
        sa.Column("version", sa.String, nullable=False),
        sa.Column("started_at", UtcTime, nullable=False),
        sa.Column("seen_at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_process"),
        sa.CheckConstraint("kind IN ('serve', 'work')", name="ck_process_kind"),
    )
    op.create_index("ix_process_seen_at", "process", ["seen_at"])
