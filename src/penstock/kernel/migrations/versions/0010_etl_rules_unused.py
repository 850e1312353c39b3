"""What finds deleted rules that no task has any more."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Make the two indexes."""
    op.create_index("ix_etl_task_rule", "etl_task", ["rule_id"])
    deleted = sa.text("deleted_at IS NOT NULL")
    op.create_index("ix_etl_rule_deleted", "etl_rule", ["deleted_at"], postgresql_where=deleted, sqlite_where=deleted)
