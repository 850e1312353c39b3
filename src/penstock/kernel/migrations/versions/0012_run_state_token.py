"""Run state names the lease whose holder wrote it."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Snapshots of earlier versions have no token; the next holder takes them over."""
    op.add_column("run_state", sa.Column("token", sa.String()))
