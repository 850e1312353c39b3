"""The table of the toy module."""

import sqlalchemy as sa
from alembic import op

from penstock.kernel.columns import Id

revision = "toy_0001"
down_revision = None


def upgrade() -> None:
    """Create it."""
    op.create_table(
        "toy_note",
        sa.Column("id", Id, primary_key=True),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("archived", sa.Boolean, nullable=False),
    )
