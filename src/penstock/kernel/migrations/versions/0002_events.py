"""The table of events."""

import sqlalchemy as sa
from alembic import op

from penstock.kernel.columns import Id, Json, UtcTime

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make it."""
    op.create_table(
        "event",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(), nullable=False),
        sa.Column("topic", Id, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("audience", Id, nullable=False),
        sa.Column("data", Json, nullable=False),
        sa.Column("at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_event"),
        sa.CheckConstraint("length(topic) BETWEEN 1 AND 255", name="ck_event_topic"),
        sa.CheckConstraint("length(kind) BETWEEN 1 AND 64", name="ck_event_kind"),
        sa.CheckConstraint("length(audience) <= 255", name="ck_event_audience"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_event_topic", "event", ["topic", "id"])
    op.create_index("ix_event_audience", "event", ["audience", "id"])
    op.create_index("ix_event_topic_audience", "event", ["topic", "audience", "id"])
