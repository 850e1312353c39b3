"""Idempotency-Keys of all requests in one table; those of pulls move there."""

import sqlalchemy as sa
from alembic import op

from penstock.kernel.columns import Id, OrderedJson, UtcTime

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Make it, and move the receipts of pulls."""
    op.create_table(
        "idempotency_key",
        sa.Column("actor", Id, nullable=False),
        sa.Column("key", Id, nullable=False),
        sa.Column("fingerprint", sa.String, nullable=False),
        sa.Column("outcome", OrderedJson, nullable=False),
        sa.Column("at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("actor", "key", name="pk_idempotency_key"),
    )
    op.create_index("ix_idempotency_key_at", "idempotency_key", ["at"])
    built = "json_build_object" if op.get_bind().dialect.name == "postgresql" else "json_object"
    receipt = sa.table("pull_receipt", *map(sa.column, ("actor", "key", "asked", "pull_id", "at")))
    outcome = getattr(sa.func, built)("pull_id", receipt.c.pull_id)
    moved = sa.select(receipt.c.actor, receipt.c.key, receipt.c.asked, outcome, receipt.c.at)
    target = sa.table("idempotency_key", *map(sa.column, ("actor", "key", "fingerprint", "outcome", "at")))
    op.execute(sa.insert(target).from_select(["actor", "key", "fingerprint", "outcome", "at"], moved))
    op.drop_table("pull_receipt")
