"""Tokens that create the first console user."""

import sqlalchemy as sa
from alembic import op

from penstock.kernel.columns import Id, UtcTime

revision = "0020"
down_revision = "0019"
compatible = True


def upgrade() -> None:
    """Make the table. Login attempts of earlier versions count until their lock ends."""
    op.create_table(
        "setup_token",
        sa.Column("hash", Id, nullable=False),
        sa.Column("expires_at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("hash", name="pk_setup_token"),
    )
    op.create_index("ix_setup_token_expires_at", "setup_token", ["expires_at"])
    op.create_index("ix_console_user_scope", "console_user", ["scope"])
