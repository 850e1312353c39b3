"""Rules keep the order of their fields, and those that were deleted and that no task has any more are found."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """PostgreSQL's jsonb puts names in an order of its own; SQLite keeps the text as it is."""
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("etl_rule_version", "body", type_=sa.JSON(), postgresql_using="body::json")
    op.create_index("ix_etl_task_rule", "etl_task", ["rule_id"])
    deleted = sa.text("deleted_at IS NOT NULL")
    op.create_index("ix_etl_rule_deleted", "etl_rule", ["deleted_at"], postgresql_where=deleted, sqlite_where=deleted)
