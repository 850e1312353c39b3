"""The tables of what people say about results."""

import sqlalchemy as sa
from alembic import op

from penstock.kernel.columns import Json, UtcTime

revision = "0009"
down_revision = "0008"

Number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
OF_RULE = {
    "rule": ["rule_id", "id"],
    "rule_user": ["rule_id", "user_id", "id"],
    "rule_version": ["rule_id", "rule_version", "id"],
    "rule_user_version": ["rule_id", "user_id", "rule_version", "id"],
}


def upgrade() -> None:
    """Make them."""
    _etl_review()
    _etl_correction()


def _etl_review() -> None:
    op.create_table(
        "etl_review",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("task_id", sa.BigInteger, nullable=False),
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("user_id", sa.BigInteger, nullable=False),
        sa.Column("rule_id", sa.BigInteger, nullable=False),
        sa.Column("rule_version", sa.Integer, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("reviewed_at", UtcTime),
        sa.Column("reviewed_by", sa.String),
        sa.Column("looked_at", sa.Integer, nullable=False),
        sa.Column("corrected", sa.Integer, nullable=False),
        sa.Column("fields", Json, nullable=False),
        sa.Column("updated_at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_etl_review"),
        sa.CheckConstraint("revision >= 1", name="ck_etl_review_revision"),
        sa.CheckConstraint("corrected BETWEEN 0 AND looked_at", name="ck_etl_review_corrected"),
        sa.CheckConstraint("(reviewed_at IS NULL) = (reviewed_by IS NULL)", name="ck_etl_review_reviewed"),
        sqlite_autoincrement=True,
    )
    op.create_index("uq_etl_review_task", "etl_review", ["task_id", "run"], unique=True)
    for name, columns in OF_RULE.items():
        op.create_index(f"ix_etl_review_{name}", "etl_review", columns)


def _etl_correction() -> None:
    op.create_table(
        "etl_correction",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("task_id", sa.BigInteger, nullable=False),
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("user_id", sa.BigInteger, nullable=False),
        sa.Column("rule_id", sa.BigInteger, nullable=False),
        sa.Column("rule_version", sa.Integer, nullable=False),
        sa.Column("pointer", sa.Text, nullable=False),
        sa.Column("field", sa.Text, nullable=False),
        sa.Column("original", sa.Text),
        sa.Column("corrected", sa.Text, nullable=False),
        sa.Column("confirms", sa.Boolean, nullable=False),
        sa.Column("note", sa.Text),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("created_by", sa.String, nullable=False),
        sa.Column("superseded_at", UtcTime),
        sa.Column("withdrawn_at", UtcTime),
        sa.Column("ended_by", sa.String),
        sa.PrimaryKeyConstraint("id", name="pk_etl_correction"),
        sa.CheckConstraint("superseded_at IS NULL OR withdrawn_at IS NULL", name="ck_etl_correction_one_end"),
        sa.CheckConstraint(
            "(superseded_at IS NULL AND withdrawn_at IS NULL) = (ended_by IS NULL)", name="ck_etl_correction_ended_by"
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_etl_correction_task", "etl_correction", ["task_id", "id"])
    stands = sa.text("superseded_at IS NULL AND withdrawn_at IS NULL")
    for name, columns in OF_RULE.items():
        op.create_index(
            f"ix_etl_correction_{name}", "etl_correction", columns, postgresql_where=stands, sqlite_where=stands
        )
