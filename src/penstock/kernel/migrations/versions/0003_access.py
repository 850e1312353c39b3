"""The tables of access: keys, console users with their logins and attempts, the audit log."""

import sqlalchemy as sa
from alembic import op

from penstock.kernel.columns import Id, Json, UtcTime

revision = "0003"
down_revision = "0002"

SCOPES = "scope IN ('read', 'write', 'admin')"


def upgrade() -> None:
    """Make them."""
    _keys()
    _users()
    _audit()


def _keys() -> None:
    op.create_table(
        "api_key",
        sa.Column("id", Id, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("hash", Id, nullable=False),
        sa.Column("prefix", sa.String, nullable=False),
        sa.Column("user_id", sa.BigInteger, nullable=False),
        sa.Column("merchant_id", sa.BigInteger),
        sa.Column("role", sa.String),
        sa.Column("scope", sa.String, nullable=False),
        sa.Column("project", sa.String),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("created_by", sa.String, nullable=False),
        sa.Column("expires_at", UtcTime),
        sa.Column("last_used_at", UtcTime),
        sa.Column("revoked_at", UtcTime),
        sa.Column("replaced_by", Id),
        sa.PrimaryKeyConstraint("id", name="pk_api_key"),
        sa.UniqueConstraint("hash", name="uq_api_key_hash"),
        sa.CheckConstraint(SCOPES, name="ck_api_key_scope"),
        sa.CheckConstraint("user_id > 0", name="ck_api_key_user_id"),
    )
    op.create_index("ix_api_key_user_id", "api_key", ["user_id"])
    for column in ("expires_at", "revoked_at"):
        given = sa.text(f"{column} IS NOT NULL")
        op.create_index(f"ix_api_key_{column}", "api_key", [column], postgresql_where=given, sqlite_where=given)
    op.create_table(
        "access_counter",
        sa.Column("id", sa.SmallInteger, autoincrement=False, nullable=False),
        sa.Column("next_user_id", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_access_counter"),
        sa.CheckConstraint("id = 1", name="ck_access_counter_one_row"),
    )


def _users() -> None:
    op.create_table(
        "console_user",
        sa.Column("id", Id, nullable=False),
        sa.Column("username", sa.String, nullable=False),
        sa.Column("login", sa.String, nullable=False),
        sa.Column("password_hash", sa.String, nullable=False),
        sa.Column("user_id", sa.BigInteger, nullable=False),
        sa.Column("role", sa.String, nullable=False),
        sa.Column("scope", sa.String, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("last_login_at", UtcTime),
        sa.PrimaryKeyConstraint("id", name="pk_console_user"),
        sa.UniqueConstraint("login", name="uq_console_user_login"),
        sa.CheckConstraint(SCOPES, name="ck_console_user_scope"),
        sa.CheckConstraint("user_id > 0", name="ck_console_user_user_id"),
    )
    op.create_table(
        "console_session",
        sa.Column("hash", Id, nullable=False),
        sa.Column("user", Id, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("expires_at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("hash", name="pk_console_session"),
        sa.ForeignKeyConstraint(["user"], ["console_user.id"], name="fk_console_session_user", ondelete="CASCADE"),
    )
    op.create_index("ix_console_session_user", "console_session", ["user", "created_at"])
    op.create_index("ix_console_session_expires_at", "console_session", ["expires_at"])
    op.create_table(
        "login_attempt",
        sa.Column("login_hash", Id, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("last_at", UtcTime, nullable=False),
        sa.Column("locked_until", UtcTime),
        sa.PrimaryKeyConstraint("login_hash", name="pk_login_attempt"),
    )
    op.create_index("ix_login_attempt_last_at", "login_attempt", ["last_at"])


def _audit() -> None:
    op.create_table(
        "audit_log",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at", UtcTime, nullable=False),
        sa.Column("actor", sa.String, nullable=False),
        sa.Column("action", sa.String, nullable=False),
        sa.Column("target", sa.String, nullable=False),
        sa.Column("detail", Json, nullable=False),
        sa.Column("request_id", sa.String, nullable=False),
        sa.Column("address", sa.String, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_log"),
    )
    op.create_index("ix_audit_log_actor", "audit_log", ["actor", "id"])
    op.create_index("ix_audit_log_action", "audit_log", ["action", "id"])
    op.create_index("ix_audit_log_at", "audit_log", ["at"])
