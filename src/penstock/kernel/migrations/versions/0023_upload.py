"""The table of uploads."""

import sqlalchemy as sa
from alembic import op

from penstock.kernel.columns import Id, Json, UtcTime

revision = "0023"
down_revision = "0022"
compatible = True


def upgrade() -> None:
    """Make it."""
    op.create_table(
        "upload",
        sa.Column("id", Id, nullable=False),
        sa.Column("user_id", sa.BigInteger, nullable=False),
        sa.Column("merchant_id", sa.BigInteger),
        sa.Column("key_id", Id),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("length", sa.BigInteger),
        sa.Column("offset", sa.BigInteger, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("filename", sa.Text, nullable=False),
        sa.Column("handle", sa.Text, nullable=False),
        sa.Column("parts", Json, nullable=False),
        sa.Column("writer", sa.String),
        sa.Column("writer_until", UtcTime),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("updated_at", UtcTime, nullable=False),
        sa.Column("expires_at", UtcTime, nullable=False),
        sa.CheckConstraint("(writer IS NULL) = (writer_until IS NULL)", name="ck_upload_writer"),
        sa.CheckConstraint('"offset" >= 0 AND (length IS NULL OR "offset" <= length)', name="ck_upload_offset"),
        sa.PrimaryKeyConstraint("id", name="pk_upload"),
    )
    for name, columns, states in (
        ("ix_upload_open", ["user_id", "id"], "state = 'open'"),
        ("ix_upload_expires", ["expires_at"], "state IN ('open', 'assembling', 'complete')"),
        ("ix_upload_gone", ["updated_at"], "state IN ('expired', 'terminated')"),
    ):
        where = sa.text(states)
        op.create_index(name, "upload", columns, postgresql_where=where, sqlite_where=where)
