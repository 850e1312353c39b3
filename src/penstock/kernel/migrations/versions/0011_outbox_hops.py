"""Outbox messages count how many messages led to them."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Messages that wait during the upgrade start at zero."""
    op.add_column("outbox", sa.Column("hops", sa.Integer(), nullable=False, server_default="0"))
