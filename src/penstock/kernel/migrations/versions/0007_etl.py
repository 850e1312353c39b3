"""The tables of the etl room."""

import sqlalchemy as sa
from alembic import op

from penstock.kernel.columns import Json, UtcTime

revision = "0007"
down_revision = "0006"

Number = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make them."""
    _etl_task()
    _etl_rule()
    _etl_rule_version()


def _etl_task() -> None:
    op.create_table(
        "etl_task",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("user_id", sa.BigInteger, nullable=False),
        sa.Column("project_id", sa.BigInteger, nullable=False),
        sa.Column("filename", sa.String, nullable=False),
        sa.Column("s3_key", sa.String, nullable=False),
        sa.Column("rule_id", sa.BigInteger, nullable=False),
        sa.Column("rule_version", sa.Integer, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("ocr_run", sa.Integer, nullable=False),
        sa.Column("progress", sa.Integer, nullable=False),
        sa.Column("result", Json),
        sa.Column("error", sa.Text),
        sa.Column("metadata", Json, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("updated_at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_etl_task"),
        sa.CheckConstraint("status IN ('pending', 'completed', 'failed', 'cancelled')", name="ck_etl_task_status"),
        sa.CheckConstraint("progress BETWEEN 0 AND 100", name="ck_etl_task_progress"),
        sa.CheckConstraint("run >= 1 AND ocr_run BETWEEN 1 AND run", name="ck_etl_task_run"),
        sa.CheckConstraint("(status = 'completed') = (result IS NOT NULL)", name="ck_etl_task_result"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_etl_task_user", "etl_task", ["user_id", "id"])
    op.create_index("ix_etl_task_user_project", "etl_task", ["user_id", "project_id", "id"])
    op.create_index("ix_etl_task_user_status", "etl_task", ["user_id", "status", "id"])
    op.create_index("ix_etl_task_user_project_status", "etl_task", ["user_id", "project_id", "status", "id"])
    op.create_index("ix_etl_task_project", "etl_task", ["project_id", "id"])
    op.create_index("ix_etl_task_project_status", "etl_task", ["project_id", "status", "id"])
    op.create_index("ix_etl_task_status", "etl_task", ["status", "id"])
    op.create_index("ix_etl_task_s3_key", "etl_task", ["s3_key"])
    op.create_index("ix_etl_task_name", "etl_task", ["user_id", "project_id", "filename", "id"])
    _partial_index("ix_etl_task_under_way", "etl_task", ["id"], "status = 'pending'")
    _partial_index("ix_etl_task_over", "etl_task", ["updated_at"], "status != 'pending'")


def _etl_rule() -> None:
    op.create_table(
        "etl_rule",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("user_id", sa.BigInteger),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("file", sa.String),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("updated_at", UtcTime, nullable=False),
        sa.Column("deleted_at", UtcTime),
        sa.PrimaryKeyConstraint("id", name="pk_etl_rule"),
        sa.CheckConstraint("version >= 1", name="ck_etl_rule_version"),
        sqlite_autoincrement=True,
    )
    _partial_index("ix_etl_rule_user", "etl_rule", ["user_id", "id"], "deleted_at IS NULL")
    _partial_index("uq_etl_rule_file", "etl_rule", ["file"], "file IS NOT NULL", unique=True)


def _etl_rule_version() -> None:
    op.create_table(
        "etl_rule_version",
        sa.Column("rule_id", sa.BigInteger, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("body", Json, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("created_by", sa.String, nullable=False),
        sa.PrimaryKeyConstraint("rule_id", "version", name="pk_etl_rule_version"),
    )


def _partial_index(name: str, table: str, columns: list[str], where: str, *, unique: bool = False) -> None:
    only = sa.text(where)
    op.create_index(name, table, columns, unique=unique, postgresql_where=only, sqlite_where=only)
