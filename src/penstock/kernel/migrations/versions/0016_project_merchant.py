"""Projects of the tasks module have an owner: a merchant."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Projects of earlier versions belong to no merchant."""
    op.add_column("project", sa.Column("merchant_id", sa.BigInteger()))
    owned = sa.text("merchant_id IS NOT NULL")
    op.create_index("ix_project_merchant", "project", ["merchant_id"], postgresql_where=owned, sqlite_where=owned)
