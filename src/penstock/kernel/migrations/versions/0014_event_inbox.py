"""The table of events that have no id yet. Events that exist keep their ids, and new ids continue after them."""

import sqlalchemy as sa
from alembic import op

from penstock.kernel.columns import Id, Json, UtcTime

revision = "0014"
down_revision = "0013"

XID = sa.text("(CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT))")  # never evaluated on SQLite


def upgrade() -> None:
    """Make it."""
    op.create_table(
        "event_inbox",
        sa.Column("xid", sa.BigInteger, autoincrement=False, server_default=XID, nullable=False),
        sa.Column("seq", sa.BigInteger, sa.Identity(), nullable=False),
        sa.Column("topic", Id, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("audience", Id, nullable=False),
        sa.Column("data", Json, nullable=False),
        sa.Column("at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("xid", "seq", name="pk_event_inbox"),
        sa.CheckConstraint("length(topic) BETWEEN 1 AND 255", name="ck_event_inbox_topic"),
        sa.CheckConstraint("length(kind) BETWEEN 1 AND 64", name="ck_event_inbox_kind"),
        sa.CheckConstraint("length(audience) <= 255", name="ck_event_inbox_audience"),
    )
