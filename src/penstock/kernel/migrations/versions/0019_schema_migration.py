"""Which migrations processes of the version before can live with."""

import sqlalchemy as sa
from alembic import op

from penstock.kernel.columns import Id

revision = "0019"
down_revision = "0018"
compatible = True


def upgrade() -> None:
    """Make the table; `migrate` fills it."""
    op.create_table(
        "schema_migration",
        sa.Column("revision", Id, nullable=False),
        sa.Column("parent", Id),
        sa.Column("compatible", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("revision", name="pk_schema_migration"),
    )
