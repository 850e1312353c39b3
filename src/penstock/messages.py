"""Every message that may pass from one room to another: the map of the house.

A message is a frozen dataclass derived from `penstock.kernel.message.Message`. `wiring.ROUTES` says which handler hears
it, and which of them may leave the house by webhook. Of the fields of those, `user_id` and `merchant_id` say whose it
is: only their webhooks, and admins', get it.
"""

from dataclasses import dataclass

from penstock.kernel.message import Message


@dataclass(frozen=True, kw_only=True)
class WebhookPing(Message):
    """Someone wants to see whether a webhook works; it goes to that webhook alone."""

    webhook_id: str


@dataclass(frozen=True, kw_only=True)
class EtlTaskSubmitted(Message):
    """A document waits to be read, for the first time or again (`run`)."""

    task_id: int
    user_id: int
    project_id: int
    filename: str
    rule_id: int
    run: int

    def dedup_key(self) -> str:
        """A run begins once."""
        return f"{self.task_id}:{self.run}"


@dataclass(frozen=True, kw_only=True)
class EtlTaskEnded(Message):
    """A run of an etl task is over: completed, failed or cancelled."""

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
    """An etl task was deleted, and its papers go with it."""

    task_id: int
    user_id: int
    project_id: int
    filename: str
    run: int
