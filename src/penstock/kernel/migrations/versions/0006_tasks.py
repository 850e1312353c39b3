"""The tables of the tasks room."""

import sqlalchemy as sa
from alembic import op

from penstock.kernel.columns import Id, Json, UtcTime

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Make them."""
    _project()
    _project_tag()
    _queue()
    _task()
    _task_offer_tag()
    _task_pull()
    _task_message()
    _task_log()
    _task_change()
    _pull_receipt()
    _task_alarm()


def _project() -> None:
    op.create_table(
        "project",
        sa.Column("id", Id, nullable=False),
        sa.Column("project_id", Id, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("custom_title", sa.String),
        sa.Column("notes", sa.Text),
        sa.Column("tags", Json, nullable=False),
        sa.Column("search_text", sa.Text, nullable=False),
        sa.Column("metadata_created_at", UtcTime),
        sa.Column("metadata_updated_at", UtcTime),
        sa.Column("username", sa.String),
        sa.Column("hostname", sa.String),
        sa.Column("project_path", sa.String),
        sa.Column("repository", sa.String),
        sa.Column("branch", sa.String),
        sa.Column("conflict_policy", sa.String, server_default="overwrite", nullable=False),
        sa.Column("version", sa.BigInteger, server_default="0", nullable=False),
        sa.Column("queue_count", sa.Integer, server_default="0", nullable=False),
        sa.Column("pending", sa.Integer, server_default="0", nullable=False),
        sa.Column("running", sa.Integer, server_default="0", nullable=False),
        sa.Column("done", sa.Integer, server_default="0", nullable=False),
        sa.Column("error", sa.Integer, server_default="0", nullable=False),
        sa.Column("cancelled", sa.Integer, server_default="0", nullable=False),
        sa.Column("last_task_at", UtcTime),
        sa.Column("active_at", UtcTime, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("updated_at", UtcTime, nullable=False),
        sa.Column("deleted_at", UtcTime),
        sa.CheckConstraint("conflict_policy IN ('overwrite', 'reject')", name="ck_project_conflict_policy"),
        sa.PrimaryKeyConstraint("id", name="pk_project"),
    )
    _index_where("ix_project_active", "project", ["active_at", "id"], "deleted_at IS NULL")
    _index_where("ix_project_deleted", "project", ["deleted_at"], "deleted_at IS NOT NULL")
    op.create_index("ix_project_updated", "project", ["updated_at"])
    _index_where("uq_project_project_id", "project", ["project_id"], "deleted_at IS NULL", unique=True)


def _project_tag() -> None:
    op.create_table(
        "project_tag",
        sa.Column("tag", Id, nullable=False),
        sa.Column("project_pk", Id, nullable=False),
        sa.PrimaryKeyConstraint("tag", "project_pk", name="pk_project_tag"),
    )
    op.create_index("ix_project_tag_project", "project_tag", ["project_pk"])


def _queue() -> None:
    op.create_table(
        "queue",
        sa.Column("id", Id, nullable=False),
        sa.Column("project_pk", Id, nullable=False),
        sa.Column("queue_id", Id, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("search_text", sa.Text, nullable=False),
        sa.Column("meta", Json),
        sa.Column("pending", sa.Integer, server_default="0", nullable=False),
        sa.Column("running", sa.Integer, server_default="0", nullable=False),
        sa.Column("done", sa.Integer, server_default="0", nullable=False),
        sa.Column("error", sa.Integer, server_default="0", nullable=False),
        sa.Column("cancelled", sa.Integer, server_default="0", nullable=False),
        sa.Column("last_task_at", UtcTime),
        sa.Column("active_at", UtcTime, nullable=False),
        sa.Column("last_reset_at", UtcTime),
        sa.Column("last_operation", sa.String),
        sa.Column("last_operation_by", sa.String),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("updated_at", UtcTime, nullable=False),
        sa.Column("deleted_at", UtcTime),
        sa.CheckConstraint("last_operation IN ('reset', 'reset-error', 're-run')", name="ck_queue_last_operation"),
        sa.PrimaryKeyConstraint("id", name="pk_queue"),
    )
    _index_where("ix_queue_active", "queue", ["project_pk", "active_at", "id"], "deleted_at IS NULL")
    _index_where("ix_queue_deleted", "queue", ["deleted_at"], "deleted_at IS NOT NULL")
    op.create_index("ix_queue_updated", "queue", ["project_pk", "updated_at"])
    _index_where("uq_queue_queue_id", "queue", ["project_pk", "queue_id"], "deleted_at IS NULL", unique=True)


def _task() -> None:
    op.create_table(
        "task",
        sa.Column("id", Id, nullable=False),
        sa.Column("partition_key", Id, server_default="", nullable=False),
        sa.Column("priority", sa.SmallInteger, server_default="5", nullable=False),
        sa.Column("scheduled_at", UtcTime, nullable=False),
        sa.Column("deferred", sa.Boolean, server_default=sa.text("false"), nullable=False),
        sa.Column("lease_owner", sa.String),
        sa.Column("lease_token", sa.String),
        sa.Column("leased_until", UtcTime),
        sa.Column("lease_count", sa.Integer, server_default="0", nullable=False),
        sa.Column("queue_pk", Id, server_default="", nullable=False),
        sa.Column("queue_id", Id, server_default="", nullable=False),
        sa.Column("task_id", Id, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("prompt", sa.Text, nullable=False),
        sa.Column("search_text", sa.Text, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("source", sa.String, nullable=False),
        sa.Column("origin", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("spec_file", Json, nullable=False),
        sa.Column("tags", Json, nullable=False),
        sa.Column("report", sa.Text),
        sa.Column("result", Json),
        sa.Column("result_schema", Json),
        sa.Column("error_reason", sa.Text),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("created_by", sa.String, nullable=False),
        sa.Column("updated_at", UtcTime, nullable=False),
        sa.Column("updated_by", sa.String, nullable=False),
        sa.Column("server_modified_at", UtcTime),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("pulled_at", UtcTime),
        sa.Column("confirmed_at", UtcTime),
        sa.Column("pushed_at", UtcTime),
        sa.Column("pushed_by", sa.String),
        sa.Column("status_at_pull", sa.String),
        sa.Column("started_at", UtcTime),
        sa.Column("finished_at", UtcTime),
        sa.Column("expires_at", UtcTime),
        sa.Column("expired_at", UtcTime),
        sa.Column("archived_at", UtcTime),
        sa.Column("deleted_at", UtcTime),
        sa.Column("message_count", sa.Integer, server_default="0", nullable=False),
        sa.Column("log_count", sa.Integer, server_default="0", nullable=False),
        sa.CheckConstraint("(state = 'held') = (lease_token IS NOT NULL)", name="ck_task_token_while_held"),
        sa.CheckConstraint("(state = 'held') = (leased_until IS NOT NULL)", name="ck_task_end_while_held"),
        sa.CheckConstraint("(state IN ('held', 'closed')) = (pulled_at IS NOT NULL)", name="ck_task_pulled_at"),
        sa.CheckConstraint("origin IN ('server', 'client')", name="ck_task_origin"),
        sa.CheckConstraint("source IN ('server', 'client')", name="ck_task_source"),
        sa.CheckConstraint("state <> 'offered' OR source = 'server'", name="ck_task_offered_by_server"),
        sa.CheckConstraint("state IN ('idle', 'offered', 'held', 'closed')", name="ck_task_state"),
        sa.CheckConstraint(
            "state NOT IN ('offered', 'held') OR (deleted_at IS NULL AND archived_at IS NULL)",
            name="ck_task_offered_lives",
        ),
        sa.CheckConstraint("status IN ('pending', 'running', 'done', 'error', 'cancelled')", name="ck_task_status"),
        sa.CheckConstraint("priority BETWEEN 1 AND 10", name="ck_task_priority"),
        sa.PrimaryKeyConstraint("id", name="pk_task"),
    )
    _index_where("ix_task_any", "task", ["partition_key", "id"], "deleted_at IS NULL AND archived_at IS NULL")
    _index_where(
        "ix_task_any_state",
        "task",
        ["partition_key", "state", "id", "origin"],
        "deleted_at IS NULL AND archived_at IS NULL",
    )
    _index_where(
        "ix_task_any_status", "task", ["partition_key", "status", "id"], "deleted_at IS NULL AND archived_at IS NULL"
    )
    _index_where(
        "ix_task_expired",
        "task",
        ["expired_at"],
        "expired_at IS NOT NULL AND deleted_at IS NULL AND archived_at IS NULL",
    )
    _index_where("ix_task_expiring", "task", ["expires_at"], "state = 'offered' AND expires_at IS NOT NULL")
    finished = "finished_at IS NOT NULL AND deleted_at IS NULL AND archived_at IS NULL"
    _index_where("ix_task_finished", "task", ["partition_key", "status", "finished_at"], finished)
    _index_where("ix_task_finished_any", "task", ["status", "finished_at"], finished)
    _index_where("ix_task_held", "task", ["leased_until"], "state = 'held'")
    _index_where(
        "ix_task_list", "task", ["partition_key", "queue_pk", "id"], "deleted_at IS NULL AND archived_at IS NULL"
    )
    _index_where(
        "ix_task_list_state",
        "task",
        ["partition_key", "queue_pk", "state", "id", "origin"],
        "deleted_at IS NULL AND archived_at IS NULL",
    )
    _index_where(
        "ix_task_list_status",
        "task",
        ["partition_key", "queue_pk", "status", "id"],
        "deleted_at IS NULL AND archived_at IS NULL",
    )
    _index_where(
        "ix_task_offered", "task", ["partition_key", "status", "priority", "scheduled_at", "id"], "state = 'offered'"
    )
    _index_where(
        "ix_task_offered_created",
        "task",
        ["partition_key", "status", "priority", "created_at", "id"],
        "state = 'offered'",
    )
    _index_where(
        "ix_task_offered_modified",
        "task",
        ["partition_key", "status", "priority", "server_modified_at", "id"],
        "state = 'offered'",
    )
    _index_where(
        "ix_task_offered_queue",
        "task",
        ["partition_key", "queue_pk", "status", "priority", "scheduled_at", "id"],
        "state = 'offered'",
    )
    _index_where(
        "ix_task_offered_version", "task", ["partition_key", "status", "priority", "version", "id"], "state = 'offered'"
    )
    for name, column in (("created", "created_at"), ("modified", "server_modified_at"), ("version", "version")):
        _index_where(
            f"ix_task_offered_queue_{name}",
            "task",
            ["partition_key", "queue_pk", "status", "priority", column, "id"],
            "state = 'offered'",
        )
    _index_where("ix_task_pending", "task", ["partition_key", "pulled_at", "id"], "state = 'held'")
    op.create_index("ix_task_place", "task", ["partition_key", "queue_pk"])
    op.create_index("uq_task_identity", "task", ["partition_key", "task_id", "queue_pk"], unique=True)


def _task_offer_tag() -> None:
    op.create_table(
        "task_offer_tag",
        sa.Column("task_pk", Id, nullable=False),
        sa.Column("tag", Id, nullable=False),
        sa.Column("project_pk", Id, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("scheduled_at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("task_pk", "tag", name="pk_task_offer_tag"),
    )
    op.create_index(
        "ix_task_offer_tag_due",
        "task_offer_tag",
        ["project_pk", "tag", "status", "priority", "scheduled_at", "task_pk"],
    )


def _task_pull() -> None:
    op.create_table(
        "task_pull",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), autoincrement=True, nullable=False),
        sa.Column("project_pk", Id, nullable=False),
        sa.Column("queue_pk", Id, nullable=False),
        sa.Column("task_pk", Id, nullable=False),
        sa.Column("pull_id", Id, nullable=False),
        sa.Column("lease_token", sa.String, nullable=False),
        sa.Column("pulled_at", UtcTime, nullable=False),
        sa.Column("pulled_by", sa.String, nullable=False),
        sa.Column("actor", sa.String, nullable=False),
        sa.Column("confirmed_at", UtcTime),
        sa.Column("ended_at", UtcTime),
        sa.Column("ended_by", sa.String),
        sa.Column("outcome", sa.String),
        sa.Column("seconds", sa.Float),
        sa.CheckConstraint("outcome IN ('pushed', 'released', 'timed_out', 'revoked')", name="ck_task_pull_outcome"),
        sa.CheckConstraint("(ended_at IS NULL) = (outcome IS NULL)", name="ck_task_pull_ended"),
        sa.PrimaryKeyConstraint("id", name="pk_task_pull"),
    )
    _index_where("ix_task_pull_ended", "task_pull", ["ended_at"], "ended_at IS NOT NULL")
    op.create_index("ix_task_pull_project", "task_pull", ["project_pk", "queue_pk", "outcome", "pulled_by", "seconds"])
    op.create_index("ix_task_pull_pull", "task_pull", ["pull_id"])
    _index_where("ix_task_pull_seconds", "task_pull", ["project_pk", "seconds", "queue_pk"], "outcome = 'pushed'")
    op.create_index("ix_task_pull_task", "task_pull", ["task_pk", "id"])
    _index_where("uq_task_pull_open", "task_pull", ["task_pk"], "ended_at IS NULL", unique=True)


def _task_message() -> None:
    op.create_table(
        "task_message",
        sa.Column("task_pk", Id, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("role", sa.String, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("session_id", sa.String),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("task_pk", "number", name="pk_task_message"),
    )


def _task_log() -> None:
    op.create_table(
        "task_log",
        sa.Column("task_pk", Id, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("task_pk", "number", name="pk_task_log"),
    )


def _task_change() -> None:
    op.create_table(
        "task_change",
        sa.Column("project_pk", Id, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("task_id", Id, nullable=False),
        sa.Column("queue_id", Id, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("holder", sa.String),
        sa.Column("by", sa.String, nullable=False),
        sa.Column("at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("project_pk", "version", name="pk_task_change"),
    )
    op.create_index("ix_task_change_at", "task_change", ["at"])


def _pull_receipt() -> None:
    op.create_table(
        "pull_receipt",
        sa.Column("actor", Id, nullable=False),
        sa.Column("key", Id, nullable=False),
        sa.Column("asked", sa.String, nullable=False),
        sa.Column("pull_id", Id, nullable=False),
        sa.Column("at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("actor", "key", name="pk_pull_receipt"),
    )
    op.create_index("ix_pull_receipt_at", "pull_receipt", ["at"])


def _task_alarm() -> None:
    op.create_table(
        "task_alarm",
        sa.Column("project_pk", Id, nullable=False),
        sa.Column("rule", Id, nullable=False),
        sa.Column("since", UtcTime, nullable=False),
        sa.Column("value", sa.Float, nullable=False),
        sa.CheckConstraint("rule IN ('success_rate', 'overdue', 'requests', 'operations')", name="ck_task_alarm_rule"),
        sa.PrimaryKeyConstraint("project_pk", "rule", name="pk_task_alarm"),
    )


def _index_where(name: str, table: str, columns: list[str], where: str, *, unique: bool = False) -> None:
    """A partial index, the same on both databases."""
    op.create_index(name, table, columns, unique=unique, postgresql_where=sa.text(where), sqlite_where=sa.text(where))
