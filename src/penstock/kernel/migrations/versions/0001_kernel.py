"""The kernel's tables: leased queues, recorded moves, run state, limits."""

import sqlalchemy as sa
from alembic import op

from penstock.kernel.columns import Id, Json, UtcTime

revision = "0001"
down_revision = None

NO = sa.text("false")


def upgrade() -> None:
    """Make every table of the kernel."""
    _leased(
        "job",
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("payload", Json, nullable=False),
        sa.Column("most_attempts", sa.Integer, nullable=False),
        sa.Column("timeout_seconds", sa.Float, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("created_by", sa.String, nullable=False),
        sa.Column("finished_at", UtcTime),
        sa.Column("error_code", sa.String),
        sa.Column("error", sa.String),
        sa.CheckConstraint("most_attempts >= 1", name="ck_job_most_attempts"),
        states=("waiting", "running", "done", "failed", "cancelled"),
    )
    _index_where("ix_job_over", "job", ["state", "finished_at", "id"], "state IN ('done', 'failed', 'cancelled')")
    _leased(
        "outbox",
        sa.Column("channel", sa.String, nullable=False),
        sa.Column("dedup_key", sa.String, nullable=False),
        sa.Column("payload", Json, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("finished_at", UtcTime),
        sa.Column("error", sa.String),
        sa.UniqueConstraint("channel", "dedup_key", name="uq_outbox_channel_dedup_key"),
        states=("waiting", "sending", "sent", "dead"),
    )
    _index_where("ix_outbox_sent", "outbox", ["finished_at"], "state = 'sent'")
    _index_where("ix_outbox_dead", "outbox", ["id"], "state = 'dead'")
    _leased(
        "duty",
        sa.Column("finished_at", UtcTime),
        sa.Column("error", sa.String),
        states=("resting", "running"),
    )
    _partitions()
    _transitions()
    _run_state()
    _limits()


def _leased(table: str, *own: sa.schema.SchemaItem, states: tuple[str, ...]) -> None:
    """A table with leases: its first state waits, its second is held."""
    waiting, held = states[:2]
    op.create_table(
        table,
        sa.Column("id", Id, nullable=False),
        sa.Column("state", sa.String, nullable=False, server_default=waiting),
        sa.Column("partition_key", Id, nullable=False, server_default=""),
        sa.Column("priority", sa.SmallInteger, nullable=False, server_default="5"),
        sa.Column("scheduled_at", UtcTime, nullable=False),
        sa.Column("deferred", sa.Boolean, nullable=False, server_default=NO),
        sa.Column("lease_owner", sa.String),
        sa.Column("lease_token", sa.String),
        sa.Column("leased_until", UtcTime),
        sa.Column("lease_count", sa.Integer, nullable=False, server_default="0"),
        *own,
        sa.PrimaryKeyConstraint("id", name=f"pk_{table}"),
        sa.CheckConstraint(f"state IN ({', '.join(map(repr, states))})", name=f"ck_{table}_state"),
        sa.CheckConstraint(f"(state = '{held}') = (lease_token IS NOT NULL)", name=f"ck_{table}_token_while_held"),
        sa.CheckConstraint(f"(state = '{held}') = (leased_until IS NOT NULL)", name=f"ck_{table}_end_while_held"),
    )
    waits = f"state = '{waiting}'"
    ready = ["partition_key", "priority", "scheduled_at", "id"]
    _index_where(f"ix_{table}_ready", table, ready, f"{waits} AND NOT deferred", sqlite=f"{waits} AND deferred = 0")
    _index_where(
        f"ix_{table}_deferred", table, ["scheduled_at"], f"{waits} AND deferred", sqlite=f"{waits} AND deferred = 1"
    )
    _index_where(f"ix_{table}_held", table, ["leased_until", "partition_key"], f"state = '{held}'")


def _index_where(name: str, table: str, columns: list[str], where: str, *, sqlite: str | None = None) -> None:
    op.create_index(name, table, columns, postgresql_where=sa.text(where), sqlite_where=sa.text(sqlite or where))


def _partitions() -> None:
    op.create_table(
        "lease_partition",
        sa.Column("queue", Id, nullable=False),
        sa.Column("partition_key", Id, nullable=False),
        sa.Column("ceiling", sa.Integer),
        sa.Column("paused", sa.Boolean, nullable=False, server_default=NO),
        sa.Column("cooling_until", UtcTime),
        sa.PrimaryKeyConstraint("queue", "partition_key", name="pk_lease_partition"),
        sa.CheckConstraint("ceiling IS NULL OR ceiling >= 0", name="ck_lease_partition_ceiling_not_negative"),
    )


def _transitions() -> None:
    op.create_table(
        "state_transitions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), autoincrement=True, nullable=False),
        sa.Column("entity", sa.String, nullable=False),
        sa.Column("entity_id", Id, nullable=False),
        sa.Column("from_state", sa.String),
        sa.Column("to_state", sa.String, nullable=False),
        sa.Column("trigger", sa.String, nullable=False),
        sa.Column("actor", sa.String, nullable=False),
        sa.Column("at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_state_transitions"),
    )
    op.create_index("ix_state_transitions_entity", "state_transitions", ["entity", "entity_id", "id"])
    op.create_index("ix_state_transitions_at", "state_transitions", ["at"])


def _run_state() -> None:
    op.create_table(
        "run_state",
        sa.Column("key", Id, nullable=False),
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("order", sa.BigInteger, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("final", sa.Boolean, nullable=False),
        sa.Column("fields", Json, nullable=False),
        sa.Column("updated_at", UtcTime, nullable=False),
        sa.Column("expires_at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_run_state"),
    )
    op.create_index("ix_run_state_status", "run_state", ["status", "key"])
    op.create_index("ix_run_state_expires_at", "run_state", ["expires_at"])


def _limits() -> None:
    op.create_table(
        "rate_bucket",
        sa.Column("key", sa.String, nullable=False),
        sa.Column("full_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_rate_bucket"),
    )
    op.create_index("ix_rate_bucket_full_at", "rate_bucket", ["full_at"])
    op.create_table(
        "quota_window",
        sa.Column("key", sa.String, nullable=False),
        sa.Column("until", UtcTime, nullable=False),
        sa.Column("used", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("key", "until", name="pk_quota_window"),
    )
    op.create_index("ix_quota_window_until", "quota_window", ["until"])
