"""Every message that one module may send to another: the map of the product.

A message is a frozen dataclass derived from `penstock.kernel.message.Message`. `wiring` routes each to its handlers and
says which messages are delivered to webhooks. In those, `user_id` and `merchant_id` name the owner: only webhooks of
the owner and of admins receive the message.
"""

from dataclasses import dataclass

from penstock.kernel.message import Message


@dataclass(frozen=True, kw_only=True)
class WebhookPing(Message):
    """A test message, delivered to one webhook only."""

    webhook_id: str


@dataclass(frozen=True, kw_only=True)
class EtlTaskSubmitted(Message):
    """An etl task was queued, for the first time or for a retry (`run` counts them)."""

    task_id: int
    user_id: int
    project_id: int
    filename: str
    rule_id: int
    run: int

    def dedup_key(self) -> str:
        """A run is submitted once."""
        return f"{self.task_id}:{self.run}"


@dataclass(frozen=True, kw_only=True)
class EtlTaskEnded(Message):
    """A run of an etl task ended: completed, failed or cancelled."""

    task_id: int
    user_id: int
    project_id: int
    filename: str
    run: int
    status: str
    output_path: str | None = None
    error: str | None = None
    error_code: str | None = None
    error_stage: str | None = None

    def dedup_key(self) -> str:
        """A run ends once."""
        return f"{self.task_id}:{self.run}"


@dataclass(frozen=True, kw_only=True)
class EtlTaskRemoved(Message):
    """An etl task was deleted together with its artifacts."""

    task_id: int
    user_id: int
    project_id: int
    filename: str
    run: int
