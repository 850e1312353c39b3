"""What operators need: a request to run a periodic task, and an index for dead letters of one channel."""

import sqlalchemy as sa
from alembic import op

from penstock.kernel.columns import UtcTime

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Add the column and the index."""
    op.add_column("duty", sa.Column("requested_at", UtcTime))
    dead = sa.text("state = 'dead'")
    op.create_index("ix_outbox_dead_channel", "outbox", ["channel", "id"], postgresql_where=dead, sqlite_where=dead)
