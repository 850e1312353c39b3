"""Indexes of offered tasks without their status: a pull takes any unless it asks for one."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
compatible = True


def upgrade() -> None:
    """Make them."""
    offered = sa.text("state = 'offered' AND source = 'server'")
    for name, columns in (
        ("ix_task_offered_any", ["partition_key", "priority", "scheduled_at", "id"]),
        ("ix_task_offered_queue_any", ["partition_key", "queue_pk", "priority", "scheduled_at", "id"]),
    ):
        op.create_index(name, "task", columns, postgresql_where=offered, sqlite_where=offered)
    by_tag = ["project_pk", "tag", "priority", "scheduled_at", "task_pk"]
    named = sa.text("task_pk != ''")
    op.create_index("ix_task_offer_tag_any", "task_offer_tag", by_tag, postgresql_where=named, sqlite_where=named)
