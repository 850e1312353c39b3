"""The tables of notify."""

import sqlalchemy as sa
from alembic import op

from penstock.kernel.columns import Id, Json, UtcTime

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Make them."""
    _webhook()
    _webhook_delivery()


def _webhook() -> None:
    op.create_table(
        "webhook",
        sa.Column("id", Id, nullable=False),
        sa.Column("user_id", sa.BigInteger, nullable=False),
        sa.Column("merchant_id", sa.BigInteger),
        sa.Column("sees_all", sa.Boolean, nullable=False),
        sa.Column("url", sa.String, nullable=False),
        sa.Column("channels", Json, nullable=False),
        sa.Column("secret", sa.String, nullable=False),
        sa.Column("previous_secret", sa.String),
        sa.Column("previous_until", UtcTime),
        sa.Column("active", sa.Boolean, nullable=False),
        sa.Column("disabled_reason", sa.String),
        sa.Column("failing_since", UtcTime),
        sa.Column("failed_in_row", sa.Integer, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("created_by", sa.String, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_webhook"),
        sa.CheckConstraint("(previous_secret IS NULL) = (previous_until IS NULL)", name="ck_webhook_previous"),
        sa.CheckConstraint("NOT active OR disabled_reason IS NULL", name="ck_webhook_reason_while_off"),
        sa.CheckConstraint("failed_in_row >= 0", name="ck_webhook_failed_in_row"),
    )
    op.create_index("ix_webhook_user", "webhook", ["sees_all", "user_id", "id"])
    op.create_index("ix_webhook_merchant", "webhook", ["sees_all", "merchant_id", "id"])


def _webhook_delivery() -> None:
    op.create_table(
        "webhook_delivery",
        sa.Column("webhook_id", Id, nullable=False),
        sa.Column("id", Id, nullable=False),
        sa.Column("message_id", Id, nullable=False),
        sa.Column("channel", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("turn", sa.Integer, nullable=False),
        sa.Column("status_code", sa.Integer),
        sa.Column("error", sa.String),
        sa.Column("response", sa.String),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("last_tried_at", UtcTime),
        sa.Column("next_try_at", UtcTime),
        sa.Column("finished_at", UtcTime),
        sa.PrimaryKeyConstraint("webhook_id", "id", name="pk_webhook_delivery"),
        sa.UniqueConstraint("webhook_id", "message_id", name="uq_webhook_delivery_webhook_id_message_id"),
        sa.CheckConstraint("state IN ('pending', 'delivered', 'failed')", name="ck_webhook_delivery_state"),
        sa.CheckConstraint(
            "(state = 'pending') = (next_try_at IS NOT NULL)", name="ck_webhook_delivery_next_try_while_pending"
        ),
        sa.CheckConstraint(
            "(state = 'pending') = (finished_at IS NULL)", name="ck_webhook_delivery_finished_when_over"
        ),
        sa.CheckConstraint("attempts >= 0 AND turn >= 1", name="ck_webhook_delivery_counts"),
    )
    op.create_index("ix_webhook_delivery_state", "webhook_delivery", ["webhook_id", "state", "id"])
    op.create_index("ix_webhook_delivery_created_at", "webhook_delivery", ["created_at"])
